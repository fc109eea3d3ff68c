// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of each run.

use bpfassay_protocol::{
    IoPath, Operation, io_path::RefusedCall, job::Better, operation::Totals, program_set::ProgramEvent, tracer::Losses,
};
use bpfassay_study::MetricName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Figure, MissesPerCall, NodeFigures, RunRecord};

/// Why there is no time of calls where no other reason is known.
pub const NO_CALL_TIMES: &str = "the workload did not time its calls";

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// As journalled, with the raw figures.
    pub record: Box<RunRecord>,
    /// What follows from the raw figures; `None` where there are none.
    pub derived: Option<Box<RunDerived>>,
}

/// Figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunDerived {
    /// The metrics of the workload, in the order of display.
    pub metrics: Vec<RunMetric>,
    /// How far bandwidths by IOR and by the tracer agree, a row per bandwidth; empty for other
    /// workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accuracy: Vec<RunAccuracy>,
    /// Bytes of the workload, of the tracer and of mountstats, per interval between barriers and
    /// operation.
    pub bytes: Vec<ByteFigure>,
    /// For the workload `io-paths`: what the tracer saw of each path, a row per path and operation.
    #[serde(default)]
    pub coverage: Vec<PathCoverage>,
    /// What program sets counted, a row per interval between barriers and event.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventFigure>,
    /// Events that the tracer reports to have lost, over the whole run.
    pub losses: Figure<Losses>,
    /// What was counted on each of several nodes that did it together; empty where one machine did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeFigures>,
}

/// What the tracer saw of one path of the workload `io-paths`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathCoverage {
    /// The path.
    pub path: IoPath,
    /// The operation. For operations that move data, the figures are of all operations that move
    /// data the same way (`read`, `readv`, `map-read`; `write`, `writev`, `map-write`).
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

/// What a program set counted of one event of the workload between two barriers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventFigure {
    /// Between which barriers.
    pub span: Span,
    /// The event.
    pub event: ProgramEvent,
    /// What the workload reports to have done; not measured for what it does not count.
    pub workload: Figure<Totals>,
    /// What the set counted in the workload's cgroup.
    pub counted: Figure<Totals>,
    /// The time that it summed up for them, in nanoseconds.
    pub time_ns: Figure<u64>,
    /// counted − workload.
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

/// One metric of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunMetric {
    /// Name, unique in the run: `write`, `read`, `work`, or a name of the study file.
    pub name: MetricName,
    /// Unit: `MiB/s`, `operations/s`.
    pub unit: String,
    /// Which values are better.
    pub better: Better,
    /// The operation whose bytes it is the rate of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// The bandwidth that it is the time per call of, where the workload times its calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_of: Option<MetricName>,
    /// The value; of a bandwidth the geometric mean over repetitions of what IOR reports, of calls
    /// the trimmed mean over the calls of all of them.
    pub value: Figure<f64>,
    /// Instructions on the probe's path per call of the workload; `None` where no instructions were
    /// counted, and for the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_cost: Option<Figure<f64>>,
    /// What a model of caches and branches found on the path, per call; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_misses: Option<MissesPerCall>,
    /// Time and calls of its phases, summed over repetitions; of calls those without the fastest
    /// and the slowest sixteenth of each phase.
    pub work: Figure<Work>,
    /// Repetition by repetition; empty where the workload reports none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repetitions: Vec<RepetitionMetric>,
}

impl RunMetric {
    /// Work per time: what runs are compared by. The value, or where less of it is better what it
    /// is the inverse of; `None` where it was not measured, or is not positive.
    #[must_use]
    pub fn speed(&self) -> Option<f64> {
        let value = *self.value.value()?;
        let speed = match self.better {
            Better::Higher => value,
            Better::Lower => value.recip(),
        };
        (speed.is_finite() && speed > 0.0).then_some(speed)
    }
}

/// One repetition of a bandwidth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepetitionMetric {
    /// Index of the test in the run, from 0.
    pub test: u32,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Bandwidth that IOR reports, in MiB/s.
    pub value: Figure<f64>,
    /// First open to last close, in seconds, as IOR reports it.
    pub total_s: Figure<f64>,
}

/// How far bandwidths of one run agree: that of IOR, and that of the tracer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunAccuracy {
    /// [`RunMetric::name`].
    pub metric: MetricName,
    /// IOR's bandwidth / the tracer's bytes over IOR's own interval (first open to last close);
    /// geometric mean over repetitions, or over all repetitions at once where the engine has no
    /// barriers.
    pub relative_error_ior_interval: Figure<f64>,
    /// IOR's bandwidth / mean of the tracer's instantaneous bandwidths at the study's sampling
    /// interval (the form of the CEEMS study; too high by about sampling interval / duration);
    /// geometric mean over repetitions.
    pub relative_error_instantaneous: Figure<f64>,
    /// Repetition by repetition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repetitions: Vec<RepetitionAccuracy>,
}

/// One repetition of a [`RunAccuracy`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepetitionAccuracy {
    /// Index of the test in the run, from 0.
    pub test: u32,
    /// Repetition, from 0.
    pub repetition: u32,
    /// See [`RunAccuracy::relative_error_ior_interval`].
    pub relative_error_ior_interval: Figure<f64>,
    /// See [`RunAccuracy::relative_error_instantaneous`].
    pub relative_error_instantaneous: Figure<f64>,
    /// How many sampling intervals went into the mean of instantaneous bandwidths.
    pub sampling_intervals: Figure<u64>,
}

/// What phases came to, from barrier to barrier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// Time that passed, in nanoseconds of the guest; under the instruction clock 1 ns is one
    /// instruction.
    pub elapsed_ns: u64,
    /// The same without the time in which the guest had nothing to do.
    pub busy_ns: Figure<u64>,
    /// Calls that the workload made to move its data.
    pub calls: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Time within those calls alone, of all ranks together, in nanoseconds of the guest.
    #[serde(default = "no_call_times")]
    pub in_calls_ns: Figure<u64>,
}

fn no_call_times() -> Figure<u64> {
    Figure::missing(NO_CALL_TIMES)
}

/// Bytes of one operation between two barriers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ByteFigure {
    /// Between which barriers.
    pub span: Span,
    /// The operation.
    pub operation: Operation,
    /// What the workload moved, and the source of this.
    pub workload: Figure<u64>,
    /// The source of what the workload moved.
    pub moved_source: MovedSource,
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
        /// IOR's name for it: `write`, `read`, `writecheck`, `readcheck`.
        phase: String,
        /// Index of the test in the run, from 0.
        test: u32,
        /// Repetition, from 0.
        repetition: u32,
    },
    /// The whole run: the engine cannot be held between phases.
    WholeRun,
}

/// The source of what the workload moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MovedSource {
    /// What the system calls of the embedded engine returned.
    Calls,
    /// IOR's JSON summary, or what another program reports of itself.
    Summary,
}
