// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Says that it counts reads and writes, and hooks vfs_read alone.
#include "wrong.h"
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count(ctx, READ, 4); }
