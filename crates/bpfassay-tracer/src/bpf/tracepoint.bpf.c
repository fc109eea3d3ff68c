// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * Tracepoints of single system calls (events/syscalls/sys_enter_NAME, sys_exit_NAME): count what
 * was returned. The loader attaches each program to one tracepoint per system call.
 *
 * If tasks can be preempted inside the kernel, there are six copies, as in raw-tracepoint.bpf.c.
 * 7.2 runs these programs with preemption enabled (trace_call_bpf_faultable, from
 * perf_syscall_enter, kernel/trace/trace_syscalls.c) and skips one that already runs on the CPU.
 */
#include "syscalls.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/*
 * The kernel refuses a program that reads more arguments than the system call has. The number in
 * this context is an int (struct syscall_tp_t in kernel/trace/trace_syscalls.c), but a long in
 * vmlinux.h. The upper half is arbitrary, unless CONFIG_INIT_STACK_ALL_ZERO clears the stack.
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
