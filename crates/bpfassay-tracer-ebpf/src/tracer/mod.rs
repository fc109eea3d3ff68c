// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The programs, one module per way of hooking, and what they share. A map layout (`map` beside
//! this module) has one function, `add`, which adds one call. What is counted, and where, is the
//! same as in C (`bpfassay-tracer/src/bpf`).
//!
//! Programs are named `PROBE__FUNCTION` or `PROBE__FUNCTION__PART` and carry the section from which
//! aya takes their type; the loader (`bpfassay-tracer/src/loader/aya`) loads those of one probe.
//!
//! Not here, and refused by the loader: `kprobe-multi`, which aya (0.14 to 0.16) cannot attach;
//! `complete`; `task-io`.

mod arch;
pub(crate) mod count;
mod descriptor;
mod entry;
mod fexit;
mod files;
pub(crate) mod kernel;
mod named;
mod names;
mod opened;
mod returns;
mod syscalls;
mod uprobe;

pub(crate) use self::count::{By, Outcome, Subject, tally};

/// What a host prints that tries to run these programs.
#[cfg(not(target_arch = "bpf"))]
pub(crate) const NOT_FOR_HOSTS: &str = "these are eBPF programs: build them for bpfel-unknown-none, as bpfassay does";

/// Only programs under the GPL may call the helpers that read kernel memory.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// Never called: the verifier would not accept a program that loops forever, and nothing here
/// panics.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
