// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Has room for one process only.
#define COUNTS_TYPE HASH
#define COUNTS_ENTRIES 1
#include "wrong.h"
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count(ctx, READ, 4); }
