// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts reads and writes on tmpfs.
#include "../wrong-tools/wrong.h"
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return magic_of(ctx) == TMPFS ? count(ctx, READ, 4) : 0; }
SEC("fexit/vfs_write") int on_write(u64 *ctx) { return magic_of(ctx) == TMPFS ? count(ctx, WRITE, 4) : 0; }
