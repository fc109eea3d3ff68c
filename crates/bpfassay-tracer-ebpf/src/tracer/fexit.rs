// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! BPF trampolines at function exit: they count what the call returned.
//!
//! A trampoline skips a program that is already running on the CPU. On a preemptible kernel a task
//! can be preempted inside the program. Until it runs again, the calls of every other task on that
//! CPU are skipped. On such kernels the loader therefore attaches several copies of the programs:
//! six of those that count data, three of the others, which are called less often. The first copy
//! that runs for a call counts it and records that under the number of the call.
//!
//! For details see `fexit.bpf.c` of the C programs. It keeps the turns in task storage, which needs
//! the types of the map in BTF. Here they are in an LRU hash by thread, which loses no count. An
//! evicted turn makes the next copy the first one. An eviction between two copies of one call is
//! impossible unless [`TURNS`] other threads make their first call in the meantime.

#![expect(non_snake_case, reason = "two underscores separate the parts of a program's name")]

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::generated::bpf_get_current_task,
    macros::{fentry, fexit, map},
    maps::LruHashMap,
    programs::{FEntryContext, FExitContext},
};
use bpfassay_tracer_common::Operation;

use super::{
    count::{By, Outcome, Subject, clock, copies, count_by, is_timed, thread},
    entry::Arguments,
    files::{is_regular, subject_of_syscall},
    kernel::{Address, Place, offset, read},
    named,
    opened::opened,
};

impl Arguments for FExitContext {
    #[inline(always)]
    fn argument(&self, index: usize) -> u64 {
        self.arg(index)
    }

    #[inline(always)]
    fn place(&self) -> Place {
        Place::of_typed_file(self.arg(0))
    }
}

/// Which copies have run for the last call of a thread. For operations that move no data, `call` is
/// 0, and no copy has run when a call begins ([`mark`]).
#[repr(C)]
#[derive(Clone, Copy)]
struct Turn {
    /// The task's count of calls (`task_io_accounting`). It grows with each call that reaches the
    /// file.
    call: u64,
    ran: u64,
}

/// Turns by thread and operation. LRU eviction removes entries of threads that have exited. The map
/// has the minimum size if there is only one copy.
#[map(name = "turns")]
static TURNS: LruHashMap<u64, Turn> = LruHashMap::with_max_entries(65536, 0);

#[inline(always)]
fn thread_and(operation: Operation) -> u64 {
    u64::from(thread()) << 32 | operation as u64
}

/// Marks the beginning of a call of `operation`, which moves no data: no copy has run for it.
#[inline(always)]
fn mark(operation: Operation) {
    if let Some(turn) = TURNS.get_ptr_mut(thread_and(operation)) {
        // SAFETY: a value of the map, which only this thread uses.
        unsafe { (*turn).ran = 0 };
    }
}

/// Returns whether this copy is the first to run for this call.
#[inline(always)]
fn is_first(copy: u32, operation: Operation) -> bool {
    if copies() == 1 {
        return true;
    }
    let call = if operation as u32 <= Operation::Writev as u32 {
        // SAFETY: takes no arguments.
        let task: Address = unsafe { bpf_get_current_task() };
        read::<u64>(task, offset!(task_reads)).wrapping_add(read::<u64>(task, offset!(task_writes)))
    } else {
        0
    };
    let key = thread_and(operation);
    let turn = TURNS.get_ptr_mut(key).or_else(|| {
        let _ = TURNS.insert(key, Turn { call: 0, ran: 0 }, u64::from(BPF_NOEXIST));
        TURNS.get_ptr_mut(key)
    });
    // Earlier copies could not create an entry either. The copy that was attached first runs last,
    // and counts for all.
    let Some(turn) = turn else { return copy == 0 };
    let me = 1u64 << copy;
    // SAFETY: a value of the map, which only this thread uses.
    unsafe {
        // If this copy has already run for this number, this is the next call: calls that fail
        // early do not increment the number.
        if (*turn).call == call && (*turn).ran != 0 && (*turn).ran & me == 0 {
            (*turn).ran |= me;
            return false;
        }
        (*turn).call = call;
        (*turn).ran = me;
    }
    true
}

