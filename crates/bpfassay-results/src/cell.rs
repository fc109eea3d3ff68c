// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of each cell, summed up over its runs.

use std::fmt;

use bpfassay_protocol::{
    Operation, ProbeConfiguration, finding_name::Finding, job::Better, privileges::CapabilitySearch,
    probe::ByteMeaning, tracer_messages::Refusal,
};
use bpfassay_stats::{Effect, Estimate, Summary, drift::Drift};
use bpfassay_study::{Expectation, MetricName, Target};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CodeCoverage, Direct, Figure, Loaded, RunFailure, ToolResult};

/// The results of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellResult {
    /// The cell, as in [`bpfassay_study::Cell::id`].
    pub cell: String,
    /// The target.
    pub target: Target,
    /// The workload case.
    pub case: String,
    /// Identifier of the file system.
    pub file_system: String,
    /// The probe configuration.
    pub probe: ProbeConfiguration,
    /// Name of the other tool under test. The probe configuration is the baseline then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The meaning of the tracer's byte counts; `None` for the baseline.
    pub counts: Option<ByteMeaning>,
    /// Whether the tracer attached.
    pub attach: Attach,
    /// Runs of the cell, without controls.
    pub runs: RunCounts,
    /// Failed runs, controls included.
    pub failures: Vec<CellFailure>,
    /// Kernel statistics of each program, from separate runs (`design.bpf_stats`).
    #[serde(default)]
    pub run_times: Vec<RunTime>,
    /// Run time of all programs per counted call; `None` for tools and without statistics runs.
    #[serde(default)]
    pub event_time: Option<EventTime>,
    /// The metrics of the workload, in display order.
    pub metrics: Vec<CellMetric>,
    /// Costs of the bystander's calls; empty for the baseline, and for a workload without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bystander: Vec<BystanderCost>,
    /// Accuracy of the tracer's counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accuracy: Vec<CellAccuracy>,
    /// Pitfalls that the tracer found in measured or refused runs, each listed once.
    #[serde(default)]
    pub findings: Vec<CellFinding>,
    /// Findings about the other tool under test; `None` unless a tool file describes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_result: Option<ToolResult>,
    /// Source lines and branches that ran; `None` for the baseline, and if nothing counted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_coverage: Option<Figure<CodeCoverage>>,
}

/// The cost of a tool for the calls of a bystander, a process that the tool is not meant to trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BystanderCost {
    /// Name of the bystander's phases: `bystander-write`, `bystander-read`.
    pub name: MetricName,
    /// Direct cost of each call.
    pub direct: Figure<Direct>,
    /// Cost in the whole guest, under the instruction clock.
    pub cost: Figure<Cost>,
}

/// A pitfall that the tracer found in runs of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellFinding {
    /// The finding from the first run in `runs`; the numbers in its detail are from that run.
    pub finding: Finding,
    /// Runs with a finding of this kind on this subject.
    pub runs: Vec<String>,
}

/// How often and how long one program ran in the whole guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunTime {
    /// The program.
    pub program: String,
    /// Number of executions.
    pub runs: u64,
    /// Total run time in nanoseconds of the guest's clock. It includes part of the clock reads.
    pub run_time_ns: u64,
    /// `run_time_ns` / `runs`.
    pub per_run_ns: Figure<f64>,
}

/// Time that all programs of a probe configuration take per counted call, in the whole guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventTime {
    /// Calls counted.
    pub events: u64,
    /// Total run time of all programs, in nanoseconds of the guest's clock.
    pub run_time_ns: u64,
    /// `run_time_ns` / `events`.
    pub per_event_ns: Figure<f64>,
}

impl CellResult {
    /// Pairs each metric with its accuracy row, if there is one.
    pub fn rows(&self) -> impl Iterator<Item = (&CellMetric, Option<&CellAccuracy>)> {
        self.metrics.iter().map(|metric| (metric, self.accuracy.iter().find(|row| row.metric == metric.name)))
    }

