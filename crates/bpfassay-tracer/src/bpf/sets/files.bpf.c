// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/* File operations: open, close, read, write. vfs_read and vfs_write count for regular files. */
#include "calls.h"

/* include/uapi/linux/stat.h */
enum { S_IFMT = 0170000, S_IFREG = 0100000 };

static __always_inline int file_begins(enum event event, const struct file *file)
{
	if ((BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT) == S_IFREG)
		begins(event, 0);
	return 0;
}

SYSCALL(openat, EVENT_FILE_OPEN)
SYSCALL(close, EVENT_FILE_CLOSE)

SEC("kprobe/vfs_read")
int read_entry(struct pt_regs *ctx)
{
	return file_begins(EVENT_FILE_READ, (void *)PT_REGS_PARM1(ctx));
}

SEC("kretprobe/vfs_read")
int read_return(struct pt_regs *ctx)
{
	return returns_bytes(EVENT_FILE_READ, EVENT_FILE_READ, PT_REGS_RC(ctx));
}

SEC("kprobe/vfs_write")
int write_entry(struct pt_regs *ctx)
{
	return file_begins(EVENT_FILE_WRITE, (void *)PT_REGS_PARM1(ctx));
}

SEC("kretprobe/vfs_write")
int write_return(struct pt_regs *ctx)
{
	return returns_bytes(EVENT_FILE_WRITE, EVENT_FILE_WRITE, PT_REGS_RC(ctx));
}
