// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine: from a study to its results, as library calls. The command `bpfassay` is one caller.
//!
//! Each step is a call:
//!
//! - A [`StudySelection`] expands to a plan.
//! - A [`Testbed`] has the plan's guests, which a provider of bpfassay-testbed builds or finds.
//! - A [`Session`] is the host ready to boot them.
//! - [`PlannedWork`] is what is left to do, in a results directory.
//! - [`Session::execute`] does the work, including runs that sequential sampling adds.
//! - [`conclude`] derives the results.
//!
//! [`Interrupted`] continues a run, and [`Verification`] repeats one. A [`Merge`] merges the
//! results of shards, and a [`Submission`] has Slurm measure shards. A [`Like`] has the testbed of
//! results, and a [`Bundling`] writes its guests to one file. A [`ThisMachine`] measures without
//! guests. Use [`examine_host`] to check this host, and [`install_packages`] to install what it
//! lacks.
//!
//! An [`Observer`] receives progress, and an [`EventObserver`] turns it into the documented events.
//! Every error is an [`Error`].
//!
//! ```no_run
#![doc = include_str!("../examples/study.rs")]
//! ```
//!
//! Modules below the session:
//!
//! - `pool`: guests in parallel; `slots`: how many of them fit on the host.
//! - `block`: one block from its first to its last boot; `boot`: one boot; `boot_nodes`: its several
//!   guests.
//! - `host_setup`: the machine and job of a boot; `failure`: the named failure of an ending.
//! - Pure decisions: `observed` (what a boot showed), `blame` (who is to blame for its end),
//!   `attempt` (next boot, records), `repeated` (do whole classes of blocks fail alike?).
//!
//! Other crates drive QEMU (bpfassay-vm), make guests (bpfassay-testbed), interpret figures
//! (bpfassay-report), and ask questions, print and set exit codes (the command).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod accelerator;
mod asked;
mod attempt;
mod blame;
mod block;
mod block_store;
mod boot;
mod boot_nodes;
mod counting;
mod doctor;
mod earlier_guests;
mod emulator;
mod error;
mod events;
mod failure;
mod here;
mod host_packages;
mod host_setup;
mod joint_report;
mod loaded_plugin;
mod merge;
mod observed;
mod observer;
mod plan_testbed;
mod planned_targets;
mod pool;
mod qemu_source;
mod repeated;
mod results_directory;
mod run_context;
pub mod run_provenance;
mod runner_store;
mod same_guests;
mod session;
mod slots;
mod slurm;
mod study_nodes;
mod study_selection;
mod sum;
mod tally;
mod verification;
mod work;

pub use accelerator::{AcceleratorTrial, KVM_PATIENCE, is_counted};
pub use block_store::{BlockReuse, BlockStore, BlockStoreError, NotAStorePlace, StoreKey, StorePlace};
pub use doctor::{HostCheck, HostState, Remedy, examine_host};
pub use earlier_guests::Like;
pub use error::Error;
pub use events::{EventObserver, EventSink, stage_event, timings_event};
pub use here::{
    AllocationError, AllocationRequest, Cluster, HereSelection, NodeError, Placement, ThisMachine, on_first_node, rank,
    relay, relay_of, stand,
};
pub use host_packages::{install_command, install_packages, missing_packages};
pub use host_setup::{HostSetup, HostSetupError};
pub use loaded_plugin::LoadedPlugin;
pub use merge::{Merge, MergeError};
pub use observer::{Happening, Observer};
pub use plan_testbed::{Parts, ShellUse, Testbed, missing_parts};
pub use qemu_source::{NotAQemuSource, QemuSource};
pub use run_context::{BlockError, LOGS, RunnerError, unix_ms};
pub use runner_store::{Store, StoreOptions};
pub use same_guests::Bundling;
pub use session::Session;
pub use slots::HostResources as Room;
pub use slurm::{SlurmError, SlurmEvent, SlurmJob, SlurmProgress, Submission, WrongJob};
pub use study_selection::StudySelection;
pub use tally::PoolSummary;
pub use verification::{Verification, VerifyOutcome};
pub use work::{DEFAULT_RESULTS, Interrupted, PlannedWork, conclude, conclude_in};
