// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of each cell, over its runs.

use std::fmt;

use bpfassay_protocol::{
    Operation, ProbeConfiguration, finding::Finding, job::Better, probe::ByteMeaning, tool::BpfObject, tracer::Refusal,
};
use bpfassay_stats::{Effect, Estimate, Summary, drift::Drift};
use bpfassay_study::{Expectation, MetricName, Target};
use bpfassay_tool::finding::{Compared, FindingResult, NotCompared};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CodeCoverage, Direct, Figure, RunFailure};

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
    /// The meaning of the tracer's bytes; `None` for the baseline.
    pub counts: Option<ByteMeaning>,
    /// Whether the tracer attached.
    pub attach: Attach,
    /// Runs of the cell, controls not included.
    pub runs: RunCounts,
    /// Runs that failed, controls included.
    pub failures: Vec<CellFailure>,
    /// The kernel's statistics of each program, from runs of their own (`design.bpf_stats`).
    #[serde(default)]
    pub run_times: Vec<RunTime>,
    /// The same for all programs together, per call that the tracer counted; `None` without such
    /// runs, and for tools.
    #[serde(default)]
    pub event_time: Option<EventTime>,
    /// The metrics of the workload, in the order of display.
    pub metrics: Vec<CellMetric>,
    /// How right the tracer's counts are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accuracy: Vec<CellAccuracy>,
    /// Pitfalls that the tracer found, each once, over the runs that were measured or refused.
    #[serde(default)]
    pub findings: Vec<CellFinding>,
    /// The findings about the other tool under test, where a tool file describes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_result: Option<ToolResult>,
    /// Which source lines and branches of the programs under test ran; `None` where nothing counted
    /// them, and for the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_coverage: Option<Figure<CodeCoverage>>,
}

/// The findings about a tool that a tool file describes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolResult {
    /// Every kind of fault: found in a run, looked for and not found in any, or not looked for and
    /// why.
    pub findings: Vec<FindingResult>,
    /// The figures that it reported beside what really happened, from the last run that had the
    /// bundled tracer as its reference tracer; bytes requested from the last one with a reference
    /// tracer that counts those.
    pub figures: Vec<Compared>,
    /// The figures that its file declares and that no run compares with what really happened, where
    /// the study compares tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_compared: Vec<NotCompared>,
    /// The first of these runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Its programs in the kernel, in the first run that it was ready in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<Loaded>,
}

/// A tool that was ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Loaded {
    /// How long it took from its start until it was ready, in nanoseconds of the guest's clock.
    pub ready_ns: u64,
    /// How long it took to make its maps and load its programs, in the same unit; `None` where its
    /// loader does not report it: all but that of bare objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_ns: Option<u64>,
    /// Its programs as the kernel held them then.
    pub programs: Vec<BpfObject>,
}

impl Loaded {
    /// Its programs in the order in which they were loaded.
    #[must_use]
    pub fn programs_by_id(&self) -> Vec<&BpfObject> {
        let mut programs: Vec<&BpfObject> = self.programs.iter().collect();
        programs.sort_by_key(|program| program.id);
        programs
    }
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

/// The time that the programs of a probe configuration take together for each call that it counts,
/// in the whole guest.
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
    /// The metrics, each with the row of its accuracy where there is one.
    pub fn rows(&self) -> impl Iterator<Item = (&CellMetric, Option<&CellAccuracy>)> {
        self.metrics.iter().map(|metric| (metric, self.accuracy.iter().find(|row| row.metric == metric.name)))
    }

    /// The rows of whole phases or runs: those that are not the time per call of another.
    pub fn whole(&self) -> impl Iterator<Item = (&CellMetric, Option<&CellAccuracy>)> {
        self.rows().filter(|(metric, _)| metric.calls_of.is_none())
    }

