// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the ingredients of a key, which blocks are kept, and which are found again.

mod damage;
mod keys;
#[cfg(feature = "object-stores")]
mod objects;
mod series;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use bpfassay_packages::digest::Digest;
use bpfassay_results::{JournalContents, JournalEntry, Provenance};
use bpfassay_study::{Block, Plan, Target};
use bpfassay_testbed::{
    image::GuestImage,
    manifest::{File, Kernel, Segment, Target as Guest},
};
use bpfassay_vm::{Accelerator, AcceleratorChoice, Confinement, Qemu, QemuVersion};

use super::{
    BlockReuse, BlockStore, RunStore, StoreKey, StorePlace, block_records::BlockRecords, store_records::LookedUp,
};
use crate::{
    blocks::block,
    boot::host_setup::HostSetup,
    merge::tests::{measured, whole_plan},
};

/// A set-up for guests of `plan` that starts nothing. None of its programs and files exist.
fn host_setup(plan: &Plan) -> HostSetup {
    let file = || File { path: "/nonexistent/file".into(), size: 1, sha256: Digest::of(b"") };
    let image = |target: &Target| {
        let kernel = Kernel {
            release: target.kernel.parse().unwrap(),
            version: None,
            image: file(),
            config: None,
            modules: None,
            packages: Vec::new(),
        };
        let initramfs = vec![Segment { role: "base".to_owned(), archive: file(), contents: Vec::new() }];
        let guest = Guest { arch: target.arch, name: target.kernel.clone(), kernel, initramfs };
        (target.clone(), GuestImage::from_manifest(&guest).unwrap())
    };
    let qemu = |target: &Target| {
        let qemu = Qemu {
            arch: target.arch,
            program: "/nonexistent/qemu".into(),
            own_root: None,
            version: "7.2.22".parse::<QemuVersion>().unwrap(),
            version_text: "7.2.22".to_owned(),
            confinement: Confinement { sandbox: true, own_user: false, lacking: Vec::new() },
        };
        let choice = AcceleratorChoice { accelerator: Accelerator::Tcg, reason: "asked for".to_owned() };
        (target.arch, (qemu, choice))
    };
    let targets = plan.targets();
    HostSetup {
        qemu: targets.iter().map(|target| qemu(target)).collect(),
        plugins: BTreeMap::new(),
        images: targets.iter().map(|target| image(target)).collect(),
        qemu_packages: BTreeMap::new(),
    }
}

/// The journal of a run of `plan` with the command lines of [`host_setup`].
fn journal(plan: &Plan, host: &str) -> JournalContents {
    let mut contents = measured(plan.clone(), host);
    give_commands(&mut contents, &host_setup(plan));
    contents
}

/// Gives each boot the command line that `host_setup` has for its block.
fn give_commands(contents: &mut JournalContents, host_setup: &HostSetup) {
    let plan = &contents.header.plan;
    for entry in &mut contents.entries {
        if let JournalEntry::BlockStarted(started) = entry {
            let block = plan.blocks.iter().find(|block| block.id == started.block).unwrap();
            started.qemu = block::command(host_setup, &plan.study, block).unwrap();
        }
    }
}

/// Selects the entries of `contents` that are about `block`.
fn of_block(contents: &JournalContents, block: &Block) -> Vec<JournalEntry> {
    let is_of_block = |entry: &&JournalEntry| match entry {
        JournalEntry::BlockStarted(started) => started.block == block.id,
        JournalEntry::GuestReady(ready) => ready.block == block.id,
        JournalEntry::Run(record) => record.block == block.id,
        JournalEntry::BlockEnded(ended) => ended.block == block.id,
        JournalEntry::Provisioned { .. } | JournalEntry::Resumed { .. } => false,
    };
    contents.entries.iter().filter(is_of_block).cloned().collect()
}

/// Keeps every block of `contents`. Returns the keys in the order of the plan.
fn keep_all(store: &BlockStore, contents: &JournalContents) -> Vec<StoreKey> {
    let JournalContents { header, .. } = contents;
    let keep = |block: &Block| {
        let records = BlockRecords::of(block, of_block(contents, block)).unwrap();
        done(store.keep(records, (&header.plan, block), &header.provenance, false)).unwrap()
    };
    header.plan.blocks.iter().map(keep).collect()
}

/// Returns the records that `store` has under `key`.
fn found(store: &BlockStore, key: &StoreKey) -> Option<BlockRecords> {
    match store.find(key).unwrap() {
        LookedUp::Nothing => None,
        LookedUp::Entry { records, .. } => Some(*records),
    }
}

