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
//! results, and a [`Bundling`] writes its guests to one file. Use [`examine_host`] to check this
//! host, and [`install_packages`] to install what it lacks.
//!
//! An [`Observer`] receives progress, and an [`EventObserver`] turns it into the documented events.
//! Every error is an [`Error`].
//!
//! ```no_run
#![doc = include_str!("../examples/study.rs")]
//! ```
//!
//! The modules, each with those below it:
//!
//! - `sessions`: the steps above. `slurm` and `merge` handle shards.
//! - `this_host`: QEMU, the cache and the accelerator of this host.
//! - `blocks`: guests in parallel, one block from its first to its last boot, the store of blocks.
//! - [`boot`]: one boot, its several guests, and their machines and jobs.
//! - [`decisions`]: pure functions. They decide what a boot showed, who is to blame for its end,
//!   what the next boot does, and whether whole classes of blocks fail alike.
//!
//! Other crates drive QEMU (bpfassay-vm), make guests (bpfassay-testbed), measure without guests
//! (bpfassay-here, with parts of [`boot`] and [`decisions`]), interpret figures (bpfassay-report),
//! and ask questions, print and set exit codes (the command).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod blocks;
pub mod boot;
pub mod decisions;
mod error;
mod events;
mod merge;
mod observer;
mod planned_targets;
mod sessions;
pub mod slurm;
mod this_host;

pub use blocks::block_store::{BlockReuse, BlockStore, BlockStoreError, NotAStorePlace, StoreKey, StorePlace};
pub use boot::{
    host_setup::{HostSetup, HostSetupError},
    loaded_plugin::LoadedPlugin,
    run_context::{BlockError, LOGS, RunnerError, unix_ms},
    tally::PoolSummary,
};
pub use error::Error;
pub use events::{EventObserver, EventSink, stage_event, timings_event};
pub use merge::{Merge, MergeError};
pub use observer::{Happening, Observer};
pub use sessions::{
    earlier_guests::Like,
    plan_testbed::{Parts, ShellUse, Testbed, missing_parts},
    same_guests::Bundling,
    session::Session,
    study_selection::{StudyChange, StudySelection, interfaces_of, test_tools},
    verification::{Verification, VerifyOutcome},
    work::{DEFAULT_RESULTS, Interrupted, PlannedWork, check_ids, conclude, conclude_in},
};
pub use slurm::{SlurmError, SlurmEvent, SlurmJob, SlurmProgress, Submission, WrongJob};
pub use this_host::{
    accelerator::{AcceleratorTrial, KVM_PATIENCE, is_counted},
    doctor::{HostCheck, HostState, Remedy, examine_host},
    host_packages::{install_command, install_packages, missing_packages},
    qemu_source::{NotAQemuSource, QemuSource},
    run_provenance,
    runner_store::{Store, StoreOptions},
    slots::HostResources as Room,
};
