// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of each run.

use bpfassay_protocol::{
    IoPath, Operation, io_path::RefusedCall, job::Better, operation::Totals, program_set::ProgramEvent,
    tracer_messages::Losses,
};
use bpfassay_study::MetricName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Figure, MissesPerCall, NodeFigures, RunRecord};

/// Default reason for a missing time of calls.
pub const NO_CALL_TIMES: &str = "the workload did not time its calls";

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// The journal's record, with raw figures.
    pub record: Box<RunRecord>,
    /// Figures derived from the raw ones; `None` if there are none.
    pub derived: Option<Box<RunDerived>>,
}

/// Figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunDerived {
    /// The metrics of the workload, in display order.
    pub metrics: Vec<RunMetric>,
    /// Calls of the bystander: `bystander-write`, `bystander-read`. Empty for a workload without
    /// one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bystander: Vec<BystanderCalls>,
    /// Agreement of IOR's and the tracer's bandwidths, a row per bandwidth. Empty for other
    /// workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accuracy: Vec<RunAccuracy>,
    /// Bytes of workload, tracer and mountstats, a row per operation and interval between barriers.
    pub bytes: Vec<ByteFigure>,
    /// For the workload `io-paths`: what the tracer counted, a row per path and operation.
    #[serde(default)]
    pub coverage: Vec<PathCoverage>,
    /// Counts of program sets, a row per event and interval between barriers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventFigure>,
    /// Lost events that the tracer reports, over the whole run.
    pub losses: Figure<Losses>,
    /// Counts on each node of a run of several nodes; empty for a single machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeFigures>,
}

/// The tracer's view of one path of the workload `io-paths`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathCoverage {
    /// The path.
    pub path: IoPath,
    /// The operation. Operations that move data share the figures of all operations that move data
    /// in the same way (`read`, `readv`, `map-read`; `write`, `writev`, `map-write`).
    pub operation: Operation,
    /// The call that the kernel or the file system refused, so that the path was not taken.
    pub refused: Option<RefusedCall>,
    /// The bytes that the workload's calls returned.
    pub moved: Figure<Totals>,
    /// The tracer's count for the workload's cgroup and the device of the mount.
    pub traced: Figure<Totals>,
    /// traced − moved.
    pub difference: Figure<Difference>,
}

/// Counts of a program set for one event between two barriers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventFigure {
    /// The barriers.
    pub span: Span,
    /// The event.
    pub event: ProgramEvent,
    /// The workload's own figure. Not measured for events that it does not count.
    pub workload: Figure<Totals>,
    /// The program set's count in the workload's cgroup.
    pub counted: Figure<Totals>,
    /// Total time of the counted events, in nanoseconds.
    pub time_ns: Figure<u64>,
    /// counted − workload.
    pub difference: Figure<Difference>,
}

/// A difference of two totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// Difference in bytes.
    pub bytes: i64,
    /// Difference in calls; `None` if bytes do not move in calls (mapped files).
    pub calls: Option<i64>,
    /// Difference in failed calls. Probes at function entry cannot see failures.
    pub errors: i64,
}

/// One metric of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunMetric {
    /// Name, unique in the run: `write`, `read`, `work`, or a name from the study file.
    pub name: MetricName,
    /// Unit: `MiB/s`, `operations/s`.
    pub unit: String,
    /// Whether higher or lower values are better.
    pub better: Better,
    /// For a bandwidth: the operation that moves the bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// For a time per call: the bandwidth metric that the calls belong to. Needs a workload that
    /// times its calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_of: Option<MetricName>,
    /// The value. A bandwidth is the geometric mean of IOR's reports over repetitions. A time per
    /// call is the trimmed mean over all calls of all repetitions.
    pub value: Figure<f64>,
    /// Instructions on the probe's path per call of the workload. `None` for the baseline, and if
    /// no instructions were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_cost: Option<Figure<f64>>,
    /// Misses on the path per call by a model of caches and branches; `None` without a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_misses: Option<MissesPerCall>,
    /// Time and calls of the metric's phases, summed over repetitions. For times per call, the
    /// fastest and slowest sixteenth of each phase are left out.
    pub work: Figure<Work>,
    /// One element per repetition; empty if the workload reports none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repetitions: Vec<RepetitionMetric>,
}

