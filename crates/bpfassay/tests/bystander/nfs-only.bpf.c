// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Counts reads and writes of files on NFS: nothing of it is on the path of calls on a tmpfs.
#include "../wrong-tools/wrong.h"

INLINE int count_call(enum operation operation)
{
	struct key key = { .cgroup = bpf_get_current_cgroup_id(), .operation = operation };
	return add(value_of(&key), 0);
}

SEC("kprobe/nfs_file_read") int on_read(void *ctx) { return count_call(READ); }
SEC("kprobe/nfs_file_write") int on_write(void *ctx) { return count_call(WRITE); }
