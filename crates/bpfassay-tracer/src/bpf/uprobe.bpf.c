// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * uprobes on the C library's functions, or on those of a static program: counts what was returned. The loader attaches
 * each program to the functions that are in the file.
 */
#include "descriptor.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

#define BEGINS(name, operation, by_descriptor)                                                                     \
	SEC("uprobe/" #name)                                                                                       \
	int name##_entry(struct pt_regs *ctx)                                                                      \
	{                                                                                                          \
		call_begins(operation, by_descriptor, PT_REGS_PARM1(ctx));                                         \
		return 0;                                                                                          \
	}

BEGINS(read, OPERATION_READ, true)
BEGINS(write, OPERATION_WRITE, true)
BEGINS(readv, OPERATION_READV, true)
BEGINS(writev, OPERATION_WRITEV, true)
BEGINS(fsync, OPERATION_FSYNC, true)
BEGINS(open, OPERATION_OPEN, false)
BEGINS(mkdir, OPERATION_MKDIR, false)
BEGINS(unlink, OPERATION_UNLINK, false)
BEGINS(rmdir, OPERATION_RMDIR, false)
BEGINS(rename, OPERATION_RENAME, false)

/* include/uapi/linux/fcntl.h */
#define AT_REMOVEDIR 0x200

SEC("uprobe/unlinkat")
int unlinkat_entry(struct pt_regs *ctx)
{
	call_begins(PT_REGS_PARM3(ctx) & AT_REMOVEDIR ? OPERATION_RMDIR : OPERATION_UNLINK, false, 0);
	return 0;
}

/* Functions that return bytes, or -1. */
SEC("uretprobe/bytes")
int bytes_return(struct pt_regs *ctx)
{
	call_ends(PT_REGS_RC(ctx));
	return 0;
}

/* Functions that return an int. */
SEC("uretprobe/status")
int status_return(struct pt_regs *ctx)
{
	call_ends((int)PT_REGS_RC(ctx));
	return 0;
}
