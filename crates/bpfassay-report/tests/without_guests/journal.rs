// SPDX-License-Identifier: MIT OR Apache-2.0
//! The journal: what survives a crash, what is refused, and what remains to do.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use bpfassay_report::derive;
use bpfassay_results::{
    Again, BlockEnded, BlockStarted, BootVerdict, FailureKind, Journal, JournalContents, JournalEntry, JournalError,
    Outcome, RunFailure,
    journal::{FILE_NAME, TORN_FILE_NAME},
};
use proptest::prelude::*;

use crate::common::{contents, outcome, panic_of_guest, study};

/// Writes a finished journal, and returns its contents.
fn on_disk(directory: &Path) -> JournalContents {
    let contents = contents(&study(None, 1, 1), outcome);
    let mut journal = Journal::create(directory, &contents.header).unwrap();
    for entry in &contents.entries {
        journal.append(entry).unwrap();
    }
    contents
}

fn corrupt(path: &Path, line: usize, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().enumerate().map(|(at, old)| if at + 1 == line { to } else { old }).collect();
    fs::write(path, lines.join("\n") + "\n").unwrap();
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("a/b");
    let written = on_disk(&directory);
    let read = JournalContents::read(&directory).unwrap();
    assert_eq!(read.digest.as_ref().map(|digest| digest.lines), Some(written.entries.len() as u64 + 1));
    assert_eq!(JournalContents { digest: None, ..read }, written);
    let (_, resumed) = Journal::resume(&directory).unwrap();
    assert_eq!(JournalContents { digest: None, ..resumed }, written);
}

#[test]
fn a_crash_in_any_byte_of_a_line_loses_that_line_only() {
    let folder = tempfile::tempdir().unwrap();
    let whole = on_disk(folder.path());
    let path = folder.path().join(FILE_NAME);
    let text = fs::read(&path).unwrap();
    let start = text[..text.len() - 1].iter().rposition(|&byte| byte == b'\n').unwrap() + 1;
    for end in start + 1..text.len() {
        fs::write(&path, &text[..end]).unwrap();
        let read = JournalContents::read(folder.path()).unwrap();
        assert_eq!(read.entries, whole.entries[..whole.entries.len() - 1]);
        assert_eq!(read.torn.as_ref().map(|torn| torn.bytes), Some(end - start));
    }
}

#[test]
fn resuming_sets_a_torn_line_aside_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let whole = on_disk(folder.path());
    let path = folder.path().join(FILE_NAME);
    let text = fs::read(&path).unwrap();
    fs::write(&path, &text[..text.len() - 10]).unwrap();
    let last = whole.entries.last().unwrap();
    {
        let (mut journal, resumed) = Journal::resume(folder.path()).unwrap();
        assert!(resumed.torn.is_some());
        journal.append(last).unwrap();
    }
    assert_eq!(JournalContents { digest: None, ..JournalContents::read(folder.path()).unwrap() }, whole);
    let aside = fs::read(folder.path().join(TORN_FILE_NAME)).unwrap();
    assert!(text[..text.len() - 10].ends_with(aside.trim_ascii_end()) && aside.len() > 10);
}

#[test]
fn any_other_damage_is_an_error_that_names_the_line() {
    let folder = tempfile::tempdir().unwrap();
    on_disk(folder.path());
    let path = folder.path().join(FILE_NAME);
    let good = fs::read_to_string(&path).unwrap();
    for (line, to, message) in [
        (4, "{\"entry\":\"run\"", "journal.jsonl:4: it does not begin with its sum"),
        (3, "", "journal.jsonl:3: it does not begin with its sum"),
        (5, "{\"entry\":\"dance\"}", "journal.jsonl:5: it does not begin with its sum"),
        (1, "{}", "journal.jsonl:1: not the header of a journal"),
        (2, "\0\0\0\0", "journal.jsonl:2: it does not begin with its sum"),
    ] {
        fs::write(&path, &good).unwrap();
        corrupt(&path, line, to);
        let error = JournalContents::read(folder.path()).unwrap_err();
        assert!(matches!(error, JournalError::Corrupt { line: named, .. } if named == line), "{error}");
        assert!(error.to_string().contains(message), "{error}");
        // An error leaves the file unchanged.
        let before = fs::read(&path).unwrap();
        assert!(Journal::resume(folder.path()).is_err());
        assert_eq!(fs::read(&path).unwrap(), before);
    }
    fs::write(&path, "{\"journal\":4,").unwrap();
    assert!(matches!(JournalContents::read(folder.path()), Err(JournalError::Corrupt { line: 1, .. })));
    fs::write(&path, good.replacen("\"journal\":4", "\"journal\":1", 1)).unwrap();
    assert!(matches!(JournalContents::read(folder.path()), Err(JournalError::Version { found: 1, .. })));
}

