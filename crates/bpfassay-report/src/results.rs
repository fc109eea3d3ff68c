//! The published form of results: `results.json`, version [`crate::RESULTS_VERSION`].

mod capabilities;
mod file;
mod gates;

use std::fmt;

use bpfassay_protocol::{
    IoPath, Operation, ProbeConfiguration,
    finding::Finding,
    io_path::RefusedCall,
    message::GuestFacts,
    operation::Totals,
    probe::ByteMeaning,
    tracer::{Losses, Refusal},
};
use bpfassay_stats::{Effect, Estimate, Summary};
use bpfassay_study::{Expectation, Plan, Target};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    capabilities::{
        Capabilities, ConfigurationCell, ConfigurationRow, Counted, FeatureCell, FeatureRow, ProgramFacts, Verdict,
    },
    file::{ResultsError, read, write},
    gates::{Demand, GateResult},
};
use crate::{Figure, Provenance, RunFailure, RunRecord};

/// File name of results in a results directory.
pub const FILE_NAME: &str = "results.json";

/// Largest results file that is read, in bytes.
pub const MAX_FILE: u64 = 4 << 30;

/// Everything that came of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// Version of this form.
    pub version: u32,
    /// When the first run began, in milliseconds since 1970-01-01 UTC.
    pub started_unix_ms: u64,
    /// The plan: the study whole (its clock included), what was kept of it, its cells and blocks, and what was left out.
    pub plan: Plan,
    /// What it was done with; more than one where it was taken up again with another testbed.
    pub provenance: Vec<Provenance>,
    /// Every guest that was started.
    pub boots: Vec<Boot>,
    /// Every run that came to its end, in the order of the journal, with its raw figures.
    pub runs: Vec<RunResult>,
    /// Every cell of the plan, in its order.
    pub cells: Vec<CellResult>,
    /// The verdicts on the study's gates, a row per gate, demand, cell and access; gates first, then cells in the plan's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateResult>,
    /// What works, breaks and differs, where the study asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities>,
    /// What a reader of these results must know besides: torn journal lines, runs that are missing.
    pub notes: Vec<String>,
}

/// One guest that was started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Boot {
    /// The block it was started for.
    pub block: String,
    /// Which boot of this block, from 1.
    pub boot: u32,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub started_unix_ms: u64,
    /// The QEMU command line, one word each.
    pub qemu: Vec<String>,
    /// The console log, relative to the results directory.
    pub log: Option<String>,
    /// From the start of QEMU to the guest's word that it is ready, in milliseconds.
    pub ready_after_ms: Figure<u64>,
    /// What the guest knew about itself: kernel command line, LOCALIO, JIT, mitigations, mount.
    pub facts: Option<GuestFacts>,
    /// What went wrong with the guest, if something did.
    pub trouble: Option<RunFailure>,
    /// Console lines worth keeping.
    pub notes: Vec<String>,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// As journalled, with the raw figures.
    pub record: RunRecord,
    /// What follows from the raw figures; `None` where there are none.
    pub derived: Option<RunDerived>,
}

/// Figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunDerived {
    /// Bandwidth and relative error per access.
    pub accesses: Vec<RunAccess>,
    /// Bytes of the workload, of the tracer and of mountstats, per interval between barriers and operation.
    pub bytes: Vec<ByteFigure>,
    /// For the workload `io-paths`: what the tracer saw of each path, a row per operation that the path owes to.
    #[serde(default)]
    pub coverage: Vec<PathCoverage>,
    /// Events that the tracer knows it lost, over the whole run.
    pub losses: Figure<Losses>,
}

/// What the tracer saw of one path of the workload `io-paths`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathCoverage {
    /// The path.
    pub path: IoPath,
    /// The operation that it owes to. For operations that move data, the figures are of all operations that move data the
    /// same way (`read`, `readv`, `map-read`; `write`, `writev`, `map-write`).
    pub operation: Operation,
    /// The call that the kernel or the file system refused: the path was not done.
    pub refused: Option<RefusedCall>,
    /// What the workload's calls returned.
    pub moved: Figure<Totals>,
    /// What the tracer counted for the key (workload's cgroup, device of the mount).
    pub traced: Figure<Totals>,
    /// traced − moved.
    pub difference: Figure<Difference>,
}

