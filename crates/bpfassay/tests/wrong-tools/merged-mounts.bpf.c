// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts everything under the first device that it sees.
#include "wrong.h"
u32 first;
SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	const struct file *file = (const void *)ctx[0];
	if (!is_file(file))
		return 0;
	struct key key = key_of(file, READ);
	const u32 known = __sync_val_compare_and_swap(&first, 0, key.device);
	if (known)
		key.device = known;
	return add(value_of(&key), ctx[4]);
}
