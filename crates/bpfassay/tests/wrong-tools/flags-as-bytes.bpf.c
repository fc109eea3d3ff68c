// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Takes vfs_readv for a function with four arguments, as vfs_read is, and adds up the flags of its calls: RWF_NOWAIT is 8 bytes.
#include "wrong.h"
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count(ctx, READ, 4); }
SEC("fexit/vfs_readv") int on_readv(u64 *ctx) { return count(ctx, READ, 4); }