    /// The tool's programs and maps in the kernel; `None` for other cells, and for a tool that was
    /// not ready in any measured run.
    #[must_use]
    pub fn loaded(&self) -> Option<&Loaded> {
        self.tool_result.as_ref()?.loaded.as_ref()
    }

    /// The capabilities with which the tool starts; `None` for other cells, and if they were not
    /// looked for.
    #[must_use]
    pub fn capabilities(&self) -> Option<&CapabilitySearch> {
        self.tool_result.as_ref()?.capabilities.as_ref()
    }

    /// Like [`Self::rows`], without the metrics that are times per call of another metric.
    pub fn whole(&self) -> impl Iterator<Item = (&CellMetric, Option<&CellAccuracy>)> {
        self.rows().filter(|(metric, _)| metric.calls_of.is_none())
    }

    /// Finds the metric called `name`.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<&CellMetric> {
        self.metrics.iter().find(|metric| &*metric.name == name)
    }

    /// Whether the cell measures the baseline: no tracer and no other tool.
    #[must_use]
    pub fn is_baseline(&self) -> bool {
        self.probe.is_baseline() && self.tool.is_none()
    }

    /// Tells why nothing shows that the tool loaded, although no run was refused; `None` if
    /// something shows it, or if the cell has no tool.
    #[must_use]
    pub fn not_seen_to_load(&self) -> Option<&str> {
        self.ready_tool()?.not_seen_to_load()
    }

    /// Names the programs of a loaded object that are not attached, since only a loader of their
    /// own can do that; `None` if there are none, or if the cell has no tool.
    #[must_use]
    pub fn left_to_a_loader(&self) -> Option<&str> {
        self.ready_tool()?.left_to_a_loader()
    }

    fn ready_tool(&self) -> Option<&ToolResult> {
        self.tool_result.as_ref().filter(|_| matches!(self.attach, Attach::Attached { .. }))
    }

    /// Counts measured runs that lack a figure which the workload has to report. Selects the metric
    /// with the fewest values, and explains why values are missing. A summary that cannot be read,
    /// or contradicts itself, gives no figure.
    #[must_use]
    pub fn without_figures(&self) -> Option<(u32, &str)> {
        let measured = self.runs.measured;
        let observations = |metric: &CellMetric| {
            metric.value.value().map_or(0, |summary| u32::try_from(summary.n).unwrap_or(u32::MAX))
        };
        let lacks = |metric: &&CellMetric| metric.calls_of.is_none() && observations(metric) < measured;
        let worst = self.metrics.iter().filter(lacks).min_by_key(|metric| observations(metric))?;
        let why = worst.value.reason().unwrap_or("some runs have no figure");
        Some((measured.saturating_sub(observations(worst)), why))
    }

    /// Whether some intervals have no byte or call error although others have one.
    #[must_use]
    pub fn lacks_counts(&self) -> bool {
        let errors = self.accuracy.iter().flat_map(|row| [&row.byte_error, &row.call_error]);
        errors.filter_map(Figure::value).any(|errors| errors.not_measured > 0)
    }

    /// Name of the probe configuration or tool.
    #[must_use]
    pub fn under_test(&self) -> String {
        self.tool.clone().unwrap_or_else(|| self.probe.to_string())
    }
}

/// Number of runs by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCounts {
    /// Runs in the plan.
    pub planned: u32,
    /// Runs with figures.
    pub measured: u32,
    /// Runs refused by the kernel.
    pub refused: u32,
    /// Runs that failed.
    pub failed: u32,
}

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellFailure {
    /// [`bpfassay_protocol::job::RunSpec::id`].
    pub run: String,
    /// Why the run failed.
    pub failure: RunFailure,
}

/// Whether the tracer attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Attach {
    /// The baseline has nothing to attach.
    Baseline,
    /// The tracer attached in every run that reached this step.
    Attached {
        /// Kernel functions that it attached to, with an offset unless it is the entry.
        functions: Vec<String>,
        /// The expected refusal that did not happen.
        in_spite_of: Option<Expectation>,
    },
    /// The kernel refused the tracer in every run that reached this step.
    Refused {
        /// The refusal in the first refused run.
        refusal: Refusal,
        /// The expected outcome, if there is one.
        expectation: Option<Expectation>,
        /// Whether step and error number match the expectation.
        expected: bool,
    },
    /// The tracer attached in some runs and was refused in others.
    Unsteady {
        /// Number of runs in which it attached.
        attached: u32,
        /// Number of runs in which it was refused.
        refused: u32,
        /// The refusal in the first refused run.
        refusal: Refusal,
    },
    /// No run reached this step.
    Unknown {
        /// Why no run did.
        reason: String,
    },
}

