// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares two results: cells that are new, missing, broken or slower. Pure.

mod cells;
mod comparable;
mod direct;
mod filter;
mod pooled;
mod programs;

use std::fmt;

use bpfassay_protocol::{Arch, Operation};
use bpfassay_stats::{
    Effect, Estimate, StatsError,
    gate_decision::{Change, ChangeEvidence, changes},
};
use bpfassay_study::{Clock, Correction, MetricName, Share};
use serde::{Deserialize, Serialize};

pub(crate) use self::comparable::same_guests;
pub use self::{
    comparable::NotComparable,
    direct::{DirectChange, FunctionChange},
    filter::Filter,
    programs::ProgramChange,
};
use crate::derive::gates::adjustment;
use bpfassay_results::{ByteErrors, Figure, Pooled, Results, Unit};

/// Version of the JSON form of a comparison.
pub const COMPARISON_VERSION: u32 = 8;

/// How two results are to be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Changes up to this share are negligible; `None`: [`usual_margin`].
    pub margin: Option<Share>,
    /// Probability of each kind of error.
    pub error_rate: Share,
    /// How the error rate is kept over all cells.
    pub correction: Correction,
    /// Kernels to compare despite different names, as pairs of the name in the base and the name in
    /// the new results. If both results have one kernel of an architecture, these two are always
    /// compared.
    pub kernels: Vec<(String, String)>,
    /// Tools or probe configurations to compare despite different names, as pairs of the name in
    /// the base and the name in the new results. If there are some, nothing else is compared.
    pub tools: Vec<(String, String)>,
    /// The part of the results to compare.
    pub filter: Filter,
    /// How reports call the base and the new results, such as by their directories. If empty,
    /// reports use the study's name and the time alone.
    pub names: [String; 2],
}

impl Default for Question {
    fn default() -> Self {
        Self {
            margin: None,
            error_rate: Share::from_ppm(10_000),
            correction: Correction::BenjaminiHochberg,
            kernels: Vec::new(),
            tools: Vec::new(),
            filter: Filter::default(),
            names: [String::new(), String::new()],
        }
    }
}

impl Question {
    /// Returns the margin for results measured by `clock`.
    fn margin_by(&self, clock: Clock) -> Share {
        self.margin.unwrap_or_else(|| usual_margin(clock))
    }
}

/// The default margin, up to which a change is negligible: 0.02 % under the instruction clock, 0.1
/// % under the wall clock.
#[must_use]
pub const fn usual_margin(clock: Clock) -> Share {
    match clock {
        Clock::Instructions => Share::from_ppm(200),
        Clock::Wall => Share::from_ppm(1000),
    }
}

/// A comparison of two results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// Version of this form.
    pub version: u32,
    /// Names of the base's study and of the new study, with the shard if only one was measured.
    pub studies: [String; 2],
    /// How the caller names the two results, such as by their directories; empty without names.
    pub names: [String; 2],
    /// When the two studies began, in milliseconds since 1970-01-01 UTC.
    pub started_unix_ms: [u64; 2],
    /// The clock of both results.
    pub clock: Clock,
    /// Changes up to this share are negligible.
    pub margin: Share,
    /// Probability of each kind of error.
    pub error_rate: Share,
    /// How the error rate is kept over all cells.
    pub correction: Correction,
    /// The part of the results that was compared.
    pub filter: Filter,
    /// The cells that pass the filter: cells of the new plan in its order, then cells that only the
    /// base has.
    pub cells: Vec<CellComparison>,
    /// Other differences between the two results, such as the version of QEMU or the host.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Whether something under test got worse. It broke, became slower or costlier beyond the
    /// margin, no longer counts exactly, or has a pitfall or fault that the base does not have. A
    /// slower baseline is no regression, because no tool runs in it.
    #[must_use]
    pub fn is_regression(&self) -> bool {
        self.cells.iter().any(CellComparison::is_regression)
    }

    /// Whether some figure under test shows neither a change nor the absence of a change.
    #[must_use]
    pub fn is_inconclusive(&self) -> bool {
        let of = |metric: &MetricComparison| [metric.change_of_tool(), metric.direct_change()];
        self.cells.iter().flat_map(|cell| &cell.metrics).flat_map(of).any(|change| change == Some(Change::Inconclusive))
    }
}

