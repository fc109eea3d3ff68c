// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damaged, planted and half-written files are never accepted as entries. Entries that other
//! processes write at the same time are.

use std::{
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    thread,
    time::{Duration, SystemTime},
};

use bpfassay_results::{BootVerdict, FailureKind, Figure, Outcome, RunFailure, ToDo};
use proptest::prelude::*;
use rustix::fs::{CWD, Mode, mkfifoat};

use super::*;
use crate::blocks::block_store::{
    RunStore,
    store_error::{BlockStoreError, MAX_ENTRY},
};

/// A store with the first block of a plan.
struct OneEntry {
    folder: tempfile::TempDir,
    store: BlockStore,
    contents: JournalContents,
    key: StoreKey,
}

impl OneEntry {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut contents = journal(&whole_plan(), "a");
        let block = contents.header.plan.blocks[0].clone();
        contents.header.plan = contents.header.plan.with_blocks(vec![block]);
        let store = new_store(folder.path());
        let key = keep_all(&store, &contents)[0];
        Self { folder, store, contents, key }
    }

    fn block(&self) -> &Block {
        &self.contents.header.plan.blocks[0]
    }

    fn path(&self) -> PathBuf {
        self.store.entry(&self.key)
    }

    /// Returns why the entry is not accepted.
    fn problem(&self) -> String {
        match self.store.find(&self.key) {
            Err(BlockStoreError::Damaged { problem, .. }) => problem,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_entry_without_its_last_lines_is_damaged() {
    let one = OneEntry::new();
    let text = fs::read_to_string(one.path()).unwrap();
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    assert!(ends.len() > 4);
    for end in std::iter::once(0).chain(ends.iter().copied().take(ends.len() - 1)) {
        fs::write(one.path(), &text[..end]).unwrap();
        one.problem();
    }
    // An entry with an additional line is damaged, too.
    fs::write(one.path(), format!("{text}{{}}\n")).unwrap();
    one.problem();
}

#[test]
fn an_entry_under_the_name_of_another_is_damaged() {
    let one = OneEntry::new();
    let other: StoreKey = Digest::of(b"other").to_string().parse().unwrap();
    let to = one.store.entry(&other);
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(one.path(), &to).unwrap();
    let Err(BlockStoreError::Damaged { problem, .. }) = one.store.find(&other) else { panic!("it is taken") };
    assert_eq!(problem, format!("it is of another block: by what it has, its name is {}", one.key));
}

#[test]
fn only_regular_files_of_bounded_size_are_read() {
    let one = OneEntry::new();
    let elsewhere = one.folder.path().join("elsewhere");
    fs::rename(one.path(), &elsewhere).unwrap();
    symlink(&elsewhere, one.path()).unwrap();
    assert_eq!(one.problem(), "it is no regular file");
    fs::remove_file(one.path()).unwrap();
    mkfifoat(CWD, one.path(), Mode::RUSR | Mode::WUSR).unwrap();
    assert_eq!(one.problem(), "it is no regular file");
    fs::remove_file(one.path()).unwrap();
    fs::create_dir(one.path()).unwrap();
    assert_eq!(one.problem(), "it is no regular file");
    fs::remove_dir(one.path()).unwrap();
    fs::File::create(one.path()).unwrap().set_len(MAX_ENTRY + 1).unwrap();
    assert!(one.problem().contains("the file is larger than"), "{}", one.problem());
}

#[test]
fn a_link_in_the_place_of_a_directory_leads_nowhere() {
    let one = OneEntry::new();
    let folder = one.path().parent().unwrap().to_owned();
    let elsewhere = one.folder.path().join("elsewhere");
    fs::rename(&folder, &elsewhere).unwrap();
    symlink(&elsewhere, &folder).unwrap();
    assert!(matches!(one.store.find(&one.key), Err(BlockStoreError::Io { .. })));
    fs::remove_file(elsewhere.join(one.path().file_name().unwrap())).unwrap();
    let records = || BlockRecords::of(one.block(), of_block(&one.contents, one.block())).unwrap();
    let JournalContents { header, .. } = &one.contents;
    done(one.store.keep(records(), (&header.plan, one.block()), &header.provenance, false)).unwrap_err();
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn a_damaged_entry_is_put_aside_and_measured_anew() {
    let one = OneEntry::new();
    fs::write(one.path(), "damaged\n").unwrap();
    let (setup, provenance) = (host_setup(&one.contents.header.plan), shared(&one.contents.header.provenance));
    let with = reuse(BlockStore::existing(&place(one.store.path())).unwrap());
    let looked_up = RunStore { with: &with, plan: &one.contents.header.plan, provenance: &provenance };
    let todo = ToDo::fresh(one.block().clone());
    assert_eq!(done(looked_up.look_up(&setup, &todo)), None);
    assert!(!one.path().exists());
    let aside = one.store.path().join("bpfassay-blocks-1/aside");
    let [put] = fs::read_dir(aside).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(fs::read_to_string(put).unwrap(), "damaged\n");
    assert_eq!(one.store.keys().unwrap(), []);
    // The measured block then replaces it.
    done(looked_up.keep(one.block(), of_block(&one.contents, one.block())));
    assert_eq!(done(looked_up.look_up(&setup, &todo)).unwrap().len(), of_block(&one.contents, one.block()).len());
}

#[test]
fn what_a_killed_writer_leaves_is_no_entry_and_goes_after_a_day() {
    let one = OneEntry::new();
    let drafts = one.store.path().join("bpfassay-blocks-1/new");
    assert_eq!(fs::read_dir(&drafts).unwrap().count(), 0);
    let text = fs::read(one.path()).unwrap();
    let old = SystemTime::now() - Duration::from_secs(25 * 3600);
    for (name, is_old) in [("1-2-3.draft", true), ("1-2-4.draft", false), ("notes.txt", true)] {
        let path = drafts.join(name);
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        if is_old {
            fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        }
    }
    assert_eq!(one.store.keys().unwrap(), [one.key]);
    keep_all(&one.store, &one.contents);
    let mut left: Vec<_> = fs::read_dir(&drafts).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["1-2-4.draft", "notes.txt"]);
}

#[test]
fn writers_and_readers_at_the_same_time_find_whole_entries() {
    let one = OneEntry::new();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = BlockStore::open(&place(one.store.path())).unwrap();
                (0..20).for_each(|_| assert_eq!(keep_all(&store, &one.contents), [one.key]));
            });
            scope.spawn(|| (0..60).for_each(|_| assert!(found(&one.store, &one.key).is_some())));
        }
    });
    assert_eq!(one.store.keys().unwrap(), [one.key]);
}

