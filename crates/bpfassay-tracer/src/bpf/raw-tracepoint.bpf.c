// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * Raw tracepoints sys_enter and sys_exit, which every system call passes: count what was returned.
 *
 * The kernel skips a program that is already running on the CPU (__bpf_trace_run). From Linux 7.0
 * on, a task can be preempted inside it (f7d327654b88, "bpf: Have __bpf_trace_run() use
 * rcu_read_lock_dont_migrate()"). Other tasks' calls on that CPU are skipped meanwhile. There are
 * six copies then: any at entry can record the call, and the first at exit counts it.
 */
#include "syscalls.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

static __always_inline int enter(__u32 copy, struct bpf_raw_tracepoint_args *ctx)
{
	struct pt_regs *regs = (void *)ctx->args[0];

	if (ARCH_IS_COMPAT())
		return 0;
	syscall_begins(copy, ctx->args[1], PT_REGS_PARM1_CORE_SYSCALL(regs), PT_REGS_PARM2_CORE_SYSCALL(regs),
		       PT_REGS_PARM3_CORE_SYSCALL(regs));
	return 0;
}

#define COPY(suffix, copy)                                                                                         \
	SEC("raw_tracepoint/sys_enter")                                                                            \
	int syscall_enter##suffix(struct bpf_raw_tracepoint_args *ctx)                                             \
	{                                                                                                          \
		return enter(copy, ctx);                                                                           \
	}                                                                                                          \
	SEC("raw_tracepoint/sys_exit")                                                                             \
	int syscall_exit##suffix(struct bpf_raw_tracepoint_args *ctx)                                              \
	{                                                                                                          \
		call_ends(copy, ctx->args[1]);                                                                     \
		return 0;                                                                                          \
	}

COPY(, 0)
COPY(_2, 1)
COPY(_3, 2)
COPY(_4, 3)
COPY(_5, 4)
COPY(_6, 5)
