/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What every probe counts and under which key. The crate bpfassay-ledger declares the same for Rust; a test
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

enum ledger_tally {
	TALLY_INSERT_FAILURES,
	TALLY_RING_BUFFER_DROPS,
	TALLY_INSERTIONS,
	TALLY_UNMATCHED,
	TALLY_COUNT,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TALLY_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} tallies SEC(".maps");

/* Set before loading; the verifier then removes the code that is not wanted. Filters: zero means any. */
struct ledger_settings {
	__u64 cgroup;
	__u64 mount;
	__u32 latency;
	__u32 copies;
};

const volatile struct ledger_settings settings SEC(".rodata.settings") = {};

/* Rare, and done by programs that may interrupt each other: atomically. */
static __always_inline void ledger_tally(enum ledger_tally which)
{
	__u32 index = which;
	__u64 *count = bpf_map_lookup_elem(&tallies, &index);

	if (count)
		__sync_fetch_and_add(count, 1);
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

	if (settings.cgroup && key.cgroup != settings.cgroup)
		return;
	key.mount = (__u32)BPF_CORE_READ(mount_of(mnt), mnt_id);
	if (settings.mount && key.mount != settings.mount)
		return;
	ledger_add(&key, bytes, errors);
}

#endif