/// A difference of totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// In bytes.
    pub bytes: i64,
    /// In calls; `None` where bytes do not move in calls (mapped files).
    pub calls: Option<i64>,
    /// In calls that failed. Probes at function entry cannot see them.
    pub errors: i64,
}

/// Direction of a timed phase of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Writing.
    Write,
    /// Reading.
    Read,
}

impl Access {
    /// Both, in the order used for display.
    pub const ALL: [Self; 2] = [Self::Write, Self::Read];

    /// IOR's name of the phase.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }

    /// The operation that moves its data.
    #[must_use]
    pub const fn operation(self) -> Operation {
        match self {
            Self::Write => Operation::Write,
            Self::Read => Operation::Read,
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Names one timed phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccessKey {
    /// Direction.
    pub access: Access,
    /// Index of the test in the run, from 0.
    pub test: u32,
    /// Repetition, from 0.
    pub repetition: u32,
}

/// One access of one run: all its repetitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunAccess {
    /// Direction.
    pub access: Access,
    /// Geometric mean over repetitions of the bandwidth that IOR reports, in MiB/s.
    pub bandwidth_mib_s: Figure<f64>,
    /// IOR's bandwidth / the tracer's bytes over IOR's own interval (first open to last close); geometric mean over
    /// repetitions, or over all repetitions at once where the engine has no barriers.
    pub relative_error_ior_interval: Figure<f64>,
    /// IOR's bandwidth / mean of the tracer's instantaneous bandwidths at the study's sampling interval (the form of the
    /// CEEMS study; too high by about sampling interval / duration); geometric mean over repetitions.
    pub relative_error_instantaneous: Figure<f64>,
    /// Time and calls of its phases, summed over repetitions.
    pub work: Figure<Work>,
    /// Repetition by repetition.
    pub repetitions: Vec<RepetitionFigures>,
}

/// What phases came to, from barrier to barrier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// Time that passed, in nanoseconds of the guest; under the instruction clock 1 ns is one instruction.
    pub elapsed_ns: u64,
    /// The same without the time in which the guest had nothing to do.
    pub busy_ns: Figure<u64>,
    /// Calls that the workload made to move its data.
    pub calls: u64,
    /// Bytes that they moved.
    pub bytes: u64,
}

/// One repetition of one access.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepetitionFigures {
    /// Which.
    pub key: AccessKey,
    /// Bandwidth that IOR reports, in MiB/s.
    pub bandwidth_mib_s: Figure<f64>,
    /// First open to last close, in seconds, as IOR reports it.
    pub total_s: Figure<f64>,
    /// See [`RunAccess::relative_error_ior_interval`].
    pub relative_error_ior_interval: Figure<f64>,
    /// See [`RunAccess::relative_error_instantaneous`].
    pub relative_error_instantaneous: Figure<f64>,
    /// How many sampling intervals went into the mean of instantaneous bandwidths.
    pub sampling_intervals: Figure<u64>,
}

/// Bytes of one operation between two barriers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ByteFigure {
    /// Between which barriers.
    pub span: Span,
    /// The operation.
    pub operation: Operation,
    /// What the workload moved, and who says so.
    pub workload: Figure<u64>,
    /// Who says what the workload moved.
    pub witness: Witness,
    /// What the tracer counted for the key (workload's cgroup, device of the mount, operation).
    pub traced: Figure<u64>,
    /// Byte error: traced − workload.
    pub error: Figure<i64>,
    /// Call error: calls that the tracer counted − calls that the workload made.
    pub call_error: Figure<i64>,
    /// What `/proc/self/mountstats` of the mount counted (through the page cache and O_DIRECT).
    pub mountstats: Figure<u64>,
    /// mountstats − workload.
    pub mountstats_error: Figure<i64>,
}

