//! Findings from figures and ground truth.
//!
//! Each difference between a figure and the truth is explained once, by the first explanation that fits to the unit: bytes
//! requested, mounts or cgroups merged, subjects that vanished, operations not seen, first calls lost. What is left is events
//! dropped, or counts too high.

mod course;

use std::collections::BTreeMap;

use bpfassay_protocol::Operation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Evidence, FindingStatus, Truth, truth::Subject};
use crate::{Readings, Report, ReportedFigure, Unit, Whose};

/// One number of a tool beside what really happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Compared {
    /// The figure, by the name of its value.
    pub figure: String,
    /// The operations that it counts.
    pub operations: Vec<Operation>,
    /// What it counts of them.
    pub unit: Unit,
    /// Whose.
    pub whose: Whose,
    /// Which cgroup, mount or process, by the first of its names; `None` for the whole system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What the tool reported.
    pub reported: u64,
    /// What happened.
    pub really: u64,
    /// What calls moved of the bytes that they were asked to move, in a run of the same; `None` where it is not such bytes that
    /// are counted, or that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<u64>,
    /// By how much it may be less because the tool rounds down.
    pub rounding: u64,
}

impl Compared {
    /// Whether the two agree.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.reported <= self.really && self.really - self.reported <= self.rounding
    }
}

/// The figures that `truth` speaks of, with their places in the report.
fn comparable<'r>(report: &'r Report, truth: &Truth) -> impl Iterator<Item = (usize, &'r ReportedFigure)> {
    report.figures.iter().enumerate().filter(|(_, figure)| truth.units.contains(&figure.unit))
}

/// Every number that can be compared, and that was reported or should have been.
#[must_use]
pub fn compared(report: &Report, readings: &Readings, truth: &Truth) -> Vec<Compared> {
    let mut all = Vec::new();
    for (index, figure) in comparable(report, truth) {
        let Ok((comparisons, _)) = compare(index, figure, readings, truth) else { continue };
        all.extend(comparisons.into_iter().filter(|one| (one.expected, one.reported) != (0, 0)).map(|one| Compared {
            figure: figure.value.clone(),
            operations: figure.operations.clone(),
            unit: figure.unit,
            whose: figure.whose,
            subject: one.subject.names.first().cloned(),
            reported: one.reported,
            really: one.expected,
            moved: None,
            rounding: one.slack,
        }));
    }
    all
}

/// What calls moved of the bytes that they were asked to move, for each of the report's figures of such bytes: the figure's value, the
/// subject's first name, and the bytes.
#[must_use]
pub fn moved<'t>(report: &'t Report, truth: &'t Truth) -> Vec<(&'t str, Option<&'t str>, u64)> {
    let requested = report.figures.iter().filter(|figure| figure.unit == Unit::BytesRequested);
    let of_figure = requested.flat_map(|figure| {
        truth.subjects(figure).into_iter().filter_map(|subject| {
            let name = subject.names.first().map(String::as_str);
            Some((figure.value.as_str(), name, subject.total(Unit::BytesReturned)?))
        })
    });
    of_figure.collect()
}

/// The status of each kind.
pub(super) struct Counts {
    pub(super) operations: FindingStatus,
    pub(super) requested: FindingStatus,
    pub(super) mounts: FindingStatus,
    pub(super) cgroups: FindingStatus,
    pub(super) backwards: FindingStatus,
    pub(super) vanish: FindingStatus,
    pub(super) first_touch: FindingStatus,
    pub(super) dropped: FindingStatus,
    pub(super) too_high: FindingStatus,
}

/// Evidence of one kind, and whether and why not it could be looked for.
#[derive(Default)]
struct Tally {
    evidence: Vec<String>,
    evaluated: bool,
    /// Why something could not be looked for: then nothing is clear.
    obstacle: Option<String>,
}

impl Tally {
    fn status(self, otherwise: &str) -> FindingStatus {
        match (self.evidence.is_empty(), self.obstacle) {
            (true, Some(obstacle)) => FindingStatus::not_evaluated(obstacle),
            (true, None) if !self.evaluated => FindingStatus::not_evaluated(otherwise),
            _ => FindingStatus::from_evidence(self.evidence),
        }
    }
}

/// One number of a figure beside what it should be.
struct Comparison<'t> {
    subject: Subject<'t>,
    expected: u64,
    reported: u64,
    /// By how much the tool may have rounded down.
    slack: u64,
    explained: bool,
}

