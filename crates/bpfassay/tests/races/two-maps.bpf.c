// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Adds in two maps with a load and a store each
#include "racing.h"
struct {
	__uint(type, ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct value);
} total SEC(".maps");
static const u32 zero;
SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	const struct file *file = (const void *)ctx[0];
	if (!is_file(file))
		return 0;
	struct key key = key_of_ranks(file);
	struct value *value = value_of(&key), *all = value_in(&total, &zero);
	if (!value || !all)
		return 0;
	value->calls += 1;
	all->calls += 1;
	return 0;
}
