// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of a running study, for programs that watch it.
//! `bpfassay run --message-format json` writes one event per line, as a JSON object. The schema is
//! published as `results/schema/events-v3.json`.
//!
//! Within a version, events and keys are only added. Readers should ignore those that they do not
//! know.

use std::path::PathBuf;

use bpfassay_protocol::message::Phase;
use bpfassay_study::{Clock, Shard, Target};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BootVerdict, ByteFigure, CellAccuracy, CellMetric, RunFailure};

/// Version of the events.
pub const EVENTS_VERSION: u32 = 3;

/// A line of `bpfassay run --message-format json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventLine {
    /// The event.
    #[serde(flatten)]
    pub event: Event,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub at_unix_ms: u64,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Guests are about to be booted. Repeated while sampling continues until intervals are narrow.
    Started(Started),
    /// A guest is being booted for a block.
    Booting {
        /// [`bpfassay_study::Block::id`].
        block: String,
        /// The guest's target.
        target: Target,
        /// Which boot of the block, from 1. It is above 1 after an interruption, a host failure, or
        /// a guest that died. Runs that ended in an earlier boot and are repeated end again.
        boot: u32,
        /// For a confirming boot: the suspected run. Nothing of such a boot is recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confirming: Option<String>,
    },
    /// The records of a block come from a store of blocks, and no guest is booted. The block's runs
    /// end right after this event.
    Reused {
        /// [`bpfassay_study::Block::id`].
        block: String,
        /// The target that was booted when the block was measured.
        target: Target,
        /// The key of the block in the store.
        key: String,
        /// The store, as the user named it.
        store: String,
        /// When the block was measured, in milliseconds since 1970-01-01 UTC.
        measured_unix_ms: u64,
    },
    /// A block is about to be booted again after a host failure.
    Waiting {
        /// [`bpfassay_study::Block::id`].
        block: String,
        /// Seconds until the boot.
        seconds: f64,
    },
    /// The guest is ready.
    Ready {
        /// [`bpfassay_study::Block::id`].
        block: String,
        /// Time since the start of QEMU, in seconds of the host's clock.
        seconds: f64,
        /// `uname -r` of the guest.
        kernel_release: String,
    },
    /// A run begins one of its phases.
    Phase {
        /// [`bpfassay_study::Block::id`].
        block: String,
        /// [`bpfassay_protocol::job::RunSpec::id`].
        run: String,
        /// The phase.
        phase: Phase,
    },
    /// A run ended; its record is in the journal.
    RunEnded(Box<RunEnded>),
    /// The guest has ended.
    GuestEnded {
        /// [`bpfassay_study::Block::id`].
        block: String,
        /// The failure, if it failed.
        failure: Option<RunFailure>,
        /// The verdict: whether the boot's measurements count, and otherwise who is to blame.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verdict: Option<BootVerdict>,
    },
    /// No further block begins, because the host fails them all. `run --resume` continues.
    Paused {
        /// Why.
        message: String,
    },
    /// A line that the guest asked to keep.
    Log {
        /// [`bpfassay_study::Block::id`].
        block: String,
        /// The line.
        text: String,
    },
    /// Provisional figures of a block's cells. Sent after the first round, after all rounds, and
    /// whenever the number of rounds has doubled. Further rounds change the figures.
    Rows(Box<ProvisionalRows>),
    /// A stage of setting up, measuring or reporting began, continues, or ended. Most stages come
    /// before `started`, and stages run in parallel.
    Stage(StageReport),
    /// Durations of the stages. Sent after `concluded`, if `--timings` was given.
    Timings {
        /// The stages that ended, in the order in which they began.
        stages: Vec<StageTiming>,
    },
    /// The execution ended.
    Concluded(Concluded),
}

/// Rows of the table of results, from part of the rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProvisionalRows {
    /// [`bpfassay_study::Block::id`].
    pub block: String,
    /// Number of rounds: all complete ones of the blocks with the same cells.
    pub rounds: u32,
    /// Number of rounds to measure.
    pub of: u32,
    /// The cells of the block.
    pub cells: Vec<ProvisionalCell>,
}

/// Provisional figures of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProvisionalCell {
    /// [`bpfassay_study::Cell::id`].
    pub cell: String,
    /// The cell's metrics.
    pub metrics: Vec<CellMetric>,
    /// Accuracy of the tracer's counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accuracy: Vec<CellAccuracy>,
}

