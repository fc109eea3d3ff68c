// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// What the wrong tools have in common: figures by cgroup, device, operation and process, of files of mounted file systems. Each tool
// does one thing wrong with them. Only what is used of the kernel's structures is declared; CO-RE finds it (libbpf).
#pragma once
typedef unsigned int u32;
typedef unsigned long long u64;
#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int (*name)[value]
#define __type(name, value) typeof(value) *name
#define INLINE static inline __attribute__((always_inline))

// include/uapi/linux/bpf.h
static void *(*const bpf_map_lookup_elem)(void *, const void *) = (void *)1;
static long (*const bpf_map_update_elem)(void *, const void *, const void *, u64) = (void *)2;
static long (*const bpf_get_current_comm)(void *, u32) = (void *)16;
static u64 (*const bpf_get_current_cgroup_id)(void) = (void *)80;
static u64 (*const bpf_get_current_ancestor_cgroup_id)(int) = (void *)123;
enum { HASH = 1, ARRAY = 2, LRU_HASH = 9, NOEXIST = 1 };

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct super_block { u32 s_dev; unsigned long s_flags; };
struct vfsmount { struct super_block *mnt_sb; };
struct path { struct vfsmount *mnt; };
struct file { struct path f_path; };
#pragma clang attribute pop

enum operation { READ, WRITE, READV };
struct key { u64 cgroup; u32 device; enum operation operation; char comm[16]; u64 other; };
struct value { u64 calls, bytes, errors; };

#ifndef COUNTS_TYPE
#define COUNTS_TYPE HASH
#define COUNTS_ENTRIES 1024
#endif
struct {
	__uint(type, COUNTS_TYPE);
	__uint(max_entries, COUNTS_ENTRIES);
	__type(key, struct key);
	__type(value, struct value);
} counts SEC(".maps");

// SB_NOUSER (include/linux/fs.h): pipes, sockets and the like, which nobody mounts.
INLINE int is_file(const struct file *file) { return !(file->f_path.mnt->mnt_sb->s_flags & 1UL << 31); }

INLINE struct key key_of(const struct file *file, enum operation operation)
{
	struct key key = { .cgroup = bpf_get_current_cgroup_id(), .operation = operation };
	key.device = file->f_path.mnt->mnt_sb->s_dev;
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	return key;
}

INLINE struct value *value_of(const struct key *key)
{
	const struct value zero = {};
	if (!bpf_map_lookup_elem(&counts, key))
		bpf_map_update_elem(&counts, key, &zero, NOEXIST);
	return bpf_map_lookup_elem(&counts, key);
}

// Relaxed additions of no constant zero, as kernels before 5.12 know no others.
INLINE int add(struct value *value, long returned)
{
	if (!value)
		return 0;
	__atomic_fetch_add(&value->calls, 1, __ATOMIC_RELAXED);
	if (returned > 0)
		__atomic_fetch_add(&value->bytes, returned, __ATOMIC_RELAXED);
	if (returned < 0)
		__atomic_fetch_add(&value->errors, 1, __ATOMIC_RELAXED);
	return 0;
}

// What a right tool does at the exit of a function with so many arguments.
INLINE int count(u64 *ctx, enum operation operation, int arguments)
{
	const struct file *file = (const void *)ctx[0];
	if (!is_file(file))
		return 0;
	struct key key = key_of(file, operation);
	return add(value_of(&key), ctx[arguments]);
}

char LICENSE[] SEC("license") = "GPL";