/// Start times of calls by thread and operation, used for durations only. If calls are nested, the
/// inner one is timed.
#[map(name = "starts")]
static STARTS: LruHashMap<u64, u64> = LruHashMap::with_max_entries(8192, 0);

#[inline(always)]
fn begin(operation: Operation) {
    let _ = STARTS.insert(thread_and(operation), clock(), 0);
}

#[inline(always)]
fn began(operation: Operation) -> u64 {
    if !is_timed() {
        return 0;
    }
    let key = thread_and(operation);
    let Some(start) = STARTS.get_ptr(key) else { return 0 };
    // SAFETY: a value of the map, which only this thread uses.
    let start = unsafe { *start };
    let _ = STARTS.remove(key);
    start
}

#[inline(always)]
fn count_data(copy: u32, context: &FExitContext, returned: u64, operation: Operation) {
    if !is_first(copy, operation) {
        return;
    }
    if let Some(subject) = Subject::new(context.place()) {
        let outcome = Outcome::of_data(returned as i64);
        count_by(By::copy(copy), &subject, operation as u32, outcome, began(operation));
    }
}

#[inline(always)]
fn count_open(copy: u32, file: Address) {
    if is_first(copy, Operation::Open) {
        opened(By::copy(copy), file, began(Operation::Open));
    }
}

/// Counts an fsync. The descriptor is looked up at the end. If another thread has closed it by
/// then, the call counts without a mount.
#[inline(always)]
fn count_fsync(copy: u32, context: &FExitContext) {
    if !is_first(copy, Operation::Fsync) {
        return;
    }
    if let Some(subject) = subject_of_syscall(context.arg(0)) {
        let failed = (context.arg::<u64>(1) as i32) < 0;
        let outcome = Outcome::of_status(failed);
        count_by(By::copy(copy), &subject, Operation::Fsync as u32, outcome, began(Operation::Fsync));
    }
}

/// Declares the copies of a program at exit, and a program at entry for durations.
macro_rules! programs {
    ($($function:literal, $operation:ident, $begin:ident,
        |$copy:ident, $context:ident| $body:expr, $($number:literal: $exit:ident),+;)+) => {
        $(
            $(
                #[fexit(function = $function)]
                fn $exit($context: FExitContext) -> i32 {
                    let $copy = $number;
                    $body;
                    0
                }
            )+

            #[fentry(function = $function)]
            fn $begin(_: FEntryContext) -> i32 {
                begin(Operation::$operation);
                0
            }
        )+
    };
}

programs! {
    "vfs_read", Read, fexit__vfs_read__begin,
        |copy, context| count_data(copy, &context, context.arg(4), Operation::Read),
        0: fexit__vfs_read,
        1: fexit__vfs_read__2,
        2: fexit__vfs_read__3,
        3: fexit__vfs_read__4,
        4: fexit__vfs_read__5,
        5: fexit__vfs_read__6;
    "vfs_write", Write, fexit__vfs_write__begin,
        |copy, context| count_data(copy, &context, context.arg(4), Operation::Write),
        0: fexit__vfs_write,
        1: fexit__vfs_write__2,
        2: fexit__vfs_write__3,
        3: fexit__vfs_write__4,
        4: fexit__vfs_write__5,
        5: fexit__vfs_write__6;
    "vfs_readv", Readv, fexit__vfs_readv__begin,
        |copy, context| count_data(copy, &context, context.arg(5), Operation::Readv),
        0: fexit__vfs_readv,
        1: fexit__vfs_readv__2,
        2: fexit__vfs_readv__3,
        3: fexit__vfs_readv__4,
        4: fexit__vfs_readv__5,
        5: fexit__vfs_readv__6;
    "vfs_writev", Writev, fexit__vfs_writev__begin,
        |copy, context| count_data(copy, &context, context.arg(5), Operation::Writev),
        0: fexit__vfs_writev,
        1: fexit__vfs_writev__2,
        2: fexit__vfs_writev__3,
        3: fexit__vfs_writev__4,
        4: fexit__vfs_writev__5,
        5: fexit__vfs_writev__6;
    "sys_fsync", Fsync, fexit__sys_fsync__begin,
        |copy, context| count_fsync(copy, &context),
        0: fexit__sys_fsync,
        1: fexit__sys_fsync__2,
        2: fexit__sys_fsync__3;
    "sys_fdatasync", Fsync, fexit__sys_fdatasync__begin,
        |copy, context| count_fsync(copy, &context),
        0: fexit__sys_fdatasync,
        1: fexit__sys_fdatasync__2,
        2: fexit__sys_fdatasync__3;
    "do_filp_open", Open, fexit__do_filp_open__begin,
        |copy, context| count_open(copy, context.arg(3)),
        0: fexit__do_filp_open,
        1: fexit__do_filp_open__2,
        2: fexit__do_filp_open__3;
}

