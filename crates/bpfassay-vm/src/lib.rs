// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boots QEMU guests, watches them, exchanges messages with their agent, and reports how they
//! ended.
//!
//! - [`Machine`] is the QEMU command line as a list of devices (pure).
//! - [`Qemu`] finds a QEMU. [`accelerator`] chooses the accelerator by booting.
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

pub mod accelerator;
mod agent;
mod clock;
mod confine;
pub mod console;
pub mod device;
mod ending;
mod error;
mod event;
mod exit_classifier;
mod flood;
#[doc(hidden)]
pub mod fuzz;
mod guest;
mod limits;
mod load;
mod machine;
mod monitor;
mod order;
mod output;
mod own_root;
mod process;
mod progress;
pub mod qemu;
mod supervisor;
mod terminal;

pub use accelerator::{AcceleratorChoice, AcceleratorWish};
pub use clock::GuestClock;
pub use confine::Confinement;
pub use console::{KernelIncident, KernelIncidentKind, Severity};
pub use ending::{EndReason, GuestEnding};
pub use error::VmError;
pub use event::VmEvent;
pub use guest::{BootOptions, Guest, cables};
pub use machine::{Accelerator, Aslr, CommandLineTooLong, Initramfs, Machine, MachineMemory, shell_command};
pub use order::{BootedFor, MessageOrder, OutOfOrder};
pub use output::file_for_initramfs;
pub use own_root::OwnRoot;
pub use progress::GuestDeadlines;
pub use qemu::{PluginUse, Qemu, QemuVersion};
