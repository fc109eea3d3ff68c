/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * Calls with an entry and a return, kept by thread and kind of call. Calls of one kind that a
 * thread makes inside each other count as one, the inner one. The hooked functions are not known to
 * nest, except for a file system on top of another.
 */
#ifndef BPFASSAY_CALLS_H
#define BPFASSAY_CALLS_H

#include "summary.h"

struct begun_key {
	__u32 thread;
	/* The set's number for the kind of call. */
	__u32 kind;
};

struct begun {
	__u64 start;
	/* An operation or a size, depending on the call. */
	__u64 argument;
};

/* LRU eviction removes entries of threads that were killed inside a call. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct begun_key);
	__type(value, struct begun);
} begun SEC(".maps");

static __always_inline void begins(__u32 kind, __u64 argument)
{
	struct begun_key key = { .thread = bpf_get_current_pid_tgid(), .kind = kind };
	struct begun call = { .start = bpf_ktime_get_ns(), .argument = argument };

	if (bpf_map_update_elem(&begun, &key, &call, BPF_ANY))
		lose(LOST_BEGINNING);
}

/* Returns whether the beginning of the call was observed. Copies it into `call` and deletes it. */
static __always_inline bool ended(__u32 kind, struct begun *call)
{
	struct begun_key key = { .thread = bpf_get_current_pid_tgid(), .kind = kind };
	const struct begun *found = bpf_map_lookup_elem(&begun, &key);

	if (!found)
		return false;
	*call = *found;
	bpf_map_delete_elem(&begun, &key);
	return true;
}

static __always_inline void count(enum event event, const struct begun *call, __u64 bytes, bool failed)
{
	add(bpf_get_current_cgroup_id(), bpf_get_current_pid_tgid() >> 32, event, bytes, failed,
	    bpf_ktime_get_ns() - call->start);
}

/* Ends a call that returns a number of bytes or an error. */
static __always_inline int returns_bytes(__u32 kind, enum event event, long ret)
{
	struct begun call;

	if (ended(kind, &call))
		count(event, &call, ret > 0 ? ret : 0, ret < 0);
	return 0;
}

/* The tracepoints of a system call that moves no bytes. Each call is an event of one kind. */
#define SYSCALL(name, event)                                                                                       \
	SEC("tracepoint/syscalls/sys_enter_" #name)                                                                \
	int name##_entry(struct trace_event_raw_sys_enter *ctx)                                                    \
	{                                                                                                          \
		begins(event, 0);                                                                                  \
		return 0;                                                                                          \
	}                                                                                                          \
	SEC("tracepoint/syscalls/sys_exit_" #name)                                                                 \
	int name##_return(struct trace_event_raw_sys_exit *ctx)                                                    \
	{                                                                                                          \
		struct begun call;                                                                                 \
		long ret = ctx->ret;                                                                               \
														   \
		if (ended(event, &call))                                                                           \
			count(event, &call, 0, IS_ERR_VALUE(ret));                                                 \
		return 0;                                                                                          \
	}

#endif
