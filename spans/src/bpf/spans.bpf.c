// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * Calls of MPI-IO, by uprobes, and the system calls within them that read and write. Each is one event of a ring buffer, with
 * arguments as they are in registers: their meaning depends on the function and on the library, which the reader knows.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual MIT/GPL";

enum { NONE = 255 };

/*
 * Every function: its name, and which of its arguments are a datatype and a status, if any. A test compares the list with that of
 * src/functions.rs, whose order is that of the numbers.
 */
#define FUNCTIONS(X)                  \
	X(init, NONE, NONE)           \
	X(init_thread, NONE, NONE)    \
	X(open, NONE, NONE)           \
	X(close, NONE, NONE)          \
	X(sync, NONE, NONE)           \
	X(set_size, NONE, NONE)       \
	X(preallocate, NONE, NONE)    \
	X(set_view, NONE, NONE)       \
	X(seek, NONE, NONE)           \
	X(seek_shared, NONE, NONE)    \
	X(get_size, NONE, NONE)       \
	X(read, 3, 4)                 \
	X(read_c, 3, 4)               \
	X(read_all, 3, 4)             \
	X(read_all_c, 3, 4)           \
	X(read_shared, 3, 4)          \
	X(read_shared_c, 3, 4)        \
	X(read_ordered, 3, 4)         \
	X(read_ordered_c, 3, 4)       \
	X(read_at, 4, 5)              \
	X(read_at_c, 4, 5)            \
	X(read_at_all, 4, 5)          \
	X(read_at_all_c, 4, 5)        \
	X(write, 3, 4)                \
	X(write_c, 3, 4)              \
	X(write_all, 3, 4)            \
	X(write_all_c, 3, 4)          \
	X(write_shared, 3, 4)         \
	X(write_shared_c, 3, 4)       \
	X(write_ordered, 3, 4)        \
	X(write_ordered_c, 3, 4)      \
	X(write_at, 4, 5)             \
	X(write_at_c, 4, 5)           \
	X(write_at_all, 4, 5)         \
	X(write_at_all_c, 4, 5)       \
	X(iread, 3, NONE)             \
	X(iread_c, 3, NONE)           \
	X(iread_all, 3, NONE)         \
	X(iread_all_c, 3, NONE)       \
	X(iread_shared, 3, NONE)      \
	X(iread_shared_c, 3, NONE)    \
	X(iread_at, 4, NONE)          \
	X(iread_at_c, 4, NONE)        \
	X(iread_at_all, 4, NONE)      \
	X(iread_at_all_c, 4, NONE)    \
	X(iwrite, 3, NONE)            \
	X(iwrite_c, 3, NONE)          \
	X(iwrite_all, 3, NONE)        \
	X(iwrite_all_c, 3, NONE)      \
	X(iwrite_shared, 3, NONE)     \
	X(iwrite_shared_c, 3, NONE)   \
	X(iwrite_at, 4, NONE)         \
	X(iwrite_at_c, 4, NONE)       \
	X(iwrite_at_all, 4, NONE)     \
	X(iwrite_at_all_c, 4, NONE)   \
	X(read_all_begin, 3, NONE)    \
	X(read_all_end, NONE, 2)      \
	X(read_at_all_begin, 4, NONE) \
	X(read_at_all_end, NONE, 2)   \
	X(read_ordered_begin, 3, NONE) \
	X(read_ordered_end, NONE, 2)  \
	X(write_all_begin, 3, NONE)   \
	X(write_all_end, NONE, 2)     \
	X(write_at_all_begin, 4, NONE) \
	X(write_at_all_end, NONE, 2)  \
	X(write_ordered_begin, 3, NONE) \
	X(write_ordered_end, NONE, 2)

#define NUMBER(name, datatype, status) FUNCTION_##name,
enum function { FUNCTIONS(NUMBER) };

enum kind { KIND_CALL = 1, KIND_OPEN = 2, KIND_SYSTEM_CALL = 3 };

/* What could be read of the calling program's memory. */
enum { READ_STATUS = 1, READ_TYPE_SIZE = 2, READ_HANDLE = 4, READ_PATH = 8 };

enum { PATH_BYTES = 1024 };