#[test]
fn a_block_in_which_something_failed_is_not_kept() {
    let one = OneEntry::new();
    let problem = |change: &dyn Fn(&mut Vec<JournalEntry>)| {
        let mut entries = of_block(&one.contents, one.block());
        change(&mut entries);
        BlockRecords::of(one.block(), entries).unwrap_err()
    };
    let failure = || RunFailure { kind: FailureKind::Host, phase: None, excerpt: Vec::new(), log: None, after: None };
    let ended = |change: &dyn Fn(&mut bpfassay_results::BlockEnded)| {
        problem(&|entries| {
            let Some(JournalEntry::BlockEnded(ended)) = entries.last_mut() else { panic!("no end") };
            change(ended);
        })
    };
    assert_eq!(ended(&|ended| ended.verdict = BootVerdict::Interrupted), "its boot failed");
    assert_eq!(ended(&|ended| ended.failure = Some(failure())), "its boot failed");
    let counts = "what QEMU's plugin counted could not be read";
    assert_eq!(ended(&|ended| ended.counts = Some(Figure::missing("no memory"))), counts);
    assert_eq!(problem(&|entries| drop(entries.pop())), "its boot was not brought to an end");
    assert_eq!(problem(&|entries| drop(entries.remove(1))), "its boot was not brought to an end");
    assert_eq!(problem(&|entries| drop(entries.remove(2))), "its boot has other records than the plan has runs");
    let failed = problem(&|entries| {
        let JournalEntry::Run(run) = &mut entries[3] else { panic!("no run") };
        run.outcome = Outcome::Failed(failure());
    });
    assert!(failed.ends_with(" failed"), "{failed}");
    let part = problem(&|entries| {
        let JournalEntry::BlockStarted(started) = &mut entries[0] else { panic!("no start") };
        started.runs.pop();
    });
    assert_eq!(part, "its boot was for a part of its runs");
    // A block is not kept if part of its provenance is unknown.
    let mut unknown = one.contents.header.provenance.clone();
    unknown.bpfassay.sha256 = None;
    let records = BlockRecords::of(one.block(), of_block(&one.contents, one.block())).unwrap();
    let kept = done(one.store.keep(records, (&one.contents.header.plan, one.block()), &unknown, false));
    assert!(matches!(kept, Err(BlockStoreError::NoEntry { .. })), "{kept:?}");
    // An earlier boot that failed does not matter, because the last one did the whole block.
    let entries = of_block(&one.contents, one.block());
    let again = [entries[..2].to_vec(), entries].concat();
    BlockRecords::of(one.block(), again).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// An entry with any bit flipped is not accepted.
    #[test]
    fn no_bit_of_an_entry_can_change_unnoticed(at in any::<prop::sample::Index>(), bit in 0..8) {
        let one = OneEntry::new();
        let mut text = fs::read(one.path()).unwrap();
        let at = at.index(text.len());
        text[at] ^= 1_u8 << bit;
        fs::write(one.path(), text).unwrap();
        one.problem();
    }
}
