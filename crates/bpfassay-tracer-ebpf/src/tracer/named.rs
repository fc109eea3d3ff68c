// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Calls by path that change names in directories, observed at entry and exit: `do_mkdirat` and
//! similar functions. Their mount is known once they get write access to it (`mnt_want_write`). For
//! details see `named.h` of the C programs.

use aya_ebpf::{macros::map, maps::LruHashMap};
use bpfassay_tracer_common::{Operation, tally as tallies};

use super::{
    count::{By, Outcome, Subject, clock, copies, count_by, tally, thread},
    kernel::{Address, Place, offset, read},
};

#[repr(C)]
#[derive(Clone, Copy)]
struct Call {
    /// `struct vfsmount *`; 0 until it is known.
    mount: Address,
    start: u64,
}

/// Calls by thread. An entry exists while the thread is in such a call. LRU eviction removes
/// entries of threads that have exited.
#[map]
static NAMED_CALLS: LruHashMap<u32, Call> = LruHashMap::with_max_entries(4096, 0);

#[inline(always)]
pub(super) fn begins() {
    if NAMED_CALLS.insert(thread(), Call { mount: 0, start: clock() }, 0).is_err() {
        tally(tallies::UNMATCHED);
    }
}

/// Records that the calling thread gets write access to this `struct vfsmount *`.
#[inline(always)]
pub(super) fn wants(mount: Address) {
    if let Some(call) = NAMED_CALLS.get_ptr_mut(thread()) {
        // SAFETY: a value of the map, which only this thread uses.
        unsafe {
            if (*call).mount == 0 {
                (*call).mount = mount;
            }
        }
    }
}

/// Ends the calling thread's call with `result`, an `int`. A call whose beginning was not observed
/// has no mount. The exception is `Create`: such a call is a mknod that did not create a regular
/// file. If the program has copies, the first one that finds the beginning counts the call; copies
/// that find none run after it.
#[inline(always)]
pub(super) fn ends(by: By, operation: Operation, result: u64) {
    let thread = thread();
    let call = match NAMED_CALLS.get_ptr(thread) {
        Some(call) => {
            // SAFETY: as above.
            let call = unsafe { *call };
            let _ = NAMED_CALLS.remove(thread);
            call
        }
        None if copies() > 1 || operation as u32 == Operation::Create as u32 => return,
        None => Call { mount: 0, start: 0 },
    };
    let place = if call.mount == 0 {
        Place::NOWHERE
    } else {
        let superblock: Address = read(call.mount, offset!(mount_superblock));
        Place { mount: call.mount, device: read(superblock, offset!(superblock_device)) }
    };
    if let Some(subject) = Subject::new(place) {
        let outcome = Outcome::of_status((result as i32) < 0);
        count_by(by, &subject, operation as u32, outcome, call.start);
    }
}
