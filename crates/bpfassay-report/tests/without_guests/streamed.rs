// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results that are derived while the journal is read equal those from the whole journal.

use std::fs;

use bpfassay_report::{
    derive, derive_in,
    render::{Style, html, text},
};
use bpfassay_results::{Journal, JournalContents, JournalEntry, OpenDirectory, Results, file, fingerprint};

use crate::common::{contents, outcome, replicated::Replicated, study};

/// Derives the results of the journal in `directory` in both ways, and returns those from the whole
/// journal.
fn same(directory: &std::path::Path) -> Results {
    let whole = derive(&JournalContents::read(directory).unwrap());
    let written = fs::read(file::write(directory, &whole).unwrap()).unwrap();
    let opened = OpenDirectory::open(directory).unwrap();
    let streamed = derive_in(&opened).unwrap();
    let again = fs::read(streamed.write_in(&opened).unwrap()).unwrap();
    assert!(written == again, "results.json differs");
    let all = whole.runs.iter().map(|run| &run.record);
    assert_eq!(streamed.fingerprint().unwrap(), fingerprint(all));
    assert_eq!(text(&streamed.results, Style::default()), text(&whole, Style::default()));
    // The page has the fingerprint of its raw figures.
    let page = |results: &Results| {
        let own = fingerprint(results.runs.iter().map(|run| &run.record));
        html(results).unwrap().replace(&own, "")
    };
    let (streamed, whole_page) = (page(&streamed.results), page(&whole));
    for (streamed, whole) in streamed.lines().zip(whole_page.lines()) {
        assert_eq!(streamed, whole);
    }
    assert_eq!(streamed.lines().count(), whole_page.lines().count());
    whole
}

#[test]
fn results_of_boots_like_recorded_ones_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    Replicated::new(216).write(folder.path());
    let whole = same(folder.path());
    assert!(whole.cells.iter().any(|cell| cell.code_coverage.is_some()));
    assert_eq!((whole.runs.len(), whole.cells.len()), (216, 24));
}

#[test]
fn results_with_refusals_failures_samples_and_boots_that_are_done_again_are_the_same() {
    for sampling in [None, Some("100ms")] {
        let contents = contents(&study(sampling, 2, 2), outcome);
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(folder.path(), &contents.header).unwrap();
        journal.append_all(&contents.entries).unwrap();
        let mut again = contents.entries.clone();
        again.truncate(again.len() / 3);
        for entry in &mut again {
            match entry {
                JournalEntry::BlockStarted(started) => started.boot = 2,
                JournalEntry::GuestReady(ready) => ready.boot = 2,
                JournalEntry::Run(record) => record.boot = 2,
                JournalEntry::BlockEnded(ended) => ended.boot = 2,
                JournalEntry::Provisioned { .. } | JournalEntry::Resumed { .. } => {}
            }
        }
        journal.append_all(&again).unwrap();
        drop(journal);
        same(folder.path());
    }
}
