//! The journal: what survives a crash, what is refused, and what is still to do.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

mod common;

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use bpfassay_report::{Contents, Entry, Journal, JournalError, Outcome, journal::FILE_NAME, journal::TORN_FILE_NAME};
use common::{contents, outcome, panic_of_guest, study};
use proptest::prelude::*;

/// A finished journal on disk, and what it holds.
fn on_disk(directory: &Path) -> Contents {
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
    assert_eq!(Contents::read(&directory).unwrap(), written);
    let (_, resumed) = Journal::resume(&directory).unwrap();
    assert_eq!(resumed, written);
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
        let read = Contents::read(folder.path()).unwrap();
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
    assert_eq!(Contents::read(folder.path()).unwrap(), whole);
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
        (4, "{\"entry\":\"run\"", "journal.jsonl:4: EOF while parsing"),
        (3, "", "journal.jsonl:3: EOF while parsing"),
        (5, "{\"entry\":\"dance\"}", "journal.jsonl:5: unknown variant `dance`"),
        (1, "{}", "journal.jsonl:1: not the header of a journal"),
        (2, "\0\0\0\0", "journal.jsonl:2: expected value"),
    ] {
        fs::write(&path, &good).unwrap();
        corrupt(&path, line, to);
        let error = Contents::read(folder.path()).unwrap_err();
        assert!(matches!(error, JournalError::Corrupt { line: named, .. } if named == line), "{error}");
        assert!(error.to_string().contains(message), "{error}");
        // Nothing is changed on the way to the error.
        let before = fs::read(&path).unwrap();
        assert!(Journal::resume(folder.path()).is_err());
        assert_eq!(fs::read(&path).unwrap(), before);
    }
    fs::write(&path, "{\"journal\":1,").unwrap();
    assert!(matches!(Contents::read(folder.path()), Err(JournalError::Corrupt { line: 1, .. })));
    fs::write(&path, good.replacen("{\"journal\":1", "{\"journal\":2", 1)).unwrap();
    assert!(matches!(Contents::read(folder.path()), Err(JournalError::Version { found: 2, .. })));
}

#[test]
fn there_is_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let contents = on_disk(folder.path());
    let (first, _) = Journal::resume(folder.path()).unwrap();
    assert!(matches!(Journal::resume(folder.path()), Err(JournalError::Locked { .. })));
    // Reading needs no lock.
    assert_eq!(Contents::read(folder.path()).unwrap().entries.len(), contents.entries.len());
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
fn a_full_disk_says_so_and_leaves_a_whole_journal() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = TinyDisk::mount(folder.path()) else {
        println!("skipped: mounting a tiny tmpfs needs root");
        return;
    };
    let contents = contents(&study(None, 1, 1), outcome);
    let mut journal = Journal::create(folder.path(), &contents.header).unwrap();
    let mut written = 0;
    let error = loop {
        match journal.append(&contents.entries[2]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("the disk is full; free some space, then resume"), "{error}");
    assert!(matches!(journal.append(&contents.entries[2]), Err(JournalError::Failed { .. })));
    assert_eq!(Contents::read(folder.path()).unwrap().entries.len(), written);
}

#[test]
fn what_is_done_is_not_done_again() {
    let mut contents = contents(&study(None, 2, 1), outcome);
    assert!(contents.to_do(false).is_empty());
    // The panicked runs of riscv64, if they are to be done again.
    let again: Vec<String> =
        contents.to_do(true).iter().flat_map(|block| block.runs.iter().map(|run| run.order.id.clone())).collect();
    assert_eq!(again.len(), 2);
    assert!(again.iter().all(|id| id.starts_with("riscv64_6.12") && id.ends_with("_fexit")));
    // A later record counts.
    let (block, run) = contents.header.plan.runs().find(|(_, run)| run.order.id == again[0]).unwrap();
    let done = common::record(block, run, Outcome::Measured(Box::new(common::figures(run.order.probe, 1.0, 1.0))));
    contents.entries.push(Entry::Run(Box::new(done)));
    assert_eq!(contents.to_do(true).iter().map(|block| block.runs.len()).sum::<usize>(), 1);
    assert_eq!(contents.boots("riscv64_6.12_w_nfs4.2_1"), 1);
    assert_eq!(contents.boots("never"), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever was done, done and to do together are the plan, each run once and in order.
    #[test]
    fn done_and_to_do_are_the_plan(done in prop::collection::vec(any::<bool>(), 24), failed in prop::collection::vec(any::<bool>(), 24), again: bool) {
        let mut contents = contents(&study(None, 2, 1), outcome);
        let plan = contents.header.plan.clone();
        contents.entries = plan.runs().zip(&done).zip(&failed).filter(|((_, done), _)| **done).map(|(((block, run), _), failed)| {
            let outcome = if *failed { Outcome::Failed(panic_of_guest()) } else { Outcome::Refused(common::not_supported()) };
            Entry::Run(Box::new(common::record(block, run, outcome)))
        }).collect();
        let to_do: Vec<String> = contents.to_do(again).iter().flat_map(|block| block.runs.iter().map(|run| run.order.id.clone())).collect();
        let wanted: Vec<String> = plan.runs().zip(&done).zip(&failed)
            .filter(|((_, done), failed)| !**done || (again && **failed))
            .map(|(((_, run), _), _)| run.order.id.clone())
            .collect();
        prop_assert_eq!(&to_do, &wanted);
        prop_assert_eq!(to_do.iter().collect::<BTreeSet<_>>().len(), to_do.len());
    }

    /// No bytes make the reader panic, and none are taken for a journal.
    #[test]
    fn any_bytes_are_refused(bytes: Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        fs::File::create(folder.path().join(FILE_NAME)).unwrap().write_all(&bytes).unwrap();
        prop_assert!(Contents::read(folder.path()).is_err());
    }
}

#[test]
fn where_no_journal_can_begin_is_told_without_making_anything() {
    let work = tempfile::tempdir().unwrap();
    let fresh = work.path().join("some/where");
    Journal::may_create(&fresh).unwrap();
    assert!(!work.path().join("some").exists());
    on_disk(&fresh);
    assert!(matches!(Journal::may_create(&fresh), Err(JournalError::Exists { .. })));
    let file = fresh.join(FILE_NAME);
    assert!(matches!(Journal::may_create(&file.join("x")), Err(JournalError::NotADirectory { path }) if path == file));
}
