// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts reads by the ids of process and thread; with -DLOSES every second one only, with
// -DADDS_ERRORS with what failed ones return.
#include "../wrong-tools/wrong.h"

// include/uapi/linux/bpf.h
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;

struct ids { u32 process, thread; };
struct {
	__uint(type, HASH);
	__uint(max_entries, 1024);
	__type(key, struct ids);
	__type(value, struct value);
} by_id SEC(".maps");

#ifdef LOSES
u64 serial;
#endif

SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	const u64 both = bpf_get_current_pid_tgid();
	const struct ids ids = { both >> 32, both };
	if (!is_file((const void *)ctx[0]))
		return 0;
#ifdef LOSES
	if (__sync_fetch_and_add(&serial, 1) & 1)
		return 0;
#endif
	struct value *value = value_in(&by_id, &ids);
#ifdef ADDS_ERRORS
	if (value && (long)ctx[4] < 0)
		__atomic_fetch_add(&value->bytes, ctx[4], __ATOMIC_RELAXED);
#endif
	return add(value, ctx[4]);
}
