/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * What do_filp_open (do_file_open in 7.2; the loader selects the name) returned: every open of user space reaches it (open,
 * openat, openat2, creat, execve, io_uring), also the failed ones. Those have no file, hence no mount and no device.
 * Files that the call created are counted as created: open does not call vfs_create, and file systems that look up and create
 * in one step, such as NFS, do not either.
 */
#ifndef BPFASSAY_OPENED_H
#define BPFASSAY_OPENED_H

#include "counters.h"

static __always_inline void count_opened_copy(__u32 copy, const struct file *file, __u64 start)
{
	struct subject subject;

	if (IS_ERR_VALUE(file)) {
		if (subject_of(&subject, NULL, 0))
			count_call_copy(copy, &subject, OPERATION_OPEN, 0, 1, start);
		return;
	}
	if (!subject_of_file(&subject, file))
		return;
	count_call_copy(copy, &subject, OPERATION_OPEN, 0, 0, start);
	if (BPF_CORE_READ(file, f_mode) & FMODE_CREATED)
		count_call_copy(copy, &subject, OPERATION_CREATE, 0, 0, 0);
}

static __always_inline void count_opened(const struct file *file, __u64 start)
{
	count_opened_copy(0, file, start);
}

#endif
