// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of a shard: a part of a study, which does not lack what other shards measure.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use bpfassay_report::{
    compare::{Fate, Question, compare},
    derive,
    render::{Style, comparison_text, html, junit, markdown, text},
    to_do,
};
use bpfassay_results::{Again, Journal, JournalContents, JournalError, Results, SamplingEnd};
use bpfassay_study::{Available, Clock, Gate, Narrowing, Shard, Share, Study, expand};

use crate::common::{contents, contents_of, outcome, plan, study};

/// Creates a study with a gate, and a margin within which an overhead is negligible.
fn with_gate() -> Study {
    let mut study = Study { clock: Clock::Instructions, ..study(None, 2, 2) };
    study.gates = vec![Gate { attach: true, ..Gate::default() }];
    study.design.margin = Some(Share::from_ppm(10_000));
    study
}

/// Creates the journal of a shard of that study.
fn shard(text: &str) -> JournalContents {
    contents_of(plan(&with_gate()).of_shard(text.parse::<Shard>().unwrap()).unwrap(), outcome)
}

fn whole() -> Results {
    derive(&contents(&with_gate(), outcome))
}

#[test]
fn nothing_of_other_shards_is_missing() {
    let (whole, contents) = (whole(), shard("1/3"));
    let results = derive(&contents);
    assert!(contents.to_do(Again::Failed).iter().all(|todo| todo.block.target.to_string() == "x86_64 6.1"));
    assert_eq!((results.plan.cells.len(), results.plan.blocks.len()), (whole.cells.len(), 6));
    assert!(results.cells.iter().all(|cell| cell.target.to_string() == "x86_64 6.1"));
    assert_eq!(results.cells.len(), 3);
    // The same runs have the same figures.
    for cell in &results.cells {
        let of_whole = whole.cells.iter().find(|known| known.cell == cell.cell).unwrap();
        assert_eq!((cell.runs, &cell.attach), (of_whole.runs, &of_whole.attach));
    }
    let [note] = results.notes.as_slice() else { panic!("{:?}", results.notes) };
    assert!(note.starts_with("shard 1 of 3 of the study, with 2 of its 6 boots"), "{note}");
    // Gates are decided once everything is measured.
    assert!(results.gates.is_empty() && !whole.gates.is_empty());
}

#[test]
fn every_report_says_that_it_is_a_shard() {
    let results = derive(&shard("2/3"));
    let text = text(&results, Style::default());
    insta::assert_snapshot!(text);
    // The line about the measuring machine can name them.
    let of_guests = || text.lines().filter(|line| !line.starts_with("measured: "));
    assert!(of_guests().all(|line| !line.contains("x86_64") && !line.contains("riscv64")), "{text}");
    for report in [markdown(&results), html(&results).unwrap(), junit(&results).unwrap()] {
        assert!(report.contains("shard 2 of 3"), "{report}");
    }
    assert!(html(&results).unwrap().contains("--shard 2/3"));
}

#[test]
fn what_other_shards_measure_is_neither_gone_nor_new() {
    let (whole, first, second) = (whole(), derive(&shard("1/3")), derive(&shard("2/3")));
    for (base, new) in [(&whole, &first), (&first, &whole)] {
        let comparison = compare(base, new, &Question::default()).unwrap();
        assert_eq!(comparison.cells.len(), 3);
        assert!(comparison.cells.iter().all(|cell| !matches!(cell.fate, Fate::Gone | Fate::New)));
        let text = comparison_text(&comparison, Style::default(), true);
        assert!(text.contains("made-up, shard 1 of 3") && text.contains("what its other shards measure"), "{text}");
    }
    // Different kernels are not other names of each other.
    assert!(compare(&first, &second, &Question::default()).is_err());
}

#[test]
fn a_journal_has_nothing_of_other_shards() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (shard("1/3"), shard("2/3"));
    let mut journal = Journal::create(folder.path(), &own.header).unwrap();
    for entry in own.entries.iter().chain(&other.entries[..1]) {
        journal.append(entry).unwrap();
    }
    let error = JournalContents::read(folder.path()).unwrap_err();
    assert!(matches!(error, JournalError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("shard 1 of 3 of the plan has no block aarch64_6.1_w_nfs4.2_1"), "{error}");
}

#[test]
fn a_journal_of_more_shards_than_boots_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut header = shard("1/3").header;
    header.plan.shard = Shard::new(1, 7);
    Journal::create(folder.path(), &header).unwrap();
    assert!(JournalContents::read(folder.path()).unwrap_err().to_string().contains("fewer boots than shards"));
}

#[test]
fn a_shard_samples_its_own_targets_until_they_are_narrow() {
    let narrowing =
        Narrowing { until: Some("50%".parse::<Share>().unwrap()), replicates: Some(6), ..Narrowing::default() };
    let study = Study { clock: Clock::Instructions, ..study(None, 2, 1) };
    let plan = expand(&study, &narrowing, &Available::default()).unwrap().of_shard("1/3".parse().unwrap()).unwrap();
    let begun = JournalContents { entries: Vec::new(), ..contents_of(plan.clone(), outcome) };
    let first = to_do(&begun, Again::Nothing);
    assert!(!first.is_empty() && first.iter().all(|todo| todo.block.target.to_string() == "x86_64 6.1"));
    let done = contents_of(plan, outcome);
    assert_eq!(to_do(&done, Again::Nothing), []);
    let results = derive(&done);
    let [sampled] = results.sampling.as_slice() else { panic!("{:?}", results.sampling) };
    assert_eq!((sampled.target.to_string().as_str(), sampled.end), ("x86_64 6.1", Some(SamplingEnd::NarrowEnough)));
    assert_eq!(results.notes.len(), 1, "{:?}", results.notes);
}
