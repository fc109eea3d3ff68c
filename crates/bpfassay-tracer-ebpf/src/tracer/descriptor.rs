// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Calls of user space by file descriptor, seen from outside the file system. The file is looked up
//! at the call's entry, because another thread can close the descriptor during the call. The result
//! is kept per thread until the call returns.
//!
//! Calls by path (mkdir, unlink, rmdir, rename) are counted, including errors, but their mount and
//! device are not known.

use aya_ebpf::{macros::map, maps::LruHashMap};
use bpfassay_tracer_common::{NO_DURATION, Operation, tally as tallies};

use super::{
    count::{By, Outcome, Subject, clock, count_by, tally, thread},
    files::{file_of, place_of},
    kernel::Place,
    opened::opened,
};

/// `EBADF`, the result of an open whose file is already closed.
const BAD_DESCRIPTOR: i64 = -9;

#[repr(C)]
#[derive(Clone, Copy)]
struct Call {
    subject: Subject,
    start: u64,
    operation: u32,
    /// 1 if there is a call that must be counted.
    wanted: u32,
}

/// Calls by thread. LRU eviction removes entries of threads that have exited.
#[map(name = "pending_calls")]
static PENDING: LruHashMap<u32, Call> = LruHashMap::with_max_entries(8192, 0);

/// Begins a call of `operation`, on `descriptor` if the call has one. Another copy of the program
/// may have run before for this call.
#[inline(always)]
pub(super) fn begins(by: By, operation: Operation, descriptor: Option<u64>) {
    if let By::Copy(_) = by
        && let Some(known) = PENDING.get_ptr(thread())
        // SAFETY: a value of the map, which only this thread uses.
        && unsafe { (*known).wanted } != 0
    {
        return;
    }
    let place = descriptor.map_or(Place::NOWHERE, place_of);
    let subject = match Subject::new(place) {
        Some(subject) => subject,
        // The mount of an open is known afterwards.
        None if operation as u32 == Operation::Open as u32 => Subject::NOBODY,
        None => return,
    };
    let call = Call { subject, start: clock(), operation: operation as u32, wanted: 1 };
    if PENDING.insert(thread(), call, 0).is_err() {
        tally(tallies::UNMATCHED);
    }
}

/// Ends the calling thread's call with `result`. The first copy that sees the end counts the call.
#[inline(always)]
pub(super) fn ends(by: By, result: i64) {
    let Some(call) = PENDING.get_ptr_mut(thread()) else { return };
    // SAFETY: a value of the map, which only this thread uses.
    let Call { subject, start, operation, wanted } = unsafe { *call };
    if wanted == 0 {
        return;
    }
    // SAFETY: as above.
    unsafe { (*call).wanted = 0 };
    if operation == Operation::Open as u32 {
        let file = if result < 0 { result as u64 } else { file_of(result as u64) };
        // Another thread can have closed the file already. The open is then counted without a
        // mount, like a failed one.
        opened(by, if file == 0 { BAD_DESCRIPTOR as u64 } else { file }, start);
        return;
    }
    let outcome = if operation <= Operation::Writev as u32 {
        Outcome::of_data(result)
    } else {
        Outcome { bytes: 0, errors: u64::from(result < 0), duration: NO_DURATION }
    };
    count_by(by, &subject, operation, outcome, start);
}
