/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * Counts like the CEEMS exporter (pkg/collector/bpf/vfs of mahendrapaipuri/ceems, 8393acdd): at
 * exits of vfs_read and variants, by cgroup and 64 bytes of the mount's path, in an LRU map of
 * 16384 keys. Differences: reads and writes share a map (a tool file names one), vfs_readv and
 * vfs_writev have five arguments, and two CPUs that insert a key at once lose no call.
 */
#include "../path.h"

struct key {
	__u64 cgroup;
	char mount[MOUNT_PATH_BYTES];
};

struct amounts {
	__u64 calls;
	__u64 bytes;
	__u64 errors;
};

struct value {
	struct amounts read;
	struct amounts write;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct key);
	__type(value, struct value);
} counts SEC(".maps");

static __always_inline struct value *value_of(const struct file *file)
{
	struct key key = { .cgroup = bpf_get_current_cgroup_id() };
	struct value *value;

	path_of((__u8 *)key.mount, file->f_path.mnt);
	value = bpf_map_lookup_elem(&counts, &key);
	if (!value) {
		const struct value zero = {};

		bpf_map_update_elem(&counts, &key, &zero, BPF_NOEXIST);
		value = bpf_map_lookup_elem(&counts, &key);
	}
	return value;
}

static __always_inline int count(struct amounts *amounts, long ret)
{
	/* Relaxed: kernels before 5.12 accept no other addition, nor one of a constant zero. */
	__atomic_fetch_add(&amounts->calls, 1, __ATOMIC_RELAXED);
	if (ret > 0)
		__atomic_fetch_add(&amounts->bytes, ret, __ATOMIC_RELAXED);
	if (ret < 0)
		__atomic_fetch_add(&amounts->errors, 1, __ATOMIC_RELAXED);
	return 0;
}

#define COUNT(function, amounts, arguments)                                     \
	SEC("fexit/" #function)                                                 \
	int exit_of_##function(__u64 *ctx)                                      \
	{                                                                       \
		struct value *value = value_of((const struct file *)ctx[0]);    \
									        \
		return value ? count(&value->amounts, ctx[arguments]) : 0;      \
	}

COUNT(vfs_read, read, 4)
COUNT(vfs_readv, read, 5)
COUNT(vfs_write, write, 4)
COUNT(vfs_writev, write, 5)

char LICENSE[] SEC("license") = "Dual MIT/GPL";