/* src/event.rs has the same layouts. */
struct call_event {
	__u32 kind;
	enum function function;
	__u32 process;
	__u32 thread;
	__u64 begin;
	__u64 end;
	__u64 handle;
	__u64 arguments[6];
	/* The beginning of the caller's MPI_Status. */
	__u64 status[3];
	__u64 type_size;
	__s32 result;
	__u32 read;
	/* The number of the file that the function is in. */
	__u32 library;
	/* With the zero at the end. */
	__u32 path_bytes;
};

struct open_event {
	struct call_event call;
	char path[PATH_BYTES];
};

struct system_call_event {
	__u32 kind;
	__u32 operation;
	__u32 process;
	__u32 thread;
	__u64 begin;
	__u64 end;
	__u64 handle;
	/* When the call of MPI-IO began that this happened in. */
	__u64 call_begin;
	__u64 inode;
	__s64 offset;
	/* -1 where it is not known. */
	__s64 requested;
	__s64 result;
	__u32 device;
	enum function function;
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

/* What is not in any event. src/attach.rs has the same order. */
enum tally {
	/* Events for which the ring buffer had no place. */
	TALLY_RING_FULL,
	/* Calls for which `calls` had no place. */
	TALLY_CALLS_FULL,
	/* Returns of calls that began before the probes were there, or whose beginning was lost. */
	TALLY_UNMATCHED,
	/* Calls within calls. */
	TALLY_NESTED,
	/* Calls that never returned (a jump, an exception). */
	TALLY_ABANDONED,
	TALLY_COUNT,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TALLY_COUNT);
	__type(key, __u32);
	__type(value, __u64);
} tallies SEC(".maps");

static __always_inline void tally_add(__u32 tally)
{
	__u64 *count = bpf_map_lookup_elem(&tallies, &tally);

	/* A task can be preempted here, and another one count on the same CPU. */
	if (count)
		__sync_fetch_and_add(count, 1);
}

struct call {
	__u64 begin;
	__u64 sp;
	__u64 handle;
	__u64 arguments[6];
	/* Of the read or write that is under way. */
	__u64 system_begin;
	__u64 requested;
	__u64 offset;
	__u32 descriptor;
	__u32 function;
	__u16 datatype;
	__u16 status;
};

/* By process and thread. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct call);
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} nothing SEC(".maps");

/*
 * Keeps variables on the stack of the task, where a program that runs on the same CPU after a preemption does not overwrite them: see the tracer's
 * uprobe.bpf.c. The tail call is never made: no task that has a user space has number 0.
 */
static __always_inline void keep_stack(struct pt_regs *ctx)
{
	if (!(__u32)bpf_get_current_pid_tgid())
		bpf_tail_call(ctx, &nothing, 0);
}

static __always_inline int enter(struct pt_regs *ctx, enum function function, __u16 datatype, __u16 status)
{
	__u64 thread = bpf_get_current_pid_tgid();
	const struct call *other = bpf_map_lookup_elem(&calls, &thread);
	struct call call = {
		.sp = PT_REGS_SP(ctx),
		.function = function,
		.datatype = datatype,
		.status = status,
	};

	if (other) {
		/* Stacks grow downwards. */
		if (call.sp < other->sp) {
			tally_add(TALLY_NESTED);
			return 0;
		}
		tally_add(TALLY_ABANDONED);
	}
	call.arguments[0] = PT_REGS_PARM1(ctx);
	call.arguments[1] = PT_REGS_PARM2(ctx);
	call.arguments[2] = PT_REGS_PARM3(ctx);
	call.arguments[3] = PT_REGS_PARM4(ctx);
	call.arguments[4] = PT_REGS_PARM5(ctx);
	call.arguments[5] = PT_REGS_PARM6(ctx);
	/* Only closing takes the address of the handle, where there is none afterwards. */
	if (function == FUNCTION_close)
		bpf_probe_read_user(&call.handle, sizeof(call.handle), (const void *)call.arguments[0]);
	else if (function > FUNCTION_open)
		call.handle = call.arguments[0];
	call.begin = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&calls, &thread, &call, BPF_ANY))
		tally_add(TALLY_CALLS_FULL);
	return 0;
}

static __always_inline __u64 argument(const struct call *call, __u16 index)
{
	switch (index) {
	case 2: return call->arguments[2];
	case 3: return call->arguments[3];
	case 4: return call->arguments[4];
	case 5: return call->arguments[5];
	default: return 0;
	}
}

