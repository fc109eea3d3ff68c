// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boots QEMU guests, watches them, exchanges messages with their agent, and reports how they
//! ended.
//!
//! - [`Machine`] is the QEMU command line as a list of devices (pure).
//! - [`Qemu`] finds a QEMU. [`acceleration`] chooses the accelerator by booting.
//! - [`Guest`] runs a guest, with [`GuestDeadlines`] for its phases.
//! - [`console`] reads the console and the kernel's reports on it.
//! - [`GuestEnding`] tells how a guest ended.
//!
//! Other crates decide on the contents of a guest's root file system, on its runs, and on what an
//! ending means for a run.
//!
//! A guest is untrusted. Lines, frames and logs are bounded, and anything it does ends in an
//! [`VmEvent`].

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod acceleration;
mod agent_port;
mod boot_progress;
mod bounded_output;
mod confine;
pub mod console;
pub mod device;
mod error;
mod exit_classifier;
mod flood;
#[doc(hidden)]
pub mod fuzz;
mod guest;
mod guest_clock;
mod guest_ending;
mod guest_terminal;
mod host_load;
mod limits;
mod machine;
mod monitor;
mod order;
mod own_root;
pub mod qemu;
mod qemu_process;
mod qemu_version;
mod supervisor;
mod vm_event;

pub use acceleration::{AcceleratorChoice, AcceleratorWish};
pub use boot_progress::GuestDeadlines;
pub use bounded_output::file_for_initramfs;
pub use confine::{Confinement, PluginUse};
pub use console::{KernelIncident, KernelIncidentKind, Severity};
pub use error::VmError;
pub use guest::{BootOptions, Guest, cables};
pub use guest_clock::GuestClock;
pub use guest_ending::{EndReason, GuestEnding};
pub use machine::{Accelerator, Aslr, CommandLineTooLong, Initramfs, Machine, MachineMemory, shell_command};
pub use order::{BootedFor, MessageOrder, OutOfOrder};
pub use own_root::OwnRoot;
pub use qemu::Qemu;
pub use qemu_version::{NotAVersion, QemuVersion};
pub use vm_event::VmEvent;
