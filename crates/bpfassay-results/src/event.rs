// SPDX-License-Identifier: MIT OR Apache-2.0
//! The events of a study that is executed, for programs that watch.
//! `bpfassay run --message-format json` writes one of these as a JSON object per line. Its schema
//! is published as `results/schema/events-v3.json`.
//!
//! Within a version, events and keys are only added: a reader should pass over those that it does
//! not know.

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
pub struct Line {
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub at_unix_ms: u64,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Guests are about to be booted. Said again where sampling goes on until intervals are narrow.
    Started(Started),
    /// A guest is being booted for a block.
    Booting {
        /// [`bpfassay_study::Block::id`].
        block: String,
        /// What boots.
        target: Target,
        /// Which boot of the block, from 1; more than 1 after an interruption, host failure, or a
        /// guest that died. Runs of the block that ended in an earlier boot and are done again end
        /// again.
        boot: u32,
        /// For a confirming boot the run that it is about: nothing of such a boot is recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        confirming: Option<String>,
    },
    /// The records of a block are taken from a store of blocks, which has it: no guest is booted.
    /// Its runs end right after this.
    Reused {
        /// [`bpfassay_study::Block::id`].
        block: String,
        /// The guest that was booted for it.
        target: Target,
        /// The key of the block in the store.
        key: String,
        /// The store, as it was named.
        store: String,
        /// When the block was measured, in milliseconds since 1970-01-01 UTC.
        measured_unix_ms: u64,
    },
    /// A block that the host failed is about to be booted again.
    Waiting {
        /// [`bpfassay_study::Block::id`].
        block: String,
        /// After how many seconds.
        seconds: f64,
    },
    /// The guest is ready.
    Ready {
        /// [`bpfassay_study::Block::id`].
        block: String,
        /// The time since QEMU was started, in seconds of the host's clock.
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
    /// The guest is gone.
    GuestEnded {
        /// [`bpfassay_study::Block::id`].
        block: String,
        /// The failure, if it failed.
        failure: Option<RunFailure>,
        /// What follows: whether what it measured counts, and if not, who is to blame.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        verdict: Option<BootVerdict>,
    },
    /// No further block is begun: the host fails them all. `run --resume` goes on.
    Paused {
        /// Why.
        message: String,
    },
    /// A line that the guest asked to be kept.
    Log {
        /// [`bpfassay_study::Block::id`].
        block: String,
        /// The line.
        text: String,
    },
    /// The first round of a block is in, or all of them, or twice as many as in its last rows: the
    /// figures of its cells so far. More rounds will change that.
    Rows(Box<ProvisionalRows>),
    /// A stage of setting up, measuring or reporting began, goes on, or ended. Most come before
    /// `started`; stages run side by side.
    Stage(StageReport),
    /// The times that stages took; with `--timings`, after `concluded`.
    Timings {
        /// The stages that ended, in the order in which they began.
        stages: Vec<StageTiming>,
    },
    /// The end.
    Concluded(Concluded),
}

/// Rows of the table of results, from a part of their rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProvisionalRows {
    /// [`bpfassay_study::Block::id`].
    pub block: String,
    /// From how many rounds they are: all complete ones of the blocks with the same cells.
    pub rounds: u32,
    /// Of how many that are to be measured.
    pub of: u32,
    /// The cells of the block.
    pub cells: Vec<ProvisionalCell>,
}

/// The figures of a cell so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProvisionalCell {
    /// [`bpfassay_study::Cell::id`].
    pub cell: String,
    /// Its metrics.
    pub metrics: Vec<CellMetric>,
    /// How right the tracer's counts are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accuracy: Vec<CellAccuracy>,
}

/// How far a stage is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageReport {
    /// A number that no other stage of this execution has.
    pub id: u32,
    /// What it does: `host_packages`, `toolchain`, `sources`, `kernel`, `programs`, `guests`,
    /// `qemu`, `measuring`, `reporting`.
    pub stage: String,
    /// For which architecture, or architecture and kernel; empty where there is one such stage.
    pub subject: String,
    /// Its state.
    pub state: StageState,
    /// How long it has lasted, in seconds.
    pub seconds: f64,
    /// How far its current step is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StageStep>,
}

