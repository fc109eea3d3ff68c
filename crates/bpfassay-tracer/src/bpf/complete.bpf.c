// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * All data that move between programs and files, as far as the kernel has a function to hook:
 *
 *	path				hook					counted as
 *	read, pread, …			vfs_read, vfs_write (exit)		read, write
 *	readv, preadv2, …		vfs_readv, vfs_writev (exit)		readv, writev
 *	libaio				aio_read, aio_write (entry: task),	read, write
 *					aio_complete_rw (entry: result)
 *	io_uring			tracepoint io_uring_complete		read, write, fsync
 *	splice, sendfile to a pipe	splice_file_to_pipe (exit)		read
 *	splice from a pipe		do_splice (exit)			write
 *	sendfile to anything else	do_splice_direct (exit)			read and write
 *	copy_file_range			vfs_copy_file_range (exit)		read and write
 *	mapped files			set_pte_range or do_set_pte (entry),	map-read, map-write
 *					do_page_mkwrite (exit)
 *
 * Each byte counts once. Before Linux 6.8, copy_file_range falls back to do_splice_direct
 * (fs/read_write.c: generic_copy_file_range), whose calls are not counted again then.
 *
 * Not visible: accesses to mapped pages (faults are), requests of io_uring without completion
 * (IOSQE_CQE_SKIP_SUCCESS), its multishot reads, and completions that overflow the queue on 6.1.
 * Splicing between two pipes counts the writing side only.
 *
 * Operations on names, and read, write, readv and writev, are those of fexit. The loader leaves out
 * programs whose function the kernel does not have, and reports that.
 */
#define COUNTER_SHARED_KEYS
#include "fexit.bpf.c"

/* Size of a page; set by the loader. */
const volatile __u64 page_size SEC(".rodata.page_size") = 4096;

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kiocb {
	struct file *ki_filp;
};

/* io_uring/io_uring.h, include/linux/io_uring_types.h; `cqe` arrived in Linux 5.19. */
struct io_cqe {
	__s32 res;
};

struct io_kiocb {
	struct file *file;
	u8 opcode;
	struct io_cqe cqe;
};

struct vm_operations_struct {
	void *page_mkwrite;
};

struct vm_area_struct {
	unsigned long vm_flags;
	const struct vm_operations_struct *vm_ops;
	struct file *vm_file;
};

/* An enumeration from 5.13 on (da2f5eb3d344), which has the first hooked function that reads it. */
enum fault_flag {
	FAULT_FLAG_WRITE = 1,
};

struct vm_fault {
	const struct vm_area_struct *vma;
	enum fault_flag flags;
};

#pragma clang attribute pop

/* include/linux/mm.h, unchanged since 5.10. */
#define VM_SHARED 0x8UL
/* linux/mm_types.h, vm_fault_reason with no page: OOM, SIGBUS, HWPOISON, SEGV, RETRY, FALLBACK. */
#define NO_PAGE (0x1 | 0x2 | 0x10 | 0x20 | 0x40 | 0x400 | 0x800)

/* include/uapi/linux/io_uring.h: enum io_uring_op, which is ABI. */
enum {
	OP_READV = 1,
	OP_WRITEV = 2,
	OP_FSYNC = 3,
	OP_READ_FIXED = 4,
	OP_WRITE_FIXED = 5,
	OP_READ = 22,
	OP_WRITE = 23,
	OP_READV_FIXED = 60,
	OP_WRITEV_FIXED = 61,
};

/* include/uapi/linux/bpf.h */
enum bpf_func_id {
	BPF_FUNC_get_func_ret = 184,
};

/* libaio requests in flight, by their kiocb: any task or interrupt can complete them. */
struct submitted {
	__u64 cgroup;
	__u64 operation;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct submitted);
} requests SEC(".maps");

/* Tasks inside vfs_copy_file_range. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, __u8);
} copying SEC(".maps");

/* Counts the result of a path other than read and write. */
static __always_inline void count(struct file *file, enum operation operation, long ret)
{
	struct subject subject;

	if (!subject_of_file(&subject, file))
		return;
	/* The flags of a request of io_uring tell which of the two calls it is. */
	subject.variant = operation == OPERATION_FSYNC ? VARIANT_UNKNOWN : VARIANT_USUAL;
	count_call_returned(&subject, operation, ret, 0);
}

