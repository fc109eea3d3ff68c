// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts right; its loader pins it, so that it stays when the loader has gone.
#include "wrong.h"
SEC("fexit/vfs_read") int stays(u64 *ctx) { return count(ctx, READ, 4); }
