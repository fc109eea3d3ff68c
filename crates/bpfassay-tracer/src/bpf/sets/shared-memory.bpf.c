// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/* Shared memory: System V segments created, attached and detached, and shared mappings. */
#include "calls.h"

/* include/uapi/linux/mman.h, include/uapi/asm-generic/mman-common.h */
enum { MAP_SHARED = 0x01, MAP_SHARED_VALIDATE = 0x03, MAP_TYPE = 0x0f };

SYSCALL(shmget, EVENT_SHMGET)
SYSCALL(shmat, EVENT_SHMAT)
SYSCALL(shmdt, EVENT_SHMDT)

SEC("tracepoint/syscalls/sys_enter_mmap")
int mmap_entry(struct trace_event_raw_sys_enter *ctx)
{
	__u32 type = ctx->args[3] & MAP_TYPE;

	if (type == MAP_SHARED || type == MAP_SHARED_VALIDATE)
		begins(EVENT_MAP_SHARED, ctx->args[1]);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_mmap")
int mmap_return(struct trace_event_raw_sys_exit *ctx)
{
	struct begun call;
	long ret = ctx->ret;
	bool failed = IS_ERR_VALUE(ret);

	if (ended(EVENT_MAP_SHARED, &call))
		count(EVENT_MAP_SHARED, &call, failed ? 0 : call.argument, failed);
	return 0;
}
