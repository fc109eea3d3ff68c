// SPDX-License-Identifier: MIT OR Apache-2.0
//! Markers in the stream of executed instructions. They begin and end the windows in which QEMU's
//! plugin counts (`bpfassay-plugin`).
//!
//! A marker is an instruction that every processor of its architecture executes without any effect
//! ([`markers`](bpfassay_protocol::arch::ArchFacts::markers)). The agent alone executes markers,
//! twice per phase. They do the same with and without the plugin, which is invisible to the guest.

use std::{
    arch::asm,
    sync::atomic::{AtomicU64, Ordering},
};

use bpfassay_protocol::Arch;

/// Number of windows that have begun.
static WINDOWS: AtomicU64 = AtomicU64::new(0);

/// The instructions that begin and end a window.
const MARKERS: [&[u8]; 2] = Arch::BUILT_FOR.facts().markers;

/// Returns four bytes of `marker` as a little-endian number; 0 beyond the end of `marker`.
const fn word(marker: &[u8], index: usize) -> u32 {
    match marker.split_at(4 * index).1.first_chunk() {
        Some(bytes) => u32::from_le_bytes(*bytes),
        None => 0,
    }
}

/// Executes one of [`MARKERS`].
macro_rules! execute {
    ($index:literal) => {{
        const MARKER: &[u8] = MARKERS[$index];
        const { assert!(MARKER.len() == 4 || MARKER.len() == 8) };
        // SAFETY: the instruction reads and writes neither registers nor memory.
        unsafe {
            if MARKER.len() == 8 {
                asm!(".4byte {}, {}", const word(MARKER, 0), const word(MARKER, 1), options(nomem, nostack, preserves_flags));
            } else {
                asm!(".4byte {}", const word(MARKER, 0), options(nomem, nostack, preserves_flags));
            }
        }
    }};
}

/// A window that has begun. It ends when this is dropped, however a phase ends.
#[derive(Debug)]
pub(crate) struct OpenWindow {
    /// Number of the window, from 1. The plugin counts windows in the same way.
    pub number: u64,
}

impl OpenWindow {
    pub(crate) fn begin() -> Self {
        Self { number: begin() }
    }
}

impl Drop for OpenWindow {
    fn drop(&mut self) {
        end();
    }
}

#[inline(never)]
fn begin() -> u64 {
    let number = WINDOWS.fetch_add(1, Ordering::Relaxed) + 1;
    execute!(0);
    number
}

#[inline(never)]
fn end() {
    execute!(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_harmless_and_windows_are_numbered() {
        let first = OpenWindow::begin().number;
        assert_eq!(OpenWindow::begin().number, first + 1);
        end();
    }

    /// The code of the two functions contains the bytes of this machine's markers.
    #[test]
    fn markers_are_in_the_code_of_their_functions() {
        let has = |function: usize, marker: &[u8]| {
            // SAFETY: so many bytes from the beginning of a function are within the program's code,
            // which is far larger and can be read.
            let code = unsafe { std::slice::from_raw_parts(function as *const u8, 128) };
            code.windows(marker.len()).any(|bytes| bytes == marker)
        };
        assert!(has(begin as *const () as usize, MARKERS[0]));
        assert!(has(end as *const () as usize, MARKERS[1]));
        assert_ne!(MARKERS[0], MARKERS[1]);
    }
}
