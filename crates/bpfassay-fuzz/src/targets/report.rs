// SPDX-License-Identifier: MIT OR Apache-2.0
//! Journals, results and events, and everything derived from them.

use std::{fs, io};

use bpfassay_report::{
    compare::{self, Question},
    derive, render, trend,
};
use bpfassay_results::{Again, Event, Journal, JournalContents, JournalEntry, JournalHeader, Results, file, journal};
use bpfassay_study::by_version;

use crate::corpus;

/// Runs `run` in a directory that only this thread uses.
fn with_directory(run: impl Fn(&std::path::Path)) {
    thread_local! {
        static DIRECTORY: Option<tempfile::TempDir> = tempfile::tempdir().ok();
    }
    DIRECTORY.with(|directory| {
        assert!(directory.is_some(), "no temporary directory can be made");
        directory.iter().for_each(|directory| run(directory.path()));
    });
}

/// A journal: its readable part, the work that is left, and the results.
pub(super) fn journal(bytes: &[u8]) {
    with_directory(|directory| {
        let written = fs::write(directory.join(journal::FILE_NAME), bytes);
        assert!(written.is_ok(), "the journal cannot be written: {written:?}");
        if let Ok(contents) = JournalContents::read(directory) {
            follow(&contents);
        }
    });
}

/// Writes the records of the corpus as journals in the current format.
///
/// # Errors
/// If the corpus cannot be read, or a journal cannot be written to a temporary directory.
pub(super) fn journals() -> io::Result<Vec<Vec<u8>>> {
    let records = crate::target("journal_records").map(corpus::read).transpose()?.unwrap_or_default();
    records.iter().filter_map(|bytes| contents(bytes)).map(|contents| written(&contents)).collect()
}

/// Derives result files from these journals. Without a valid digest, results are refused before
/// anything else is read.
///
/// # Errors
/// If the corpus cannot be read, or results cannot be written to a temporary directory.
pub(super) fn stored() -> io::Result<Vec<Vec<u8>>> {
    let records = crate::target("journal_records").map(corpus::read).transpose()?.unwrap_or_default();
    let results = records.iter().filter_map(|bytes| contents(bytes)).map(|contents| derive(&contents));
    results
        .map(|results| {
            let directory = tempfile::tempdir()?;
            fs::read(file::write(directory.path(), &results).map_err(io::Error::other)?)
        })
        .collect()
}

fn written(contents: &JournalContents) -> io::Result<Vec<u8>> {
    let directory = tempfile::tempdir()?;
    let mut journal = Journal::create(directory.path(), &contents.header).map_err(io::Error::other)?;
    contents.entries.iter().try_for_each(|entry| journal.append(entry)).map_err(io::Error::other)?;
    fs::read(directory.path().join(journal::FILE_NAME))
}

/// A journal's lines without checksums: the header, then a record each. Invalid entries are
/// skipped.
pub(super) fn records(bytes: &[u8]) {
    contents(bytes).iter().for_each(follow);
}

fn contents(bytes: &[u8]) -> Option<JournalContents> {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let header = serde_json::from_slice::<JournalHeader>(lines.next()?).ok()?;
    let entries = lines.filter_map(|line| serde_json::from_slice::<JournalEntry>(line).ok()).collect();
    Some(JournalContents { header, entries, torn: None, digest: None })
}

fn follow(contents: &JournalContents) {
    let _ = contents.to_do(Again::Failed);
    if let Some(block) = contents.header.plan.blocks.first() {
        let _ = contents.standing().past(block);
    }
    let results = derive(contents);
    let text = serde_json::to_vec(&results);
    assert!(text.is_ok(), "{text:?}");
    show(&results);
}

/// `results.json`, and every rendering of it.
pub(super) fn results(bytes: &[u8]) {
    with_directory(|directory| {
        let path = directory.join("results.json");
        let written = fs::write(&path, bytes);
        assert!(written.is_ok(), "the results cannot be written: {written:?}");
        if let Ok(read) = file::read(&path) {
            show(&read);
        }
    });
}

fn show(results: &Results) {
    let _ = render::text(results, render::Style { width: Some(100) });
    let _ = render::markdown(results);
    let _ = render::openmetrics(results);
    let _ = render::junit(results);
    let _ = render::ktap(results);
    let _ = render::github(results);
    let _ = render::badge(results);
    let _ = render::bencher(results);
    let _ = render::csv(results);
    let _ = render::collapsed(results);
    let _ = render::pprof(results);
    let _ = render::lcov(results);
    let _ = render::html(results);
    let _ = render::code_coverage_html(results);
    if let Ok(comparison) = compare::compare(results, results, &Question::default()) {
        let _ = render::comparison_text(&comparison, render::Style { width: None }, true);
        let _ = render::comparison_junit(&comparison);
    }
    if let Ok(trend) = trend::trend(&[("a".to_owned(), results), ("b".to_owned(), results)]) {
        let _ = render::trend_text(&trend, render::Style { width: None });
    }
}

/// Events: a valid one must survive a round trip.
pub(super) fn events(bytes: &[u8]) {
    for line in bytes.split(|&byte| byte == b'\n') {
        let Ok(event) = serde_json::from_slice::<Event>(line) else { continue };
        let again = serde_json::to_vec(&event).ok().and_then(|text| serde_json::from_slice::<Event>(&text).ok());
        assert_eq!(again.as_ref(), Some(&event));
    }
}

/// The order of kernels, which must be total.
pub(super) fn kernel_order(text: &str) {
    let names: Vec<&str> = text.split_whitespace().take(12).collect();
    for a in &names {
        for b in &names {
            assert_eq!(by_version(a, b), by_version(b, a).reverse());
        }
    }
}
