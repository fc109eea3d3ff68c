/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * Functions that change names in directories, observed at entry: vfs_create, vfs_mkdir, vfs_unlink,
 * vfs_rmdir, vfs_rename. named.h counts their callers, whose mount is not known at entry.
 *
 * The arguments differ between kernels: a namespace or idmap and struct renamedata from 5.12 on, no
 * directory in vfs_create of 7.x. The loader reads the prototype from the kernel's BTF and writes
 * which argument leads to the superblock.
 *
 * No function receives the mount. The system calls get write access to it just before
 * (mnt_want_write, 5.10 to 7.2, in the same task), so that is hooked, too, and the mount is kept.
 * It is used if it has the same superblock. In other cases (operations of nfsd, lower layers of an
 * overlay) the mount is 0, and the device is right.
 *
 * Calls that fail before the file system is called (the name does not exist, exists already, or
 * must not be looked up) do not reach these functions.
 */
#ifndef BPFASSAY_NAMES_H
#define BPFASSAY_NAMES_H

#include "counters.h"

enum prototype_source {
	PROTOTYPE_UNKNOWN,
	/* struct inode *: the directory */
	PROTOTYPE_INODE,
	/* struct dentry *: the name */
	PROTOTYPE_DENTRY,
	/* struct renamedata * */
	PROTOTYPE_RENAME,
};

/* `Prototype` in the crate bpfassay-tracer-common. */
struct name_prototype {
	/* enum prototype_source */
	__u8 source;
	/* Index of the argument, from 0. */
	__u8 argument;
};

const volatile struct name_prototype prototypes[OPERATION_COUNT] SEC(".rodata.prototypes") = {};

struct wanted_mount {
	const struct vfsmount *vfsmount;
	const struct super_block *superblock;
};

/* Mounts by thread. Opening for writing leaves an entry, which LRU eviction removes later. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct wanted_mount);
} wanted_mounts SEC(".maps");

static __always_inline void name_wants(const struct vfsmount *mnt)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct wanted_mount wanted = { .vfsmount = mnt, .superblock = BPF_CORE_READ(mnt, mnt_sb) };

	bpf_map_update_elem(&wanted_mounts, &thread, &wanted, BPF_ANY);
}

/* `argument` is the one that the operation's prototype selects. */
static __always_inline bool name_subject(struct subject *subject, enum operation operation,
					 unsigned long argument)
{
	__u32 thread = bpf_get_current_pid_tgid();
	const struct super_block *superblock;
	const struct wanted_mount *wanted;
	const struct vfsmount *mnt = NULL;

	switch (prototypes[operation].source) {
	case PROTOTYPE_INODE:
		superblock = BPF_CORE_READ((struct inode *)argument, i_sb);
		break;
	case PROTOTYPE_DENTRY:
		superblock = BPF_CORE_READ((struct dentry *)argument, d_sb);
		break;
	case PROTOTYPE_RENAME:
		superblock = BPF_CORE_READ((struct renamedata *)argument, old_dentry, d_sb);
		break;
	default:
		return false;
	}
	wanted = bpf_map_lookup_elem(&wanted_mounts, &thread);
	if (wanted && wanted->superblock == superblock)
		mnt = wanted->vfsmount;
	return subject_of(subject, mnt, BPF_CORE_READ(superblock, s_dev));
}

#endif
