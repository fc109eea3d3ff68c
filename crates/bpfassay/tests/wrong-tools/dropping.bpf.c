// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Loses every second event.
#include "wrong.h"
u64 serial;
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return __sync_fetch_and_add(&serial, 1) & 1 ? 0 : count(ctx, READ, 4); }
