/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/* System calls by number. */
#ifndef BPFASSAY_SYSCALLS_H
#define BPFASSAY_SYSCALLS_H

#include "descriptor.h"

/* include/uapi/linux/fcntl.h */
#define AT_REMOVEDIR 0x200

/* Handles the entry of the system call `number`, whose first arguments are `a0` to `a2`. */
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
		return variant_begins(copy, OPERATION_FSYNC,
				      number == NR_fdatasync ? VARIANT_FDATASYNC : VARIANT_USUAL, true, a0);
	case NR_openat:
	case NR_openat2:
#ifdef ARCH_OLDER_CALLS
	case NR_open:
	case NR_creat:
#endif
		return call_begins(copy, OPERATION_OPEN, false, 0);
	case NR_mkdirat:
#ifdef ARCH_OLDER_CALLS
	case NR_mkdir:
#endif
		return call_begins(copy, OPERATION_MKDIR, false, 0);
	case NR_unlinkat:
		return call_begins(copy, a2 & AT_REMOVEDIR ? OPERATION_RMDIR : OPERATION_UNLINK, false, 0);
#ifdef ARCH_OLDER_CALLS
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