impl RunMetric {
    /// Work per time, which runs are compared by. It is the value, or its inverse if lower values
    /// are better. `None` if the value was not measured, or is not positive.
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

/// The calls of a bystander that move data in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BystanderCalls {
    /// Name of the phases: `bystander-write`.
    pub name: MetricName,
    /// Instructions on the probe's path per call of the bystander. `None` for the baseline, and if
    /// no instructions were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_cost: Option<Figure<f64>>,
    /// Time and calls of the phases, summed over repetitions.
    pub work: Figure<Work>,
}

/// A bandwidth in one repetition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepetitionMetric {
    /// Index of the test in the run, from 0.
    pub test: u32,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Bandwidth reported by IOR, in MiB/s.
    pub value: Figure<f64>,
    /// Time from first open to last close as IOR reports it, in seconds.
    pub total_s: Figure<f64>,
}

/// Agreement of one run's bandwidths: IOR's and the tracer's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunAccuracy {
    /// [`RunMetric::name`].
    pub metric: MetricName,
    /// IOR's bandwidth / the tracer's bytes over IOR's own interval (first open to last close). It
    /// is the geometric mean over repetitions. An engine without barriers has one value over all
    /// repetitions.
    pub relative_error_ior_interval: Figure<f64>,
    /// IOR's bandwidth / mean of the tracer's instantaneous bandwidths at the study's sampling
    /// interval. It is the geometric mean over repetitions. The CEEMS study uses this form, which
    /// is too high by about sampling interval / duration.
    pub relative_error_instantaneous: Figure<f64>,
    /// One element per repetition.
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
    /// Number of sampling intervals in the mean of instantaneous bandwidths.
    pub sampling_intervals: Figure<u64>,
}

/// Totals of phases, from barrier to barrier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// Elapsed time in nanoseconds of the guest. Under the instruction clock, 1 ns is one
    /// instruction.
    pub elapsed_ns: u64,
    /// Elapsed time without the guest's idle time.
    pub busy_ns: Figure<u64>,
    /// Calls with which the workload moved its data.
    pub calls: u64,
    /// Bytes that these calls moved.
    pub bytes: u64,
    /// Time inside these calls, summed over all ranks, in nanoseconds of the guest.
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
    /// The barriers.
    pub span: Span,
    /// The operation.
    pub operation: Operation,
    /// Bytes that the workload moved.
    pub workload: Figure<u64>,
    /// Source of `workload`.
    pub moved_source: MovedSource,
    /// The tracer's count for the workload's cgroup, the device of the mount, and the
    /// operation.
    pub traced: Figure<u64>,
    /// Byte error: traced − workload.
    pub error: Figure<i64>,
    /// Call error: calls that the tracer counted − calls that the workload made.
    pub call_error: Figure<i64>,
    /// The count in `/proc/self/mountstats` of the mount, through the page cache and with O_DIRECT.
    pub mountstats: Figure<u64>,
    /// mountstats − workload.
    pub mountstats_error: Figure<i64>,
}

/// The barriers between which bytes were counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Span {
    /// One phase of the workload.
    Phase {
        /// IOR's name of the phase: `write`, `read`, `writecheck`, `readcheck`.
        phase: String,
        /// Index of the test in the run, from 0.
        test: u32,
        /// Repetition, from 0.
        repetition: u32,
    },
    /// The whole run, if the engine cannot stop between phases.
    WholeRun,
}

/// The source of the moved bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MovedSource {
    /// Return values of the embedded engine's system calls.
    Calls,
    /// IOR's JSON summary, or another program's own report.
    Summary,
}
