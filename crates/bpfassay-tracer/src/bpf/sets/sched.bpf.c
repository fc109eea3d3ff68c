// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * Scheduling: how often a process was taken off a CPU, and how long it waited, runnable, for one.
 *
 * The arguments of sched_switch are (preempt, prev, next) since 2.6 (include/trace/events/sched.h).
 * Only 5.18 has `prev`'s state in between, which 9c2136be0878 put last.
 */
#include "summary.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Before 5.14 (2f064a59a11f). */
struct task_struct___before_5_14 {
	long state;
};

#pragma clang attribute pop

/* Time since which a thread waits for a CPU. The entry is deleted when the thread gets one. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, __u64);
} waiting SEC(".maps");

static __always_inline void waits(__u32 thread)
{
	__u64 now = bpf_ktime_get_ns();

	/* The idle task of each CPU is thread 0. */
	if (thread && bpf_map_update_elem(&waiting, &thread, &now, BPF_ANY))
		lose(LOST_BEGINNING);
}

static __always_inline bool can_run(const struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return BPF_CORE_READ(task, __state) == 0;
	return BPF_CORE_READ((const struct task_struct___before_5_14 *)task, state) == 0;
}

static __always_inline __u64 cgroup_of(const struct task_struct *task)
{
	return BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
}

SEC("raw_tp/sched_wakeup")
int BPF_PROG(woken, struct task_struct *task)
{
	waits(BPF_CORE_READ(task, pid));
	return 0;
}

SEC("raw_tp/sched_wakeup_new")
int BPF_PROG(begun, struct task_struct *task)
{
	waits(BPF_CORE_READ(task, pid));
	return 0;
}

SEC("raw_tp/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 thread = BPF_CORE_READ(prev, pid);
	const __u64 *since;

	if (thread) {
		add(cgroup_of(prev), BPF_CORE_READ(prev, tgid), EVENT_SWITCH, 0, 0, 0);
		if (preempt || can_run(prev))
			waits(thread);
	}
	thread = BPF_CORE_READ(next, pid);
	since = bpf_map_lookup_elem(&waiting, &thread);
	if (!thread || !since)
		return 0;
	add(cgroup_of(next), BPF_CORE_READ(next, tgid), EVENT_RUN_QUEUE, 0, 0, bpf_ktime_get_ns() - *since);
	bpf_map_delete_elem(&waiting, &thread);
	return 0;
}
