// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Looks a value up, and updates the map with a new one
#include "racing.h"
SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	const struct file *file = (const void *)ctx[0];
	if (!is_file(file))
		return 0;
	struct key key = key_of_ranks(file);
	struct value next = {};
	const struct value *value = bpf_map_lookup_elem(&counts, &key);
	if (value)
		next.calls = value->calls;
	next.calls += 1;
	bpf_map_update_elem(&counts, &key, &next, 0);
	return 0;
}
