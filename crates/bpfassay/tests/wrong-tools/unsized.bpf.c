// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Leaves the size of a map to a loader of its own, which bpfassay does not have.
#include "wrong.h"
struct { __uint(type, ARRAY); __type(key, u32); __type(value, u64); } per_cpu_state SEC(".maps");
SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	u32 first = 0;
	u64 *calls = bpf_map_lookup_elem(&per_cpu_state, &first);
	if (calls)
		__atomic_fetch_add(calls, 1, __ATOMIC_RELAXED);
	return 0;
}