impl Attach {
    /// Whether the outcome differs from the expectation, or varies between runs. An unknown outcome
    /// is no surprise: the failed runs say why.
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

/// One metric of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellMetric {
    /// Name, unique in the cell: `write`, `read`, `work`, or a name from the study file.
    pub name: MetricName,
    /// Unit: `MiB/s`, `operations/s`.
    pub unit: String,
    /// Whether higher or lower values are better.
    pub better: Better,
    /// For a bandwidth by IOR: the operation that moves the bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// For a time per call: the bandwidth metric that the calls belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_of: Option<MetricName>,
    /// Values over all runs, without controls.
    pub value: Figure<Summary>,
    /// Relative overhead: baseline / this cell, oriented so that a value above 1 is worse.
    pub overhead: Figure<Overhead>,
    /// Cost of the probe configuration in instructions, under the instruction clock.
    pub cost: Figure<Cost>,
    /// Cost of the second baseline run, treated as a probe configuration. The true cost is 0, so
    /// this is the noise floor.
    pub control_cost: Figure<Cost>,
    /// Direct cost of the probe configuration. `None` for the baseline, and if no instructions were
    /// counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct: Option<Figure<Direct>>,
    /// A/A control of the group: baseline / second baseline run. Its distance from 1 is the noise
    /// floor.
    pub control: Figure<Overhead>,
    /// For the baseline: whether the value drifted with time, over all its runs and the controls.
    #[serde(default = "no_drift")]
    pub drift: Figure<Drift>,
}

impl CellMetric {
    /// Returns the ratio to compare with 1: the overhead, or the A/A control for the baseline.
    #[must_use]
    pub fn compared(&self, is_baseline: bool) -> &Figure<Overhead> {
        if is_baseline { &self.control } else { &self.overhead }
    }

    /// Returns the cost, or the control's cost for the baseline.
    #[must_use]
    pub fn cost_compared(&self, is_baseline: bool) -> &Figure<Cost> {
        if is_baseline { &self.control_cost } else { &self.cost }
    }

    /// Whether the overhead is within the noise floor. True if its interval holds 1, or if the
    /// estimate lies in the interval of the A/A control. False without an interval.
    #[must_use]
    pub fn is_within_noise(&self) -> bool {
        let Some(overhead) = self.overhead.value().map(|overhead| overhead.estimate) else { return false };
        let Some(own) = overhead.bounds.interval() else { return false };
        let control = self.control.value().and_then(|control| control.estimate.bounds.interval());
        (own.lower..=own.upper).contains(&1.0)
            || control.is_some_and(|floor| (floor.lower..=floor.upper).contains(&overhead.value))
    }
}

/// Accuracy of the tracer's counts while a metric was measured. IOR has one row per bandwidth,
/// other workloads have one row for the whole work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellAccuracy {
    /// [`CellMetric::name`].
    pub metric: MetricName,
    /// Byte errors of the metric's operation over all intervals of all runs. A row for the whole
    /// work covers all operations.
    pub byte_error: Figure<ByteErrors>,
    /// Like `byte_error`, for calls.
    pub call_error: Figure<ByteErrors>,
    /// Like `byte_error`, for mountstats.
    pub mountstats_error: Figure<ByteErrors>,
    /// Summary over the runs; see `RunAccuracy::relative_error_ior_interval`.
    pub relative_error_ior_interval: Figure<Summary>,
    /// Summary over the runs; see `RunAccuracy::relative_error_instantaneous`.
    pub relative_error_instantaneous: Figure<Summary>,
}

fn no_drift() -> Figure<Drift> {
    Figure::missing("these results were made before drift was looked for")
}