fn reuse(store: BlockStore) -> BlockReuse {
    BlockReuse { store, fresh: false, wall: false, reproducible: false }
}

fn place(directory: &Path) -> StorePlace {
    StorePlace::Directory(directory.to_owned())
}

/// Runs `work` in a new runtime on another thread, because the test can be in a runtime.
fn done<T: Send>(work: impl Future<Output = T> + Send) -> T {
    let execute = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work);
    std::thread::scope(|scope| scope.spawn(execute).join().unwrap())
}

/// A store in a new directory of `folder`.
fn new_store(folder: &Path) -> BlockStore {
    BlockStore::open(&place(&folder.join("a/store"))).unwrap()
}

/// Wraps `provenance` as the pool asks for it.
fn shared(provenance: &Provenance) -> impl Fn() -> Arc<Provenance> + Sync + use<> {
    let provenance = Arc::new(provenance.clone());
    move || Arc::clone(&provenance)
}

#[test]
fn what_is_kept_is_found_again_as_it_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let plan = whole_plan();
    let contents = journal(&plan, "a");
    let store = new_store(folder.path());
    let mut keys = keep_all(&store, &contents);
    for (block, key) in plan.blocks.iter().zip(&keys) {
        assert_eq!(
            found(&store, key),
            Some(BlockRecords::of(block, of_block(&contents, block)).unwrap().without_log())
        );
    }
    // Keeping the blocks again, from another host, gives the same entries.
    assert_eq!(keep_all(&store, &journal(&plan, "b")), keys);
    keys.sort_unstable();
    assert_eq!(store.keys().unwrap(), keys);
    assert_eq!(BlockStore::existing(&place(store.path())).unwrap().keys().unwrap(), keys);
}

#[test]
fn a_reproducible_entry_is_the_same_bytes_whoever_measured_it_and_when() {
    let folder = tempfile::tempdir().unwrap();
    let plan = whole_plan();
    let block = &plan.blocks[0];
    let mut later = journal(&plan, "b");
    later.header.started_unix_ms += 1;
    for entry in &mut later.entries {
        match entry {
            JournalEntry::BlockStarted(started) => started.at_unix_ms += 2,
            JournalEntry::GuestReady(ready) => ready.ready_after_ms += 3,
            JournalEntry::Run(run) => {
                (run.started_unix_ms, run.duration_ms) = (run.started_unix_ms + 4, run.duration_ms + 5)
            }
            JournalEntry::BlockEnded(ended) => ended.at_unix_ms += 6,
            JournalEntry::Provisioned { .. } | JournalEntry::Resumed { .. } => {}
        }
    }
    let kept = |name: &str, contents: &JournalContents, reproducible: bool| {
        let store = BlockStore::open(&place(&folder.path().join(name))).unwrap();
        let with = BlockReuse { reproducible, ..reuse(store) };
        let provenance = shared(&contents.header.provenance);
        done(RunStore { with: &with, plan: &plan, provenance: &provenance }.keep(block, of_block(contents, block)));
        let [key] = with.store.keys().unwrap()[..] else { panic!("{name} has no entry") };
        assert!(found(&with.store, &key).is_some());
        (key, std::fs::read(with.store.entry(&key)).unwrap())
    };
    let first = journal(&plan, "a");
    let (key, bytes) = kept("first", &first, true);
    assert_eq!(kept("later", &later, true), (key, bytes.clone()));
    // The figures and everything else stay as they were measured.
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.contains("\"duration_ms\":0") && !text.contains("\"machine\":\"a\""));
    // An entry that is not `reproducible` has the time and the host of its measurement.
    let (of_first, of_later) = (kept("plain-first", &first, false), kept("plain-later", &later, false));
    assert_eq!((of_first.0, of_later.0), (key, key));
    assert_ne!(of_first.1, of_later.1);
}

#[test]
fn a_store_is_made_in_an_empty_directory_only_and_a_missing_one_is_no_store() {
    use super::BlockStoreError::{NoStore, NotAStore};
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(BlockStore::existing(&place(&folder.path().join("none"))), Err(NoStore(_))));
    std::fs::write(folder.path().join("thesis.tex"), "").unwrap();
    assert!(matches!(BlockStore::open(&place(folder.path())), Err(NotAStore(_))));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let store = new_store(folder.path());
    assert_eq!(store.keys().unwrap(), []);
    BlockStore::open(&place(store.path())).unwrap();
}
