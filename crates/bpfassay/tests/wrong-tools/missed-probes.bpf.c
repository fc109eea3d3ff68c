// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Traces what it does itself: its second program is on the kernel's function that both programs call.
#include "wrong.h"
u64 updates;
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count(ctx, READ, 4); }
SEC("fentry/htab_map_update_elem") int on_update(u64 *ctx)
{
	const struct key key = { .operation = READV };
	const struct value value = { .calls = __sync_fetch_and_add(&updates, 1) + 1 };
	bpf_map_update_elem(&counts, &key, &value, 0);
	return 0;
}
