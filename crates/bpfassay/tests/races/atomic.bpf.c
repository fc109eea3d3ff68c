// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Adds with an atomic instruction
#include "racing.h"
SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	const struct file *file = (const void *)ctx[0];
	if (!is_file(file))
		return 0;
	struct key key = key_of_ranks(file);
	add(value_of(&key), 0);
	return 0;
}
