// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares figures with the ground truth. Each difference is explained once, by the first kind of
//! finding that fits exactly.

use std::{borrow::Cow, collections::BTreeSet};

use bpfassay_protocol::{Operation, checked_prototype::Checked, operation::Variant};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    absent::{self, Absence},
    aliases::Aliases,
    certainty::EvidenceLine,
    evidence::{Evidence, KernelFacts},
    finding_comparison::{ComparedFigure, GrowthBySubject, NumberComparison, comparable, compare},
    finding_source::KindSources,
    process_identity::ProcessKey,
    truth::Truth,
};
use crate::{
    file::{CountedUnit, Report, ReportedFigure, Whose, counted},
    readings::{AbsentName, Bucket, Readings},
};

/// A reported number and what really happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// Name of the figure's value.
    pub figure: String,
    /// The operations that the figure counts.
    pub operations: Vec<Operation>,
    /// The variants that the figure counts; see [`ReportedFigure::variants`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
    /// The unit of the count.
    pub unit: CountedUnit,
    /// The kind of subject.
    pub whose: Whose,
    /// The cgroup, mount or process, by its first name; `None` for the whole system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The reported number, in two's complement if negative.
    pub reported: u64,
    /// The truth, in the same unit.
    pub really: u64,
    /// For requested bytes: the bytes that the calls moved in a run of the same workload. `None` if
    /// unknown, or for other units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<u64>,
    /// The name that the tool used, if it is not a known name of the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_as: Option<String>,
    /// The largest amount lost by the tool's rounding.
    pub rounding: u64,
    /// Bounds of the values in a histogram that this is the count of. No truth is known for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Values>,
    /// How the figure differs; see [`ReportedFigure::differs`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
}

/// Bounds of a histogram's values, as the tool prints them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Values {
    /// Upper bound of half of the values.
    pub half_up_to: String,
    /// Upper bound of 99 % of the values.
    pub most_up_to: String,
    /// Upper bound of all values.
    pub all_up_to: String,
}

impl Values {
    /// Computes the bounds from ascending buckets; `None` if there are no values.
    fn of(buckets: &[Bucket]) -> Option<Self> {
        let all = buckets.iter().fold(0_u128, |sum, bucket| sum + u128::from(bucket.count));
        let up_to = |hundredths: u128| {
            let mut sum = 0_u128;
            let reaches = |bucket: &&Bucket| {
                sum += u128::from(bucket.count);
                sum * 100 >= all * hundredths
            };
            buckets.iter().find(reaches).map(|bucket| bucket.up_to.clone())
        };
        Some(Self { half_up_to: up_to(50)?, most_up_to: up_to(99)?, all_up_to: up_to(100)? })
    }
}

impl Compared {
    /// Describes the counted operations and the variants they are limited to.
    #[must_use]
    pub fn counted(&self) -> String {
        counted(&self.operations, &self.variants)
    }

    /// Whether the two numbers agree.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.reported <= self.really && self.really - self.reported <= self.rounding
    }
}

/// Lists every comparable number that was reported or should have been.
#[must_use]
pub fn compared(report: &Report, readings: &Readings, truth: &Truth) -> Vec<Compared> {
    let mut all = Vec::new();
    let aliases = Aliases::found(&ComparedFigure::all(report, readings, truth), truth);
    for (index, figure) in comparable(report, truth) {
        let Ok((mut comparisons, grown)) = compare(index, figure, readings, truth) else { continue };
        aliases.apply(figure, &mut comparisons, &grown);
        let values = readings.values(index, figure, truth.from_ns, truth.to_ns);
        let values_of = |one: &NumberComparison<'_>| {
            let is_of = |name: &Option<String>| match name {
                None => figure.whose == Whose::System,
                Some(name) => one.subject.has_name(name) || one.also.contains(name),
            };
            // Histograms of several names cannot be combined.
            let mut of_subject = values.iter().filter(|(name, _)| is_of(name)).map(|(_, buckets)| buckets);
            of_subject.next().filter(|_| of_subject.next().is_none()).and_then(|buckets| Values::of(buckets))
        };
        all.extend(comparisons.into_iter().filter(|one| (one.expected, one.reported) != (0, 0)).map(|one| Compared {
            figure: figure.name(),
            operations: figure.operations.clone(),
            variants: figure.variants.clone(),
            unit: figure.unit,
            whose: figure.whose,
            subject: one.subject.names.first().cloned(),
            reported: one.reported,
            really: one.expected,
            moved: None,
            reported_as: one.also.first().cloned(),
            rounding: one.slack,
            values: values_of(&one),
            differs: figure.differs.clone(),
        }));
    }
    all
}

