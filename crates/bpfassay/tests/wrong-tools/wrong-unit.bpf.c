// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts KiB, and calls them bytes.
#include "wrong.h"
SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	const struct file *file = (const void *)ctx[0];
	if (!is_file(file))
		return 0;
	struct key key = key_of(file, READ);
	return add(value_of(&key), (long)ctx[4] >> 10);
}
