// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
/*
 * BPF trampoline at function exit: counts what the call returned.
 *
 * A trampoline skips a program that is already running on the CPU. On a preemptible kernel a task can be preempted
 * inside the program, and until it runs again the calls of every other task on that CPU are skipped (the kernel counts
 * them: recursion_misses, 5.12 and later). So there, the loader attaches up to three copies of the programs that count
 * data. Each copy that runs says so in the task's storage, under the number of the call; whichever is first for a call
 * counts it. A call is lost only if every copy has a task preempted inside it on the same CPU at the same time, which
 * the misses bound: at most the smallest of the copies' misses.
 */
#include "names.h"
#include "opened.h"
#include "trampoline.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Which copies ran for the last call of a task, per operation that moves data. */
struct turn {
	/* The task's own count of calls (task_io_accounting): it grows with each call that gets as far as the file. */
	__u64 call;
	__u64 ran;
};

struct turns {
	struct turn turns[OPERATION_WRITEV + 1];
};

/* Linux 5.11 and later; not made where there is one copy only. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct turns);
} turns SEC(".maps");

/* Whether this copy is the first to run for this call. */
static __always_inline bool is_first(__u32 copy, enum ledger_operation operation)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct turns *all = bpf_task_storage_get(&turns, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u64 call = task->ioac.syscr + task->ioac.syscw;
	struct turn *turn;

	if (!all) {
		/* Neither this copy nor another may count what the others cannot see. */
		ledger_tally(TALLY_UNMATCHED);
		return false;
	}
	turn = &all->turns[operation];
	/* A copy that ran already for this number sees the next call: calls that fail early do not count up. */
	if (turn->call == call && turn->ran && !(turn->ran & (1 << copy))) {
		turn->ran |= 1 << copy;
		return false;
	}
	turn->call = call;
	turn->ran = 1 << copy;
	return true;
}

/* When a call began, by thread and operation; for durations only. Of nested calls the inner one is timed. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, __u64);
} starts SEC(".maps");

static __always_inline __u64 start_key(enum ledger_operation operation)
{
	return bpf_get_current_pid_tgid() << 32 | operation;
}

static __always_inline int begin(enum ledger_operation operation)
{
	__u64 key = start_key(operation), now = ledger_clock();

	bpf_map_update_elem(&starts, &key, &now, BPF_ANY);
	return 0;
}

static __always_inline __u64 began(enum ledger_operation operation)
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

static __always_inline int count_data(__u32 copy, const struct file *file, long ret, enum ledger_operation operation)
{
	struct subject subject;

	if (settings.copies > 1 && !is_first(copy, operation))
		return 0;
	if (subject_of_argument(&subject, file))
		ledger_count_copy(copy, &subject, operation, ret < 0 ? 0 : ret, ret < 0, began(operation));
	return 0;
}

/* `last` is the number of arguments. */
#define DATA(name, function, operation, last)                                                                      \
	SEC("fexit/" function)                                                                                     \
	int name##_exit(context *ctx)                                                                              \
	{                                                                                                          \
		return count_data(0, (void *)ctx[0], ctx[last], operation);                                        \
	}                                                                                                          \
	SEC("fexit/" function)                                                                                     \
	int name##_exit_2(context *ctx)                                                                            \
	{                                                                                                          \
		return count_data(1, (void *)ctx[0], ctx[last], operation);                                        \
	}                                                                                                          \
	SEC("fexit/" function)                                                                                     \
	int name##_exit_3(context *ctx)                                                                            \
	{                                                                                                          \
		return count_data(2, (void *)ctx[0], ctx[last], operation);                                        \
	}                                                                                                          \
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

SEC("fexit/vfs_fsync_range")
int fsync_exit(context *ctx)
{
	struct subject subject;

	if (subject_of_argument(&subject, (void *)ctx[0]))
		ledger_count(&subject, OPERATION_FSYNC, 0, (int)ctx[4] < 0, began(OPERATION_FSYNC));
	return 0;
}
BEGIN(fsync, "vfs_fsync_range", OPERATION_FSYNC)

SEC("fexit/do_filp_open")
int open_exit(context *ctx)
{
	count_opened((void *)ctx[3], began(OPERATION_OPEN));
	return 0;
}
BEGIN(open, "do_filp_open", OPERATION_OPEN)

SEC("fentry/mnt_want_write")
int wants_entry(context *ctx)
{
	name_wants((void *)ctx[0]);
	return 0;
}

static __always_inline int count_name(context *ctx, enum ledger_operation operation)
{
	unsigned long ret = argument(ctx, prototypes[operation].arguments);
	struct subject subject;

	if (name_subject(&subject, operation, argument(ctx, prototypes[operation].argument)))
		ledger_count(&subject, operation, 0, name_failed(operation, ret), began(operation));
	return 0;
}

#define NAME(name, function, operation)                                                                            \
	SEC("fexit/" function)                                                                                     \
	int name##_exit(context *ctx)                                                                              \
	{                                                                                                          \
		return count_name(ctx, operation);                                                                 \
	}                                                                                                          \
	BEGIN(name, function, operation)

NAME(create, "vfs_create", OPERATION_CREATE)
NAME(mkdir, "vfs_mkdir", OPERATION_MKDIR)
NAME(unlink, "vfs_unlink", OPERATION_UNLINK)
NAME(rmdir, "vfs_rmdir", OPERATION_RMDIR)
NAME(rename, "vfs_rename", OPERATION_RENAME)
