// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Pairs of programs at function entry and return (kprobe and kretprobe). The registers at return
//! do not contain the arguments. The file of a call is therefore kept from entry on, per thread, on
//! a small stack: calls can be nested (a file system on top of another).
//!
//! A return can be missed (`maxactive` exceeded). The next entry finds a leftover entry by the
//! stack pointer, because nested calls have lower stack pointers than the calls around them. The
//! next return finds it by the operation.

#![expect(non_snake_case, reason = "two underscores separate the parts of a program's name")]

use aya_ebpf::{
    Global,
    bindings::BPF_NOEXIST,
    macros::{kprobe, kretprobe, map},
    maps::LruHashMap,
    programs::{ProbeContext, RetProbeContext},
};
use bpfassay_tracer_common::{Operation, tally as tallies};

use super::{
    arch::stack_pointer,
    count::{By, Outcome, Subject, clock, count, tally, thread},
    entry::Arguments as _,
    files::{is_regular, subject_of_syscall},
    kernel::Place,
    named,
    opened::opened,
};

const DEPTH: usize = 4;

/// A call that has begun.
#[repr(C)]
#[derive(Clone, Copy)]
struct Call {
    subject: Subject,
    start: u64,
    frame: u64,
    operation: u32,
    wanted: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Calls {
    depth: u64,
    calls: [Call; DEPTH],
}

/// Calls by thread. LRU eviction removes entries of threads that have exited.
#[map]
static PENDING: LruHashMap<u32, Calls> = LruHashMap::with_max_entries(8192, 0);

/// The initial value for a new thread. It is too large for the stack.
#[unsafe(no_mangle)]
static NO_CALLS: Global<[u64; size_of::<Calls>() / 8]> = Global::new([0; size_of::<Calls>() / 8]);

/// Returns element `index` of the stack of calls.
///
/// # Safety
/// `calls` must be a value of the map, and `index` below [`DEPTH`].
#[inline(always)]
unsafe fn call_at(calls: *mut Calls, index: usize) -> *mut Call {
    // SAFETY: the caller's.
    unsafe { (&raw mut (*calls).calls).cast::<Call>().add(index) }
}

#[inline(always)]
fn push(context: &ProbeContext, operation: Operation) -> Option<*mut Call> {
    let frame = stack_pointer(context);
    let thread = thread();
    let calls = PENDING.get_ptr_mut(thread).or_else(|| {
        // SAFETY: zeros make a stack without calls, and are never written to.
        let none: &Calls = unsafe { &*(&raw const NO_CALLS).cast() };
        let _ = PENDING.insert(thread, none, u64::from(BPF_NOEXIST));
        PENDING.get_ptr_mut(thread)
    });
    let Some(calls) = calls else {
        tally(tallies::UNMATCHED);
        return None;
    };
    // SAFETY: a value of the map, which only this thread uses, and indexes below DEPTH.
    unsafe {
        let mut depth = (*calls).depth;
        let mut index = DEPTH;
        while index > 0 {
            index -= 1;
            if depth == index as u64 + 1 && (*call_at(calls, index)).frame <= frame {
                depth = index as u64;
            }
        }
        if depth >= DEPTH as u64 {
            tally(tallies::UNMATCHED);
            return None;
        }
        (*calls).depth = depth + 1;
        let call = call_at(calls, depth as usize);
        (*call).operation = operation as u32;
        (*call).frame = frame;
        (*call).wanted = 0;
        (*call).start = clock();
        Some(call)
    }
}

#[inline(always)]
fn pop(operation: Operation) -> Option<*const Call> {
    let calls = PENDING.get_ptr_mut(thread())?;
    let mut found = None;
    // SAFETY: as above.
    unsafe {
        let mut index = DEPTH;
        while index > 0 {
            index -= 1;
            if found.is_none() && (*calls).depth == index as u64 + 1 {
                (*calls).depth = index as u64;
                let call = call_at(calls, index);
                if (*call).operation == operation as u32 {
                    found = Some(call.cast_const());
                }
            }
        }
    }
    found
}

/// Records cgroup and mount of the call.
#[inline(always)]
fn note(call: *mut Call, subject: Option<Subject>) {
    if let Some(subject) = subject {
        // SAFETY: from `push`.
        unsafe {
            (*call).subject = subject;
            (*call).wanted = 1;
        }
    }
}

/// Counts the call that returns.
#[inline(always)]
fn finish(operation: Operation, outcome: Outcome) {
    let Some(call) = pop(operation) else { return };
    // SAFETY: from `pop`.
    unsafe {
        if (*call).wanted != 0 {
            let subject = (*call).subject;
            count(&subject, operation, outcome, (*call).start);
        }
    }
}

/// Returns the function's return value.
#[inline(always)]
fn returned(context: &RetProbeContext) -> u64 {
    context.ret()
}

#[inline(always)]
fn file_entry(context: &ProbeContext, operation: Operation) {
    if let Some(call) = push(context, operation) {
        note(call, Subject::new(Place::of_file(context.argument(0))));
    }
}

#[inline(always)]
fn fsync_entry(context: &ProbeContext) {
    if let Some(call) = push(context, Operation::Fsync) {
        note(call, subject_of_syscall(context.argument(0)));
    }
}

/// Declares both programs for a function.
macro_rules! programs {
    ($($function:literal, $entry:ident, $return:ident:
        |$at_entry:ident| $on_entry:expr, |$at_return:ident| $on_return:expr;)+) => {
        $(
            #[kprobe(function = $function)]
            fn $entry($at_entry: ProbeContext) -> u32 {
                $on_entry;
                0
            }

            #[kretprobe(function = $function)]
            fn $return($at_return: RetProbeContext) -> u32 {
                $on_return;
                0
            }
        )+
    };
}

programs! {
    "vfs_read", kretprobe__vfs_read__entry, kretprobe__vfs_read:
        |entry| file_entry(&entry, Operation::Read),
        |exit| finish(Operation::Read, Outcome::of_data(returned(&exit) as i64));
    "vfs_write", kretprobe__vfs_write__entry, kretprobe__vfs_write:
        |entry| file_entry(&entry, Operation::Write),
        |exit| finish(Operation::Write, Outcome::of_data(returned(&exit) as i64));
    "vfs_readv", kretprobe__vfs_readv__entry, kretprobe__vfs_readv:
        |entry| file_entry(&entry, Operation::Readv),
        |exit| finish(Operation::Readv, Outcome::of_data(returned(&exit) as i64));
    "vfs_writev", kretprobe__vfs_writev__entry, kretprobe__vfs_writev:
        |entry| file_entry(&entry, Operation::Writev),
        |exit| finish(Operation::Writev, Outcome::of_data(returned(&exit) as i64));
    "sys_fsync", kretprobe__sys_fsync__entry, kretprobe__sys_fsync:
        |entry| fsync_entry(&entry),
        |exit| finish(Operation::Fsync, Outcome::of_status((returned(&exit) as i32) < 0));
    "sys_fdatasync", kretprobe__sys_fdatasync__entry, kretprobe__sys_fdatasync:
        |entry| fsync_entry(&entry),
        |exit| finish(Operation::Fsync, Outcome::of_status((returned(&exit) as i32) < 0));
    "do_mknodat", kretprobe__do_mknodat__entry, kretprobe__do_mknodat:
        |entry| if is_regular(entry.argument(2)) { named::begins() },
        |exit| named::ends(By::First, Operation::Create, returned(&exit));
    "do_mkdirat", kretprobe__do_mkdirat__entry, kretprobe__do_mkdirat:
        |_entry| named::begins(), |exit| named::ends(By::First, Operation::Mkdir, returned(&exit));
    "do_unlinkat", kretprobe__do_unlinkat__entry, kretprobe__do_unlinkat:
        |_entry| named::begins(), |exit| named::ends(By::First, Operation::Unlink, returned(&exit));
    "do_rmdir", kretprobe__do_rmdir__entry, kretprobe__do_rmdir:
        |_entry| named::begins(), |exit| named::ends(By::First, Operation::Rmdir, returned(&exit));
    "do_renameat2", kretprobe__do_renameat2__entry, kretprobe__do_renameat2:
        |_entry| named::begins(), |exit| named::ends(By::First, Operation::Rename, returned(&exit));
    "do_filp_open", kretprobe__do_filp_open__entry, kretprobe__do_filp_open:
        |entry| push(&entry, Operation::Open),
        |exit| if let Some(call) = pop(Operation::Open) {
            // SAFETY: from `pop`.
            opened(By::First, returned(&exit), unsafe { (*call).start });
        };
}

#[kprobe(function = "mnt_want_write")]
fn kretprobe__mnt_want_write__entry(context: ProbeContext) -> u32 {
    named::wants(context.argument(0));
    0
}
