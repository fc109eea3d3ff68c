// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * BPF trampolines at function exit: they count what the call returned.
 *
 * A trampoline skips a program that is already running on the CPU. On a preemptible kernel a task
 * can be preempted inside the program. Until it runs again, every other task's calls on that CPU
 * are skipped (recursion_misses, 5.12 and later). The loader therefore attaches copies there: six
 * of programs that count data, three of others. The first copy that runs for a call counts it and
 * notes that in the task's storage. A call is lost only if every copy has a preempted task on that
 * CPU: at most the smallest of the copies' misses.
 *
 * A copy distinguishes a task's calls by the task's count of calls if they move data, and otherwise
 * by programs at the call's beginning (`mark`), which can run any number of times.
 */
#include "named.h"
#include "opened.h"
#include "trampoline.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Which copies have run for the last call of a task. */
struct turn {
	/* The task's count of calls that reached the file (task_io_accounting). */
	__u64 call;
	__u64 ran;
};

struct turns {
	/* Operations that move data. */
	struct turn data[OPERATION_WRITEV + 1];
	/* Other operations, since their beginning was observed: a bit per copy (ran_bit). */
	__u64 others;
};

/* Linux 5.11 and later. It is not created if there is only one copy. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct turns);
} turns SEC(".maps");

#define RAN_COPIES 3
#define RAN_ALL(operation) (((1ULL << RAN_COPIES) - 1) << RAN_COPIES * (operation))
_Static_assert(RAN_COPIES * OPERATION_COUNT <= 64, "a bit for each");

static __always_inline __u64 ran_bit(__u32 copy, enum operation operation)
{
	return 1ULL << (RAN_COPIES * operation + copy);
}

static __always_inline struct turns *turns_of(struct task_struct *task)
{
	return bpf_task_storage_get(&turns, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* Marks the beginning of calls of the operations in `others`: no copy has run for them. */
static __always_inline void mark(__u64 others)
{
	struct turns *all = turns_of(bpf_get_current_task_btf());

	if (all)
		all->others &= ~others;
}

/* Returns whether this copy is the first to run for this call. */
static __always_inline bool is_first(__u32 copy, enum operation operation)
{
	struct task_struct *task;
	struct turns *all;
	struct turn *turn;
	__u64 call, bit;

	if (settings.copies == 1)
		return true;
	task = bpf_get_current_task_btf();
	all = turns_of(task);
	/*
	 * Storage is not created while a preempted task creates some (6.12: __bpf_task_storage_get).
	 * It is always found, so no earlier copy had any. The copy attached first runs last and
	 * counts (hlist_add_head in bpf_trampoline_link_prog, kernel/bpf/trampoline.c, 5.10 to 7.2).
	 */
	if (!all)
		return copy == 0;
	if (operation > OPERATION_WRITEV) {
		bit = ran_bit(copy, operation);
		/* This copy ran already, so this is a nested call, whose beginning was not seen. */
		if (all->others & RAN_ALL(operation) && !(all->others & bit)) {
			all->others |= bit;
			return false;
		}
		all->others = (all->others & ~RAN_ALL(operation)) | bit;
		return true;
	}
	turn = &all->data[operation];
	call = task->ioac.syscr + task->ioac.syscw;
	/* Likewise: calls that fail early do not increment the number. */
	if (turn->call == call && turn->ran && !(turn->ran & (1 << copy))) {
		turn->ran |= 1 << copy;
		return false;
	}
	turn->call = call;
	turn->ran = 1 << copy;
	return true;
}

/* Start times by thread and operation, for durations. The inner of nested calls is timed. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, __u64);
} starts SEC(".maps");

static __always_inline __u64 start_key(enum operation operation)
{
	return bpf_get_current_pid_tgid() << 32 | operation;
}

static __always_inline int begin(enum operation operation)
{
	__u64 key = start_key(operation), now = latency_clock();

	bpf_map_update_elem(&starts, &key, &now, BPF_ANY);
	return 0;
}

static __always_inline __u64 began(enum operation operation)
{
	__u64 key, start, *found;

	if (!settings.latency)
		return 0;
	key = start_key(operation);
	found = bpf_map_lookup_elem(&starts, &key);
	if (!found)
		return 0;
	start = *found;
	bpf_map_delete_elem(&starts, &key);
	return start;
}

static __always_inline int count_data(__u32 copy, const struct file *file, long ret, enum operation operation)
{
	struct subject subject;

	if (!is_first(copy, operation))
		return 0;
	if (settings.plain) {
		subject_of_argument(&subject, file, true);
		counter_add(copy, &subject, operation, ret < 0 ? 0 : ret, ret < 0, NO_DURATION);
	} else if (subject_of_argument(&subject, file, false)) {
		count_call_copy(copy, &subject, operation, ret < 0 ? 0 : ret, ret < 0, began(operation));
	}
	return 0;
}

/* `last` is the number of arguments. */
#define DATA_COPY(name, function, operation, last, copy)                                                           \
	SEC("fexit/" function)                                                                                     \
	int name(context *ctx)                                                                                     \
	{                                                                                                          \
		return count_data(copy, (void *)ctx[0], ctx[last], operation);                                     \
	}

