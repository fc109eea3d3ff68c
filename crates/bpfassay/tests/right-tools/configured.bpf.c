// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts as by-key.bpf.c does, once its maps and constants are set; before that, it counts nothing.
#include "../wrong-tools/wrong.h"

enum { PERCPU_ARRAY = 6, CGROUP2_SUPER_MAGIC = 0x63677270 };

struct conf {
	u64 subsystem;
	u64 magic;
	struct { char mount[16]; int level; } inner;
};

struct {
	__uint(type, HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct conf);
} conf_map SEC(".maps");

struct {
	__uint(type, PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, long);
} gate SEC(".maps");

const volatile int enabled = 0;
const volatile char name[8] = "";

INLINE int is_set(void)
{
	const u32 zero = 0, one = 1;
	const struct conf *conf = bpf_map_lookup_elem(&conf_map, &zero);
	const long *open = bpf_map_lookup_elem(&gate, &one);
	if (!conf || conf->magic != CGROUP2_SUPER_MAGIC || conf->subsystem || conf->inner.level != -2)
		return 0;
	return conf->inner.mount[1] == 'm' && open && *open == -1 && enabled == -7 && name[2] == 'r' && !name[3];
}

SEC("fexit/vfs_read") int on_read(u64 *ctx) { return is_set() ? count(ctx, READ, 4) : 0; }
SEC("fexit/vfs_write") int on_write(u64 *ctx) { return is_set() ? count(ctx, WRITE, 4) : 0; }
