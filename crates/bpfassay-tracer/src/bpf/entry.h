/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * Programs at function entry, by kprobe or trampoline, in sections HOOK(function). They count
 * requests, whatever the calls do afterwards, and cannot see errors.
 *
 * An open is observed in do_dentry_open, where the file is known. Failed lookups do not reach it.
 */
#include "files.h"
#include "names.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* include/uapi/linux/uio.h */
#define UIO_MAXIOV 1024

struct iovec {
	__u64 iov_base;
	__u64 iov_len;
};

static __always_inline int count_variant(const struct file *file, __u64 bytes, enum operation operation,
					 enum variant variant)
{
	struct subject subject;

	if (settings.plain) {
		subject_of_argument(&subject, file, true);
		subject.variant = variant;
		counter_add(0, &subject, operation, bytes, 0, NO_DURATION);
	} else if (subject_of_argument(&subject, file, false)) {
		subject.variant = variant;
		count_call(&subject, operation, bytes, 0, 0);
	}
	return 0;
}

static __always_inline int count_file(const struct file *file, __u64 bytes, enum operation operation)
{
	return count_variant(file, bytes, operation, VARIANT_USUAL);
}

/* Sums the lengths in an iovec of user space, as far as they can be read without a page fault. */
static __always_inline __u64 requested(const struct iovec *vector, __u64 count)
{
	__u64 sum = 0;

	for (__u32 i = 0; i < UIO_MAXIOV; i++) {
		__u64 length = 0;

		if (i >= count)
			break;
		bpf_probe_read_user(&length, sizeof(length), &vector[i].iov_len);
		sum += length;
	}
	return sum;
}

HOOK("vfs_read")
int read_entry(context *ctx)
{
	return count_file((void *)argument(ctx, 0), argument(ctx, 2), OPERATION_READ);
}

HOOK("vfs_write")
int write_entry(context *ctx)
{
	return count_file((void *)argument(ctx, 0), argument(ctx, 2), OPERATION_WRITE);
}

HOOK("vfs_readv")
int readv_entry(context *ctx)
{
	return count_file((void *)argument(ctx, 0), requested((void *)argument(ctx, 1), argument(ctx, 2)),
			  OPERATION_READV);
}

HOOK("vfs_writev")
int writev_entry(context *ctx)
{
	return count_file((void *)argument(ctx, 0), requested((void *)argument(ctx, 1), argument(ctx, 2)),
			  OPERATION_WRITEV);
}

static __always_inline int count_fsync(context *ctx, enum variant variant)
{
	struct subject subject;

	if (subject_of_syscall(&subject, (void *)argument(ctx, 0))) {
		subject.variant = variant;
		count_call(&subject, OPERATION_FSYNC, 0, 0, 0);
	}
	return 0;
}

HOOK("sys_fsync")
int fsync_entry(context *ctx)
{
	return count_fsync(ctx, VARIANT_USUAL);
}

HOOK("sys_fdatasync")
int fdatasync_entry(context *ctx)
{
	return count_fsync(ctx, VARIANT_FDATASYNC);
}

/* The file has the open's flags by now (alloc_empty_file, fs/file_table.c, 5.10 to 7.2). */
static __always_inline enum variant variant_of_file(const struct file *file)
{
	return LAYOUT_HAS_VARIANTS && BPF_CORE_READ(file, f_flags) & FMODE_EXEC ? VARIANT_EXEC : VARIANT_USUAL;
}

HOOK("do_dentry_open")
int open_entry(context *ctx)
{
	const struct file *file = (void *)argument(ctx, 0);

	count_variant(file, 0, OPERATION_OPEN, variant_of_file(file));
	if (BPF_CORE_READ(file, f_mode) & FMODE_CREATED)
		count_file(file, 0, OPERATION_CREATE);
	return 0;
}

HOOK("mnt_want_write")
int wants_entry(context *ctx)
{
	name_wants((void *)argument(ctx, 0));
	return 0;
}

static __always_inline int count_name(context *ctx, enum operation operation)
{
	struct subject subject;

	if (name_subject(&subject, operation, argument(ctx, prototypes[operation].argument)))
		count_call(&subject, operation, 0, 0, 0);
	return 0;
}

HOOK("vfs_create")
int create_entry(context *ctx)
{
	return count_name(ctx, OPERATION_CREATE);
}

HOOK("vfs_mkdir")
int mkdir_entry(context *ctx)
{
	return count_name(ctx, OPERATION_MKDIR);
}

HOOK("vfs_unlink")
int unlink_entry(context *ctx)
{
	return count_name(ctx, OPERATION_UNLINK);
}

HOOK("vfs_rmdir")
int rmdir_entry(context *ctx)
{
	return count_name(ctx, OPERATION_RMDIR);
}

HOOK("vfs_rename")
int rename_entry(context *ctx)
{
	return count_name(ctx, OPERATION_RENAME);
}
