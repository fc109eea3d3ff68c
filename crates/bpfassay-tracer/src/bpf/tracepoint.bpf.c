// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * Tracepoints of single system calls (events/syscalls/sys_enter_NAME and sys_exit_NAME): counts what was returned. The
 * loader attaches the two programs to one tracepoint each per system call.
 */
#include "syscalls.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* The kernel refuses a program that reads more arguments than the system call has. */
SEC("tracepoint/enter")
int syscall_enter(struct trace_event_raw_sys_enter *ctx)
{
	syscall_begins(ctx->id, ctx->args[0], 0, 0);
	return 0;
}

/* For those that need the second or third one. */
SEC("tracepoint/enter_3")
int syscall_enter_3(struct trace_event_raw_sys_enter *ctx)
{
	syscall_begins(ctx->id, ctx->args[0], ctx->args[1], ctx->args[2]);
	return 0;
}

SEC("tracepoint/exit")
int syscall_exit(struct trace_event_raw_sys_exit *ctx)
{
	call_ends(ctx->ret);
	return 0;
}
