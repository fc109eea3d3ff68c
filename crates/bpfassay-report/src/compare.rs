// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two results side by side: what is new, gone, broken, slower. Pure.

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
    gate::{Change, ChangeEvidence, changes},
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
    /// Changes up to this do not matter; `None`: [`usual_margin`].
    pub margin: Option<Share>,
    /// Probability of each kind of error.
    pub error_rate: Share,
    /// How that rate is kept over all cells.
    pub correction: Correction,
    /// Kernels that are compared though their names differ: name in the base, name in the new
    /// results. Where an architecture has one kernel in either, these are.
    pub kernels: Vec<(String, String)>,
    /// Which part of the two it is about.
    pub filter: Filter,
    /// How the base and the new results are called, such as by their directories; empty: by study
    /// and time alone.
    pub names: [String; 2],
}

impl Default for Question {
    fn default() -> Self {
        Self {
            margin: None,
            error_rate: Share::from_ppm(10_000),
            correction: Correction::BenjaminiHochberg,
            kernels: Vec::new(),
            filter: Filter::default(),
            names: [String::new(), String::new()],
        }
    }
}

impl Question {
    /// The margin of results by `clock`.
    fn margin_by(&self, clock: Clock) -> Share {
        self.margin.unwrap_or_else(|| usual_margin(clock))
    }
}

/// Changes up to this do not matter, where nobody names another margin: 0.02 % under the
/// instruction clock, 0.1 % under the wall clock.
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
    /// Name of the base's study, and of the new one's; with the shard, where only one was measured.
    pub studies: [String; 2],
    /// How whoever asked calls the two, such as by their directories; empty where they have no
    /// names.
    pub names: [String; 2],
    /// When each of them began, in milliseconds since 1970-01-01 UTC.
    pub started_unix_ms: [u64; 2],
    /// The clock of both.
    pub clock: Clock,
    /// Changes up to this do not matter.
    pub margin: Share,
    /// Probability of each kind of error.
    pub error_rate: Share,
    /// How that rate is kept over all cells.
    pub correction: Correction,
    /// Which part of the two it is about.
    pub filter: Filter,
    /// Cells in the order of the new plan, then those that are gone; those that the filter takes.
    pub cells: Vec<CellComparison>,
    /// What else differs between the two: other versions of QEMU, other hosts.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Whether something under test got worse: broken, slower or of higher cost beyond the margin,
    /// counting wrongly where it was exact, or with a pitfall or fault that the base does not have.
    /// A slower baseline is none: no tool runs in it.
    #[must_use]
    pub fn is_regression(&self) -> bool {
        self.cells.iter().any(CellComparison::is_regression)
    }

    /// Whether for some figure of what is under test neither a change nor its absence is shown.
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
    /// The kernel in the base and in the new results; `None` where the cell is not there.
    pub kernels: [Option<String>; 2],
    /// The workload case.
    pub case: String,
    /// Identifier of the file system.
    pub file_system: String,
    /// The probe configuration or tool; `none`: the baseline.
    pub under_test: String,
    /// Which of the two results measured it.
    pub fate: Fate,
    /// Its figures, where both have some.
    pub metrics: Vec<MetricComparison>,
    /// Pitfalls that only the new results have: kind and subject.
    pub findings_new: Vec<String>,
    /// Pitfalls that only the base has.
    pub findings_gone: Vec<String>,
    /// Faults of a tool that are found in the new results and were looked for in vain in the base,
    /// by their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults_new: Vec<String>,
    /// Faults that were found in the base and looked for in vain in the new results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults_gone: Vec<String>,
    /// Of a tool that was ready in both: its programs of which the kernel made something else.
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

    /// `x86_64 6.12`, `x86_64 6.12 → 7.2`.
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
    /// Measured in both.
    Compared,
    /// Only the new results have it.
    New,
    /// Only the base has it.
    Gone,
    /// Measured in the base, and not in the new results.
    Broken {
        /// Why not.
        reason: String,
    },
    /// Not measured in the base, measured in the new results.
    Mended {
        /// Why not in the base.
        reason: String,
    },
    /// Measured in neither.
    Neither {
        /// Why not, in the new results.
        reason: String,
    },
}

/// One metric of a cell in both results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricComparison {
    /// Its name.
    pub metric: MetricName,
    /// The operation that it is the bandwidth of, or the time of whose calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Operation>,
    /// What the ratio is of.
    pub measure: Measure,
    /// New / base: above 1 means slower.
    pub ratio: Figure<Ratio>,
    /// What is claimed of it, after the correction over all cells.
    pub change: Change,
    /// Extra instructions per call in the base and in the new results, for a cell with a tool under
    /// the instruction clock.
    pub instructions_per_call: [Option<f64>; 2],
    /// Direct cost in both; `None` where neither has one.
    pub direct: Option<Figure<DirectChange>>,
    /// Byte errors in the base and in the new results.
    pub byte_error: [Figure<ByteErrors>; 2],
}

impl MetricComparison {
    /// Whether it was exact and is not any more.
    #[must_use]
    pub fn miscounts(&self) -> bool {
        let is_exact = |figure: &Figure<ByteErrors>| figure.value().map(|errors| errors.min == 0 && errors.max == 0);
        let [base, new] = &self.byte_error;
        is_exact(base) == Some(true) && is_exact(new) == Some(false)
    }

    /// What is claimed of the direct cost; `None` where it was not measured in both.
    #[must_use]
    pub fn direct_change(&self) -> Option<Change> {
        self.direct.as_ref()?.value().map(|direct| direct.change)
    }

    /// What is claimed of its overhead; `None` of a baseline, which has none.
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

/// What a ratio of two results is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Of the baseline: time for the same bytes.
    Time,
    /// Of a tool: its relative overhead, each over the baseline of its own results.
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

/// A ratio new / base.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// With its interval, for this cell alone.
    pub estimate: Estimate,
    /// The same on the log scale.
    pub effect: Effect,
    /// The evidence for a change and against one, before its correction over all cells.
    pub evidence: ChangeEvidence,
    /// Whether runs were compared in pairs of the same replicate and round: under the instruction
    /// clock with the same seed they differ in nothing else. Otherwise the two results are
    /// independent samples.
    pub paired: bool,
    /// What counts as one observation. With rounds of one boot, the effect of pairs has the
    /// declared layout term in it; where runs are not compared in pairs, one boot is one
    /// observation, and nothing is claimed.
    pub unit: Unit,
    /// What the interval has besides the pairs of this cell: the variance of other cells, and the
    /// declared layout term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooled: Option<Pooled>,
}

/// What is claimed of each ratio: which changes matter, at which error rate, and how many looks
/// there were.
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
/// [`NotComparable`] where figures of the two mean different things, and for a filter that takes nothing.
pub fn compare(base: &Results, new: &Results, question: &Question) -> Result<Comparison, NotComparable> {
    let pairs = cells::pair(base, new, question);
    let notes = comparable::check(base, new, &pairs)?;
    let sides = [base, new].map(cells::Side::of);
    let claim = Claim {
        margin: question.margin_by(new.plan.study.clock),
        error_rate: question.error_rate,
        // Each of the two may have stopped at any of its looks.
        looks: sides[0].looks.saturating_mul(sides[1].looks),
    };
    let mut cells: Vec<CellComparison> =
        pairs.iter().map(|pair| cells::compare(&sides[0], &sides[1], pair, claim)).collect();
    pooled::settle(&mut cells, claim);
    // Before the correction over all cells: what is not asked for is no look.
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
