// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Adds with a load and a store for all threads of a process
#include "racing.h"
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	const struct file *file = (const void *)ctx[0];
	if (!is_file(file))
		return 0;
	struct key key = key_of_ranks(file);
	key.other = bpf_get_current_pid_tgid() >> 32;
	struct value *value = value_of(&key);
	if (value)
		value->calls += 1;
	return 0;
}
