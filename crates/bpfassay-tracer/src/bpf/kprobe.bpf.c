// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * kprobe at function entry: counts the size that was asked for, whatever the call then did. It cannot see errors.
 */
#include "ledger.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

static __always_inline void count(struct file *file, size_t size, enum ledger_operation operation)
{
	const struct vfsmount *mnt = BPF_CORE_READ(file, f_path.mnt);

	ledger_count(mnt, BPF_CORE_READ(mnt, mnt_sb, s_dev), operation, size, 0);
}

SEC("kprobe/vfs_read")
int BPF_KPROBE(read_entry, struct file *file, char *buf, size_t size)
{
	count(file, size, OPERATION_READ);
	return 0;
}

SEC("kprobe/vfs_write")
int BPF_KPROBE(write_entry, struct file *file, const char *buf, size_t size)
{
	count(file, size, OPERATION_WRITE);
	return 0;
}
