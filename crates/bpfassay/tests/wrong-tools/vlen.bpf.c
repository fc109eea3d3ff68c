// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Takes the third argument of vfs_readv, the number of pieces, for a number of bytes, as it is that of vfs_read, whose bytes are right.
#include "wrong.h"
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count(ctx, READ, 4); }
SEC("fentry/vfs_readv") int on_readv(u64 *ctx) { return count(ctx, READV, 2); }
