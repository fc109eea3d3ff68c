// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts reads in one map and writes in another.
#include "../wrong-tools/wrong.h"

struct {
	__uint(type, HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, u64);
} written SEC(".maps");

SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count(ctx, READ, 4); }

SEC("fexit/vfs_write") int on_write(u64 *ctx)
{
	const u64 cgroup = bpf_get_current_cgroup_id(), zero = 0;
	const long returned = ctx[4];
	if (!is_file((const void *)ctx[0]) || returned <= 0)
		return 0;
	if (!bpf_map_lookup_elem(&written, &cgroup))
		bpf_map_update_elem(&written, &cgroup, &zero, NOEXIST);
	u64 *bytes = bpf_map_lookup_elem(&written, &cgroup);
	if (bytes)
		__atomic_fetch_add(bytes, returned, __ATOMIC_RELAXED);
	return 0;
}
