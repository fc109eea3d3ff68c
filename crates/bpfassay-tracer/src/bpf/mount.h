/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/* Mounts of the kernel. */
#ifndef BPFASSAY_MOUNT_H
#define BPFASSAY_MOUNT_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* Size of a mount's path in a key, with at least one NUL at the end. */
#define MOUNT_PATH_BYTES 64

/* Returns the mount that embeds `mnt`, for reading by bpf_probe_read_kernel only. */
static __always_inline const struct mount *mount_of(const struct vfsmount *mnt)
{
	return (const void *)mnt - bpf_core_field_offset(struct mount, mnt);
}

#endif
