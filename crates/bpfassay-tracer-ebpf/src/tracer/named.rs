// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Calls by path that change names in directories, observed at both ends: `do_mkdirat` and similar.
//! Their mount is known once they take write access of it (`mnt_want_write`). `named.h` on the C
//! side has the details.

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

/// By thread; an entry exists while it is in such a call. LRU eviction removes entries of threads
/// that have exited.
#[map]
static NAMED_CALLS: LruHashMap<u32, Call> = LruHashMap::with_max_entries(4096, 0);

#[inline(always)]
pub(super) fn begins() {
    if NAMED_CALLS.insert(thread(), Call { mount: 0, start: clock() }, 0).is_err() {
        tally(tallies::UNMATCHED);
    }
}

/// The calling thread takes write access of this `struct vfsmount *`.
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

/// The calling thread's call returns `result`, an `int`. A call whose beginning was not observed
/// has no mount, except for `Create`: then it is mknod, and did not create a regular file. Where
/// the program has copies, the first that finds the beginning counts the call, and those that find
/// none run after it.
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
