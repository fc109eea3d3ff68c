/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * Pairs of programs at function entry and return; ENTRY(function) and RETURN(function) are the
 * sections. Registers at return do not contain the arguments. The file of a call is therefore kept
 * from entry on, per thread, on a small stack: calls can be nested (stacked file systems).
 *
 * A return can be missed (maxactive exceeded). The next entry finds a leftover by the stack
 * pointer, which is lower in nested calls. The next return finds it by the operation.
 */
#include "named.h"
#include "opened.h"
#include "registers.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define DEPTH 4

struct call {
	struct subject subject;
	__u64 start;
	__u64 frame;
	enum operation operation;
	__u32 wanted;
};

struct calls {
	__u64 depth;
	struct call calls[DEPTH];
};

/* Calls by thread. LRU eviction removes entries of threads that have exited. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct calls);
} pending SEC(".maps");

const struct calls no_calls SEC(".rodata.calls") = {};

static __always_inline struct call *push(context *ctx, enum operation operation)
{
	__u64 frame = PT_REGS_SP(ctx);
	__u32 thread = bpf_get_current_pid_tgid();
	struct calls *calls = bpf_map_lookup_elem(&pending, &thread);
	struct call *call;
	__u64 depth;

	if (!calls) {
		bpf_map_update_elem(&pending, &thread, &no_calls, BPF_NOEXIST);
		calls = bpf_map_lookup_elem(&pending, &thread);
		if (!calls) {
			tally_add(TALLY_UNMATCHED);
			return NULL;
		}
	}
	depth = calls->depth;
#pragma unroll
	for (int i = DEPTH - 1; i >= 0; i--)
		if (depth == (__u64)i + 1 && calls->calls[i].frame <= frame)
			depth = i;
	if (depth >= DEPTH) {
		tally_add(TALLY_UNMATCHED);
		return NULL;
	}
	calls->depth = depth + 1;
	call = &calls->calls[depth];
	call->operation = operation;
	call->frame = frame;
	call->wanted = 0;
	call->start = latency_clock();
	return call;
}

static __always_inline struct call *pop(enum operation operation)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct calls *calls = bpf_map_lookup_elem(&pending, &thread);
	struct call *found = NULL;

	if (!calls)
		return NULL;
#pragma unroll
	for (int i = DEPTH - 1; i >= 0; i--)
		if (!found && calls->depth == (__u64)i + 1) {
			calls->depth = i;
			if (calls->calls[i].operation == operation)
				found = &calls->calls[i];
		}
	return found;
}

static __always_inline int file_entry(context *ctx, enum operation operation)
{
	struct call *call = push(ctx, operation);

	if (call)
		call->wanted = subject_of_file(&call->subject, (void *)argument(ctx, 0));
	return 0;
}

static __always_inline int file_return(context *ctx, enum operation operation, bool bytes)
{
	const struct call *call = pop(operation);
	long ret = PT_REGS_RC(ctx);

	if (call && call->wanted)
		count_call(&call->subject, operation, bytes && ret > 0 ? ret : 0, (bytes ? ret : (int)ret) < 0,
			     call->start);
	return 0;
}

static __always_inline int fsync_entry_of(context *ctx, enum variant variant)
{
	struct call *call = push(ctx, OPERATION_FSYNC);

	if (!call)
		return 0;
	call->wanted = subject_of_syscall(&call->subject, (void *)argument(ctx, 0));
	if (LAYOUT_HAS_VARIANTS)
		call->subject.variant = variant;
	return 0;
}

#define BOTH_ENDS(name, function, on_entry, on_return)                                                             \
	ENTRY(function)                                                                                            \
	int name##_entry(context *ctx)                                                                             \
	{                                                                                                          \
		return on_entry;                                                                                   \
	}                                                                                                          \
	RETURN(function)                                                                                           \
	int name##_return(context *ctx)                                                                            \
	{                                                                                                          \
		return on_return;                                                                                  \
	}

BOTH_ENDS(read, "vfs_read", file_entry(ctx, OPERATION_READ), file_return(ctx, OPERATION_READ, true))
BOTH_ENDS(write, "vfs_write", file_entry(ctx, OPERATION_WRITE), file_return(ctx, OPERATION_WRITE, true))
BOTH_ENDS(readv, "vfs_readv", file_entry(ctx, OPERATION_READV), file_return(ctx, OPERATION_READV, true))
BOTH_ENDS(writev, "vfs_writev", file_entry(ctx, OPERATION_WRITEV), file_return(ctx, OPERATION_WRITEV, true))
BOTH_ENDS(fsync, "sys_fsync", fsync_entry_of(ctx, VARIANT_USUAL), file_return(ctx, OPERATION_FSYNC, false))
BOTH_ENDS(fdatasync, "sys_fdatasync", fsync_entry_of(ctx, VARIANT_FDATASYNC), file_return(ctx, OPERATION_FSYNC, false))
BOTH_ENDS(mknod, "do_mknodat", is_regular(argument(ctx, 2)) ? name_begins() : 0,
	  name_ends(0, OPERATION_CREATE, PT_REGS_RC(ctx)))
BOTH_ENDS(mkdir, "do_mkdirat", name_begins(), name_ends(0, OPERATION_MKDIR, PT_REGS_RC(ctx)))
BOTH_ENDS(unlink, "do_unlinkat", name_begins(), name_ends(0, OPERATION_UNLINK, PT_REGS_RC(ctx)))
BOTH_ENDS(rmdir, "do_rmdir", name_begins(), name_ends(0, OPERATION_RMDIR, PT_REGS_RC(ctx)))
BOTH_ENDS(rename, "do_renameat2", name_begins(), name_ends(0, OPERATION_RENAME, PT_REGS_RC(ctx)))

ENTRY("mnt_want_write")
int wants_entry(context *ctx)
{
	return name_wants((void *)argument(ctx, 0));
}

ENTRY("do_filp_open")
int open_entry(context *ctx)
{
	struct call *call = push(ctx, OPERATION_OPEN);

	/* The rest of the subject is known afterwards. */
	if (LAYOUT_HAS_VARIANTS && call)
		call->subject.variant = variant_of_open((void *)argument(ctx, 2));
	return 0;
}

RETURN("do_filp_open")
int open_return(context *ctx)
{
	const struct call *call = pop(OPERATION_OPEN);

	if (call)
		count_opened((void *)PT_REGS_RC(ctx), call->subject.variant, call->start);
	return 0;
}