    /// The metric with this name.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<&CellMetric> {
        self.metrics.iter().find(|metric| &*metric.name == name)
    }

    /// Whether nothing was under test.
    #[must_use]
    pub fn is_baseline(&self) -> bool {
        self.probe.is_baseline() && self.tool.is_none()
    }

    /// How many runs that were measured lack a figure that the workload has to report, and why the
    /// first figure is missing: a summary that cannot be read or contradicts itself is no
    /// measurement.
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

    /// Whether the tracer was compared with what the workload moved in some intervals, and in
    /// others not: each interval has a figure, or what is under test has none in any.
    #[must_use]
    pub fn lacks_counts(&self) -> bool {
        let errors = self.accuracy.iter().flat_map(|row| [&row.byte_error, &row.call_error]);
        errors.filter_map(Figure::value).any(|errors| errors.not_measured > 0)
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
        /// The expected outcome, if there is one.
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
    /// Whether it is not what was expected: a refusal that was not expected, an attachment that
    /// should have been refused, or now one and now the other. That nothing is known is no
    /// surprise; the runs that failed say why.
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
    /// Name, unique in the cell: `write`, `read`, `work`, or a name of the study file.
    pub name: MetricName,
    /// Unit: `MiB/s`, `operations/s`.
    pub unit: String,
    /// Which values are better.
    pub better: Better,
    /// The operation whose bytes it is the rate of: a bandwidth by IOR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Operation>,
    /// The bandwidth that it is the time per call of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_of: Option<MetricName>,
    /// Values of the runs, controls not included.
    pub value: Figure<Summary>,
    /// Relative overhead: value of the baseline / value of this cell, oriented so that above 1 is
    /// worse.
    pub overhead: Figure<Overhead>,
    /// The cost of the probe configuration in instructions, under the instruction clock.
    pub cost: Figure<Cost>,
    /// The second baseline run taken for a probe configuration: it costs nothing, so this is the
    /// noise floor.
    pub control_cost: Figure<Cost>,
    /// The direct cost of the probe configuration; `None` where no instructions were counted, and
    /// for the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct: Option<Figure<Direct>>,
    /// A/A control of the group: value of the baseline / value of the second baseline run. Its
    /// distance from 1 is the noise floor.
    pub control: Figure<Overhead>,
    /// For the baseline: whether its value changed with time, over all its runs and those of the
    /// control.
    #[serde(default = "no_drift")]
    pub drift: Figure<Drift>,
}

impl CellMetric {
    /// The ratio that is compared with 1: the overhead, or the A/A control of the baseline.
    #[must_use]
    pub fn compared(&self, is_baseline: bool) -> &Figure<Overhead> {
        if is_baseline { &self.control } else { &self.overhead }
    }

    /// The cost, and of the baseline its A/A control.
    #[must_use]
    pub fn cost_compared(&self, is_baseline: bool) -> &Figure<Cost> {
        if is_baseline { &self.control_cost } else { &self.cost }
    }

    /// Whether the overhead is within the noise floor: its interval holds 1, or the estimate lies
    /// in the interval of the A/A control. Never without an interval.
    #[must_use]
    pub fn is_within_noise(&self) -> bool {
        let Some(overhead) = self.overhead.value().map(|overhead| overhead.estimate) else { return false };
        let Some(own) = overhead.bounds.interval() else { return false };
        let control = self.control.value().and_then(|control| control.estimate.bounds.interval());
        (own.lower..=own.upper).contains(&1.0)
            || control.is_some_and(|floor| (floor.lower..=floor.upper).contains(&overhead.value))
    }
}

/// How right the counts are of what the tracer counted while a metric was measured: a row per
/// bandwidth, and one for the work as a whole of other workloads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellAccuracy {
    /// [`CellMetric::name`].
    pub metric: MetricName,
    /// Byte errors of the operation of this metric over all intervals of all runs; of the work as a
    /// whole those of all operations.
    pub byte_error: Figure<ByteErrors>,
    /// The same for calls.
    pub call_error: Figure<ByteErrors>,
    /// The same for mountstats.
    pub mountstats_error: Figure<ByteErrors>,
    /// Over the runs: see `RunAccuracy::relative_error_ior_interval`.
    pub relative_error_ior_interval: Figure<Summary>,
    /// Over the runs: see `RunAccuracy::relative_error_instantaneous`.
    pub relative_error_instantaneous: Figure<Summary>,
}