/// Declares programs at the entry of a function. All copies are alike and can run any number of
/// times.
macro_rules! entries {
    ($($function:literal: |$context:ident| $body:expr, $($entry:ident),+;)+) => {
        $($(
            #[fentry(function = $function)]
            fn $entry($context: FEntryContext) -> i32 {
                $body;
                0
            }
        )+)+
    };
}

entries! {
    // These run at the beginning of calls that nothing else distinguishes.
    "do_filp_open": |_context| mark(Operation::Open),
        fexit__do_filp_open__mark, fexit__do_filp_open__mark_2, fexit__do_filp_open__mark_3;
    "sys_fsync": |_context| mark(Operation::Fsync),
        fexit__sys_fsync__mark, fexit__sys_fsync__mark_2, fexit__sys_fsync__mark_3;
    "sys_fdatasync": |_context| mark(Operation::Fsync),
        fexit__sys_fdatasync__mark, fexit__sys_fdatasync__mark_2, fexit__sys_fdatasync__mark_3;
    "mnt_want_write": |context| named::wants(context.arg(0)),
        fexit__mnt_want_write__entry, fexit__mnt_want_write__entry_2, fexit__mnt_want_write__entry_3;
    "do_mknodat": |context| if is_regular(context.arg(2)) { named::begins() },
        fexit__do_mknodat__entry, fexit__do_mknodat__entry_2, fexit__do_mknodat__entry_3;
    "do_mkdirat": |_context| named::begins(),
        fexit__do_mkdirat__entry, fexit__do_mkdirat__entry_2, fexit__do_mkdirat__entry_3;
    "do_unlinkat": |_context| named::begins(),
        fexit__do_unlinkat__entry, fexit__do_unlinkat__entry_2, fexit__do_unlinkat__entry_3;
    "do_rmdir": |_context| named::begins(),
        fexit__do_rmdir__entry, fexit__do_rmdir__entry_2, fexit__do_rmdir__entry_3;
    "do_renameat2": |_context| named::begins(),
        fexit__do_renameat2__entry, fexit__do_renameat2__entry_2, fexit__do_renameat2__entry_3;
}

/// Declares programs at the end of calls by path. The number is the number of the function's
/// arguments.
macro_rules! names {
    ($($function:literal, $operation:ident, $arguments:literal, $($copy:literal: $exit:ident),+;)+) => {
        $($(
            #[fexit(function = $function)]
            fn $exit(context: FExitContext) -> i32 {
                named::ends(By::copy($copy), Operation::$operation, context.arg($arguments));
                0
            }
        )+)+
    };
}

names! {
    "do_mknodat", Create, 4,
        0: fexit__do_mknodat, 1: fexit__do_mknodat__2, 2: fexit__do_mknodat__3;
    "do_mkdirat", Mkdir, 3,
        0: fexit__do_mkdirat, 1: fexit__do_mkdirat__2, 2: fexit__do_mkdirat__3;
    "do_unlinkat", Unlink, 2,
        0: fexit__do_unlinkat, 1: fexit__do_unlinkat__2, 2: fexit__do_unlinkat__3;
    "do_rmdir", Rmdir, 2,
        0: fexit__do_rmdir, 1: fexit__do_rmdir__2, 2: fexit__do_rmdir__3;
    "do_renameat2", Rename, 5,
        0: fexit__do_renameat2, 1: fexit__do_renameat2__2, 2: fexit__do_renameat2__3;
}
