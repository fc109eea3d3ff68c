// SPDX-License-Identifier: MIT OR Apache-2.0
//! One cell of the plan on the screen.

use std::collections::HashSet;

use bpfassay_protocol::{probe::ByteMeaning, tracer_messages::Refusal};
use bpfassay_study::Clock;
use bpfassay_tool::needed_capabilities::starts_with;

use super::super::{
    cases,
    kernel_features::errno_name,
    result_summary::{CellState, denied, state},
    study,
    table::Remarks,
};
use crate::labels::{self, NONE};
use bpfassay_results::{Attach, CellMetric, CellResult, Direct, FailureKind, Figure, Results, RunFailure};

/// The text if nothing was to be measured.
pub(super) const NOTHING: &str = "-";
/// The text for an overhead that is not distinguishable from none.
pub(super) const NOISE: &str = "noise";
/// Follows an overhead without an interval.
pub(super) const NO_INTERVAL: &str = "?";
/// Follows an exact count of what callers request.
pub(super) const REQUESTED: &str = "[r]";

/// The text of one cell of the matrix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in super::super) struct Shown {
    pub(in super::super) text: String,
    /// The class in formats with colours: `good`, `bad`, `open`, or empty.
    pub(in super::super) class: &'static str,
}

impl Shown {
    /// Splits the text into words and the mark of a remark, if it has one: `✘` and `[1]`.
    pub(in super::super) fn parts(&self) -> (&str, Option<&str>) {
        match self.text.rsplit_once(' ') {
            Some((words, mark)) if mark.starts_with('[') => (words, Some(mark)),
            _ => (&self.text, None),
        }
    }
}

/// The texts of one cell of the plan.
pub(super) struct MatrixRow {
    pub(super) loads: Shown,
    pub(super) counts: Shown,
    /// The overhead of each metric.
    pub(super) overheads: Vec<Shown>,
}

/// Names what was measured: `bundled tracer by fexit`, or the tool.
pub(super) fn title(cell: &CellResult) -> String {
    cell.tool.clone().unwrap_or_else(|| format!("bundled tracer by {}", cell.probe))
}

pub(super) struct CellTexts<'a> {
    results: &'a Results,
    denied: HashSet<&'a str>,
    symbols: bool,
}

impl<'a> CellTexts<'a> {
    pub(super) fn of(results: &'a Results, symbols: bool) -> Self {
        Self { results, denied: denied(results), symbols }
    }

    fn state(&self, cell: &CellResult) -> CellState {
        state(cell, self.denied.contains(cell.cell.as_str()))
    }

    /// Whether nothing in `cell` needs attention.
    pub(super) fn is_as_expected(&self, cell: &CellResult) -> bool {
        let state = self.state(cell);
        let is_good = matches!(
            state,
            CellState::Exact | CellState::NothingFound | CellState::Measured | CellState::RefusedAsExpected
        );
        is_good && cell.failures.is_empty()
    }

    /// Creates the texts of `cell`; long ones become remarks.
    pub(super) fn row(&self, cell: &CellResult, metrics: &[&str], remarks: &mut Remarks) -> MatrixRow {
        let state = self.state(cell);
        let is_measured = cell.runs.measured > 0 && cell.failures.is_empty();
        let overhead = |name: &&str| match cell.whole().find(|(metric, _)| &*metric.name == *name) {
            Some((metric, _)) if is_measured => self.overhead(cell, metric),
            Some(_) => NOTHING.to_owned(),
            None => String::new(),
        };
        let is_attached = cell.failures.is_empty()
            && cell.not_seen_to_load().or(cell.left_to_a_loader()).is_none()
            && matches!(cell.attach, Attach::Attached { in_spite_of: None, .. });
        let counts = self.counts(cell, state);
        MatrixRow {
            loads: Shown {
                text: self.loads(cell, remarks),
                class: if is_attached { "good" } else { state.class().name() },
            },
            counts: Shown { class: if counts == NOTHING { "" } else { state.class().name() }, text: counts },
            overheads: metrics.iter().map(|name| Shown { text: overhead(name), class: "" }).collect(),
        }
    }