/// Progress of a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageReport {
    /// A number unique to this stage within the execution.
    pub id: u32,
    /// Kind of stage: `host_packages`, `toolchain`, `sources`, `kernel`, `programs`, `guests`,
    /// `qemu`, `measuring`, `reporting`.
    pub stage: String,
    /// The architecture, or architecture and kernel; empty if only one such stage exists.
    pub subject: String,
    /// State of the stage.
    pub state: StageState,
    /// Duration so far, in seconds.
    pub seconds: f64,
    /// Progress of the current step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StageStep>,
}

/// The state of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StageState {
    /// The stage has begun.
    Begun,
    /// The stage continues.
    Running,
    /// The stage is complete.
    Ended,
    /// The stage failed, or was given up.
    Failed,
}

/// A step of a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageStep {
    /// Kind of step: `index`, `await_turn`, `download`, `unpack`, `store`, `collect`,
    /// `compile_ebpf`, `compile`, `install`, `trial_boot`.
    pub name: String,
    /// Unit of `done` and `of`: `bytes`, `packages`, or `units` of a compiler; null if not counted.
    pub unit: Option<String>,
    /// Amount done.
    pub done: u64,
    /// Total amount; 0 if not counted.
    pub of: u64,
    /// Estimated seconds until the step ends; null if no estimate is possible yet.
    pub seconds_left: Option<f64>,
}

/// Duration of a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageTiming {
    /// Kind of stage, as in [`StageReport::stage`].
    pub stage: String,
    /// The architecture, or architecture and kernel; empty if only one such stage exists.
    pub subject: String,
    /// Begin of the stage, in seconds since the program began.
    pub began: f64,
    /// Duration of the stage, in seconds.
    pub seconds: f64,
    /// Names of the stages that overlapped with it in time.
    pub beside: Vec<String>,
}

/// The work about to begin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Started {
    /// [`EVENTS_VERSION`].
    pub version: u32,
    /// Name of the study.
    pub study: String,
    /// The shard that is measured; absent if the whole study is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// The clock of the measurements.
    pub clock: Clock,
    /// The results directory, with journal and logs.
    pub directory: PathBuf,
    /// Number of runs to do.
    pub runs: u64,
    /// Number of guests that run in parallel.
    pub jobs: u32,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunEnded {
    /// [`bpfassay_protocol::job::RunSpec::id`].
    pub run: String,
    /// [`bpfassay_study::Cell::id`].
    pub cell: String,
    /// The outcome.
    pub outcome: Ending,
    /// Whether the study expects the outcome: a measured run, or a refusal that an expectation
    /// covers.
    pub is_expected: bool,
    /// Duration, in seconds of the host's clock.
    pub seconds: f64,
    /// Whether the record comes from a store of blocks, and the run was not repeated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reused: bool,
    /// For a run without figures: the reason.
    pub message: Option<String>,
    /// Bytes and calls of the workload, and what the tracer counted.
    pub bytes: Vec<ByteFigure>,
    /// For a failed run: the log to read.
    pub log: Option<PathBuf>,
    /// For a failed run: the command that repeats only this cell, one argument per element.
    pub repeat: Option<Vec<String>>,
    /// For a failed run: the command that opens a shell in the same guest, one argument per
    /// element.
    pub shell: Option<Vec<String>>,
    /// Runs that have ended so far, including this one.
    pub done: u64,
    /// Total number of runs.
    pub of: u64,
    /// Cells whose runs have all ended.
    pub cells_done: u64,
    /// Total number of cells.
    pub cells_of: u64,
    /// Estimated seconds until the end, from the duration of similar runs and boots.
    pub seconds_left: Option<f64>,
}

/// The outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The run has figures.
    Measured,
    /// The kernel refused the tracer.
    Refused,
    /// The run or its guest failed.
    Failed,
}

/// The end of the whole execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Concluded {
    /// Path of the results.
    pub results: PathBuf,
    /// Gate verdicts: passes.
    pub passes: u64,
    /// Gate verdicts: regressions.
    pub regressions: u64,
    /// Gate verdicts: neither pass nor regression.
    pub inconclusive: u64,
    /// SHA-256 of the raw figures, if they are the same on every machine.
    pub fingerprint: Option<String>,
    /// The exit code of the command; 130 after an interruption.
    pub exit_code: u8,
}
