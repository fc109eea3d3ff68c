//! Carrying out a plan: which guest is booted when, what its messages mean for the runs, what goes into the journal.
//!
//! Here: the pool of guests side by side ([`pool`]), one block from its first boot to its last ([`block`]), a boot while it
//! lasts (`boot`), the machine and job made for a boot ([`host_setup`]), how many guests fit on the host ([`slots`]), and which named
//! failure an ending is ([`failure`]).
//! What is decided is apart from what is done, and pure: what was seen of a boot ([`observed`]), who is to blame for its end
//! ([`blame`]), which boot comes next and what is recorded ([`attempt`]), whether whole classes of blocks fail alike ([`repeated`]).
//! Not here: how QEMU is driven (bpfassay-vm), what is in a guest (bpfassay-testbed), what figures mean
//! (bpfassay-report), and everything that is shown to people: an [`Observer`] is told.

#![forbid(unsafe_code)]

pub mod attempt;
pub mod blame;
mod block;
mod boot;
mod context;
pub mod failure;
pub mod here;
pub mod host_setup;
pub mod observed;
pub mod observer;
pub mod pool;
pub mod repeated;
pub mod slots;

pub use context::{BlockError, LOGS, unix_ms};
pub use here::{Agent, HereConfig, execute_here};
pub use host_setup::{HostSetup, HostSetupError};
pub use observer::{Observer, Progress};
pub use pool::{RunnerConfig, RunnerError, Summary, execute};