impl Comparison<'_> {
    /// Whether the tool's number may stand for `amount`.
    const fn is(&self, amount: u64) -> bool {
        self.reported <= amount && amount - self.reported <= self.slack
    }

    const fn is_open(&self) -> bool {
        !self.explained && !self.is(self.expected)
    }

    /// What is missing; `None` where nothing is, or it is explained.
    const fn deficit(&self) -> Option<u64> {
        if self.is_open() { self.expected.checked_sub(self.reported) } else { None }
    }
}

/// `value` of `whose subject`, for evidence.
fn shown(figure: &ReportedFigure, comparison: &Comparison<'_>) -> String {
    let Comparison { subject, expected, reported, .. } = comparison;
    let of = match figure.whose {
        Whose::System => String::new(),
        whose => format!(" of {} {}", whose.name(), subject.shown()),
    };
    let operations = figure.operations.iter().map(|operation| operation.name()).collect::<Vec<_>>().join("+");
    format!("`{}` ({operations}, {}){of}: {reported}, really {expected}", figure.value, figure.unit.name())
}

pub(super) fn evaluate(evidence: &Evidence<'_>) -> Counts {
    let (Some(report), Some(readings)) = (evidence.report, evidence.readings) else {
        return nothing("it reports no figures");
    };
    let (backwards, vanished) = (course::backwards(report, readings), course::vanish(report, readings));
    let (vanish, gone) = vanished;
    let Some(truth) = evidence.truth else {
        return Counts { backwards, vanish, ..nothing("there is no ground truth") };
    };
    let mut all = All::default();
    for (index, figure) in comparable(report, truth) {
        match compare(index, figure, readings, truth) {
            Err(reason) => all.obstacle(&reason),
            Ok((comparisons, grown)) => all.figure(index, figure, comparisons, &grown, truth, &gone),
        }
    }
    if readings.cut {
        all.obstacle("not all that it reported was looked at");
    }
    all.unreported(report, truth);
    if let Some(lost) = readings.lost.filter(|&lost| lost > 0) {
        all.dropped.evidence.push(format!("it says itself that it lost {lost} events"));
    }
    let none = "no figure of it can be compared with the truth";
    Counts {
        operations: all.operations.status(none),
        requested: all
            .requested
            .status("no figure of bytes returned of calls that moved less than they were asked to, with both known"),
        mounts: all.mounts.status("no figure by mount of operations on two mounts and more"),
        cgroups: all.cgroups.status("no figure by cgroup of operations in two cgroups and more"),
        backwards,
        vanish,
        first_touch: all.first_touch.status("nothing that it reports was done more than once"),
        dropped: all.dropped.status(none),
        too_high: all.too_high.status(none),
    }
}

fn nothing(reason: &str) -> Counts {
    let none = || FindingStatus::not_evaluated(reason);
    Counts {
        operations: none(),
        requested: none(),
        mounts: none(),
        cgroups: none(),
        backwards: none(),
        vanish: none(),
        first_touch: none(),
        dropped: none(),
        too_high: none(),
    }
}

/// What a figure grew by, by subject.
type Grown = BTreeMap<Option<String>, u64>;

fn compare<'t>(
    index: usize,
    figure: &ReportedFigure,
    readings: &Readings,
    truth: &'t Truth,
) -> Result<(Vec<Comparison<'t>>, Grown), String> {
    let grown = readings.grown(index, figure, truth.from_ns, truth.to_ns)?;
    let mut comparisons = Vec::new();
    for subject in truth.subjects(figure) {
        let expected = subject.total(figure.unit).ok_or_else(|| {
            format!("the ground truth does not know the {} of `{}`", figure.unit.name(), figure.value)
        })?;
        let is_of = |name: &Option<String>| match name {
            None => figure.whose == Whose::System,
            Some(name) => subject.names.contains(name),
        };
        let reported =
            grown.iter().filter(|(name, _)| is_of(name)).fold(0_u64, |sum, (_, value)| sum.saturating_add(*value));
        let told = readings.samples.iter().filter(|sample| sample.figure == index && is_of(&sample.subject)).count();
        // Each number that it told may have been rounded down.
        let slack = (figure.scale - 1).saturating_mul(u64::try_from(told).unwrap_or(u64::MAX));
        comparisons.push(Comparison { subject, expected, reported, slack, explained: false });
    }
    Ok((comparisons, grown))
}