static __always_inline void fill(struct call_event *event, const struct call *call, __u64 thread, __s32 result,
				 __u32 library)
{
	/* opal_datatype_t of Open MPI 4 and 5: `size` is behind opal_object_t, `flags`, `id` and `bdt_used`. */
	const __u64 size_offset = 24;
	__u64 status = argument(call, call->status), datatype = argument(call, call->datatype);

	event->kind = KIND_CALL;
	event->function = call->function;
	event->process = thread >> 32;
	event->thread = thread;
	event->begin = call->begin;
	event->handle = call->handle;
	__builtin_memcpy(event->arguments, call->arguments, sizeof(event->arguments));
	event->read = call->handle ? READ_HANDLE : 0;
	/* MPI_STATUS_IGNORE is 0 or 1. */
	if (status > 1 && !bpf_probe_read_user(event->status, sizeof(event->status), (const void *)status))
		event->read |= READ_STATUS;
	else
		__builtin_memset(event->status, 0, sizeof(event->status));
	/* Handles of MPICH have 32 bits. */
	if (datatype >> 32 &&
	    !bpf_probe_read_user(&event->type_size, sizeof(event->type_size), (const void *)(datatype + size_offset)))
		event->read |= READ_TYPE_SIZE;
	else
		event->type_size = 0;
	event->result = result;
	event->library = library;
	event->path_bytes = 0;
	event->end = bpf_ktime_get_ns();
}

static __always_inline void leave_open(const struct call *call, __u64 thread, __s32 result, __u32 library)
{
	struct open_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	long bytes;

	if (!event) {
		tally_add(TALLY_RING_FULL);
		return;
	}
	fill(&event->call, call, thread, result, library);
	event->call.kind = KIND_OPEN;
	event->call.handle = 0;
	/* (communicator, name, mode, info, file): the library has touched both, so that they can be read. */
	if (!bpf_probe_read_user(&event->call.handle, sizeof(event->call.handle), (const void *)call->arguments[4]))
		event->call.read |= READ_HANDLE;
	bytes = bpf_probe_read_user_str(event->path, sizeof(event->path), (const void *)call->arguments[1]);
	if (bytes > 0) {
		event->call.read |= READ_PATH;
		event->call.path_bytes = bytes;
	}
	bpf_ringbuf_submit(event, 0);
}

static __always_inline int leave(struct pt_regs *ctx, __u32 library)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct call *call = bpf_map_lookup_elem(&calls, &thread);
	__s32 result = PT_REGS_RC(ctx);
	struct call_event *event;

	if (!call) {
		tally_add(TALLY_UNMATCHED);
		return 0;
	}
	/* The return of a call within this one. */
	if (PT_REGS_SP(ctx) < call->sp)
		return 0;
	if (call->function == FUNCTION_open) {
		leave_open(call, thread, result, library);
	} else {
		event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
		if (event) {
			fill(event, call, thread, result, library);
			bpf_ringbuf_submit(event, 0);
		} else {
			tally_add(TALLY_RING_FULL);
		}
	}
	bpf_map_delete_elem(&calls, &thread);
	return 0;
}

#define ENTRY(name, datatype, status)                                           \
	SEC("uprobe")                                                           \
	int enter_##name(struct pt_regs *ctx)                                   \
	{                                                                       \
		keep_stack(ctx);                                                \
		return enter(ctx, FUNCTION_##name, datatype, status);           \
	}
FUNCTIONS(ENTRY)

/* One for each file that functions are in; src/library.rs has their number. */
#define RETURN(number)                             \
	SEC("uretprobe")                           \
	int leave_##number(struct pt_regs *ctx)    \
	{                                          \
		keep_stack(ctx);                   \
		return leave(ctx, number);         \
	}
RETURN(0)
RETURN(1)
RETURN(2)
RETURN(3)

/*
 * The same for Linux 6.6 and later, where one link has all functions of a file, and goes at once. The cookie has the number of the function, that of its datatype
 * and that of its status, a byte each.
 */
SEC("uprobe.multi")
int multi_enter(struct pt_regs *ctx)
{
	__u64 cookie = bpf_get_attach_cookie(ctx);

	keep_stack(ctx);
	return enter(ctx, cookie & 0xff, cookie >> 8 & 0xff, cookie >> 16 & 0xff);
}

#define MULTI_RETURN(number)                            \
	SEC("uretprobe.multi")                          \
	int multi_leave_##number(struct pt_regs *ctx)   \
	{                                               \
		keep_stack(ctx);                        \
		return leave(ctx, number);              \
	}
MULTI_RETURN(0)
MULTI_RETURN(1)
MULTI_RETURN(2)
MULTI_RETURN(3)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct inode___number {
	unsigned long i_ino;
};

struct file___position {
	loff_t f_pos;
};
#pragma clang attribute pop

/* include/uapi/linux/stat.h */
#define S_IFMT 0170000
#define S_IFREG 0100000

/* A tracepoint has only as many arguments as its system call: the kernel refuses a program that reads more. */
static __always_inline int system_call_begins(const struct trace_event_raw_sys_enter *ctx, bool at)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct call *call = bpf_map_lookup_elem(&calls, &thread);

	/* Starting MPI is no call of MPI-IO. */
	if (!call || call->function < FUNCTION_open)
		return 0;
	call->descriptor = ctx->args[0];
	call->requested = ctx->args[2];
	call->offset = at ? ctx->args[3] : 0;
	call->system_begin = bpf_ktime_get_ns();
	return 0;
}