/// A figure that could not be compared with the truth, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotCompared {
    /// Index of the figure in the tool file, from 0.
    pub index: usize,
    /// Name of the figure's value, and what it counts.
    pub figure: String,
    /// The reason.
    pub reason: String,
}

/// Lists the figures in `report` that are defined like the truth but cannot be compared with it.
/// Without `readings`, nothing was read. Without `truth`, nothing is known to have happened.
#[must_use]
pub fn not_compared(report: &Report, readings: Option<&Readings>, truth: Option<&Truth>) -> Vec<NotCompared> {
    let declared = report.figures.iter().enumerate().filter(|(_, figure)| figure.differs.is_none());
    let why = |index: usize, figure: &ReportedFigure| match (readings, truth) {
        (None, _) => Some("nothing that the tool reported could be read".to_owned()),
        (_, None) => Some("there is no ground truth".to_owned()),
        (Some(_), Some(truth)) if !truth.units.contains(&figure.unit) => {
            Some(format!("the ground truth has no {}", figure.unit.name()))
        }
        (Some(readings), Some(truth)) => compare(index, figure, readings, truth).err(),
    };
    let of_figure = |(index, figure): (usize, &ReportedFigure)| {
        let reason = why(index, figure)?;
        let figure = format!("`{}` ({}, {})", figure.name(), figure.counted(), figure.unit.name());
        Some(NotCompared { index, figure, reason })
    };
    declared.filter_map(of_figure).collect()
}

/// Bytes that calls moved, for each figure of requested bytes in the report: the figure's name, the
/// subject's first name, and the bytes.
#[must_use]
pub fn moved<'t>(report: &'t Report, truth: &'t Truth) -> Vec<(String, Option<&'t str>, u64)> {
    let requested = report.figures.iter().filter(|figure| figure.unit == CountedUnit::BytesRequested);
    let of_figure = requested.flat_map(|figure| {
        // Ids differ between runs, so names are used.
        truth.subjects(figure, ProcessKey::Name).into_iter().filter_map(|subject| {
            let name = match subject.names {
                Cow::Borrowed(names) => names.first().map(String::as_str),
                // A subject that unites several has no own names.
                Cow::Owned(_) => None,
            };
            Some((figure.name(), name, subject.total(CountedUnit::BytesReturned)?))
        })
    });
    of_figure.collect()
}

/// Indices of the figures of returned bytes that equal the requested bytes, where these differ.
#[must_use]
pub fn requested(report: &Report, readings: &Readings, truth: &Truth) -> BTreeSet<usize> {
    let is_requested = |&(index, figure): &(usize, &ReportedFigure)| {
        figure.unit == CountedUnit::BytesReturned
            && compare(index, figure, readings, truth)
                .is_ok_and(|(comparisons, _)| comparisons.iter().any(NumberComparison::is_asked))
    };
    comparable(report, truth).filter(is_requested).map(|(index, _)| index).collect()
}

/// Reason for not evaluating a kind that any figure can show.
pub(super) const NONE: &str = "no figure of it can be compared with the truth";

/// Evidence for one kind, and whether any figure could show it.
#[derive(Debug, Clone, Default)]
pub(super) struct EvidenceTally {
    pub(super) evidence: Vec<EvidenceLine>,
    pub(super) evaluated: bool,
    /// Why the kind is not clear although it was evaluated: the difference can come from other
    /// processes.
    pub(super) open: Option<String>,
}

/// Differences between one figure and the ground truth.
pub(super) struct Differences<'a> {
    pub(super) report: &'a Report,
    pub(super) readings: &'a Readings,
    pub(super) truth: &'a Truth,
    /// The tool's programs, compared with the kernel's prototypes, as far as known.
    pub(super) prototypes: &'a [Checked],
    /// Facts from the kernel and the guest.
    pub(super) kernel: Option<&'a KernelFacts>,
    /// Index of the figure in the report.
    pub(super) index: usize,
    pub(super) figure: &'a ReportedFigure,
    /// Whether phases of the run show that the figure has requested bytes.
    pub(super) is_requested: bool,
    pub(super) comparisons: Vec<NumberComparison<'a>>,
    /// The reported amounts by subject, without those explained as amounts of several subjects.
    pub(super) grown: GrowthBySubject,
}

