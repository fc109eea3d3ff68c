// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures beside the ground truth. Each difference is explained once, by the first kind of finding
//! that fits to the unit.

use std::{borrow::Cow, collections::BTreeSet};

use bpfassay_protocol::{Operation, operation::Variant, prototype::Checked};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    absent::{self, Absence},
    aliases::Aliases,
    certainty::Line,
    comparison::{ComparedFigure, Comparison, Grown, comparable, compare},
    evidence::Evidence,
    process::ProcessKey,
    source::Sources,
    truth::Truth,
};
use crate::{
    Readings, Report, ReportedFigure, Unit, Whose,
    file::counted,
    readings::{Absent, Bucket},
};

/// One number of a tool beside what really happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// The figure, by the name of its value.
    pub figure: String,
    /// The operations that it counts.
    pub operations: Vec<Operation>,
    /// The variants of them that it counts: [`ReportedFigure::variants`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
    /// The unit that it counts of them.
    pub unit: Unit,
    /// Whose.
    pub whose: Whose,
    /// Which cgroup, mount or process, by the first of its names; `None` for the whole system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The number that the tool reported, in two's complement where it is negative.
    pub reported: u64,
    /// What happened.
    pub really: u64,
    /// What calls moved of the bytes that they were asked to move, in a run of the same; `None`
    /// where it is not such bytes that are counted, or that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<u64>,
    /// The name by which the tool reported it, where it is not known otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_as: Option<String>,
    /// The amount that it may be less by because the tool rounds down.
    pub rounding: u64,
    /// What the values of a histogram were of which this is the number, as far as its buckets show.
    /// There is no truth for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Values>,
    /// [`ReportedFigure::differs`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
}

/// Bounds of a histogram's values, as the tool writes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Values {
    /// Half of them are up to this.
    pub half_up_to: String,
    /// 99 of 100 are.
    pub most_up_to: String,
    /// All are.
    pub all_up_to: String,
}

impl Values {
    /// Of values in ascending buckets; `None` where there are none.
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
    /// The operations that it counts, and the variants of which it counts no others.
    #[must_use]
    pub fn counted(&self) -> String {
        counted(&self.operations, &self.variants)
    }

    /// Whether the two agree.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.reported <= self.really && self.really - self.reported <= self.rounding
    }
}

/// Every number that can be compared, and that was reported or should have been.
#[must_use]
pub fn compared(report: &Report, readings: &Readings, truth: &Truth) -> Vec<Compared> {
    let mut all = Vec::new();
    let aliases = Aliases::found(&ComparedFigure::all(report, readings, truth), truth);
    for (index, figure) in comparable(report, truth) {
        let Ok((mut comparisons, grown)) = compare(index, figure, readings, truth) else { continue };
        aliases.apply(figure, &mut comparisons, &grown);
        let values = readings.values(index, figure, truth.from_ns, truth.to_ns);
        let values_of = |one: &Comparison<'_>| {
            let is_of = |name: &Option<String>| match name {
                None => figure.whose == Whose::System,
                Some(name) => one.subject.has_name(name) || one.also.contains(name),
            };
            // Of several names there is no histogram of all together.
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

/// A figure of a tool file that was beside no truth, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotCompared {
    /// The place of the figure in the tool file, from 0.
    pub index: usize,
    /// The figure, by the name of its value and what it counts.
    pub figure: String,
    /// Why.
    pub reason: String,
}

/// The figures of `report` that are defined as the truth is and cannot be compared with it. Nothing
/// was read where there are no `readings`, and nothing happened that is known where there is no
/// `truth`.
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

/// What calls moved of the bytes that they were asked to move, for each of the report's figures of
/// such bytes: the figure's value, the subject's first name, and the bytes.
#[must_use]
pub fn moved<'t>(report: &'t Report, truth: &'t Truth) -> Vec<(String, Option<&'t str>, u64)> {
    let requested = report.figures.iter().filter(|figure| figure.unit == Unit::BytesRequested);
    let of_figure = requested.flat_map(|figure| {
        // Ids are others in each run.
        truth.subjects(figure, ProcessKey::Name).into_iter().filter_map(|subject| {
            let name = match subject.names {
                Cow::Borrowed(names) => names.first().map(String::as_str),
                // Only what a tool calls by one name is united.
                Cow::Owned(_) => None,
            };
            Some((figure.name(), name, subject.total(Unit::BytesReturned)?))
        })
    });
    of_figure.collect()
}

