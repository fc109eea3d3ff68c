/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * Calls by path that change names in directories, observed at both ends: do_mkdirat, do_mknodat, do_unlinkat, do_rmdir,
 * do_renameat2 (filename_mkdirat and so on in 7.2; the loader selects the name). System calls and io_uring reach them,
 * and nothing else does: operations of nfsd and of stacked file systems are not counted again.
 *
 * Their arguments do not have the mount. Each of them takes write access of it (mnt_want_write, from 5.10 to 7.2 in the
 * same task) once the path has been followed except for its last component, so that function is hooked, too, and the
 * first mount of a call is kept (an overlay takes its upper layer next). A call that fails before has no mount and no device.
 */
#ifndef BPFASSAY_NAMED_H
#define BPFASSAY_NAMED_H

#include "files.h"

struct named_call {
	/* Null until it is known. */
	const struct vfsmount *vfsmount;
	__u64 start;
};

/* By thread; an entry exists while it is in such a call. LRU eviction removes entries of threads that have exited. */
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
 * A call whose beginning was not observed has no mount, except for OPERATION_CREATE: then it is mknod, and did not create a
 * regular file (see is_regular). Where the program has copies, one that finds no beginning is not the first to run for
 * the call. Copies of the programs above may run any number of times.
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