/// The state of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StageState {
    /// It has begun.
    Begun,
    /// It goes on.
    Running,
    /// It did what it was to do.
    Ended,
    /// It failed, or was given up.
    Failed,
}

/// A step of a stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageStep {
    /// What is done: `index`, `await_turn`, `download`, `unpack`, `store`, `collect`,
    /// `compile_ebpf`, `compile`, `install`, `trial_boot`.
    pub name: String,
    /// What it is counted in: `bytes`, `packages`, `units` of a compiler; null where it is not
    /// counted.
    pub unit: Option<String>,
    /// How much is done.
    pub done: u64,
    /// The whole amount; 0 where it is not counted.
    pub of: u64,
    /// How long the rest of the step takes, in seconds, estimated from what is done; null where
    /// that cannot be estimated yet.
    pub seconds_left: Option<f64>,
}

/// How long a stage took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageTiming {
    /// What it did: see [`StageReport::stage`].
    pub stage: String,
    /// For which architecture, or architecture and kernel; empty where there was one such stage.
    pub subject: String,
    /// When it began, in seconds since the program did.
    pub began: f64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Stages that ran beside it, for any part of that time, by name.
    pub beside: Vec<String>,
}

/// The work that is about to be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Started {
    /// [`EVENTS_VERSION`].
    pub version: u32,
    /// Name of the study.
    pub study: String,
    /// The shard of it that is measured; none where all of it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// The clock that time is measured with.
    pub clock: Clock,
    /// The results directory: journal, logs.
    pub directory: PathBuf,
    /// Runs to do.
    pub runs: u64,
    /// Guests side by side.
    pub jobs: u32,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunEnded {
    /// [`bpfassay_protocol::job::RunSpec::id`].
    pub run: String,
    /// [`bpfassay_study::Cell::id`].
    pub cell: String,
    /// How.
    pub outcome: Ending,
    /// Whether the study expects as much: that it is measured, but for refusals that an expectation
    /// covers.
    pub is_expected: bool,
    /// How long it took, in seconds of the host's clock.
    pub seconds: f64,
    /// Whether the run was measured before, and its record is taken from a store of blocks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reused: bool,
    /// For a run without figures, why.
    pub message: Option<String>,
    /// Bytes and calls that the workload made and that the tracer counted.
    pub bytes: Vec<ByteFigure>,
    /// For a run that failed, the log to read.
    pub log: Option<PathBuf>,
    /// For a run that failed, the command that does just its cell again, one argument each.
    pub repeat: Option<Vec<String>>,
    /// For a run that failed, the command that opens a shell in the same guest, one argument each.
    pub shell: Option<Vec<String>>,
    /// Runs that have ended so far, this one among them.
    pub done: u64,
    /// Of how many.
    pub of: u64,
    /// Cells of which no run is left to do.
    pub cells_done: u64,
    /// Of how many.
    pub cells_of: u64,
    /// How long the rest will take, in seconds, estimated from how long runs and boots of the same
    /// kind took.
    pub seconds_left: Option<f64>,
}

/// The outcome of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It has figures.
    Measured,
    /// The kernel refused the tracer.
    Refused,
    /// The run, or the guest under it, failed.
    Failed,
}

/// The outcome of the whole execution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Concluded {
    /// The results, written out.
    pub results: PathBuf,
    /// Verdicts of gates: passes.
    pub passes: u64,
    /// Verdicts of gates: regressions.
    pub regressions: u64,
    /// Verdicts of gates that are neither passed nor failed.
    pub inconclusive: u64,
    /// SHA-256 of the raw figures, where they are the same on every machine.
    pub fingerprint: Option<String>,
    /// The exit code that follows; 130 for an interruption.
    pub exit_code: u8,
}
