// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Is on a function of the virtual file system and on one of tmpfs that it calls: reads of tmpfs count twice, others once.
#include "wrong.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct kiocb { struct file *ki_filp; };
#pragma clang attribute pop

SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count(ctx, READ, 4); }
SEC("fexit/shmem_file_read_iter") int on_read_of_tmpfs(u64 *ctx)
{
	const struct kiocb *request = (const void *)ctx[0];
	return count_returned(request->ki_filp, READ, ctx[2]);
}