/// The places of the figures of bytes returned that are exactly the bytes requested, which were
/// others.
#[must_use]
pub fn requested(report: &Report, readings: &Readings, truth: &Truth) -> BTreeSet<usize> {
    let is_requested = |&(index, figure): &(usize, &ReportedFigure)| {
        figure.unit == Unit::BytesReturned
            && compare(index, figure, readings, truth)
                .is_ok_and(|(comparisons, _)| comparisons.iter().any(Comparison::is_asked))
    };
    comparable(report, truth).filter(is_requested).map(|(index, _)| index).collect()
}

/// Why a kind is not evaluated that any figure may show.
pub(super) const NONE: &str = "no figure of it can be compared with the truth";

/// Evidence of one kind, and whether a figure could have had it.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) evidence: Vec<Line>,
    pub(super) evaluated: bool,
    /// Why it is not clear, though figures could have had it: what shows it may be of others.
    pub(super) open: Option<String>,
}

/// The differences of one figure from the ground truth.
pub(super) struct Differences<'a> {
    pub(super) report: &'a Report,
    pub(super) readings: &'a Readings,
    pub(super) truth: &'a Truth,
    /// Its programs, compared with the kernel's prototypes, as far as that is known.
    pub(super) prototypes: &'a [Checked],
    /// The names of its maps that evict, as the kernel has them.
    pub(super) evicting: &'a [String],
    /// The place of the figure in the report.
    pub(super) index: usize,
    pub(super) figure: &'a ReportedFigure,
    /// Whether it is of requested bytes, by phases of the run.
    pub(super) is_requested: bool,
    pub(super) comparisons: Vec<Comparison<'a>>,
    /// What it reported, by subject: without what is explained as that of several subjects.
    pub(super) grown: Grown,
}

/// Every figure, explained.
#[derive(Debug)]
pub(super) struct Explained {
    /// By kind.
    pub(super) tallies: Vec<Tally>,
    /// Why a figure could not be compared, with what it counts and whose: then nothing that it may
    /// show is clear. `None`: why all of them could not be compared as a whole.
    obstacles: Vec<(Option<(Unit, Whose)>, String)>,
    /// Names of figures that no report has.
    pub(super) names: Absence,
}

impl Explained {
    /// Why not every figure that `sources` are could be compared.
    pub(super) fn obstacle(&self, sources: &Sources) -> Option<&str> {
        let is_of = |figure: &Option<(Unit, Whose)>| figure.is_none_or(|(unit, whose)| sources.compares(unit, whose));
        self.obstacles.iter().find(|(figure, _)| is_of(figure)).map(|(_, reason)| reason.as_str())
    }
}

/// A kind's way to explain differences.
pub(super) type Explain = fn(&mut Tally, &mut Differences<'_>);

/// Explains every figure by `kinds`, in their order.
///
/// # Errors
/// Why no figure can be explained: the tool has none or reported none, or there is no ground truth.
pub(super) fn explain(evidence: &Evidence<'_>, kinds: &[Option<Explain>]) -> Result<Explained, &'static str> {
    let (report, readings) = evidence.reported()?;
    let truth = evidence.truth.ok_or("there is no ground truth")?;
    let figures = ComparedFigure::all(report, readings, truth);
    let aliases = Aliases::found(&figures, truth);
    let mut explained =
        Explained { tallies: vec![Tally::default(); kinds.len()], obstacles: Vec::new(), names: Absence::default() };
    let is_compared = |one: &Absent| figures.iter().any(|figure| figure.index == one.figure);
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
        // What others send and receive is not known.
        let is_network = figure.operations.iter().any(|operation| operation.is_network());
        if figure.whose == Whose::System && (is_network || !truth.is_whole_system) {
            let is_enough = |one: &Comparison<'_>| one.at_least <= one.reported.saturating_add(one.slack);
            if comparisons.iter().any(|one| one.negative().is_none() && is_enough(one)) {
                let reason = "the ground truth does not cover the whole system: what others did may hide a difference";
                explained.obstacles.push((counted, reason.to_owned()));
            }
            // More than is known of is no finding then.
            comparisons.retain(|one| one.negative().is_some() || one.reported < one.at_least);
        }
        aliases.apply(figure, &mut comparisons, &grown);
        // What is missing may be in the part that was not read.
        if readings.cut {
            comparisons.retain(|one| one.negative().is_none() && one.reported >= one.at_least);
        }
        if let Err(lacking) = absent::check(index, figure, readings, &comparisons, &mut explained.names) {
            explained.obstacles.push((counted, lacking));
            continue;
        }
        let is_requested = evidence.requested.is_some_and(|requested| requested.contains(&index));
        let prototypes = evidence.prototypes.unwrap_or_default();
        let evicting = evidence.kernel.map_or(&[][..], |kernel| &kernel.evicting);
        let mut differences = Differences {
            report,
            readings,
            truth,
            prototypes,
            evicting,
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
