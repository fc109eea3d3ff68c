// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * No program is on the path of a call: the kernel itself accounts what each task reads and writes
 * (struct task_io_accounting; CONFIG_TASK_XACCT). An iterator reads all tasks' accounts at each
 * reading, the tracepoint of task exits those of exiting tasks. Calls cost no more than before.
 *
 * The file is not known. A task has one account for all mounts, pipes and terminals, and for readv,
 * sendfile and copy_file_range as well as read (add_rchar, inc_syscr etc. in fs/read_write.c).
 */
#include "counters.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* include/linux/sched.h: set before the tracepoint of the exit is reached. */
#define PF_EXITING 0x00000004

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* The account of one task, or the sum over tasks that have exited. */
struct task_account {
	__u64 cgroup;
	__u64 read_calls;
	__u64 read_bytes;
	__u64 write_calls;
	__u64 write_bytes;
};

/* Sums of tasks that have exited, by cgroup. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, COUNTER_KEYS);
	__type(key, __u64);
	__type(value, struct task_account);
} exited SEC(".maps");

/* An exiting task is accounted for by its exit, already or soon. */
SEC("iter/task")
int live_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	if (!task || task->flags & PF_EXITING)
		return 0;

	struct task_account account = {
		.cgroup = task->cgroups->dfl_cgrp->kn->id,
		.read_calls = task->ioac.syscr,
		.read_bytes = task->ioac.rchar,
		.write_calls = task->ioac.syscw,
		.write_bytes = task->ioac.wchar,
	};

	bpf_seq_write(ctx->meta->seq, &account, sizeof(account));
	return 0;
}

SEC("raw_tp/sched_process_exit")
int BPF_PROG(task_exit, struct task_struct *task)
{
	__u64 cgroup = bpf_get_current_cgroup_id();
	struct task_account *account = bpf_map_lookup_elem(&exited, &cgroup);

	if (!account) {
		const struct task_account zero = {};

		bpf_map_update_elem(&exited, &cgroup, &zero, BPF_NOEXIST);
		account = bpf_map_lookup_elem(&exited, &cgroup);
		if (!account) {
			tally_add(TALLY_INSERT_FAILURES);
			return 0;
		}
	}
	account->read_calls += BPF_CORE_READ(task, ioac.syscr);
	account->read_bytes += BPF_CORE_READ(task, ioac.rchar);
	account->write_calls += BPF_CORE_READ(task, ioac.syscw);
	account->write_bytes += BPF_CORE_READ(task, ioac.wchar);
	return 0;
}
