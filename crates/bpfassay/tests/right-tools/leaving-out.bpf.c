// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts reads and writes, but not those of /proc and /sys, as its tool file says.
#include "../wrong-tools/wrong.h"
struct super_block___magic { unsigned long s_magic; } __attribute__((preserve_access_index));

// include/uapi/linux/magic.h; the cgroup file system is mounted below /sys.
enum { PROC = 0x9fa0, SYSFS = 0x62656572, CGROUP2 = 0x63677270 };

INLINE int count_elsewhere(u64 *ctx, enum operation operation)
{
	const struct file *file = (const void *)ctx[0];
	const struct super_block___magic *sb = (const void *)file->f_path.mnt->mnt_sb;
	u64 magic = sb->s_magic;
	return magic == PROC || magic == SYSFS || magic == CGROUP2 ? 0 : count(ctx, operation, 4);
}
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count_elsewhere(ctx, READ); }
SEC("fexit/vfs_write") int on_write(u64 *ctx) { return count_elsewhere(ctx, WRITE); }
