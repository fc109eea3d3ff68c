// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts right, with a map of 160 MiB besides.
#include "wrong.h"
struct {
	__uint(type, ARRAY);
	__uint(max_entries, 160 << 10);
	__type(key, u32);
	__type(value, char[1024]);
} history SEC(".maps");
SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	u32 first = 0;
	bpf_map_lookup_elem(&history, &first);
	return count(ctx, READ, 4);
}
