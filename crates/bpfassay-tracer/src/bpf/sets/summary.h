/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * Counts of every program set: calls, bytes, errors and time by cgroup, process and event.
 * counters/sets.rs declares the same in Rust. A test compares both through the objects' BTF.
 */
#ifndef BPFASSAY_SUMMARY_H
#define BPFASSAY_SUMMARY_H

#include "../kernel.h"
#include "../atomic.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Numbers in the order of `ProgramEvent::ALL`. */
enum event {
	EVENT_SWITCH,
	EVENT_RUN_QUEUE,
	EVENT_FUTEX_WAIT,
	EVENT_FUTEX_WAKE,
	EVENT_FUTEX_OTHER,
	EVENT_TCP_SEND,
	EVENT_TCP_RECEIVE,
	EVENT_SHMGET,
	EVENT_SHMAT,
	EVENT_SHMDT,
	EVENT_MAP_SHARED,
	EVENT_FILE_OPEN,
	EVENT_FILE_CLOSE,
	EVENT_FILE_READ,
	EVENT_FILE_WRITE,
};

/* There is no implicit padding: the map compares keys byte by byte. */
struct event_key {
	__u64 cgroup;
	__u32 process;
	enum event event;
};

struct event_value {
	__u64 calls;
	__u64 bytes;
	__u64 errors;
	__u64 time;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct event_key);
	__type(value, struct event_value);
} summaries SEC(".maps");

enum lost {
	/* Keys that did not fit into `summaries`. */
	LOST_KEY,
	/* Entries or wake-ups that did not fit into the map of calls in progress. */
	LOST_BEGINNING,
	LOST_COUNT,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOST_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} losses SEC(".maps");

static __always_inline void lose(enum lost what)
{
	__u32 index = what;
	__u64 *count = bpf_map_lookup_elem(&losses, &index);

	if (count)
		ATOMIC_ADD(count, 1);
}

/* Atomic, because programs of one set can interrupt each other (interrupts send wake-ups). */
static __always_inline void add(__u64 cgroup, __u32 process, enum event event, __u64 bytes, __u64 errors, __u64 time)
{
	struct event_key key = { .cgroup = cgroup, .process = process, .event = event };
	struct event_value *value = bpf_map_lookup_elem(&summaries, &key);

	if (!value) {
		const struct event_value zero = {};

		bpf_map_update_elem(&summaries, &key, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(&summaries, &key);
		if (!value) {
			lose(LOST_KEY);
			return;
		}
	}
	ATOMIC_ADD(&value->calls, 1);
	/* Adding a constant zero would become an atomic OR, which 5.10 does not accept. */
	if (bytes)
		ATOMIC_ADD(&value->bytes, bytes);
	if (errors)
		ATOMIC_ADD(&value->errors, errors);
	if (time)
		ATOMIC_ADD(&value->time, time);
}

#endif