/// All figures, explained.
#[derive(Debug)]
pub(super) struct Explained {
    /// One tally per kind.
    pub(super) tallies: Vec<EvidenceTally>,
    /// Reasons why figures could not be compared, with unit and kind of subject. Kinds that such a
    /// figure can show are not clear. `None` stands for all figures.
    obstacles: Vec<(Option<(CountedUnit, Whose)>, String)>,
    /// Names that no report has.
    pub(super) names: Absence,
}

impl Explained {
    /// The first reason why a figure relevant for `sources` could not be compared.
    pub(super) fn obstacle(&self, sources: &KindSources) -> Option<&str> {
        let is_of =
            |figure: &Option<(CountedUnit, Whose)>| figure.is_none_or(|(unit, whose)| sources.compares(unit, whose));
        self.obstacles.iter().find(|(figure, _)| is_of(figure)).map(|(_, reason)| reason.as_str())
    }
}

/// A kind's function for explaining differences.
pub(super) type Explain = fn(&mut EvidenceTally, &mut Differences<'_>);

/// Keeps negative numbers and too small ones: an excess is no finding, because other processes can
/// have caused it. Returns why the figure is not clear, if others may hide a difference.
fn keep_shortfalls(comparisons: &mut Vec<NumberComparison<'_>>) -> Option<String> {
    let is_enough = |one: &NumberComparison<'_>| one.at_least <= one.reported.saturating_add(one.slack);
    let may_hide = comparisons.iter().any(|one| one.negative().is_none() && is_enough(one));
    comparisons.retain(|one| one.negative().is_some() || one.reported < one.at_least);
    may_hide
        .then(|| "the ground truth does not cover the whole system: what others did may hide a difference".to_owned())
}

/// Explains every figure with `kinds`, in their order.
///
/// # Errors
/// Why no figure can be explained: the tool has none or reported none, or there is no ground truth.
pub(super) fn explain(evidence: &Evidence<'_>, kinds: &[Option<Explain>]) -> Result<Explained, &'static str> {
    let (report, readings) = evidence.reported()?;
    let truth = evidence.truth.ok_or("there is no ground truth")?;
    let figures = ComparedFigure::all(report, readings, truth);
    let aliases = Aliases::found(&figures, truth);
    let mut explained = Explained {
        tallies: vec![EvidenceTally::default(); kinds.len()],
        obstacles: Vec::new(),
        names: Absence::default(),
    };
    let is_compared = |one: &AbsentName| figures.iter().any(|figure| figure.index == one.figure);
    explained.names.open.extend(readings.absent.iter().filter(|one| !is_compared(one)).map(absent::open));
    for ComparedFigure { index, figure, compared } in figures {
        let counted = Some((figure.unit, figure.whose));
        let (mut comparisons, grown) = match compared {
            Ok(compared) => compared,
            Err(reason) => {
                explained.obstacles.push((counted, reason));
                continue;
            }
        };
        // Network traffic of other processes is not known.
        let is_network = figure.operations.iter().any(|operation| operation.is_network());
        if figure.whose == Whose::System && (is_network || !truth.is_whole_system) {
            explained.obstacles.extend(keep_shortfalls(&mut comparisons).map(|reason| (counted, reason)));
        }
        aliases.apply(figure, &mut comparisons, &grown);
        // The missing amount can be in the part that was not read.
        if readings.cut {
            comparisons.retain(|one| one.negative().is_none() && one.reported >= one.at_least);
        }
        if let Err(lacking) = absent::check(index, figure, readings, &comparisons, &mut explained.names) {
            explained.obstacles.push((counted, lacking));
            continue;
        }
        let is_requested = evidence.requested.is_some_and(|requested| requested.contains(&index));
        let prototypes = evidence.prototypes.unwrap_or_default();
        let mut differences = Differences {
            report,
            readings,
            truth,
            prototypes,
            kernel: evidence.kernel,
            index,
            figure,
            is_requested,
            comparisons,
            grown,
        };
        for (kind, tally) in kinds.iter().zip(&mut explained.tallies) {
            if let Some(explain) = kind {
                explain(tally, &mut differences);
            }
        }
    }
    explained.obstacles.extend(readings.incomplete().map(|reason| (None, reason)));
    Ok(explained)
}
