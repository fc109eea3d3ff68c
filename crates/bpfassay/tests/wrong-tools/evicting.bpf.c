// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// An LRU map that is too small for what it is to hold: every read of the workload puts more into
// it, and what was written before is thrown out.
#define COUNTS_TYPE LRU_HASH
#define COUNTS_ENTRIES 16
#include "wrong.h"
u64 serial;
SEC("fexit/vfs_write") int on_write(u64 *ctx) { return count(ctx, WRITE, 4); }
SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	const struct file *file = (const void *)ctx[0];
	if (!is_file(file))
		return 0;
	struct key key = key_of(file, READ);
	/* The agent reads between two reports, too. */
	if (key.comm[0] != 'i' || key.comm[1] != 'o' || key.comm[2] != 'r')
		return 0;
#pragma unroll
	for (int i = 0; i < 40; i++) {
		key.other = __sync_fetch_and_add(&serial, 1) + 1;
		value_of(&key);
	}
	return 0;
}
