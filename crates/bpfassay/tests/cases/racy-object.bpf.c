// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Adds to a value that all CPUs share, without atomic instructions.
#include "../wrong-tools/wrong.h"
SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	const struct file *file = (const void *)ctx[0];
	if (!is_file(file))
		return 0;
	struct key key = key_of(file, READ);
	volatile struct value *value = value_of(&key);
	if (!value)
		return 0;
	value->calls += 1;
	if ((long)ctx[4] > 0)
		value->bytes += ctx[4];
	return 0;
}
