// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts reads on procfs, though its figures are of tmpfs.
#include "wrong.h"
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return magic_of(ctx) == PROC ? count(ctx, READ, 4) : 0; }
