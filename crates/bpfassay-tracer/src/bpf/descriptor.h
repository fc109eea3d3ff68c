/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * User space's calls by descriptor, seen from outside the file system. The file is looked up at the
 * call's entry: another thread can close the descriptor during the call.
 *
 * Calls by path (mkdir, unlink, rmdir, rename) are counted with errors, without mount and device.
 */
#ifndef BPFASSAY_DESCRIPTOR_H
#define BPFASSAY_DESCRIPTOR_H

#include "files.h"
#include "opened.h"

struct pending_call {
	struct subject subject;
	__u64 start;
	enum operation operation;
	/* 1 if there is a call that must be counted. */
	__u32 wanted;
};

/* Calls by thread. LRU eviction removes entries of threads that have exited. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct pending_call);
} pending SEC(".maps");

/* Another copy may have run before for this call: see raw-tracepoint.bpf.c. */
static __always_inline void variant_begins(__u32 copy, enum operation operation, enum variant variant,
					   bool by_descriptor, long descriptor)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct pending_call call = { .operation = operation, .start = latency_clock() };
	const struct file *file;

	if (copy > 0) {
		const struct pending_call *known = bpf_map_lookup_elem(&pending, &thread);

		if (known && known->wanted)
			return;
	}
	file = by_descriptor ? file_of(descriptor) : NULL;
	if (file)
		call.wanted = subject_of_file(&call.subject, file);
	else if (operation == OPERATION_OPEN)
		/* The mount is known afterwards. */
		call.wanted = true;
	else
		call.wanted = subject_of(&call.subject, NULL, 0);
	if (!call.wanted)
		return;
	if (LAYOUT_HAS_VARIANTS)
		call.subject.variant = variant;
	if (bpf_map_update_elem(&pending, &thread, &call, BPF_ANY))
		tally_add(TALLY_UNMATCHED);
}

static __always_inline void call_begins(__u32 copy, enum operation operation, bool by_descriptor, long descriptor)
{
	variant_begins(copy, operation, VARIANT_USUAL, by_descriptor, descriptor);
}

static __always_inline void call_ends(__u32 copy, long ret)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct pending_call *call = bpf_map_lookup_elem(&pending, &thread);
	const struct file *file;

	if (!call || !call->wanted)
		return;
	call->wanted = false;
	switch (call->operation) {
	case OPERATION_READ:
	case OPERATION_WRITE:
	case OPERATION_READV:
	case OPERATION_WRITEV:
		count_call_copy(copy, &call->subject, call->operation, ret < 0 ? 0 : ret, ret < 0, call->start);
		return;
	case OPERATION_OPEN:
		file = ret < 0 ? (void *)ret : file_of(ret);
		/* Closed by another thread already: counts as failed, without mount and error. */
		count_opened_copy(copy, file ? file : (void *)-9L, VARIANT_USUAL, call->start);
		return;
	default:
		count_call_copy(copy, &call->subject, call->operation, 0, ret < 0, call->start);
	}
}

#endif
