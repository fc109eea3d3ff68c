// SPDX-License-Identifier: MIT OR Apache-2.0
//! An allocator that counts, for each thread, what it has.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    fmt::{self, Write as _},
};

/// Where an input would take the machine's memory rather than the test's patience, the program
/// ends.
const END: usize = 2 << 30;

/// The system's allocator, and the count.
pub(crate) struct Counting;

/// Bytes, which may be below 0: what one thread gave out another may take back.
struct Counts {
    now: Cell<isize>,
    most: Cell<isize>,
    seed: Cell<u64>,
    number: Cell<u64>,
}

thread_local! {
    // Constant and without a destructor: nothing is allocated for it.
    static COUNTS: Counts =
        const { Counts { now: Cell::new(0), most: Cell::new(0), seed: Cell::new(0), number: Cell::new(0) } };
}

/// Begins to count for this input.
pub(crate) fn begin(seed: u64, number: u64) {
    COUNTS.with(|counts| {
        counts.now.set(0);
        counts.most.set(0);
        counts.seed.set(seed);
        counts.number.set(number);
    });
}

/// The most bytes that this thread had at a time since then.
pub(crate) fn most() -> usize {
    COUNTS.with(|counts| counts.most.get().unsigned_abs())
}

/// Whether so many more bytes may be had.
fn take(size: usize) -> bool {
    COUNTS.with(|counts| {
        let now = counts.now.get().saturating_add_unsigned(size);
        if now > END.cast_signed() {
            tell(counts, size);
            return false;
        }
        counts.now.set(now);
        counts.most.set(counts.most.get().max(now));
        true
    })
}

fn give(size: usize) {
    COUNTS.with(|counts| counts.now.set(counts.now.get().saturating_sub_unsigned(size)));
}

/// The program ends now; only this message names the input.
fn tell(counts: &Counts, size: usize) {
    let mut line = Line { bytes: [0; 160], length: 0 };
    let (seed, number) = (counts.seed.get(), counts.number.get());
    let _ = writeln!(line, "fuzz: input {number} of seed {seed} asks for {size} bytes more, beyond {END} in all");
    let _ = rustix::io::write(rustix::stdio::stderr(), &line.bytes[..line.length]);
}

/// Text that takes no memory.
struct Line {
    bytes: [u8; 160],
    length: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.length..self.length + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

// SAFETY: every call goes on to the system's allocator with the same arguments, and what that gives
// is given on; a request that is refused gives null, as the trait has it. Counting touches neither
// memory nor allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !take(size) {
            return std::ptr::null_mut();
        }
        give(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        give(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}
