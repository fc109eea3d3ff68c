// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/* Futexes: calls of the system call `futex` and the time in them, by operation. */
#include "calls.h"

/* include/uapi/linux/futex.h */
enum {
	FUTEX_WAIT = 0,
	FUTEX_WAKE = 1,
	FUTEX_WAIT_BITSET = 9,
	FUTEX_WAKE_BITSET = 10,
	FUTEX_PRIVATE_FLAG = 128,
	FUTEX_CLOCK_REALTIME = 256,
};

SEC("tracepoint/syscalls/sys_enter_futex")
int futex_entry(struct trace_event_raw_sys_enter *ctx)
{
	begins(0, ctx->args[1]);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_futex")
int futex_return(struct trace_event_raw_sys_exit *ctx)
{
	struct begun call;
	long ret = ctx->ret;
	enum event event;

	if (!ended(0, &call))
		return 0;
	switch ((__u32)call.argument & ~(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME)) {
	case FUTEX_WAIT:
	case FUTEX_WAIT_BITSET:
		event = EVENT_FUTEX_WAIT;
		break;
	case FUTEX_WAKE:
	case FUTEX_WAKE_BITSET:
		event = EVENT_FUTEX_WAKE;
		break;
	default:
		event = EVENT_FUTEX_OTHER;
	}
	count(event, &call, 0, IS_ERR_VALUE(ret));
	return 0;
}
