// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * BPF trampoline at function exit: counts what the call returned.
 *
 * A trampoline skips a program that is already running on the CPU. On a preemptible kernel a task can be preempted
 * inside the program, and until it runs again the calls of every other task on that CPU are skipped. The kernel
 * counts them (recursion_misses, 5.12 and later) and the tracer reports them; nothing here can win them back.
 */
#include "ledger.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

static __always_inline void count(struct file *file, ssize_t ret, enum ledger_operation operation)
{
	/* The verifier knows the type of `file`: these are plain loads, without a helper call. */
	const struct vfsmount *mnt = file->f_path.mnt;

	ledger_count(mnt, mnt->mnt_sb->s_dev, operation, ret < 0 ? 0 : ret, ret < 0);
}

SEC("fexit/vfs_read")
int BPF_PROG(read_exit, struct file *file, char *buf, size_t size, loff_t *pos, ssize_t ret)
{
	count(file, ret, OPERATION_READ);
	return 0;
}

SEC("fexit/vfs_write")
int BPF_PROG(write_exit, struct file *file, const char *buf, size_t size, loff_t *pos, ssize_t ret)
{
	count(file, ret, OPERATION_WRITE);
	return 0;
}