/*
 * Only of regular files: processes of MPI exchange messages by sockets and pipes as well. `vector`: the number of bytes is not among the arguments; `at`: the
 * offset is, otherwise it is the file's own, which other threads may change.
 */
static __always_inline int system_call_ends(const struct trace_event_raw_sys_exit *ctx, __u32 operation, bool vector, bool at)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct call *call = bpf_map_lookup_elem(&calls, &thread);
	const struct task_struct *task = (const void *)bpf_get_current_task();
	const struct file *file;
	const struct inode *inode;
	const struct fdtable *table;
	struct system_call_event *event;
	__s64 result = ctx->ret;
	struct file **files;
	__u64 begin;

	if (!call || !call->system_begin)
		return 0;
	begin = call->system_begin;
	call->system_begin = 0;
	table = BPF_CORE_READ(task, files, fdt);
	/* No such descriptor: the call has failed. */
	if (call->descriptor >= BPF_CORE_READ(table, max_fds))
		return 0;
	files = BPF_CORE_READ(table, fd);
	if (bpf_probe_read_kernel(&file, sizeof(file), &files[call->descriptor]) || !file)
		return 0;
	inode = BPF_CORE_READ(file, f_inode);
	if ((BPF_CORE_READ(inode, i_mode) & S_IFMT) != S_IFREG)
		return 0;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		tally_add(TALLY_RING_FULL);
		return 0;
	}
	event->kind = KIND_SYSTEM_CALL;
	event->operation = operation;
	event->process = thread >> 32;
	event->thread = thread;
	event->begin = begin;
	event->end = bpf_ktime_get_ns();
	event->handle = call->handle;
	event->call_begin = call->begin;
	event->inode = BPF_CORE_READ((const struct inode___number *)inode, i_ino);
	event->offset = call->offset;
	if (!at)
		event->offset = BPF_CORE_READ((const struct file___position *)file, f_pos) - (result > 0 ? result : 0);
	event->requested = vector ? -1 : call->requested;
	event->result = result;
	event->device = BPF_CORE_READ(inode, i_sb, s_dev);
	event->function = call->function;
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* In the order of `SYSTEM_CALLS` of src/event.rs. */
#define SYSTEM_CALL(number, name, vector, at)                                  \
	SEC("tracepoint/syscalls/sys_enter_" #name)                            \
	int system_##name##_begins(struct trace_event_raw_sys_enter *ctx)      \
	{                                                                      \
		return system_call_begins(ctx, at);                            \
	}                                                                      \
	SEC("tracepoint/syscalls/sys_exit_" #name)                             \
	int system_##name##_ends(struct trace_event_raw_sys_exit *ctx)         \
	{                                                                      \
		return system_call_ends(ctx, number, vector, at);              \
	}
SYSTEM_CALL(0, read, false, false)
SYSTEM_CALL(1, write, false, false)
SYSTEM_CALL(2, pread64, false, true)
SYSTEM_CALL(3, pwrite64, false, true)
SYSTEM_CALL(4, readv, true, false)
SYSTEM_CALL(5, writev, true, false)
SYSTEM_CALL(6, preadv, true, true)
SYSTEM_CALL(7, pwritev, true, true)
SYSTEM_CALL(8, preadv2, true, true)
SYSTEM_CALL(9, pwritev2, true, true)