/* Counts what a task of `cgroup` requested, but another task or an interrupt completes. */
static __always_inline void count_of(__u64 cgroup, struct file *file, enum operation operation, long ret)
{
	const struct vfsmount *mnt = BPF_CORE_READ(file, f_path.mnt);
	struct subject subject = {
		.cgroup = cgroup,
		.mount = (__u32)BPF_CORE_READ(mount_of(mnt), mnt_id),
		.vfsmount = mnt,
		.device = BPF_CORE_READ(mnt, mnt_sb, s_dev),
	};

	if ((!settings.cgroup || cgroup == settings.cgroup) && (!settings.mount || subject.mount == settings.mount))
		count_call_returned(&subject, operation, ret, 0);
}

/* libaio: the requesting task is known at submission, the result at completion. */
static __always_inline void submit(struct kiocb *kiocb, enum operation operation)
{
	__u64 key = (unsigned long)kiocb;
	struct submitted value = {
		.cgroup = bpf_get_current_cgroup_id(),
		.operation = operation,
	};

	if (bpf_map_update_elem(&requests, &key, &value, 0))
		tally_add(TALLY_INSERT_FAILURES);
}

/* An error before the request begins: no completion follows (fs/aio.c: aio_read). */
static __always_inline void submitted(struct kiocb *kiocb, enum operation operation, int ret)
{
	__u64 key = (unsigned long)kiocb;

	if (ret >= 0 || bpf_map_delete_elem(&requests, &key))
		return;
	count(kiocb->ki_filp, operation, ret);
}

SEC("fentry/aio_read")
int BPF_PROG(aio_read_entry, struct kiocb *kiocb)
{
	submit(kiocb, OPERATION_READ);
	return 0;
}

SEC("fentry/aio_write")
int BPF_PROG(aio_write_entry, struct kiocb *kiocb)
{
	submit(kiocb, OPERATION_WRITE);
	return 0;
}

SEC("fexit/aio_read")
int BPF_PROG(aio_read_exit, struct kiocb *kiocb, const void *iocb, int vectored, int compat, int ret)
{
	submitted(kiocb, OPERATION_READ, ret);
	return 0;
}

SEC("fexit/aio_write")
int BPF_PROG(aio_write_exit, struct kiocb *kiocb, const void *iocb, int vectored, int compat, int ret)
{
	submitted(kiocb, OPERATION_WRITE, ret);
	return 0;
}

SEC("fentry/aio_complete_rw")
int BPF_PROG(aio_complete, struct kiocb *kiocb, long res)
{
	__u64 key = (unsigned long)kiocb;
	struct submitted *request = bpf_map_lookup_elem(&requests, &key);

	if (!request)
		return 0;
	count_of(request->cgroup, kiocb->ki_filp, request->operation, res);
	bpf_map_delete_elem(&requests, &key);
	return 0;
}

/*
 * io_uring has one completion per request. The submitting task or a thread of its process fills it
 * in, in the same cgroup (from Linux 5.12 on). The arguments changed twice, but the second is the
 * request since 5.18, and the request contains its result since 5.19.
 */
SEC("raw_tracepoint/io_uring_complete")
int ring_complete(__u64 *ctx)
{
	struct io_kiocb *request = (void *)ctx[1];
	enum operation operation;
	struct file *file;

	if (!bpf_core_field_exists(struct io_kiocb, cqe) || !request)
		return 0;
	switch (BPF_CORE_READ(request, opcode)) {
	case OP_READ:
	case OP_READV:
	case OP_READ_FIXED:
	case OP_READV_FIXED:
		operation = OPERATION_READ;
		break;
	case OP_WRITE:
	case OP_WRITEV:
	case OP_WRITE_FIXED:
	case OP_WRITEV_FIXED:
		operation = OPERATION_WRITE;
		break;
	case OP_FSYNC:
		operation = OPERATION_FSYNC;
		break;
	default:
		return 0;
	}
	file = BPF_CORE_READ(request, file);
	if (file)
		count(file, operation, BPF_CORE_READ(request, cqe.res));
	return 0;
}

