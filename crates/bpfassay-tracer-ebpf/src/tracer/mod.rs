//! The programs, one module per probe, and what they share. A map layout (`map` beside this module) has one function,
//! `add`, which adds one call.
//!
//! Programs are named `PROBE_FUNCTION` and carry the section that aya tells their type by. What they hook is decided by
//! the loader (`bpfassay-tracer/src/aya`), which loads the programs of one probe only.

mod count;
mod fexit;
mod kernel;
mod kprobe;

pub(crate) use self::count::tally;

/// What a host says that tries to run these programs.
#[cfg(not(target_arch = "bpf"))]
pub(crate) const NOT_FOR_HOSTS: &str = "these are eBPF programs: build them for bpfel-unknown-none, as bpfassay does";

/// Helpers for reading kernel memory are open to programs under the GPL only.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// Never called: the verifier would not take a program that loops forever, and nothing here panics.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
