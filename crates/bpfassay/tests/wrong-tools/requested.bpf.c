// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts at the entry, where only the bytes asked for are known; vectored reads at the exit, which is right.
#include "wrong.h"
SEC("fexit/vfs_readv") int on_readv(u64 *ctx) { return count(ctx, READV, 5); }
SEC("fentry/vfs_read") int on_read(u64 *ctx) { return count(ctx, READ, 2); }
