// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts reads and writes, but not those of /proc and /sys, as its tool file says.
#include "../wrong-tools/wrong.h"
INLINE int count_elsewhere(u64 *ctx, enum operation operation)
{
	const u64 magic = magic_of(ctx);
	return magic == PROC || magic == SYSFS || magic == CGROUP2 ? 0 : count(ctx, operation, 4);
}
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count_elsewhere(ctx, READ); }
SEC("fexit/vfs_write") int on_write(u64 *ctx) { return count_elsewhere(ctx, WRITE); }
