/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * Calls by path that change names in directories, at entry and exit: do_mkdirat, do_mknodat,
 * do_unlinkat, do_rmdir, do_renameat2 (filename_mkdirat etc. in 7.2; the loader selects). Only
 * system calls and io_uring reach them, so nfsd and stacked file systems are not counted again.
 *
 * The arguments lack the mount. Each gets write access to it (mnt_want_write, 5.10 to 7.2, same
 * task) when all but the path's last component is resolved. That is hooked, too, and the first
 * mount is kept (an overlay uses its upper layer next). Earlier failures have none.
 */
#ifndef BPFASSAY_NAMED_H
#define BPFASSAY_NAMED_H

#include "files.h"

struct named_call {
	/* Null until the mount is known. */
	const struct vfsmount *vfsmount;
	__u64 start;
};

/* By thread, while it is in such a call. LRU eviction removes those of exited threads. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct named_call);
} named_calls SEC(".maps");

static __always_inline int name_begins(void)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct named_call call = { .start = latency_clock() };

	if (bpf_map_update_elem(&named_calls, &thread, &call, BPF_ANY))
		tally_add(TALLY_UNMATCHED);
	return 0;
}

static __always_inline int name_wants(const struct vfsmount *mnt)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct named_call *call = bpf_map_lookup_elem(&named_calls, &thread);

	if (call && !call->vfsmount)
		call->vfsmount = mnt;
	return 0;
}

/*
 * A call whose beginning was not observed has no mount. The exception is OPERATION_CREATE: such a
 * call is a mknod that made no regular file (see is_regular). If there are copies, one that finds
 * no beginning is not the first to run. Copies of the programs above can run any number of times.
 */
static __always_inline int name_ends(__u32 copy, enum operation operation, int ret)
{
	__u32 thread = bpf_get_current_pid_tgid();
	const struct named_call *call = bpf_map_lookup_elem(&named_calls, &thread);
	const struct vfsmount *mnt = NULL;
	struct subject subject;
	__u64 start = 0;

	if (call) {
		mnt = call->vfsmount;
		start = call->start;
		bpf_map_delete_elem(&named_calls, &thread);
	} else if (operation == OPERATION_CREATE || settings.copies > 1) {
		return 0;
	}
	if (subject_of(&subject, mnt, mnt ? BPF_CORE_READ(mnt, mnt_sb, s_dev) : 0))
		count_call_copy(copy, &subject, operation, 0, ret < 0, start);
	return 0;
}

#endif
