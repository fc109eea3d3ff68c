// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Makes room for a new key, and counts from its second call on.
#include "wrong.h"
INLINE int count_from_second(u64 *ctx, enum operation operation)
{
	const struct file *file = (const void *)ctx[0];
	if (!is_file(file))
		return 0;
	struct key key = key_of(file, operation);
	key.cgroup = key.device = 0;
	struct value *value = bpf_map_lookup_elem(&counts, &key);
	if (value)
		return add(value, ctx[4]);
	const struct value zero = {};
	return bpf_map_update_elem(&counts, &key, &zero, NOEXIST) & 0;
}
SEC("fexit/vfs_read") int on_read(u64 *ctx) { return count_from_second(ctx, READ); }
SEC("fexit/vfs_write") int on_write(u64 *ctx) { return count_from_second(ctx, WRITE); }