#[derive(Default)]
struct All {
    operations: Tally,
    requested: Tally,
    mounts: Tally,
    cgroups: Tally,
    first_touch: Tally,
    dropped: Tally,
    too_high: Tally,
}

impl All {
    /// Something stands in the way of calling anything clear that speaks of all figures.
    fn obstacle(&mut self, reason: &str) {
        for tally in [&mut self.operations, &mut self.first_touch, &mut self.dropped, &mut self.too_high] {
            tally.obstacle.get_or_insert_with(|| reason.to_owned());
        }
    }

    fn figure(
        &mut self,
        index: usize,
        figure: &ReportedFigure,
        mut comparisons: Vec<Comparison<'_>>,
        grown: &Grown,
        truth: &Truth,
        gone: &[(usize, Option<String>)],
    ) {
        if figure.whose == Whose::System && !truth.is_whole_system {
            let reason = "the ground truth does not cover the whole system: what others did may hide a difference";
            if comparisons.iter().any(|one| one.expected <= one.reported.saturating_add(one.slack)) {
                self.obstacle(reason);
            }
            // More than is known of is no finding then.
            comparisons.retain(|one| one.reported < one.expected);
        }
        self.requested(figure, &mut comparisons);
        match figure.whose {
            Whose::Mount => merged(&mut self.mounts, figure, &mut comparisons, grown),
            Whose::Cgroup => merged(&mut self.cgroups, figure, &mut comparisons, grown),
            Whose::System | Whose::Process => {}
        }
        for one in comparisons.iter_mut().filter(|one| one.expected > one.reported) {
            let is_gone = gone
                .iter()
                .any(|(of, name)| *of == index && name.as_ref().is_none_or(|name| one.subject.names.contains(name)));
            one.explained |= is_gone;
        }
        for one in &mut comparisons {
            self.operations.evaluated |= one.expected > 0;
            if let Some(unseen) = unseen(figure, one) {
                self.operations.evidence.push(unseen);
                one.explained = true;
            }
        }
        for one in &mut comparisons {
            self.first_touch.evaluated |= one.subject.shares.iter().any(|share| share.calls > 1);
            if let Some(lost) = first_touch(figure, one) {
                self.first_touch.evidence.push(lost);
                one.explained = true;
            }
        }
        self.dropped.evaluated |= !comparisons.is_empty();
        self.too_high.evaluated |= !comparisons.is_empty();
        for one in comparisons.iter().filter(|one| one.is_open()) {
            let tally = if one.reported < one.expected { &mut self.dropped } else { &mut self.too_high };
            tally.evidence.push(shown(figure, one));
        }
    }

