// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * uprobes on functions of the C library and MPI-IO, in libraries or in a static program. The loader
 * attaches each program to those functions in the file (`functions` in bpfassay-tracer-common).
 *
 * C library calls are counted by what they returned, MPI-IO calls with requested bytes, if known.
 * A file handle of MPI names no file of the kernel. A datatype has no known size, unless its handle
 * contains the size (predefined datatypes of MPICH and its derivatives).
 */
/*
 * A task can be preempted inside these programs while another one runs them. Keys are therefore
 * shared, and every program begins with keep_stack().
 */
#define COUNTER_SHARED_KEYS
/* Some architectures and kernels forbid tail calls together with calls of functions. */
#define NO_CALLS
#include "descriptor.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} nothing SEC(".maps");

/*
 * Programs of this type that need at least 64 bytes of stack get a private stack per CPU (x86_64
 * from 6.13 on: bpf_enable_priv_stack, kernel/bpf/verifier.c). This is safe if a program does not
 * run twice at once on a CPU, as for kprobes only. On preemptible kernels, tasks overwrite each
 * other's variables, and calls are lost or misattributed unnoticed. A tail call keeps the task's
 * stack (check_max_stack_depth). This one is never made: no user task has number 0.
 */
static __always_inline void keep_stack(struct pt_regs *ctx)
{
	if (!(__u32)bpf_get_current_pid_tgid())
		bpf_tail_call(ctx, &nothing, 0);
}

#define BEGINS(name, operation, by_descriptor) VARIANT_BEGINS(name, operation, VARIANT_USUAL, by_descriptor)

#define VARIANT_BEGINS(name, operation, variant, by_descriptor)                                                    \
	SEC("uprobe/" #name)                                                                                       \
	int name##_entry(struct pt_regs *ctx)                                                                      \
	{                                                                                                          \
		keep_stack(ctx);                                                                                           \
		variant_begins(0, operation, variant, by_descriptor, PT_REGS_PARM1(ctx));                          \
		return 0;                                                                                          \
	}

BEGINS(read, OPERATION_READ, true)
BEGINS(write, OPERATION_WRITE, true)
BEGINS(readv, OPERATION_READV, true)
BEGINS(writev, OPERATION_WRITEV, true)
/* fdatasync has the same program. */
VARIANT_BEGINS(fsync, OPERATION_FSYNC, VARIANT_UNKNOWN, true)
BEGINS(open, OPERATION_OPEN, false)
BEGINS(mkdir, OPERATION_MKDIR, false)
BEGINS(unlink, OPERATION_UNLINK, false)
BEGINS(rmdir, OPERATION_RMDIR, false)
BEGINS(rename, OPERATION_RENAME, false)

/* include/uapi/linux/fcntl.h */
#define AT_REMOVEDIR 0x200

SEC("uprobe/unlinkat")
int unlinkat_entry(struct pt_regs *ctx)
{
	keep_stack(ctx);
	call_begins(0, PT_REGS_PARM3(ctx) & AT_REMOVEDIR ? OPERATION_RMDIR : OPERATION_UNLINK, false, 0);
	return 0;
}

struct pending_mpi {
	__u64 bytes;
	__u64 start;
	enum operation operation;
	/* 1 if there is a call. */
	__u32 wanted;
};

/* Calls by thread, separate from `pending`: MPI-IO calls the C library. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u32);
	__type(value, struct pending_mpi);
} pending_mpi SEC(".maps");

/*
 * Returns the bytes of `count` elements; 0 if the size is unknown. The count is an int or has 64
 * bits. Its low 32 bits are used: the upper bits of an int are undefined. MPICH's handle of a
 * predefined datatype is 0x4c00SSNN with size SS (MPICH 4.3, src/include/mpir_objects.h and
 * src/mpi/datatype/typerep: MPIR_Datatype_get_basic_size). Open MPI's is a pointer above 32 bits.
 */
static __always_inline __u64 mpi_bytes(unsigned long count, unsigned long datatype)
{
	__u64 size = datatype >> 8 & 0xff;

	return datatype >> 24 == 0x4c && (__s32)count > 0 ? (__u32)count * size : 0;
}

static __always_inline void mpi_begins(enum operation operation, __u64 bytes)
{
	__u32 thread = bpf_get_current_pid_tgid();
	const struct pending_mpi call = {
		.bytes = bytes, .start = latency_clock(), .operation = operation, .wanted = true,
	};

	if (bpf_map_update_elem(&pending_mpi, &thread, &call, BPF_ANY))
		tally_add(TALLY_UNMATCHED);
}

SEC("uprobe/mpi_open")
int mpi_open_entry(struct pt_regs *ctx)
{
	keep_stack(ctx);
	mpi_begins(OPERATION_MPI_OPEN, 0);
	return 0;
}

/* (file, buffer, count, datatype, status) */
#define MPI_BEGINS(name, operation)                                                                                \
	SEC("uprobe/" #name)                                                                                       \
	int name##_entry(struct pt_regs *ctx)                                                                      \
	{                                                                                                          \
		keep_stack(ctx);                                                                                           \
		mpi_begins(operation, mpi_bytes(PT_REGS_PARM3(ctx), PT_REGS_PARM4(ctx)));                          \
		return 0;                                                                                          \
	}

/* (file, offset, buffer, count, datatype, status) */
#define MPI_BEGINS_AT(name, operation)                                                                             \
	SEC("uprobe/" #name)                                                                                       \
	int name##_entry(struct pt_regs *ctx)                                                                      \
	{                                                                                                          \
		keep_stack(ctx);                                                                                           \
		mpi_begins(operation, mpi_bytes(PT_REGS_PARM4(ctx), PT_REGS_PARM5(ctx)));                          \
		return 0;                                                                                          \
	}

MPI_BEGINS(mpi_read, OPERATION_MPI_READ)
MPI_BEGINS_AT(mpi_read_at, OPERATION_MPI_READ)
MPI_BEGINS(mpi_write, OPERATION_MPI_WRITE)
MPI_BEGINS_AT(mpi_write_at, OPERATION_MPI_WRITE)

/* Functions that return 0, or the number of an error. */
SEC("uretprobe/mpi")
int mpi_return(struct pt_regs *ctx)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct pending_mpi *call = bpf_map_lookup_elem(&pending_mpi, &thread);
	bool failed = (int)PT_REGS_RC(ctx) != 0;
	struct subject subject;

	keep_stack(ctx);
	if (!call || !call->wanted)
		return 0;
	call->wanted = false;
	if (subject_of(&subject, NULL, 0))
		count_call(&subject, call->operation, failed ? 0 : call->bytes, failed, call->start);
	return 0;
}

/* Functions that return bytes, or -1. */
SEC("uretprobe/bytes")
int bytes_return(struct pt_regs *ctx)
{
	keep_stack(ctx);
	call_ends(0, PT_REGS_RC(ctx));
	return 0;
}

/* Functions that return an int. */
SEC("uretprobe/status")
int status_return(struct pt_regs *ctx)
{
	keep_stack(ctx);
	call_ends(0, (int)PT_REGS_RC(ctx));
	return 0;
}
