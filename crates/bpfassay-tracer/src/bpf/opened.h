/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * Counts results of do_filp_open (do_file_open in 7.2; the loader selects the name). Every open of
 * user space reaches it (open, openat, openat2, creat, execve, io_uring). Failed opens have no
 * file, and so neither mount nor device. Files that the call created count as created: open does
 * not call vfs_create, nor do file systems that look up and create at once, like NFS.
 */
#ifndef BPFASSAY_OPENED_H
#define BPFASSAY_OPENED_H

#include "counters.h"

/*
 * Determines the variant by the last argument of do_filp_open. Opens by execve have a flag that no
 * other open has (do_open_execat in fs/exec.c, 5.10 to 7.2).
 */
static __always_inline enum variant variant_of_open(const struct open_flags *flags)
{
	return LAYOUT_HAS_VARIANTS && BPF_CORE_READ(flags, open_flag) & FMODE_EXEC ? VARIANT_EXEC : VARIANT_USUAL;
}

static __always_inline void count_opened_copy(__u32 copy, const struct file *file, enum variant variant, __u64 start)
{
	struct subject subject;

	if (IS_ERR_VALUE(file)) {
		if (!subject_of(&subject, NULL, 0))
			return;
		subject.variant = variant;
		count_call_copy(copy, &subject, OPERATION_OPEN, 0, 1, start);
		return;
	}
	if (!subject_of_file(&subject, file))
		return;
	subject.variant = variant;
	count_call_copy(copy, &subject, OPERATION_OPEN, 0, 0, start);
	subject.variant = VARIANT_USUAL;
	if (BPF_CORE_READ(file, f_mode) & FMODE_CREATED)
		count_call_copy(copy, &subject, OPERATION_CREATE, 0, 0, 0);
}

static __always_inline void count_opened(const struct file *file, enum variant variant, __u64 start)
{
	count_opened_copy(0, file, variant, start);
}

#endif
