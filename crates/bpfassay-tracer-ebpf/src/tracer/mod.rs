// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! The programs, one module per way of hooking, and their common parts. A map layout (the module
//! `map`) has one function, `add`, which adds one call. The programs count the same calls at the
//! same functions as those in C (`bpfassay-tracer/src/bpf`).
//!
//! Programs are named `PROBE__FUNCTION` or `PROBE__FUNCTION__PART` and carry the section from which
//! aya derives their type. The loader (`bpfassay-tracer/src/loader/aya`) loads the programs of one
//! probe.
//!
//! The loader refuses `kprobe-multi`, which aya (0.14 to 0.16) cannot attach, `complete` and
//! `task-io`: these have no programs here.

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

/// The message on a host that tries to run these programs.
#[cfg(not(target_arch = "bpf"))]
pub(crate) const NOT_FOR_HOSTS: &str = "these are eBPF programs: build them for bpfel-unknown-none, as bpfassay does";

/// The license: the helpers that read kernel memory require GPL compatibility.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// Never called. The verifier would not accept a program that loops forever, and no program panics.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
