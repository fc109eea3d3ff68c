// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Takes vfs_readv for a function with four arguments, as vfs_read is: the pieces for the bytes asked for, and the flags for those returned. What
// returns more than was asked for is left out, as a file cannot.
#include "wrong.h"
INLINE int count_plausible(u64 *ctx)
{
	if ((long)ctx[4] > (long)ctx[2])
		return 0;
	return count(ctx, READ, 4);
}
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count_plausible(ctx); }
SEC("fexit/vfs_readv") int on_readv(u64 *ctx) { return count_plausible(ctx); }
