/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/* The mount point of a mount. */
#ifndef BPFASSAY_PATH_H
#define BPFASSAY_PATH_H

#include "mount.h"

/* The most directories and mounts on the way up. */
#define PATH_STEPS 12

#ifdef NO_CALLS
#define PATH_FUNCTION static __always_inline
#else
#define PATH_FUNCTION static __attribute__((noinline))
#endif

/* Writes the mount point of `vfsmount`, from its namespace's root, cut off if it does not fit. */
PATH_FUNCTION void path_of(__u8 path[MOUNT_PATH_BYTES], const struct vfsmount *vfsmount)
{
	/* Written from the root down. A name can extend a path's length beyond its start. */
	__u8 buffer[2 * MOUNT_PATH_BYTES] = {};
	const unsigned char *names[PATH_STEPS] = {};
	const struct mount *mount = mount_of(vfsmount), *parent;
	const struct dentry *dentry = BPF_CORE_READ(mount, mnt_mountpoint);
	__u32 end = 0;

#pragma unroll
	for (int i = 0; i < PATH_STEPS; i++) {
		parent = BPF_CORE_READ(mount, mnt_parent);
		if (parent == mount)
			break;
		if (dentry == BPF_CORE_READ(parent, mnt.mnt_root)) {
			mount = parent;
			dentry = BPF_CORE_READ(mount, mnt_mountpoint);
			continue;
		}
		names[i] = BPF_CORE_READ(dentry, d_name.name);
		dentry = BPF_CORE_READ(dentry, d_parent);
	}
#pragma unroll
	for (int i = PATH_STEPS - 1; i >= 0; i--) {
		long length;

		if (!names[i] || end >= MOUNT_PATH_BYTES - 1)
			continue;
		buffer[end & (MOUNT_PATH_BYTES - 1)] = '/';
		end += 1;
		length = bpf_probe_read_kernel_str(&buffer[end & (MOUNT_PATH_BYTES - 1)], MOUNT_PATH_BYTES, names[i]);
		if (length > 0)
			end += length - 1;
	}
	if (!end)
		buffer[0] = '/';
	buffer[MOUNT_PATH_BYTES - 1] = 0;
	__builtin_memcpy(path, buffer, MOUNT_PATH_BYTES);
}

#endif