    fn loads(&self, cell: &CellResult, remarks: &mut Remarks) -> String {
        if let Some(mark) = first_failure(cell, remarks) {
            let is_of_host = cell.failures.iter().all(|failed| failed.failure.kind == FailureKind::Host);
            return format!("{} {mark}", if is_of_host { "host failure" } else { "FAILED" });
        }
        if let Some(reason) = cell.not_seen_to_load() {
            return format!("not seen {}", remarks.mark(format!("nothing shows that it loaded: {reason}")));
        }
        let [yes, no] = if self.symbols { ["✔", "✘"] } else { ["yes", "no"] };
        match &cell.attach {
            Attach::Attached { in_spite_of: None, .. } => match cell.left_to_a_loader() {
                Some(reason) => format!("{yes} {}", remarks.mark(format!("loads, not all attached: {reason}"))),
                None => yes.to_owned(),
            },
            Attach::Attached { in_spite_of: Some(expectation), .. } => {
                let remark = format!("loads though errno {} was expected: {}", expectation.errno, expectation.reason);
                format!("UNEXPECTED {}", remarks.mark(remark))
            }
            Attach::Refused { refusal, expectation: Some(expectation), expected: true } => {
                let remark = format!("{}, as expected: {}", why(refusal), expectation.reason);
                format!("{no} {}", remarks.mark(remark))
            }
            Attach::Refused { refusal, expectation, .. } => {
                let what = if labels::is_step_known(refusal) { "REFUSED" } else { "NOT READY" };
                let verifier = refusal.verifier.as_deref().map(|line| format!("; verifier: {line}"));
                let expected = expectation.as_ref().map(|of| format!("expected was {}; ", errno_name(of.errno)));
                let starts = refusal.capabilities.as_ref().map(|search| format!("{}; ", starts_with(search)));
                let [expected, starts, verifier] = [expected, starts, verifier].map(Option::unwrap_or_default);
                let remark = format!("{}: {expected}{starts}{}{verifier}", why(refusal), labels::reason(refusal));
                format!("{what} {}", remarks.mark(remark))
            }
            Attach::Unsteady { attached, refused, refusal } => {
                let remark = format!("loads in {attached} runs, refused in {refused}: {}", refusal.message);
                format!("UNSTEADY {}", remarks.mark(remark))
            }
            Attach::Baseline | Attach::Unknown { .. } => NONE.to_owned(),
        }
    }

    fn counts(&self, cell: &CellResult, state: CellState) -> String {
        let is_requested = cell.counts == Some(ByteMeaning::Requested);
        match state {
            _ if !cell.failures.is_empty() => NOTHING.to_owned(),
            CellState::Exact if is_requested => format!("exact {REQUESTED}"),
            CellState::Exact => "exact".to_owned(),
            CellState::NothingFound | CellState::Measured if study::loads_only(self.results, &cell.case) => {
                "not checked".to_owned()
            }
            CellState::NothingFound if has_exact_figures(cell) => "exact".to_owned(),
            CellState::NothingFound => "nothing found".to_owned(),
            CellState::WithinBounds => "within bounds".to_owned(),
            CellState::NothingFoundInPart => "compared in part".to_owned(),
            CellState::Measured => "not compared".to_owned(),
            CellState::NotExact => "NOT EXACT".to_owned(),
            CellState::Found | CellState::Denied => found(cell),
            CellState::Partly => "partly measured".to_owned(),
            CellState::RefusedAsExpected
            | CellState::Refused
            | CellState::Unsteady
            | CellState::Unexpected
            | CellState::Failed
            | CellState::NotMeasured => NOTHING.to_owned(),
        }
    }

    fn overhead(&self, cell: &CellResult, metric: &CellMetric) -> String {
        if self.results.plan.study.clock == Clock::Wall && is_emulated(self.results, cell) {
            return NOTHING.to_owned();
        }
        let Some(overhead) = metric.overhead.value() else { return NONE.to_owned() };
        let percent = labels::percent(overhead.estimate.value, 1);
        match overhead.estimate.bounds.interval() {
            None => format!("{percent}{NO_INTERVAL}"),
            Some(_) if !metric.is_within_noise() => percent,
            Some(_) if labels::leaves_open(overhead) => labels::NOT_KNOWN.to_owned(),
            Some(_) => NOISE.to_owned(),
        }
    }
}

fn is_emulated(results: &Results, cell: &CellResult) -> bool {
    results.provenance.iter().any(|of| of.is_emulated(cell.target.arch))
}

/// Returns the mark of the first failure of `cell`. The report has the others, and the logs.
pub(super) fn first_failure(cell: &CellResult, remarks: &mut Remarks) -> Option<String> {
    let first = cell.failures.first()?;
    Some(remarks.mark(RunFailure { log: None, ..first.failure.clone() }.to_string()))
}

/// Tells in a word why the kernel refuses the tool: `ENOTSUPP`, or else the step.
fn why(refusal: &Refusal) -> String {
    let step = || labels::refusal(refusal).split(':').next().unwrap_or_default().to_owned();
    refusal.errno.map_or_else(step, errno_name)
}

/// Whether figures of the tool were compared, and all are exact.
fn has_exact_figures(cell: &CellResult) -> bool {
    let mut figures = cell.tool_result.iter().flat_map(|result| &result.figures).peekable();
    figures.peek().is_some() && figures.all(bpfassay_tool::finding::Compared::is_exact)
}

/// Names the first finding, and how many more there are.
fn found(cell: &CellResult) -> String {
    let mut names = cases::found(cell).map(|finding| finding.kind.name());
    let first = names.next().unwrap_or_default();
    match names.count() {
        0 => first.to_owned(),
        more => format!("{first} +{more}"),
    }
}

/// Returns a direct cost per call, from the smallest to the largest run.
pub(super) fn direct(direct: Option<&Figure<Direct>>) -> Option<(f64, f64)> {
    let direct = direct.and_then(Figure::value)?;
    Some((direct.per_call.min, direct.per_call.max))
}
