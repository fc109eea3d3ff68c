/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/* System calls by their number. */
#ifndef BPFASSAY_SYSCALLS_H
#define BPFASSAY_SYSCALLS_H

#include "descriptor.h"

/* arch/x86/entry/syscalls/syscall_64.tbl; include/uapi/asm-generic/unistd.h for the others. */
#if defined(__TARGET_ARCH_x86)
enum {
	NR_read = 0, NR_write = 1, NR_open = 2, NR_pread64 = 17, NR_pwrite64 = 18, NR_readv = 19, NR_writev = 20,
	NR_fsync = 74, NR_fdatasync = 75, NR_rename = 82, NR_mkdir = 83, NR_rmdir = 84, NR_creat = 85, NR_unlink = 87,
	NR_mknod = 133, NR_openat = 257, NR_mkdirat = 258, NR_mknodat = 259, NR_unlinkat = 263, NR_renameat = 264,
	NR_preadv = 295, NR_pwritev = 296, NR_renameat2 = 316, NR_preadv2 = 327, NR_pwritev2 = 328, NR_openat2 = 437,
};
#else
enum {
	NR_mknodat = 33, NR_mkdirat = 34, NR_unlinkat = 35, NR_renameat = 38, NR_openat = 56, NR_read = 63,
	NR_write = 64, NR_readv = 65, NR_writev = 66, NR_pread64 = 67, NR_pwrite64 = 68, NR_preadv = 69,
	NR_pwritev = 70, NR_fsync = 82, NR_fdatasync = 83, NR_renameat2 = 276, NR_preadv2 = 286, NR_pwritev2 = 287,
	NR_openat2 = 437,
};
#endif

/* include/uapi/linux/fcntl.h */
#define AT_REMOVEDIR 0x200

/* At the entry of the system call `number`, whose first arguments are `a0` to `a2`. */
static __always_inline void syscall_begins(__u32 copy, long number, unsigned long a0, unsigned long a1,
					   unsigned long a2)
{
	switch (number) {
	case NR_read:
	case NR_pread64:
		return call_begins(copy, OPERATION_READ, true, a0);
	case NR_write:
	case NR_pwrite64:
		return call_begins(copy, OPERATION_WRITE, true, a0);
	case NR_readv:
	case NR_preadv:
	case NR_preadv2:
		return call_begins(copy, OPERATION_READV, true, a0);
	case NR_writev:
	case NR_pwritev:
	case NR_pwritev2:
		return call_begins(copy, OPERATION_WRITEV, true, a0);
	case NR_fsync:
	case NR_fdatasync:
		return call_begins(copy, OPERATION_FSYNC, true, a0);
	case NR_openat:
	case NR_openat2:
#ifdef __TARGET_ARCH_x86
	case NR_open:
	case NR_creat:
#endif
		return call_begins(copy, OPERATION_OPEN, false, 0);
	case NR_mkdirat:
#ifdef __TARGET_ARCH_x86
	case NR_mkdir:
#endif
		return call_begins(copy, OPERATION_MKDIR, false, 0);
	case NR_unlinkat:
		return call_begins(copy, a2 & AT_REMOVEDIR ? OPERATION_RMDIR : OPERATION_UNLINK, false, 0);
#ifdef __TARGET_ARCH_x86
	case NR_unlink:
		return call_begins(copy, OPERATION_UNLINK, false, 0);
	case NR_rmdir:
		return call_begins(copy, OPERATION_RMDIR, false, 0);
	case NR_mknod:
		if (is_regular(a1))
			call_begins(copy, OPERATION_CREATE, false, 0);
		return;
	case NR_rename:
#endif
	case NR_renameat:
	case NR_renameat2:
		return call_begins(copy, OPERATION_RENAME, false, 0);
	case NR_mknodat:
		if (is_regular(a2))
			call_begins(copy, OPERATION_CREATE, false, 0);
		return;
	}
}

#endif
