// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whatever a journal lacks, and wherever it fails: missing parts are never exact, and never a
//! success.

use std::collections::BTreeSet;

use bpfassay_protocol::{Arch, message::RunFigures, probe::Probe};
use bpfassay_report::{
    conclusion::{Conclusion, conclusion},
    derive,
    render::{Screen, Style, screen, text},
};
use bpfassay_results::{FailureKind, JournalContents, JournalEntry, Outcome, RunFailure, RunRecord};
use proptest::prelude::*;
use serde_json::Value;

use crate::common::{contents, figures, not_supported, study};

/// A gap in a run.
#[derive(Debug, Clone, Copy)]
enum Lack {
    /// The run was never done.
    Run,
    /// The run failed.
    Failed(FailureKind),
    /// The summary of the workload cannot be read.
    Summary,
    /// The summary lacks this figure.
    Figure(usize, &'static str),
    /// The tracer was not read before or after this phase.
    Reading(usize, bool),
    /// The tracer's counters went back in this phase.
    Back(usize),
    /// The phase is missing.
    Phase(usize),
}

fn lack() -> impl Strategy<Value = Lack> {
    let kind = proptest::sample::select(vec![
        FailureKind::Panic,
        FailureKind::Host,
        FailureKind::Run,
        FailureKind::NotTried,
        FailureKind::Unsound,
        FailureKind::PhaseTimeout,
    ]);
    prop_oneof![
        Just(Lack::Run),
        kind.prop_map(Lack::Failed),
        Just(Lack::Summary),
        (0..2_usize, proptest::sample::select(vec!["bwMiB", "access"])).prop_map(|(at, name)| Lack::Figure(at, name)),
        (0..2_usize, any::<bool>()).prop_map(|(phase, is_after)| Lack::Reading(phase, is_after)),
        (0..2_usize).prop_map(Lack::Back),
        (0..2_usize).prop_map(Lack::Phase),
    ]
}

impl Lack {
    /// Whether a run without anything under test can have this gap: no tracer is read in it.
    const fn is_of_workload(self) -> bool {
        matches!(self, Self::Run | Self::Failed(_) | Self::Summary | Self::Figure(..))
    }

    /// Makes this gap in `record`; returns whether there is still a record.
    fn apply(self, record: &mut RunRecord) -> bool {
        let Outcome::Measured(figures) = &mut record.outcome else { return true };
        match self {
            Self::Run => return false,
            Self::Failed(kind) => {
                record.outcome =
                    Outcome::Failed(RunFailure { kind, phase: None, excerpt: Vec::new(), log: None, after: None });
            }
            Self::Summary => figures.summary.truncate(99),
            Self::Figure(at, name) => {
                let mut summary: Value = serde_json::from_str(&figures.summary).unwrap();
                summary["tests"][0]["Results"][at][name] = Value::Null;
                figures.summary = summary.to_string();
            }
            Self::Reading(..) | Self::Back(_) | Self::Phase(_) => self.of_tracer(figures),
        }
        true
    }

    fn of_tracer(self, figures: &mut RunFigures) {
        match self {
            Self::Reading(phase, true) => figures.phases[phase].interval.after.tracer = None,
            Self::Reading(phase, false) => figures.phases[phase].interval.before.tracer = None,
            Self::Back(phase) => {
                let before = figures.phases[phase].interval.before.tracer.as_mut().unwrap();
                before.rows.iter_mut().for_each(|row| row.totals.bytes = u64::MAX);
            }
            Self::Phase(phase) => drop(figures.phases.remove(phase)),
            _ => {}
        }
    }
}

/// Creates the journal of a study in which everything was measured and is exact, except for
/// expected refusals.
fn whole() -> JournalContents {
    contents(&study(None, 2, 1), |block, run| match (block.target.arch, run.spec.probe.probe) {
        (Arch::Aarch64, Probe::Fexit) => Outcome::Refused(not_supported()),
        _ => Outcome::Measured(Box::new(figures(run.spec.probe, 100.0, 200.0))),
    })
}

/// Returns how many of the six cells with something under test are exact, by the first line of a
/// report.
fn exact(results: &bpfassay_results::Results) -> usize {
    let words = text(results, Style::default());
    let first = words.lines().next().unwrap();
    let count = first.split_once("exact, ").and_then(|(_, rest)| rest.split_once(" of "));
    count.filter(|_| !first.contains("not exact, ")).map_or(0, |(count, _)| count.parse().unwrap())
}

/// Returns the numbers of cells on the screen that are exact, and that load.
fn on_screen(results: &bpfassay_results::Results) -> (usize, usize) {
    let text = screen(results, Screen { width: Some(200), symbols: true });
    let (matrix, _) = text.split_once("\n\n").and_then(|(_, rest)| rest.split_once("\n\n")).unwrap();
    (matrix.matches("exact").count(), matrix.matches('✔').count())
}

/// Makes `whole` with `lacks`, each for the run with this number, and returns the cells of these
/// runs.
fn lacking(lacks: &[(usize, Lack)]) -> (JournalContents, BTreeSet<String>) {
    let mut contents = whole();
    let count = contents.entries.iter().filter(|entry| matches!(entry, JournalEntry::Run(_))).count();
    let mut harmed = BTreeSet::new();
    let mut at = 0;
    contents.entries.retain_mut(|entry| {
        let JournalEntry::Run(record) = entry else { return true };
        let of_run: Vec<Lack> =
            lacks.iter().filter(|(number, _)| number % count == at).map(|(_, lack)| *lack).collect();
        at += 1;
        of_run.into_iter().take(1).all(|lack| {
            let is_baseline = record.cell.ends_with("_none");
            // The plan does not count control runs of the baseline.
            if is_baseline && !lack.is_of_workload() || record.control && matches!(lack, Lack::Run) {
                return true;
            }
            if !matches!(record.outcome, Outcome::Measured(_)) {
                return true;
            }
            harmed.insert(record.cell.clone());
            lack.apply(record)
        })
    });
    (contents, harmed)
}

#[test]
fn a_journal_that_lacks_nothing_is_exact_and_as_expected() {
    let results = derive(&whole());
    assert_eq!((exact(&results), conclusion(&results)), (5, Conclusion::AsExpected));
    assert_eq!(on_screen(&results), (5, 5));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_a_journal_lacks_is_never_exact_and_no_success(
        lacks in proptest::collection::vec((any::<usize>(), lack()), 1..4)
    ) {
        let (contents, harmed) = lacking(&lacks);
        let results = derive(&contents);
        let tested = harmed.iter().filter(|cell| !cell.ends_with("_none")).count();
        prop_assert!(exact(&results) <= 5 - tested, "{harmed:?}: {}", text(&results, Style::default()));
        let failed = results.cells.iter().filter(|cell| !cell.is_baseline() && !cell.failures.is_empty()).count();
        let (exact_on_screen, loads) = on_screen(&results);
        prop_assert!(exact_on_screen <= 5 - tested && loads <= 5 - failed, "{harmed:?}");
        prop_assert_eq!(conclusion(&results) == Conclusion::AsExpected, harmed.is_empty());
    }
}
