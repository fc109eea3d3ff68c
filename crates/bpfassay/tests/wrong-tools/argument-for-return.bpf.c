// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Takes the flags of vfs_readv, its fifth argument, for what it returned. That of vfs_read is right.
#include "wrong.h"
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count(ctx, READ, 4); }
SEC("fexit/vfs_readv") int on_readv(u64 *ctx) { return count(ctx, READV, 4); }