#define DATA(name, function, operation, last)                                                                      \
	DATA_COPY(name##_exit, function, operation, last, 0)                                                       \
	DATA_COPY(name##_exit_2, function, operation, last, 1)                                                     \
	DATA_COPY(name##_exit_3, function, operation, last, 2)                                                     \
	DATA_COPY(name##_exit_4, function, operation, last, 3)                                                     \
	DATA_COPY(name##_exit_5, function, operation, last, 4)                                                     \
	DATA_COPY(name##_exit_6, function, operation, last, 5)                                                     \
	BEGIN(name, function, operation)

#define BEGIN(name, function, operation)                                                                           \
	SEC("fentry/" function)                                                                                    \
	int name##_begin(context *ctx)                                                                             \
	{                                                                                                          \
		return begin(operation);                                                                           \
	}

DATA(read, "vfs_read", OPERATION_READ, 4)
DATA(write, "vfs_write", OPERATION_WRITE, 4)
DATA(readv, "vfs_readv", OPERATION_READV, 5)
DATA(writev, "vfs_writev", OPERATION_WRITEV, 5)

/* These run at the beginning of calls that nothing else distinguishes. */
#define MARK(name, function, operation)                                                                            \
	SEC("fentry/" function)                                                                                    \
	int name(context *ctx)                                                                                     \
	{                                                                                                          \
		mark(RAN_ALL(operation));                                                                          \
		return 0;                                                                                          \
	}

/* The descriptor is looked up at the end. If it is closed, the call has no mount. */
static __always_inline int count_fsync(__u32 copy, context *ctx, enum variant variant)
{
	struct subject subject;

	if (is_first(copy, OPERATION_FSYNC) && subject_of_syscall(&subject, (void *)ctx[0])) {
		subject.variant = variant;
		count_call_copy(copy, &subject, OPERATION_FSYNC, 0, (int)ctx[1] < 0, began(OPERATION_FSYNC));
	}
	return 0;
}

#define FSYNC_COPY(name, suffix, function, variant, copy)                                                          \
	SEC("fexit/" function)                                                                                     \
	int name##_exit##suffix(context *ctx)                                                                      \
	{                                                                                                          \
		return count_fsync(copy, ctx, variant);                                                            \
	}                                                                                                          \
	MARK(name##_mark##suffix, function, OPERATION_FSYNC)

#define FSYNC(name, function, variant)                                                                             \
	FSYNC_COPY(name, , function, variant, 0)                                                                   \
	FSYNC_COPY(name, _2, function, variant, 1)                                                                 \
	FSYNC_COPY(name, _3, function, variant, 2)                                                                 \
	BEGIN(name, function, OPERATION_FSYNC)

FSYNC(fsync, "sys_fsync", VARIANT_USUAL)
FSYNC(fdatasync, "sys_fdatasync", VARIANT_FDATASYNC)

MARK(open_mark, "do_filp_open", OPERATION_OPEN)
MARK(open_mark_2, "do_filp_open", OPERATION_OPEN)
MARK(open_mark_3, "do_filp_open", OPERATION_OPEN)

#define OPEN(name, copy)                                                                                           \
	SEC("fexit/do_filp_open")                                                                                  \
	int name(context *ctx)                                                                                     \
	{                                                                                                          \
		if (is_first(copy, OPERATION_OPEN))                                                                \
			count_opened_copy(copy, (void *)ctx[3], variant_of_open((void *)ctx[2]),                   \
					  began(OPERATION_OPEN));                                                  \
		return 0;                                                                                          \
	}

OPEN(open_exit, 0)
OPEN(open_exit_2, 1)
OPEN(open_exit_3, 2)
BEGIN(open, "do_filp_open", OPERATION_OPEN)

#define WANTS(name)                                                                                                \
	SEC("fentry/mnt_want_write")                                                                               \
	int name(context *ctx)                                                                                     \
	{                                                                                                          \
		return name_wants((void *)ctx[0]);                                                                 \
	}

WANTS(wants_entry)
WANTS(wants_entry_2)
WANTS(wants_entry_3)

#define NAME_COPY(name, suffix, function, operation, last, copy)                                                       \
	SEC("fentry/" function)                                                                                    \
	int name##_entry##suffix(context *ctx)                                                                     \
	{                                                                                                          \
		if (operation == OPERATION_CREATE && !is_regular(ctx[2]))                                          \
			return 0;                                                                                  \
		return name_begins();                                                                              \
	}                                                                                                          \
	SEC("fexit/" function)                                                                                     \
	int name##_exit##suffix(context *ctx)                                                                      \
	{                                                                                                          \
		return name_ends(copy, operation, ctx[last]);                                                      \
	}

/* `last` is the number of arguments. */
#define NAME(name, function, operation, last)                                                                      \
	NAME_COPY(name, , function, operation, last, 0)                                                            \
	NAME_COPY(name, _2, function, operation, last, 1)                                                          \
	NAME_COPY(name, _3, function, operation, last, 2)

NAME(mknod, "do_mknodat", OPERATION_CREATE, 4)
NAME(mkdir, "do_mkdirat", OPERATION_MKDIR, 3)
NAME(unlink, "do_unlinkat", OPERATION_UNLINK, 2)
NAME(rmdir, "do_rmdir", OPERATION_RMDIR, 2)
NAME(rename, "do_renameat2", OPERATION_RENAME, 5)