/// One cell in both results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellComparison {
    /// The architecture.
    pub arch: Arch,
    /// The kernels in the base and in the new results; `None` in results without this cell.
    pub kernels: [Option<String>; 2],
    /// The workload case.
    pub case: String,
    /// Identifier of the file system.
    pub file_system: String,
    /// The probe configuration or tool; `none` for the baseline; `old → new` for two tools.
    pub under_test: String,
    /// Which of the two results measured the cell.
    pub fate: Fate,
    /// Figures of the cell, if both results have some.
    pub metrics: Vec<MetricComparison>,
    /// Pitfalls that only the new results have, each as kind and subject.
    pub findings_new: Vec<String>,
    /// Pitfalls that only the base has.
    pub findings_gone: Vec<String>,
    /// Names of faults of the tool that the new results show, and that a check ruled out in the
    /// base.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults_new: Vec<String>,
    /// Names of faults that the base shows, and that a check ruled out in the new results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults_gone: Vec<String>,
    /// Programs for which the kernel produced different code, if the tool was ready in both
    /// results.
    pub programs: Vec<ProgramChange>,
}

impl CellComparison {
    /// See [`Comparison::is_regression`].
    #[must_use]
    pub fn is_regression(&self) -> bool {
        matches!(self.fate, Fate::Broken { .. })
            || !self.findings_new.is_empty()
            || !self.faults_new.is_empty()
            || self.metrics.iter().any(MetricComparison::is_regression)
    }

    /// Returns the target's name: `x86_64 6.12`, or `x86_64 6.12 → 7.2`.
    #[must_use]
    pub fn target(&self) -> String {
        match &self.kernels {
            [Some(base), Some(new)] if base != new => format!("{} {base} → {new}", self.arch),
            [Some(kernel), _] | [None, Some(kernel)] => format!("{} {kernel}", self.arch),
            [None, None] => self.arch.to_string(),
        }
    }
}

/// Which of two results measured a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fate", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fate {
    /// Both results measured the cell.
    Compared,
    /// The cell exists in the new results only.
    New,
    /// The cell exists in the base only.
    Gone,
    /// The base measured the cell, and the new results did not.
    Broken {
        /// Why the new results did not measure it.
        reason: String,
    },
    /// The new results measured the cell, and the base did not.
    Mended {
        /// Why the base did not measure it.
        reason: String,
    },
    /// Neither result measured the cell.
    Neither {
        /// Why the new results did not measure it.
        reason: String,
    },
}

/// One metric of a cell in both results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricComparison {
    /// The metric's name.
    pub metric: MetricName,
    /// The operation whose bandwidth or time of calls the metric is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Operation>,
    /// The quantity that the ratio compares.
    pub measure: Measure,
    /// New / base: above 1 means slower.
    pub ratio: Figure<Ratio>,
    /// The claim about the ratio, after the correction over all cells.
    pub change: Change,
    /// Extra instructions per call in the base and in the new results, if the cell has a tool under
    /// the instruction clock.
    pub instructions_per_call: [Option<f64>; 2],
    /// The direct cost in both results; `None` if neither has one.
    pub direct: Option<Figure<DirectChange>>,
    /// Byte errors in the base and in the new results.
    pub byte_error: [Figure<ByteErrors>; 2],
}

impl MetricComparison {
    /// Whether the tool was exact in the base and is not in the new results.
    #[must_use]
    pub fn miscounts(&self) -> bool {
        let is_exact = |figure: &Figure<ByteErrors>| figure.value().map(|errors| errors.min == 0 && errors.max == 0);
        let [base, new] = &self.byte_error;
        is_exact(base) == Some(true) && is_exact(new) == Some(false)
    }

    /// The claim about the direct cost; `None` if it was not measured in both results.
    #[must_use]
    pub fn direct_change(&self) -> Option<Change> {
        self.direct.as_ref()?.value().map(|direct| direct.change)
    }

    /// The claim about the overhead; `None` for a baseline, which has no overhead.
    #[must_use]
    pub fn change_of_tool(&self) -> Option<Change> {
        (self.measure == Measure::Overhead).then_some(self.change)
    }

