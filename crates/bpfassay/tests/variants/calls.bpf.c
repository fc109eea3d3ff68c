// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts calls of fsync and fdatasync, and opens, by cgroup. With -DPLAIN neither fdatasync nor what
// execve opens, with -DSUCCESSES no call that failed.
#include "../wrong-tools/wrong.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct open_flags { int open_flag; };
#pragma clang attribute pop

// FMODE_EXEC (include/linux/fs.h)
#define EXEC 0x20

#define FSYNC READ
#define OPEN WRITE

INLINE int count_call(enum operation operation, int failed)
{
	struct key key = { .cgroup = bpf_get_current_cgroup_id(), .operation = operation };
#ifdef SUCCESSES
	if (failed)
		return 0;
#endif
	return add(value_of(&key), failed ? -1 : 0);
}

SEC("fexit/__x64_sys_fsync") int on_fsync(u64 *ctx) { return count_call(FSYNC, (int)ctx[1] < 0); }

#ifndef PLAIN
SEC("fexit/__x64_sys_fdatasync") int on_fdatasync(u64 *ctx) { return count_call(FSYNC, (int)ctx[1] < 0); }
#endif

SEC("fexit/do_filp_open") int on_open(u64 *ctx)
{
#ifdef PLAIN
	if (((const struct open_flags *)ctx[2])->open_flag & EXEC)
		return 0;
#endif
	return count_call(OPEN, ctx[3] >= -4095UL);
}
