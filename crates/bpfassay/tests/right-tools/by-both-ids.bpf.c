// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts reads by the ids of process and thread in one number.
#include "../wrong-tools/wrong.h"

// include/uapi/linux/bpf.h
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;

struct {
	__uint(type, HASH);
	__uint(max_entries, 1024);
	__type(key, u64);
	__type(value, struct value);
} by_both SEC(".maps");

SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	const u64 both = bpf_get_current_pid_tgid();
	if (!is_file((const void *)ctx[0]))
		return 0;
	return add(value_in(&by_both, &both), ctx[4]);
}