    /// See [`Comparison::is_regression`].
    #[must_use]
    pub fn is_regression(&self) -> bool {
        self.change_of_tool() == Some(Change::Increase)
            || self.direct_change() == Some(Change::Increase)
            || self.miscounts()
    }
}

/// The quantity that a ratio of two results compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The time that the baseline needs for the same bytes.
    Time,
    /// A tool's relative overhead over the baseline of the same results.
    Overhead,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Time => "time",
            Self::Overhead => "overhead",
        })
    }
}

/// The ratio new / base of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// The ratio with its interval, for this cell alone.
    pub estimate: Estimate,
    /// The ratio on the log scale.
    pub effect: Effect,
    /// The evidence for a change and against one, before the correction over all cells.
    pub evidence: ChangeEvidence,
    /// Whether runs of the same replicate and round were compared in pairs. Under the instruction
    /// clock with the same seed such runs differ only by the difference between the two results.
    /// Otherwise the two results are independent samples.
    pub paired: bool,
    /// The kind of one observation. If the rounds of one boot count, the effect of pairs includes
    /// the
    /// includes the declared layout term. If runs are not compared in pairs, one boot is one
    /// observation, and nothing is claimed.
    pub unit: Unit,
    /// Contributions to the interval in addition to this cell's pairs: the variance of other cells,
    /// and the declared layout term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooled: Option<Pooled>,
}

/// The parameters of the claim about each ratio: the margin, the error rate, and the number of
/// looks.
#[derive(Debug, Clone, Copy)]
struct Claim {
    margin: Share,
    error_rate: Share,
    looks: usize,
}

impl Ratio {
    fn new(effect: Effect, paired: bool, unit: Unit, claim: Claim) -> Result<Self, StatsError> {
        let estimate = effect.estimate(1.0 - claim.error_rate.value())?;
        let evidence = ChangeEvidence::new(&effect, claim.margin.ratio())?.over_looks(claim.looks);
        Ok(Self { estimate, effect, evidence, paired, unit, pooled: None })
    }
}

/// Compares `new` with `base`.
///
/// # Errors
/// [`NotComparable`], if figures of the two results mean different things, or if the filter matches
/// nothing.
pub fn compare(base: &Results, new: &Results, question: &Question) -> Result<Comparison, NotComparable> {
    let pairs = cells::pair(base, new, question)?;
    let notes = comparable::check(base, new, &pairs)?;
    let sides = [base, new].map(cells::Side::of);
    let claim = Claim {
        margin: question.margin_by(new.plan.study.clock),
        error_rate: question.error_rate,
        // Each of the two studies may have stopped at any of its looks.
        looks: sides[0].looks.saturating_mul(sides[1].looks),
    };
    let mut cells: Vec<CellComparison> =
        pairs.iter().map(|pair| cells::compare(&sides[0], &sides[1], pair, claim)).collect();
    pooled::settle(&mut cells, claim);
    // The correction over all cells comes later: only requested cells count as looks.
    question.filter.apply(&mut cells)?;
    let mut family: Vec<&mut MetricComparison> = cells.iter_mut().flat_map(|cell| &mut cell.metrics).collect();
    let evidence: Vec<ChangeEvidence> =
        family.iter().filter_map(|metric| metric.ratio.value().map(|ratio| ratio.evidence)).collect();
    let found = changes(&evidence, question.error_rate.value(), adjustment(question.correction))
        .map_err(|error| NotComparable::Question { reason: error.to_string() })?;
    let measured = family.iter_mut().filter(|metric| metric.ratio.value().is_some());
    for (metric, change) in measured.zip(found) {
        metric.change = change;
    }
    cells::name_kernels(&mut cells, [base, new]);
    Ok(Comparison {
        version: COMPARISON_VERSION,
        studies: [base, new].map(|results| results.plan.title()),
        names: question.names.clone(),
        started_unix_ms: [base, new].map(|results| results.started_unix_ms),
        clock: new.plan.study.clock,
        margin: claim.margin,
        error_rate: question.error_rate,
        correction: question.correction,
        filter: question.filter.clone(),
        cells,
        notes,
    })
}