#[test]
fn there_is_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let contents = on_disk(folder.path());
    let (first, _) = Journal::resume(folder.path()).unwrap();
    assert!(matches!(Journal::resume(folder.path()), Err(JournalError::Locked { .. })));
    // Reading needs no lock.
    assert_eq!(JournalContents::read(folder.path()).unwrap().entries.len(), contents.entries.len());
    drop(first);
    Journal::resume(folder.path()).unwrap();
    assert!(matches!(Journal::create(folder.path(), &contents.header), Err(JournalError::Exists { .. })));
}

#[test]
fn without_a_journal_there_is_nothing_to_resume() {
    let folder = tempfile::tempdir().unwrap();
    let error = Journal::resume(folder.path()).unwrap_err().to_string();
    assert!(error.starts_with("cannot open ") && error.contains(FILE_NAME), "{error}");
}

/// A file system of 32 KiB, unmounted on drop.
struct TinyDisk(PathBuf);

impl TinyDisk {
    fn mount(at: &Path) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tiny"]).arg(at).output().ok()?;
        mounted.status.success().then(|| Self(at.to_path_buf()))
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_reported_and_leaves_a_whole_journal() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = TinyDisk::mount(folder.path()) else {
        println!("skipped: mounting a tiny tmpfs needs root");
        return;
    };
    let contents = contents(&study(None, 1, 1), outcome);
    let mut journal = Journal::create(folder.path(), &contents.header).unwrap();
    contents.entries[..2].iter().for_each(|entry| journal.append(entry).unwrap());
    let mut written = 2;
    let error = loop {
        match journal.append(&contents.entries[2]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("the disk is full; free some space, then resume"), "{error}");
    assert!(matches!(journal.append(&contents.entries[2]), Err(JournalError::Failed { .. })));
    assert_eq!(JournalContents::read(folder.path()).unwrap().entries.len(), written);
}

/// Returns the names of the runs to do.
fn open(contents: &JournalContents, again: Again) -> Vec<String> {
    contents.to_do(again).iter().flat_map(|todo| todo.open().map(|run| run.spec.id.clone())).collect()
}

#[test]
fn what_is_done_is_not_done_again() {
    let contents = contents(&study(None, 2, 1), outcome);
    assert!(contents.to_do(Again::Nothing).is_empty());
    // No run failed by the host.
    assert!(contents.to_do(Again::Host).is_empty());
    // The block with the panicked runs of riscv64 is repeated whole, if requested, as if nothing
    // were known of it.
    let again = contents.to_do(Again::Failed);
    assert_eq!(again.iter().map(|todo| todo.block.id.as_str()).collect::<Vec<_>>(), ["riscv64_6.12_w_nfs4.2_1"]);
    assert!(again.iter().all(|todo| todo.open().count() == todo.block.runs.len()));
    assert!(again.iter().all(|todo| (todo.past.boots, todo.past.attempt) == (1, 2) && todo.past.history.is_empty()));
}

/// Creates the journal of a study's first block, whose boot ended with `verdict` before its last
/// run. Returns it with the names of the runs.
fn broken_off(verdict: Option<BootVerdict>, settled: &[usize]) -> (JournalContents, Vec<String>) {
    let mut contents = contents(&study(None, 1, 1), outcome);
    contents.header.plan.blocks.truncate(1);
    let runs: Vec<String> = contents.header.plan.blocks[0].runs.iter().map(|run| run.spec.id.clone()).collect();
    contents.entries.truncate(2 + runs.len() - 1);
    if let Some(verdict) = verdict {
        contents.entries.push(JournalEntry::BlockEnded(Box::new(BlockEnded {
            counts: None,
            code_coverage: None,
            block: contents.header.plan.blocks[0].id.clone(),
            boot: 1,
            at_unix_ms: 0,
            failure: Some(panic_of_guest()),
            notes: Vec::new(),
            verdict,
            settled: settled.iter().map(|&at| runs[at].clone()).collect(),
        })));
    }
    (contents, runs)
}

fn booted(contents: &mut JournalContents, boot: u32, runs: &[String], confirming: Option<&String>) {
    contents.entries.push(JournalEntry::BlockStarted(Box::new(BlockStarted {
        block: contents.header.plan.blocks[0].id.clone(),
        boot,
        attempt: 1,
        at_unix_ms: 0,
        qemu: Vec::new(),
        log: None,
        runs: runs.to_vec(),
        confirming: confirming.cloned(),
        reused: None,
    })));
}

#[test]
fn a_block_that_was_broken_off_is_done_whole_and_shown_until_then() {
    for verdict in [None, Some(BootVerdict::Interrupted), Some(BootVerdict::Host)] {
        let (mut contents, runs) = broken_off(verdict, &[]);
        assert_eq!(open(&contents, Again::Nothing), runs, "whole, not only the last run");
        let shown = derive(&contents);
        assert_eq!(shown.runs.len(), runs.len() - 1);
        assert!(shown.notes.iter().any(|note| note.starts_with("3 runs are of boots that")), "{:?}", shown.notes);
        // After another boot, the earlier figures do not count, whatever its result.
        booted(&mut contents, 2, &runs, None);
        let shown = derive(&contents);
        assert!(shown.runs.is_empty());
        assert!(shown.notes.iter().any(|note| note.contains("3 records of earlier boots do not count")));
        assert_eq!(contents.to_do(Again::Host)[0].past.boots, 2);
    }
}

#[test]
fn a_run_that_is_to_blame_stays_failed_and_the_others_are_done_again() {
    let (mut contents, runs) = broken_off(Some(BootVerdict::Blamed { run: String::new() }), &[1]);
    assert_eq!(open(&contents, Again::Nothing), [runs[0].clone(), runs[2].clone(), runs[3].clone()]);
    assert_eq!(contents.to_do(Again::Nothing)[0].past.history.len(), 1);
    // A confirming boot supersedes nothing.
    let before = contents.records().len();
    booted(&mut contents, 2, &runs[..2], Some(&runs[1]));
    assert_eq!(contents.records().len(), before);
    assert_eq!(contents.to_do(Again::Nothing)[0].past.history[1].confirming.as_ref(), Some(&runs[1]));
}

#[test]
fn what_failed_by_the_host_is_never_final() {
    let (mut contents, runs) = broken_off(Some(BootVerdict::Host), &[0, 1, 2]);
    let host = RunFailure {
        kind: FailureKind::Host,
        phase: None,
        excerpt: vec!["no QEMU".to_owned()],
        log: None,
        after: None,
    };
    for entry in &mut contents.entries {
        if let JournalEntry::Run(record) = entry
            && record.run != runs[1]
        {
            record.outcome = Outcome::Failed(host.clone());
        }
    }
    assert_eq!(open(&contents, Again::Nothing), [runs[3].clone()], "settled, as far as this execution goes");
    assert_eq!(open(&contents, Again::Host), [runs[0].clone(), runs[2].clone(), runs[3].clone()]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever was done, the runs done and those to do together are the plan, each run once and in
    /// order.
    #[test]
    fn done_and_to_do_are_the_plan(done in prop::collection::vec(any::<bool>(), 24), failed in prop::collection::vec(any::<bool>(), 24), again: bool) {
        let mut contents = contents(&study(None, 2, 1), outcome);
        let plan = contents.header.plan.clone();
        // These runs are decided without a boot, so they are settled at once.
        contents.entries = plan.runs().zip(&done).zip(&failed).filter(|((_, done), _)| **done).map(|(((block, run), _), failed)| {
            let outcome = if *failed { Outcome::Failed(panic_of_guest()) } else { Outcome::Refused(crate::common::not_supported()) };
            JournalEntry::Run(Box::new(crate::common::record(block, run, outcome)))
        }).collect();
        let again = if again { Again::Failed } else { Again::Host };
        let to_do = open(&contents, again);
        // A block with a failed run is repeated whole.
        let is_failed = |block: &str| plan.runs().zip(&done).zip(&failed)
            .any(|(((of, _), done), failed)| of.id == block && *done && *failed);
        let wanted: Vec<String> = plan.runs().zip(&done)
            .filter(|((block, _), done)| !**done || (again == Again::Failed && is_failed(&block.id)))
            .map(|((_, run), _)| run.spec.id.clone())
            .collect();
        prop_assert_eq!(&to_do, &wanted);
        prop_assert_eq!(to_do.iter().collect::<BTreeSet<_>>().len(), to_do.len());
    }

    /// No bytes make the reader panic, and random bytes are never accepted as a journal.
    #[test]
    fn any_bytes_are_refused(bytes: Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        fs::File::create(folder.path().join(FILE_NAME)).unwrap().write_all(&bytes).unwrap();
        prop_assert!(JournalContents::read(folder.path()).is_err());
    }
}

#[test]
fn where_no_journal_can_begin_is_reported_without_making_anything() {
    let work = tempfile::tempdir().unwrap();
    let fresh = work.path().join("some/where");
    Journal::may_create(&fresh).unwrap();
    assert!(!work.path().join("some").exists());
    on_disk(&fresh);
    assert!(matches!(Journal::may_create(&fresh), Err(JournalError::Exists { .. })));
    let file = fresh.join(FILE_NAME);
    assert!(matches!(Journal::may_create(&file.join("x")), Err(JournalError::NotADirectory { path }) if path == file));
}