fn no_drift() -> Figure<Drift> {
    Figure::missing("these results were made before drift was looked for")
}

/// A relative overhead and what it rests on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Overhead {
    /// The estimate with its interval; its `n` counts `unit`s.
    pub estimate: Estimate,
    /// The same on the log scale with its error: what tests start from.
    pub effect: Effect,
    /// The unit that is one independent observation.
    pub unit: Unit,
    /// Pairs of runs that went into it.
    pub pairs: u32,
    /// How many of them were measured in two boots of the same block, because the first was
    /// interrupted.
    pub pairs_across_boots: u32,
    /// Standard deviation of log ratios between boots, beyond what their rounds explain; `None` for
    /// one boot, or one round.
    #[serde(default)]
    pub between_boots: Option<f64>,
    /// Standard deviation of log ratios between the rounds of one boot; `None` for one round.
    #[serde(default)]
    pub within_boots: Option<f64>,
    /// Minimal detectable effect: the ratio above 1 that an interval of this standard error, with
    /// all that is in it, shows with probability 0.8 at the study's error rate. A plan for the next
    /// experiment, from a spread that is an estimate itself; `None` without an interval.
    #[serde(default)]
    pub detectable: Option<f64>,
    /// Whether it is shown to lie within the study's margin (two one-sided tests, corrected over
    /// all cells); `None` where the study names no margin.
    #[serde(default)]
    pub negligible: Option<bool>,
    /// What the interval was made with besides its own observations; `None`: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooled: Option<Pooled>,
}

/// What an interval was made with besides its own observations: the variance of other rows of the
/// matrix (moderated t), and a declared layout term.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pooled {
    /// Rows whose variances were pooled, this one among them; 1: its variance is its own.
    pub cells: usize,
    /// Standard deviation of the log ratio of a single observation that is usual in them.
    pub deviation: f64,
    /// For how many degrees of freedom it counts; `None`: the variances do not differ by more than
    /// chance.
    pub degrees_of_freedom: Option<f64>,
    /// Standard deviation of the declared layout term in the interval, of a ratio of two results
    /// that of both; 0 where boots show the layout themselves.
    pub layout: f64,
}

/// Instructions of the guest beyond the baseline's, from barrier to barrier, in pairs of the same
/// block and round. The difference holds everything that the probe adds: the hook, the program, and
/// where it disturbs other code.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Per call of the workload, with the interval of its own observations; its `n` counts `unit`s.
    pub per_call: Estimate,
    /// Per MiB that the workload moved, with its interval.
    pub per_mib: Estimate,
    /// Instructions per call of the baseline's runs, the mean; `None` in results that were made
    /// before this was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<f64>,
    /// The cost per call with the interval that overheads have, which reports show; `None` where
    /// that is the one of its own observations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooled: Option<PooledCost>,
    /// What was compared.
    pub basis: Basis,
    /// Calls per run.
    pub calls: u64,
    /// The unit that is one independent observation.
    pub unit: Unit,
}

/// A cost with an interval as overheads have it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PooledCost {
    /// Per call of the workload.
    pub per_call: Estimate,
    /// What its interval was made with besides its own observations; deviations are shares of the
    /// baseline's instructions per call.
    pub with: Pooled,
}

impl Cost {
    /// The cost per call as reports show it.
    #[must_use]
    pub fn shown(&self) -> &Estimate {
        self.pooled.as_ref().map_or(&self.per_call, |pooled| &pooled.per_call)
    }
}

/// Which time was compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Time in which the guest worked.
    Busy,
    /// All time, waiting included: the kernel does not report how long it was idle.
    Elapsed,
}

/// The unit that is one independent observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// One boot: the mean of the log ratios of its rounds.
    Boots,
    /// One round within the only boot: the interval covers the spread within that boot, not between
    /// boots.
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