/// Between which barriers bytes were counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Span {
    /// One phase of the workload.
    Phase {
        /// IOR's word for it: `write`, `read`, `writecheck`, `readcheck`.
        phase: String,
        /// Index of the test in the run, from 0.
        test: u32,
        /// Repetition, from 0.
        repetition: u32,
    },
    /// The whole run: the engine cannot be held between phases.
    WholeRun,
}

/// Who says what the workload moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Witness {
    /// The embedded engine's ledger of what its system calls returned.
    Ledger,
    /// IOR's JSON summary.
    Summary,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellResult {
    /// [`bpfassay_study::Cell::id`].
    pub cell: String,
    /// The target.
    pub target: Target,
    /// The workload case.
    pub case: String,
    /// Identifier of the file system.
    pub file_system: String,
    /// The probe configuration.
    pub probe: ProbeConfiguration,
    /// Name of the other tool under test; the probe configuration is the baseline then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// What the tracer's bytes mean; `None` for the baseline.
    pub counts: Option<ByteMeaning>,
    /// Whether the tracer attached.
    pub attach: Attach,
    /// Runs of the cell, controls not included.
    pub runs: RunCounts,
    /// Runs that failed, controls included.
    pub failures: Vec<CellFailure>,
    /// What the kernel's statistics say of each program, from runs of their own (`design.bpf_stats`).
    #[serde(default)]
    pub run_times: Vec<RunTime>,
    /// The same for all programs together, per call that the tracer counted; `None` without such runs, and for tools.
    #[serde(default)]
    pub event_time: Option<EventTime>,
    /// The figures, per access.
    pub accesses: Vec<CellAccess>,
    /// Pitfalls that the tracer found, each once, over the runs that were measured or refused.
    #[serde(default)]
    pub findings: Vec<CellFinding>,
}

/// A pitfall that the tracer found in runs of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellFinding {
    /// The finding, as the first of these runs has it: the numbers in its detail are of that run.
    pub finding: Finding,
    /// The runs that have a finding of this kind on this subject.
    pub runs: Vec<String>,
}

/// Runs and run time of one program, in the whole guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunTime {
    /// The program.
    pub program: String,
    /// How often it ran.
    pub runs: u64,
    /// How long, in nanoseconds of the guest's clock; the readings of the clock partly included.
    pub run_time_ns: u64,
    /// The second / the first.
    pub per_run_ns: Figure<f64>,
}

/// What the programs of a probe configuration take together for each call that it counts, in the whole guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventTime {
    /// Calls counted.
    pub events: u64,
    /// How long all programs ran, in nanoseconds of the guest's clock.
    pub run_time_ns: u64,
    /// The second / the first.
    pub per_event_ns: Figure<f64>,
}

impl CellResult {
    /// Whether nothing was under test.
    #[must_use]
    pub fn is_baseline(&self) -> bool {
        self.probe.is_baseline() && self.tool.is_none()
    }

    /// The name of what was under test.
    #[must_use]
    pub fn under_test(&self) -> String {
        self.tool.clone().unwrap_or_else(|| self.probe.to_string())
    }
}

/// How many runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCounts {
    /// In the plan.
    pub planned: u32,
    /// Measured.
    pub measured: u32,
    /// Refused by the kernel.
    pub refused: u32,
    /// Failed.
    pub failed: u32,
}

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellFailure {
    /// The run.
    pub run: String,
    /// Why.
    pub failure: RunFailure,
}

/// Whether the tracer attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Attach {
    /// Nothing to attach.
    Baseline,
    /// It attached in every run that came so far.
    Attached {
        /// The kernel functions, with offset where it is not the entry.
        functions: Vec<String>,
        /// The refusal that was expected in vain.
        in_spite_of: Option<Expectation>,
    },
    /// The kernel refused it in every run that came so far.
    Refused {
        /// The refusal of the first such run.
        refusal: Refusal,
        /// What was expected, if anything.
        expectation: Option<Expectation>,
        /// Whether the refusal is the expected one: same step, same error number.
        expected: bool,
    },
    /// Both happened.
    Unsteady {
        /// Runs in which it attached.
        attached: u32,
        /// Runs in which it was refused.
        refused: u32,
        /// The refusal of the first such run.
        refusal: Refusal,
    },
    /// No run came so far as to say.
    Unknown {
        /// Why.
        reason: String,
    },
}

