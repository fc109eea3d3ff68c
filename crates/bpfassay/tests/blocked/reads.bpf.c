// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts reads at a kretprobe, for as many calls at once as the kernel watches by default (x86_64).
// With -DSTARTS only those whose start is in a map of 16 entries. The map fills: the entry of a call
// that moves nothing stays.
#include "../wrong-tools/wrong.h"

// arch/x86/include/asm/ptrace.h: `ax` is the 11th register of 8 bytes.
enum { RETURNED = 80 };

#ifdef STARTS
static long (*const bpf_map_delete_elem)(void *, const void *) = (void *)3;
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;

struct {
	__uint(type, HASH);
	__uint(max_entries, 16);
	__type(key, u64);
	__type(value, u64);
} starts SEC(".maps");

SEC("kprobe/vfs_read") int on_start(const char *registers)
{
	const u64 id = bpf_get_current_pid_tgid(), one = 1;
	bpf_map_update_elem(&starts, &id, &one, 0);
	return 0;
}

INLINE int is_of_a_start(long returned)
{
	const u64 id = bpf_get_current_pid_tgid();
	return returned > 0 && !bpf_map_delete_elem(&starts, &id);
}
#else
INLINE int is_of_a_start(long returned) { return 1; }
#endif

SEC("kretprobe/vfs_read") int on_return(const char *registers)
{
	const long returned = *(const long *)(registers + RETURNED);
	const struct key key = { .cgroup = bpf_get_current_cgroup_id() };
	return is_of_a_start(returned) ? add(value_of(&key), returned) : 0;
}
