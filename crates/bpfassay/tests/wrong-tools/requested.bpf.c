// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts at the entry, where only the bytes asked for are known.
#include "wrong.h"
SEC("fentry/vfs_read") int on_read(u64 *ctx) { return count(ctx, READ, 2); }
