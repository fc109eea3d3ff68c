// SPDX-License-Identifier: MIT OR Apache-2.0
//! An allocator that counts the memory of each thread.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    fmt::{self, Write as _},
};

/// The program ends if an input takes more bytes, before the machine's memory is exhausted.
const END: usize = 2 << 30;

/// The system's allocator plus counters.
pub(crate) struct Counting;

/// Numbers of bytes. They may be below 0, because a thread can free memory of another one.
struct Counts {
    now: Cell<isize>,
    most: Cell<isize>,
    seed: Cell<u64>,
    number: Cell<u64>,
}

thread_local! {
    // A constant without a destructor, so that it needs no allocation.
    static COUNTS: Counts =
        const { Counts { now: Cell::new(0), most: Cell::new(0), seed: Cell::new(0), number: Cell::new(0) } };
}

/// Begins to count for the input `number` of `seed`.
pub(crate) fn begin(seed: u64, number: u64) {
    COUNTS.with(|counts| {
        counts.now.set(0);
        counts.most.set(0);
        counts.seed.set(seed);
        counts.number.set(number);
    });
}

/// Returns the peak number of bytes of this thread since [`begin`].
pub(crate) fn most() -> usize {
    COUNTS.with(|counts| counts.most.get().unsigned_abs())
}

/// Counts `size` more bytes. Returns whether they are allowed.
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

/// Prints the only message that names the input: the program ends after it.
fn tell(counts: &Counts, size: usize) {
    let mut line = Line { bytes: [0; 160], length: 0 };
    let (seed, number) = (counts.seed.get(), counts.number.get());
    let _ = writeln!(line, "fuzz: input {number} of seed {seed} asks for {size} bytes more, beyond {END} in all");
    let _ = rustix::io::write(rustix::stdio::stderr(), &line.bytes[..line.length]);
}

/// A text buffer that does not allocate.
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

// SAFETY: every call passes its arguments to the system's allocator and returns the result. A
// refused request returns null, as the trait permits. Counting affects no memory or allocator.
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