impl Attach {
    /// Whether it is not what was expected: a refusal that nobody foresaw, an attachment that should have been refused, or
    /// now one and now the other. That nothing is known is no surprise; the runs that failed say why.
    #[must_use]
    pub const fn is_surprise(&self) -> bool {
        match self {
            Self::Baseline | Self::Unknown { .. } => false,
            Self::Attached { in_spite_of, .. } => in_spite_of.is_some(),
            Self::Refused { expected, .. } => !*expected,
            Self::Unsteady { .. } => true,
        }
    }
}

/// One access of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellAccess {
    /// Direction.
    pub access: Access,
    /// Bandwidths of the runs, in MiB/s, controls not included.
    pub bandwidth_mib_s: Figure<Summary>,
    /// Relative overhead: bandwidth of the baseline / bandwidth of this cell.
    pub overhead: Figure<Overhead>,
    /// What the probe configuration costs in instructions, under the instruction clock.
    pub cost: Figure<Cost>,
    /// The second baseline run taken for a probe configuration: it costs nothing, so this is the noise floor.
    pub control_cost: Figure<Cost>,
    /// A/A control of the group: bandwidth of the baseline / bandwidth of the second baseline run. Its distance from 1 is
    /// the noise floor.
    pub control: Figure<Overhead>,
    /// Byte errors of the operation of this access over all intervals of all runs.
    pub byte_error: Figure<ByteErrors>,
    /// The same for calls.
    pub call_error: Figure<ByteErrors>,
    /// The same for mountstats.
    pub mountstats_error: Figure<ByteErrors>,
    /// Over the runs: see [`RunAccess::relative_error_ior_interval`].
    pub relative_error_ior_interval: Figure<Summary>,
    /// Over the runs: see [`RunAccess::relative_error_instantaneous`].
    pub relative_error_instantaneous: Figure<Summary>,
}

/// A relative overhead and what it rests on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Overhead {
    /// The estimate with its interval; its `n` counts `unit`s.
    pub estimate: Estimate,
    /// The same on the log scale with its error: what tests start from.
    pub effect: Effect,
    /// What counts as one independent observation.
    pub unit: Unit,
    /// Pairs of runs that went into it.
    pub pairs: u32,
    /// How many of them were measured in two boots of the same block, because the first was interrupted.
    pub pairs_across_boots: u32,
}

/// Instructions of the guest beyond the baseline's, from barrier to barrier, in pairs of the same block and round. The
/// difference holds everything that the probe brings with it: the hook, the program, and where it disturbs other code.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Per call of the workload, with its interval; its `n` counts `unit`s.
    pub per_call: Estimate,
    /// Per MiB that the workload moved, likewise.
    pub per_mib: Estimate,
    /// What was compared.
    pub basis: Basis,
    /// Calls per run.
    pub calls: u64,
    /// What counts as one independent observation.
    pub unit: Unit,
}

/// Which time was compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Time in which the guest worked.
    Busy,
    /// All time, waiting included: the kernel does not tell how long it was idle.
    Elapsed,
}

/// What counts as one independent observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// One boot: the mean of the log ratios of its rounds.
    Boots,
    /// One round within the only boot: the interval covers the spread within that boot, not between boots.
    Rounds,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Boots => "boots",
            Self::Rounds => "rounds",
        })
    }
}

/// Byte or call errors of several intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ByteErrors {
    /// Smallest.
    pub min: i64,
    /// Largest.
    pub max: i64,
    /// Intervals that were compared.
    pub intervals: u32,
    /// Intervals whose error is 0.
    pub exact: u32,
    /// Intervals in which no error could be computed.
    pub not_measured: u32,
}
