// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * Counts calls of the virtual file system: the work of vfsstat in the fewest instructions, with
 * counters that all CPUs share. Counters are global variables, whose address is a constant. Looking
 * up an array map, or getting the CPU's number, would take more instructions than the addition.
 */
#include "../kernel.h"
#include "../atomic.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__u64 read;
	__u64 write;
	__u64 fsync;
	__u64 open;
	__u64 create;
	__u64 unlink;
	__u64 mkdir;
	__u64 rmdir;
} calls SEC(".data.calls");

/* The arguments are not read, so it does not matter which there are. */
#define COUNTS(function)                                                                                           \
	SEC("fentry/vfs_" #function)                                                                               \
	int function##_entry(void *ctx)                                                                            \
	{                                                                                                          \
		ATOMIC_ADD(&calls.function, 1);                                                                    \
		return 0;                                                                                          \
	}

COUNTS(read)
COUNTS(write)
COUNTS(fsync)
COUNTS(open)
COUNTS(create)
COUNTS(unlink)
COUNTS(mkdir)
COUNTS(rmdir)
