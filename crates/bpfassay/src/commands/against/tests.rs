// SPDX-License-Identifier: MIT OR Apache-2.0
use bpfassay_results::{
    FailureKind, JOURNAL_VERSION, JournalContents, JournalEntry, JournalHeader, Outcome as RunOutcome, Provenance,
    RunFailure, RunRecord,
};
use bpfassay_study::{Available, Narrowing, expand};

use super::*;
use crate::exit::{INFRASTRUCTURE, INTERNAL, UNEXPECTED};

/// Creates results of a study on one kernel. Every run of the first boot failed; without a
/// `failure`, nothing was run.
fn results(kernel: &str, failure: Option<FailureKind>) -> Results {
    let mut study = bpfassay_study::load("quick").unwrap();
    study.targets.truncate(1);
    study.targets[0].kernel = kernel.to_owned();
    let plan = expand(&study, &Narrowing::default(), &Available::default()).unwrap();
    let block = &plan.blocks[0];
    let failed = |kind| {
        let excerpt = vec!["not syncing: \u{1b}[2J".to_owned()];
        RunOutcome::Failed(RunFailure { kind, phase: None, excerpt, log: None, after: None })
    };
    let runs = failure.into_iter().flat_map(|kind| block.runs.iter().map(move |run| (run, kind)));
    let record = |(run, kind)| JournalEntry::Run(Box::new(RunRecord::new(block, run, 1, 0, 0, failed(kind))));
    let entries = runs.map(record).collect();
    let header = JournalHeader {
        journal: JOURNAL_VERSION,
        started_unix_ms: 0,
        plan: plan.clone(),
        provenance: Provenance::default(),
    };
    bpfassay_report::derive(&JournalContents { header, entries, torn: None, digest: None })
}

/// Creates results in which runs of these cells were measured, though without figures.
fn measured(kernel: &str, cells: &[&str]) -> Results {
    let mut results = results(kernel, None);
    for cell in &mut results.cells {
        if cells.contains(&cell.under_test().as_str()) {
            cell.runs.measured = 1;
        }
    }
    results
}

fn judged(base: &Results, new: &Results, bisect: bool) -> Judged {
    let question = Question::default();
    Against { base: base.clone(), question, bisect, shown: PathBuf::new() }.judge(new).unwrap()
}

const ALL: [&str; 3] = ["none", "kprobe", "fexit"];

#[test]
fn a_kernel_that_does_not_boot_is_neither_good_nor_bad() {
    let judged = judged(&measured("6.12", &ALL), &results("7.2", Some(FailureKind::Panic)), true);
    assert!(
        matches!(&judged.judgement, Judgement::Untestable(why) if why.contains("kernel panic")),
        "{:?}",
        judged.judgement
    );
    assert_eq!(judged.code(UNEXPECTED, false), BISECT_UNTESTABLE);
    let text = judged.text(Style::default(), BISECT_UNTESTABLE);
    assert_eq!(text.matches("this kernel cannot be tested: ").count(), 1, "{text}");
    assert!(text.ends_with("(for git bisect: exit code 125)\n") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_tool_that_fails_where_the_baseline_does_not_is_worse() {
    let base = measured("6.12", &ALL);
    for (bisect, code) in [(true, BISECT_WORSE), (false, REGRESSION)] {
        let judged = judged(&base, &measured("7.2", &["none", "kprobe"]), bisect);
        assert_eq!(judged.judgement, Judgement::Worse);
        assert_eq!(judged.code(UNEXPECTED, false), code);
    }
}

#[test]
fn what_was_measured_in_neither_or_without_figures_decides_nothing() {
    let none = judged(&results("6.12", None), &measured("7.2", &["none"]), true);
    // The baseline was measured now, which says nothing about a tool.
    assert!(matches!(none.judgement, Judgement::Untestable(_)), "{:?}", none.judgement);
    let judged = judged(&measured("6.12", &ALL), &measured("7.2", &ALL), true);
    assert!(
        matches!(&judged.judgement, Judgement::Untestable(why) if why.starts_with("no figure shows a change")),
        "{:?}",
        judged.judgement
    );
}

#[test]
fn a_host_that_failed_stops_a_bisection_whatever_was_measured() {
    let judged = judged(&measured("6.12", &ALL), &measured("7.2", &["none", "kprobe"]), true);
    assert_eq!(judged.code(INFRASTRUCTURE, true), BISECT_ABORTED);
}

#[test]
fn git_reads_no_fault_of_the_user_or_the_host_as_good_or_bad() {
    for code in [0, 1, 125, 130] {
        assert_eq!(for_bisect(Ok(code)).ok(), Some(code));
    }
    for code in [USAGE, INFRASTRUCTURE, UNEXPECTED, REGRESSION, INTERNAL] {
        let failed = for_bisect(Err(CommandFailure { code, report: miette::miette!("made up") }));
        assert_eq!(failed.map_err(|failure| failure.code), Err(BISECT_ABORTED));
    }
    let not_built = || bpfassay_testbed::Error::NotBuilt { tree: "linux".into(), problem: "has no image".to_owned() };
    let failed = for_bisect(Err(not_built().into())).unwrap_err();
    assert_eq!(
        (failed.code, failed.report.to_string().as_str()),
        (BISECT_UNTESTABLE, "the build tree linux has no image")
    );
    let of_runner = bpfassay_runner::Error::Kernel(Box::new(not_built()));
    assert_eq!(for_bisect(Err(of_runner.into())).unwrap_err().code, BISECT_UNTESTABLE);
    // Otherwise the exit code is the code for wrong input.
    assert_eq!(CommandFailure::from(not_built()).code, USAGE);
}
