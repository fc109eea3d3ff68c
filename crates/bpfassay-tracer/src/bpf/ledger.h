/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What every probe counts and under which key. `src/ledger.rs` declares the same structures for the reader; a test
 * compares both sides through the object's BTF.
 *
 * A map layout (`map_*.h`, chosen by -DMAP_LAYOUT) declares the map `counters` and defines
 *	static void ledger_add(const struct ledger_key *key, __u64 bytes, __u64 errors);
 * which adds one call.
 */
#ifndef BPFASSAY_LEDGER_H
#define BPFASSAY_LEDGER_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* As many keys as fit: (cgroup, mount, operation) triples that were ever active. */
#define LEDGER_KEYS 8192

/* Numbers of the operations, in the order of `Operation::ALL`. */
enum ledger_operation {
	OPERATION_READ,
	OPERATION_WRITE,
	OPERATION_READV,
	OPERATION_WRITEV,
	OPERATION_OPEN,
	OPERATION_CREATE,
	OPERATION_MKDIR,
	OPERATION_UNLINK,
	OPERATION_RMDIR,
	OPERATION_RENAME,
	OPERATION_FSYNC,
	OPERATION_MAP_READ,
	OPERATION_MAP_WRITE,
};

/* No implicit padding: the map compares keys byte by byte. */
struct ledger_key {
	__u64 cgroup;
	__u64 mount;
	__u32 device;
	enum ledger_operation operation;
};

struct ledger_value {
	__u64 calls;
	__u64 bytes;
	__u64 errors;
};

/* Events not counted because their key could not be inserted. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} insert_failures SEC(".maps");

/* Set before loading; the verifier then removes the comparisons that are not wanted. Zero: any. */
struct ledger_filter {
	__u64 cgroup;
	__u64 mount;
};

const volatile struct ledger_filter filter SEC(".rodata.filter") = {};

static __always_inline void ledger_insert_failed(void)
{
	__u32 zero = 0;
	__u64 *count = bpf_map_lookup_elem(&insert_failures, &zero);

	if (count)
		*count += 1;
}

#include MAP_LAYOUT

/* The mount that embeds `mnt`, for reading with bpf_probe_read_kernel only. */
static __always_inline const struct mount *mount_of(const struct vfsmount *mnt)
{
	return (const void *)mnt - bpf_core_field_offset(struct mount, mnt);
}

static __always_inline void ledger_count(const struct vfsmount *mnt, __u32 device,
					 enum ledger_operation operation, __u64 bytes, __u64 errors)
{
	struct ledger_key key = {
		.cgroup = bpf_get_current_cgroup_id(),
		.device = device,
		.operation = operation,
	};

	if (filter.cgroup && key.cgroup != filter.cgroup)
		return;
	key.mount = (__u32)BPF_CORE_READ(mount_of(mnt), mnt_id);
	if (filter.mount && key.mount != filter.mount)
		return;
	ledger_add(&key, bytes, errors);
}

#endif
