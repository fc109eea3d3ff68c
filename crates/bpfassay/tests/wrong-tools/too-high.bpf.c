// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts each event twice.
#include "wrong.h"
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count(ctx, READ, 4); }
SEC("fexit/vfs_read") int on_read_again(u64 *ctx) { return count(ctx, READ, 4); }
