/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * Files by descriptor, and system calls that are hooked at their own functions. They are named
 * sys_NAME here, and the loader adds their prefix.
 *
 * This is done for fsync and fdatasync, because kernels inline the functions that they call in
 * different ways (vfs_fsync_range into vfs_fsync and that into do_fsync, into one or both calls:
 * 5.10 to 7.2). msync and synchronous writes call these, too. Functions of system calls are never
 * inlined, because they are in a table. 32-bit programs and requests of io_uring are not observed.
 */
#ifndef BPFASSAY_FILES_H
#define BPFASSAY_FILES_H

#include "counters.h"
#include <bpf/bpf_tracing.h>

/* include/uapi/linux/stat.h */
#define S_IFMT 0170000
#define S_IFREG 0100000

/* Returns whether mknod makes a regular file. */
static __always_inline bool is_regular(unsigned long mode)
{
	return (mode & S_IFMT) == 0 || (mode & S_IFMT) == S_IFREG;
}

/* Returns the open file of a descriptor of the calling task; null if there is none. */
static __always_inline const struct file *file_of(long descriptor)
{
	const struct task_struct *task = (void *)bpf_get_current_task();
	const struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file *file = NULL;

	if ((__u32)descriptor < BPF_CORE_READ(table, max_fds))
		bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + (__u32)descriptor);
	return file;
}

/*
 * Whether the program can get the calling task. The loader clears it on riscv64 without JIT: 7.2
 * refuses bpf_get_current_task ("program requires BPF JIT compiler but it is not available").
 */
const volatile __u64 task_known SEC(".rodata.task_known") = 1;

/*
 * Fills `subject` in for a system call whose first argument is a descriptor. `regs` is the only
 * argument of its function (CONFIG_ARCH_HAS_SYSCALL_WRAPPER: x86_64 from 4.17, arm64 from 4.19,
 * riscv from 6.6). A descriptor without a file counts without a mount.
 */
static __always_inline bool subject_of_syscall(struct subject *subject, struct pt_regs *regs)
{
	const struct file *file = task_known ? file_of(PT_REGS_PARM1_CORE_SYSCALL(regs)) : NULL;

	return file ? subject_of_file(subject, file) : subject_of(subject, NULL, 0);
}

#endif