SEC("fexit/splice_file_to_pipe")
int BPF_PROG(file_to_pipe_exit, struct file *in, void *pipe, loff_t *offset, size_t len, unsigned int flags, long ret)
{
	count(in, OPERATION_READ, ret);
	return 0;
}

/* The program above counts reading. If `out` is a pipe, this counts on the file system of pipes. */
SEC("fexit/do_splice")
int BPF_PROG(splice_exit, struct file *in, loff_t *off_in, struct file *out, loff_t *off_out, size_t len,
	     unsigned int flags, long ret)
{
	count(out, OPERATION_WRITE, ret);
	return 0;
}

SEC("fexit/do_splice_direct")
int BPF_PROG(splice_direct_exit, struct file *in, loff_t *ppos, struct file *out, loff_t *opos, size_t len,
	     unsigned int flags, long ret)
{
	__u64 task = bpf_get_current_pid_tgid();

	if (bpf_map_lookup_elem(&copying, &task))
		return 0;
	count(in, OPERATION_READ, ret);
	count(out, OPERATION_WRITE, ret);
	return 0;
}

SEC("fentry/vfs_copy_file_range")
int BPF_PROG(copy_entry, struct file *in)
{
	__u64 task = bpf_get_current_pid_tgid();
	__u8 inside = 1;

	if (bpf_map_update_elem(&copying, &task, &inside, 0))
		tally_add(TALLY_INSERT_FAILURES);
	return 0;
}

SEC("fexit/vfs_copy_file_range")
int BPF_PROG(copy_exit, struct file *in, loff_t pos_in, struct file *out, loff_t pos_out, size_t len,
	     unsigned int flags, ssize_t ret)
{
	__u64 task = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&copying, &task);
	count(in, OPERATION_READ, ret);
	count(out, OPERATION_WRITE, ret);
	return 0;
}

/* Counts pages that a fault maps: one, or several around it that are in the page cache. */
static __always_inline void mapped(struct vm_fault *vmf, __u64 pages)
{
	const struct vm_area_struct *vma = vmf->vma;
	struct file *file = BPF_CORE_READ(vma, vm_file);
	enum operation operation = OPERATION_MAP_READ;

	if (!file)
		return;
	if ((vmf->flags & FAULT_FLAG_WRITE) && (BPF_CORE_READ(vma, vm_flags) & VM_SHARED)) {
		/* do_page_mkwrite counts if the file system has a hook for it. */
		if (BPF_CORE_READ(vma, vm_ops, page_mkwrite))
			return;
		operation = OPERATION_MAP_WRITE;
	}
	count(file, operation, pages * page_size);
}

/* Linux 6.6 and later. */
SEC("fentry/set_pte_range")
int BPF_PROG(pages_mapped, struct vm_fault *vmf, void *folio, void *page, unsigned int pages)
{
	mapped(vmf, pages);
	return 0;
}

/* Linux 5.13 to 6.5. */
SEC("fentry/do_set_pte")
int BPF_PROG(page_mapped, struct vm_fault *vmf)
{
	mapped(vmf, 1);
	return 0;
}

/* `folio` arrived in Linux 6.6. The return value follows the arguments, however many there are. */
SEC("fexit/do_page_mkwrite")
int page_written(__u64 *ctx)
{
	struct vm_fault *vmf = (void *)ctx[0];
	const struct vm_area_struct *vma = BPF_CORE_READ(vmf, vma);
	struct file *file = BPF_CORE_READ(vma, vm_file);
	__u64 ret;

	/* Before the helper existed (5.17), there was one argument. */
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_get_func_ret))
		bpf_get_func_ret(ctx, &ret);
	else
		ret = ctx[1];

	if (file && !(ret & NO_PAGE))
		count(file, OPERATION_MAP_WRITE, page_size);
	return 0;
}