    fn requested(&mut self, figure: &ReportedFigure, comparisons: &mut [Comparison<'_>]) {
        if figure.unit != Unit::BytesReturned {
            return;
        }
        for one in comparisons {
            let Some(requested) = one.subject.total(Unit::BytesRequested).filter(|asked| *asked != one.expected) else {
                continue;
            };
            self.requested.evaluated = true;
            if one.is_open() && one.is(requested) {
                self.requested.evidence.push(format!("{}; {requested} were requested", shown(figure, one)));
                one.explained = true;
            }
        }
    }

    /// Ways that data went of which no figure speaks, though others of the same direction are reported.
    fn unreported(&mut self, report: &Report, truth: &Truth) {
        if !truth.units.contains(&Unit::BytesReturned) {
            return;
        }
        let listed = |operation| report.figures.iter().any(|figure| figure.operations.contains(&operation));
        let mut missing = BTreeMap::new();
        for share in &truth.shares {
            let Some(direction) = share.operation.direction() else { continue };
            let reported = |figure: &ReportedFigure| {
                (share.is_file || !figure.only_files)
                    && figure.operations.iter().any(|of| of.direction() == Some(direction))
            };
            if !listed(share.operation) && report.figures.iter().any(reported) {
                let (calls, bytes) = missing.entry(share.operation).or_insert((0_u64, 0_u64));
                *calls = calls.saturating_add(share.calls);
                *bytes = bytes.saturating_add(share.bytes_returned.unwrap_or(0));
            }
        }
        for (operation, (calls, bytes)) in missing.into_iter().filter(|(_, amounts)| *amounts != (0, 0)) {
            self.operations.evidence.push(format!("no figure counts {operation}: {calls} calls, {bytes} bytes"));
        }
    }
}

fn merged(tally: &mut Tally, figure: &ReportedFigure, comparisons: &mut [Comparison<'_>], grown: &Grown) {
    if comparisons.iter().filter(|one| one.expected > 0).count() < 2 {
        return;
    }
    tally.evaluated = true;
    // What rounding down can make nothing of is not missing.
    let is_missing = |one: &Comparison<'_>| one.expected > one.slack && one.reported == 0;
    let missing =
        comparisons.iter().filter(|one| is_missing(one)).fold(0_u64, |sum, one| sum.saturating_add(one.expected));
    if missing == 0 {
        return;
    }
    let slack = comparisons.iter().map(|one| one.slack).max().unwrap_or(0);
    for (name, &value) in grown {
        let Some(name) = name.as_ref().filter(|_| value > 0) else { continue };
        let own = comparisons.iter().find(|one| one.subject.names.contains(name)).map_or(0, |one| one.expected);
        let together = own.saturating_add(missing);
        let parts = comparisons.iter().filter(|one| is_missing(one)).count() + usize::from(own > 0);
        // Of a single one it would be another name, not a sum.
        if parts < 2 || value > together || together - value > slack {
            continue;
        }
        let others: Vec<&str> =
            comparisons.iter().filter(|one| is_missing(one)).map(|one| one.subject.shown()).collect();
        tally.evidence.push(format!(
            "`{}` of {} {name}: {value}, which is {own} of its own and {missing} of {}",
            figure.value,
            figure.whose.name(),
            others.join(", ")
        ));
        for one in comparisons.iter_mut() {
            one.explained |= is_missing(one) || one.subject.names.contains(name);
        }
        return;
    }
}

/// An operation that a figure does not see.
fn unseen(figure: &ReportedFigure, one: &Comparison<'_>) -> Option<String> {
    let deficit = one.deficit()?;
    let happened = |operation: &&Operation| one.subject.of(**operation, figure.unit) > 0;
    let operations: Vec<_> = figure.operations.iter().filter(happened).collect();
    if one.reported == 0 {
        let names = operations.iter().map(|operation| operation.name()).collect::<Vec<_>>().join(", ");
        return Some(format!("{}: nothing of {names}", shown(figure, one)));
    }
    if operations.len() < 2 {
        return None;
    }
    let lacking = operations.into_iter().find(|operation| {
        let amount = one.subject.of(**operation, figure.unit);
        amount <= deficit && deficit - amount <= one.slack
    })?;
    Some(format!("{}: what is missing is exactly {lacking}", shown(figure, one)))
}

/// Whether exactly the first call of each key is missing. Keys are the truth's shares, or coarser: the operations.
fn first_touch(figure: &ReportedFigure, one: &Comparison<'_>) -> Option<String> {
    let deficit = one.deficit()?;
    let shares: Vec<_> = one.subject.shares.iter().filter(|share| share.calls > 0).collect();
    // Where nothing was done twice, what is missing is all that happened.
    let twice = |operation: &&Operation| matches!(one.subject.of(**operation, Unit::Calls), 0 | 2..);
    if shares.is_empty() || !figure.operations.iter().all(|operation| twice(&operation)) {
        return None;
    }
    let by_shares = shares.iter().all(|share| share.calls > 1);
    // A call of average size, where all may have had the same.
    let of_one_call = |amount: u64, calls: u64| amount.is_multiple_of(calls).then(|| amount / calls);
    let by_share: Option<u64> = by_shares
        .then_some(())
        .and_then(|()| shares.iter().map(|share| of_one_call(share.amount(figure.unit)?, share.calls)).sum());
    let by_operation: Option<u64> = figure
        .operations
        .iter()
        .filter_map(|&operation| match one.subject.of(operation, Unit::Calls) {
            0 => None,
            calls => Some(of_one_call(one.subject.of(operation, figure.unit), calls)),
        })
        .sum();
    let fits = |lost: Option<u64>| lost.is_some_and(|lost| lost > 0 && lost.abs_diff(deficit) <= one.slack);
    let is_error = figure.unit == Unit::Errors;
    (!is_error && (fits(by_share) || fits(by_operation)))
        .then(|| format!("{}: {deficit} less, as much as the first calls", shown(figure, one)))
}
