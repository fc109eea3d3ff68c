// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine: from a study to its results, as library calls. The command `bpfassay` is one caller.
//!
//! The steps, each a call: a [`Selection`] expands to a plan; a [`Testbed`] has its guests, which a
//! provider of bpfassay-testbed makes or finds; a [`Session`] is the host ready to boot them;
//! [`Work`] is what is left to do, in a results directory; [`Session::execute`] does it, and
//! whatever sequential sampling adds; [`conclude`] derives the results. [`Interrupted`] continues a
//! run, [`Verification`] executes one again, [`Merge`] makes one of the results of shards, [`Like`]
//! has the testbed of results, [`Bundling`] writes its guests to one file, a [`Submission`] has
//! Slurm measure shards,
//! [`ThisMachine`] measures without guests. Progress goes to an [`Observer`]; an [`EventObserver`] makes the documented events of
//! it. Every error is an [`Error`].
//!
//! Before all that, [`examine_host`] finds out whether this host is fit, and [`install_packages`]
//! installs what it lacks.
//!
//! ```no_run
#![doc = include_str!("../examples/study.rs")]
//! ```
//!
//! Below the session: the pool of guests side by side (`pool`), one block from its first boot to its last (`block`), a boot while it
//! lasts (`boot`), its guests where it has several nodes (`nodes`), the machine and job made for a boot (`host_setup`), how many guests fit on the host (`slots`), and which named
//! failure an ending is (`failure`). What is decided is apart from what is done, and pure: what was observed of a boot (`observed`), who
//! is to blame for its end (`blame`), which boot comes next and what is recorded (`attempt`), whether whole classes of blocks fail in the
//! same way (`repeated`).
//!
//! Not here: how QEMU is driven (bpfassay-vm), what is in a guest (bpfassay-testbed), what figures mean (bpfassay-report), and questions,
//! printing and exit codes (the command).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod accelerator;
mod asked;
mod attempt;
mod blame;
mod block;
mod block_store;
mod boot;
mod context;
mod counting;
mod doctor;
mod emulator;
mod error;
mod events;
mod failure;
mod here;
mod host_packages;
mod host_setup;
mod like;
mod merge;
mod nodes;
mod observed;
mod observer;
mod plugin;
mod pool;
pub mod provenance;
mod repeated;
mod results_directory;
mod same_guests;
mod selection;
mod session;
mod slots;
mod slurm;
mod store;
mod sum;
mod testbed;
mod together;
mod verify;
mod work;

pub use accelerator::{KVM_PATIENCE, Trial, is_counted};
pub use block_store::{BlockKey, BlockReuse, BlockStore, BlockStoreError, NotAStorePlace, StorePlace};
pub use context::{BlockError, LOGS, unix_ms};
pub use doctor::{HostCheck, HostState, Remedy, examine_host};
pub use emulator::{NotAQemuSource, QemuSource};
pub use error::Error;
pub use events::{EventObserver, EventSink, stage_event, timings_event};
pub use here::{
    AllocationError, Cluster, HereSelection, NodeError, Placement, Request, ThisMachine, on_first_node, rank, relay,
    relay_of, stand,
};
pub use host_packages::{install_command, install_packages, missing_packages};
pub use host_setup::{HostSetup, HostSetupError};
pub use like::Like;
pub use merge::{Merge, MergeError};
pub use observer::{Observer, Progress};
pub use plugin::LoadedPlugin;
pub use pool::{RunnerError, Summary};
pub use same_guests::Bundling;
pub use selection::Selection;
pub use session::Session;
pub use slots::Host as Room;
pub use slurm::{SlurmError, SlurmEvent, SlurmJob, SlurmProgress, Submission, WrongJob};
pub use store::{Store, StoreOptions};
pub use testbed::{Parts, Shell, Testbed};
pub use verify::{Verification, Verified};
pub use work::{DEFAULT_RESULTS, Interrupted, Work, conclude, conclude_in};
