// SPDX-License-Identifier: MIT OR Apache-2.0
//! Journals, results and events, and what is made of them.

use std::{fs, io};

use bpfassay_report::{
    compare::{self, Question},
    derive, render, trend,
};
use bpfassay_results::{Again, Contents, Entry, Event, Header, Journal, Results, file, journal};

use crate::corpus;

/// A directory of this thread's own, removed at its end.
fn with_directory(run: impl Fn(&std::path::Path)) {
    thread_local! {
        static DIRECTORY: Option<tempfile::TempDir> = tempfile::tempdir().ok();
    }
    DIRECTORY.with(|directory| {
        assert!(directory.is_some(), "no temporary directory can be made");
        directory.iter().for_each(|directory| run(directory.path()));
    });
}

/// A journal: what can be read of it, what is still to do, and the results.
pub(super) fn journal(bytes: &[u8]) {
    with_directory(|directory| {
        let written = fs::write(directory.join(journal::FILE_NAME), bytes);
        assert!(written.is_ok(), "the journal cannot be written: {written:?}");
        if let Ok(contents) = Contents::read(directory) {
            follow(&contents);
        }
    });
}

/// The journals of the records in the corpus, as they are written today.
///
/// # Errors
/// Where the corpus cannot be read, or a journal cannot be written to a temporary directory.
pub(super) fn journals() -> io::Result<Vec<Vec<u8>>> {
    let records = crate::target("journal_records").map(corpus::read).transpose()?.unwrap_or_default();
    records.iter().filter_map(|bytes| contents(bytes)).map(|contents| written(&contents)).collect()
}

/// The results of these journals, as files. Results that have no digest of themselves are refused
/// before anything else of them is read.
///
/// # Errors
/// Where the corpus cannot be read, or results cannot be written to a temporary directory.
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

fn written(contents: &Contents) -> io::Result<Vec<u8>> {
    let directory = tempfile::tempdir()?;
    let mut journal = Journal::create(directory.path(), &contents.header).map_err(io::Error::other)?;
    contents.entries.iter().try_for_each(|entry| journal.append(entry)).map_err(io::Error::other)?;
    fs::read(directory.path().join(journal::FILE_NAME))
}

/// A journal's lines, whatever there is to guard them: the header first, then a record per line.
/// Lines that are none are left out.
pub(super) fn records(bytes: &[u8]) {
    contents(bytes).iter().for_each(follow);
}

fn contents(bytes: &[u8]) -> Option<Contents> {
    let mut lines = bytes.split(|&byte| byte == b'\n');
    let header = serde_json::from_slice::<Header>(lines.next()?).ok()?;
    let entries = lines.filter_map(|line| serde_json::from_slice::<Entry>(line).ok()).collect();
    Some(Contents { header, entries, torn: None, digest: None })
}

fn follow(contents: &Contents) {
    let _ = contents.to_do(Again::Failed);
    if let Some(block) = contents.header.plan.blocks.first() {
        let _ = contents.standing().past(block);
    }
    let results = derive(contents);
    let text = serde_json::to_vec(&results);
    assert!(text.is_ok(), "{text:?}");
    show(&results);
}

/// `results.json`, and everything that is shown of it.
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
    if let Ok(comparison) = compare::compare(results, results, &Question::default()) {
        let _ = render::comparison_text(&comparison, render::Style { width: None }, true);
        let _ = render::comparison_junit(&comparison);
    }
    if let Ok(trend) = trend::trend(&[("a".to_owned(), results), ("b".to_owned(), results)]) {
        let _ = render::trend_text(&trend, render::Style { width: None });
    }
}

/// Events: one that is read is written as it is read again.
pub(super) fn events(bytes: &[u8]) {
    for line in bytes.split(|&byte| byte == b'\n') {
        let Ok(event) = serde_json::from_slice::<Event>(line) else { continue };
        let again = serde_json::to_vec(&event).ok().and_then(|text| serde_json::from_slice::<Event>(&text).ok());
        assert_eq!(again.as_ref(), Some(&event));
    }
}

/// The order of kernels: total.
pub(super) fn kernel_order(text: &str) {
    let names: Vec<&str> = text.split_whitespace().take(12).collect();
    for a in &names {
        for b in &names {
            assert_eq!(trend::by_version(a, b), trend::by_version(b, a).reverse());
        }
    }
}
