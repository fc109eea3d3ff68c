/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * The layout of the CEEMS exporter (pkg/collector/bpf/vfs/bpf_vfs.h of mahendrapaipuri/ceems, as of
 * 8393acdd): a shared LRU map of 16384 entries, with 64 bytes of the mount's path in the key.
 * Unlike there, paths include directories that are not mount points, and new keys lose no call.
 *
 * The kernel evicts keys with counts when free entries run short: with per-CPU free lists, long
 * before the map is full. Insertions are tallied, so that the reader can report evictions.
 */
#include "path.h"

#define LAYOUT_HAS_DURATION 0

struct counter_path_key {
	__u64 cgroup;
	__u8 path[MOUNT_PATH_BYTES];
	enum operation operation;
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, COUNTER_LRU_KEYS);
	__type(key, struct counter_path_key);
	__type(value, struct counter_value);
} counters SEC(".maps");

static __always_inline void counter_add(__u32 copy, const struct subject *subject, enum operation operation,
				       __u64 bytes, __u64 errors, __u64 duration)
{
	struct counter_path_key key = { .cgroup = subject->cgroup, .operation = operation };
	struct counter_value *value;

	if (subject->vfsmount)
		path_of(key.path, subject->vfsmount);
	value = bpf_map_lookup_elem(&counters, &key);
	if (!value) {
		const struct counter_value zero = {};

		/* See map_percpu.h. */
		if (!bpf_map_update_elem(&counters, &key, &zero, BPF_NOEXIST))
			tally_add(TALLY_INSERTIONS);
		value = bpf_map_lookup_elem(&counters, &key);
		if (!value) {
			tally_add(TALLY_INSERT_FAILURES);
			return;
		}
	}
	value_add(value, bytes, errors);
}
