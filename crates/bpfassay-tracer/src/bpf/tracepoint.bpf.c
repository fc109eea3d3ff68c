// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * Tracepoints of single system calls (events/syscalls/sys_enter_NAME and sys_exit_NAME): counts what was returned. The
 * loader attaches each program to one tracepoint per system call.
 *
 * Where tasks are preempted inside the kernel there are six copies of each, as in raw-tracepoint.bpf.c: 7.2 runs these
 * programs with preemption enabled (trace_call_bpf_faultable, called by perf_syscall_enter in
 * kernel/trace/trace_syscalls.c) and skips one that is running on the CPU already.
 */
#include "syscalls.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/*
 * The kernel refuses a program that reads more arguments than the system call has. In what it hands to these programs the
 * number is an int (struct syscall_tp_t of kernel/trace/trace_syscalls.c), not a long as in the record of the event that
 * vmlinux.h has: the upper half is whatever was on the stack, unless the kernel clears that (CONFIG_INIT_STACK_ALL_ZERO).
 */
#define NUMBER(ctx) ((__u32)(ctx)->id)
#define COPY(suffix, copy)                                                                                         \
	SEC("tracepoint/enter")                                                                                    \
	int syscall_enter##suffix(struct trace_event_raw_sys_enter *ctx)                                                   \
	{                                                                                                          \
		syscall_begins(copy, NUMBER(ctx), ctx->args[0], 0, 0);                                             \
		return 0;                                                                                          \
	}                                                                                                          \
	SEC("tracepoint/enter_3")                                                                                  \
	int syscall_enter_of_three##suffix(struct trace_event_raw_sys_enter *ctx)                                          \
	{                                                                                                          \
		syscall_begins(copy, NUMBER(ctx), ctx->args[0], ctx->args[1], ctx->args[2]);                       \
		return 0;                                                                                          \
	}                                                                                                          \
	SEC("tracepoint/exit")                                                                                     \
	int syscall_exit##suffix(struct trace_event_raw_sys_exit *ctx)                                                     \
	{                                                                                                          \
		call_ends(copy, ctx->ret);                                                                         \
		return 0;                                                                                          \
	}

COPY(, 0)
COPY(_2, 1)
COPY(_3, 2)
COPY(_4, 3)
COPY(_5, 4)
COPY(_6, 5)
