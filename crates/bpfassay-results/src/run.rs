// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of each run.

use std::fmt;

use bpfassay_protocol::{
    IoPath, Operation,
    io_path::RefusedCall,
    job::{Better, WORK},
    operation::Totals,
    program_set::ProgramEvent,
    tracer::Losses,
};
use bpfassay_study::{Metric, MetricName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Figure, RunRecord};

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
    /// For the workload `io-paths`: what the tracer saw of each path, a row per path and operation.
    #[serde(default)]
    pub coverage: Vec<PathCoverage>,
    /// What program sets counted, a row per interval between barriers and event.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventFigure>,
    /// Events that the tracer reports to have lost, over the whole run.
    pub losses: Figure<Losses>,
}

/// What the tracer saw of one path of the workload `io-paths`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PathCoverage {
    /// The path.
    pub path: IoPath,
    /// The operation. For operations that move data, the figures are of all operations that move data the
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

/// What a timed phase of the workload does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Writing.
    Write,
    /// Reading.
    Read,
    /// The work of a workload that is not IOR: what it reports of it, or how long it took, is a figure of merit ([`Merit`]).
    Work,
    /// A further figure of merit of a workload that is any program, by its name.
    Figure(MetricName),
}

impl Access {
    /// All but further figures of merit, in the order used for display.
    pub const ALL: [Self; 3] = [Self::Write, Self::Read, Self::Work];

    /// Those of IOR.
    pub const DATA: [Self; 2] = [Self::Write, Self::Read];

    /// The phase's name, which is IOR's for those of IOR.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Work => WORK,
            Self::Figure(name) => name,
        }
    }

    /// That of a metric.
    #[must_use]
    pub fn of(metric: &Metric) -> Self {
        Self::ALL.into_iter().find(|access| access.name() == &*metric.name).unwrap_or(Self::Figure(metric.name))
    }

    /// The operation that moves its data; `None` where that is not known to be one.
    #[must_use]
    pub const fn operation(self) -> Option<Operation> {
        match self {
            Self::Write => Some(Operation::Write),
            Self::Read => Some(Operation::Read),
            Self::Work | Self::Figure(_) => None,
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
    /// What it does.
    pub access: Access,
    /// Geometric mean over repetitions of the bandwidth that IOR reports, in MiB/s.
    pub bandwidth_mib_s: Figure<f64>,
    /// What a workload that is not IOR reports of its work; `None` for IOR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merit: Option<Merit<f64>>,
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

impl RunAccess {
    /// Work per time: what runs are compared by. The bandwidth, or the figure of merit, or where less of that is better what
    /// it is the inverse of; `None` where it was not measured, or is not positive.
    #[must_use]
    pub fn speed(&self) -> Option<f64> {
        let speed = match &self.merit {
            None => *self.bandwidth_mib_s.value()?,
            Some(merit) => match merit.better {
                Better::Higher => *merit.figure.value()?,
                Better::Lower => merit.figure.value()?.recip(),
            },
        };
        (speed.is_finite() && speed > 0.0).then_some(speed)
    }
}

/// What a workload that is not IOR reports of its work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Merit<T> {
    /// The figure.
    pub figure: Figure<T>,
    /// Its unit: `operations/s`.
    pub unit: String,
    /// Which way it is better.
    pub better: Better,
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