/// A relative overhead and the data behind it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Overhead {
    /// The estimate with its interval. The field `n` counts `unit`s.
    pub estimate: Estimate,
    /// The estimate on the log scale with its standard error. Tests start from it.
    pub effect: Effect,
    /// The unit of one independent observation.
    pub unit: Unit,
    /// Number of run pairs.
    pub pairs: u32,
    /// Pairs whose runs come from two boots of the same block, because the first boot was
    /// interrupted.
    pub pairs_across_boots: u32,
    /// Standard deviation of log ratios between boots, beyond what their rounds explain. `None` for
    /// one boot, or one round.
    #[serde(default)]
    pub between_boots: Option<f64>,
    /// Standard deviation of log ratios between the rounds of one boot; `None` for one round.
    #[serde(default)]
    pub within_boots: Option<f64>,
    /// Minimum detectable effect: the ratio above 1 that an interval with this standard error shows
    /// with probability 0.8, at the study's error rate. It helps to plan the next experiment, and
    /// rests on an estimated spread. `None` without an interval.
    #[serde(default)]
    pub detectable: Option<f64>,
    /// Whether the overhead is shown to lie within the study's margin. Uses two one-sided tests,
    /// corrected over all cells. `None` if the study has no margin.
    #[serde(default)]
    pub negligible: Option<bool>,
    /// Data in addition to the cell's own observations that the interval uses; `None` if there is
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooled: Option<Pooled>,
}

/// Data in addition to the row's own observations that an interval uses: the variance of other rows
/// of the matrix (moderated t), and a declared layout term.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pooled {
    /// Number of rows with pooled variances, this row included; 1 if the variance is its own.
    pub cells: usize,
    /// Typical standard deviation of the log ratio of a single observation in these rows.
    pub deviation: f64,
    /// Degrees of freedom of `deviation`; `None` if variances differ no more than by chance.
    pub degrees_of_freedom: Option<f64>,
    /// Standard deviation of the declared layout term in the interval. A ratio of two results has
    /// the term of both. 0 if boots vary the layout themselves.
    pub layout: f64,
}

/// Instructions of the guest beyond the baseline's, between the barriers of a phase. Pairs have the
/// same block and round. The difference includes the hook, the program, and effects on other code.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Cost per call of the workload. The interval uses only this row's observations, and `n`
    /// counts `unit`s.
    pub per_call: Estimate,
    /// Cost per MiB that the workload moved.
    pub per_mib: Estimate,
    /// Mean instructions per call of the baseline. `None` in results made before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<f64>,
    /// Cost per call with an interval like that of overheads; reports show it. `None` if the
    /// interval of `per_call` is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooled: Option<PooledCost>,
    /// Which time was compared.
    pub basis: Basis,
    /// Calls per run.
    pub calls: u64,
    /// The unit that is one independent observation.
    pub unit: Unit,
}

/// A cost whose interval uses pooled data, as overheads do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PooledCost {
    /// Per call of the workload.
    pub per_call: Estimate,
    /// Data that the interval uses in addition to the row's own. Deviations are shares of the
    /// baseline's instructions per call.
    pub with: Pooled,
}

impl Cost {
    /// Returns the cost per call that reports show.
    #[must_use]
    pub fn shown(&self) -> &Estimate {
        self.pooled.as_ref().map_or(&self.per_call, |pooled| &pooled.per_call)
    }
}

/// The time that a cost is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Time in which the guest worked.
    Busy,
    /// All time, including waiting: the kernel does not report idle time.
    Elapsed,
}

/// The unit of one independent observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// One boot, as the mean of the log ratios of its rounds.
    Boots,
    /// One round of the only boot. The interval covers the spread within that boot only.
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

/// Byte or call errors over several intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ByteErrors {
    /// Smallest error.
    pub min: i64,
    /// Largest error.
    pub max: i64,
    /// Number of intervals compared.
    pub intervals: u32,
    /// Number of intervals with error 0.
    pub exact: u32,
    /// Number of intervals without a computable error.
    pub not_measured: u32,
}
