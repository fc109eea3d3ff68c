// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Names a mount by the last component of its path, as d_name of its mount point has it: others may have the same.
#include "wrong.h"

static long (*const bpf_probe_read_kernel)(void *, u32, const void *) = (void *)113;
static long (*const bpf_probe_read_kernel_str)(void *, u32, const void *) = (void *)115;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct qstr { const unsigned char *name; };
struct dentry { struct qstr d_name; };
struct mount { struct dentry *mnt_mountpoint; struct vfsmount mnt; };
#pragma clang attribute pop

// BPF_FIELD_BYTE_OFFSET.
#define OFFSET(type, field) __builtin_preserve_field_info(((type *)0)->field, 0)

SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	const struct file *file = (const void *)ctx[0];
	if (!is_file(file))
		return 0;
	struct key key = { .operation = READ };
	const char *mount = (const char *)file->f_path.mnt - OFFSET(struct mount, mnt);
	const char *place = 0;
	const unsigned char *name = 0;
	bpf_probe_read_kernel(&place, sizeof(place), mount + OFFSET(struct mount, mnt_mountpoint));
	bpf_probe_read_kernel(&name, sizeof(name), place + OFFSET(struct dentry, d_name.name));
	bpf_probe_read_kernel_str(key.comm, sizeof(key.comm), name);
	return add(value_of(&key), ctx[4]);
}
