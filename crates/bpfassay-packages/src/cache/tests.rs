// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{
    io::Write,
    os::unix::fs::PermissionsExt,
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
};

use proptest::prelude::*;

mod place;
mod read_only;

use super::*;
use crate::{
    digest::Digest,
    test_support::{Small, damage, left_in_tmp},
};

fn cache() -> (tempfile::TempDir, Cache) {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path().join("cache")).unwrap();
    (directory, cache)
}

fn tmp_is_empty(cache: &Cache) -> bool {
    left_in_tmp(cache.root()).is_empty()
}

#[test]
fn the_cache_is_in_the_directory_given() {
    assert_eq!(Cache::locate(Some(Path::new("/x/y"))).unwrap(), Path::new("/x/y"));
    assert!(Cache::locate(Some(Path::new("y"))).unwrap().is_absolute());
}

#[test]
fn the_same_content_is_one_object() {
    let (_directory, cache) = cache();
    let first = cache.add_bytes("a", b"content").unwrap();
    let second = cache.add_bytes("b", b"content").unwrap();
    assert_eq!(first, second);
    assert_eq!(first.digest, Digest::of(b"content"));
    assert_eq!(cache.object(&first.digest).unwrap(), Some(first.clone()));
    assert_eq!(fs::metadata(&first.path).unwrap().permissions().mode() & 0o777, 0o444);
    assert_eq!(cache.object(&Digest::of(b"other")).unwrap(), None);
    assert!(tmp_is_empty(&cache));
}

#[test]
fn a_damaged_object_is_found_when_used_removed_and_replaced() {
    let (_directory, cache) = cache();
    let object = cache.add_bytes("a", b"content").unwrap();
    damage(&object.path);
    assert_eq!(cache.object(&object.digest).unwrap(), None);
    assert!(!object.path.exists());
    assert_eq!(cache.add_bytes("a", b"content").unwrap(), object);
    assert_eq!(cache.object(&object.digest).unwrap(), Some(object));
}

#[test]
fn damage_that_the_file_system_does_not_show_is_found_by_the_full_check() {
    let (_directory, cache) = cache();
    let object = cache.add_bytes("a", b"content").unwrap();
    let sound = cache.add_bytes("b", b"sound").unwrap();
    damage(&object.path);
    // The fresh stamp simulates bits that changed below the file system.
    cache
        .write_small(&object.path.with_extension("stamp"), &stamp::Stamp::of(&fs::metadata(&object.path).unwrap()))
        .unwrap();
    assert!(cache.object(&object.digest).unwrap().is_some());
    let checked = cache.check().unwrap();
    assert_eq!(checked, CacheCheck { files: 2, bytes: 12, removed: vec![object.path.clone()] });
    assert_eq!(cache.object(&object.digest).unwrap(), None);
    assert!(cache.object(&sound.digest).unwrap().is_some());
}

#[test]
fn a_touched_object_is_hashed_again_and_kept() {
    let (_directory, cache) = cache();
    let object = cache.add_bytes("a", b"content").unwrap();
    let stamp = object.path.with_extension("stamp");
    fs::remove_file(&stamp).unwrap();
    assert_eq!(cache.object(&object.digest).unwrap(), Some(object));
    assert!(stamp.exists());
}

#[test]
fn files_that_are_not_what_was_promised_are_not_stored() {
    let (directory, cache) = cache();
    let source = directory.path().join("source");
    fs::write(&source, "wrong").unwrap();
    let expected = Digest::of(b"right");
    let error = cache.add_file("the package", &source, Some(expected)).unwrap_err();
    assert!(matches!(error, PackagesError::Mismatch { .. }), "{error}");
    let scratch = cache.scratch().unwrap();
    let moved = scratch.path().join("x");
    fs::copy(&source, &moved).unwrap();
    assert!(matches!(cache.adopt("the package", &moved, Some(expected)), Err(PackagesError::Mismatch { .. })));
    drop(scratch);
    assert_eq!(cache.check().unwrap().files, 0);
    assert!(tmp_is_empty(&cache));
}

#[test]
fn a_writer_that_fails_leaves_nothing() {
    let (_directory, cache) = cache();
    let error = cache
        .add::<PackagesError>("x", 0, |writer| {
            writer.write_all(b"half").unwrap();
            Err(PackagesError::NoCacheDirectory)
        })
        .unwrap_err();
    assert!(matches!(error, PackagesError::NoCacheDirectory));
    assert!(tmp_is_empty(&cache));
    assert_eq!(cache.check().unwrap(), CacheCheck::default());
}

fn fill(directory: &Path) -> Result<()> {
    fs::create_dir(directory.join("d")).map_err(PackagesError::io("create", directory))?;
    fs::write(directory.join("d/file"), "text").map_err(PackagesError::io("write", directory))?;
    std::os::unix::fs::symlink("file", directory.join("d/link")).map_err(PackagesError::io("link", directory))
}

#[test]
fn a_tree_is_made_once_by_many() {
    let directory = tempfile::tempdir().unwrap();
    let (made, barrier) = (AtomicUsize::new(0), Barrier::new(4));
    let key = Digest::of(b"inputs");
    let trees: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    let cache = Cache::open(directory.path()).unwrap();
                    cache.make_tree("k", &key, "a tree", 0, |path| {
                        made.fetch_add(1, Ordering::Relaxed);
                        fill(path)
                    })
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
    });
    assert_eq!(made.load(Ordering::Relaxed), 1);
    assert!(trees.iter().all(|tree| *tree == trees[0]));
    assert_eq!(trees[0].file("d/file").unwrap().digest, Digest::of(b"text"));
    assert_eq!(fs::read_to_string(trees[0].path.join("d/link")).unwrap(), "text");
}

#[test]
fn a_damaged_tree_is_found_when_opened_and_made_again() {
    let (_directory, cache) = cache();
    let key = Digest::of(b"inputs");
    let tree = cache.make_tree("k", &key, "a tree", 0, fill).unwrap();
    assert_eq!(cache.tree("k", &key).unwrap().as_ref(), Some(&tree));

    damage(&tree.path.join("d/file"));
    assert_eq!(cache.tree("k", &key).unwrap(), None);
    let again = cache.make_tree("k", &key, "a tree", 0, fill).unwrap();
    assert_eq!(again.digest, tree.digest);

    fs::remove_file(again.path.join("d/link")).unwrap();
    assert_eq!(cache.check().unwrap().removed, [again.path.parent().unwrap()]);
    assert_eq!(cache.tree("k", &key).unwrap(), None);
}

#[test]
fn a_tree_whose_making_fails_leaves_nothing() {
    let (_directory, cache) = cache();
    let key = Digest::of(b"inputs");
    let error = cache.make_tree("k", &key, "a tree", 0, |path| {
        fill(path)?;
        Err(PackagesError::NoCacheDirectory)
    });
    assert!(matches!(error, Err(PackagesError::NoCacheDirectory)));
    assert_eq!(cache.tree("k", &key).unwrap(), None);
    assert!(tmp_is_empty(&cache));
}

#[test]
fn the_digest_of_a_tree_depends_on_content_only() {
    let (_a, first) = cache();
    let (_b, second) = cache();
    let make = |cache: &Cache, key: &str, text: &str| {
        cache.make_tree("k", &Digest::of(key.as_bytes()), "a tree", 0, |path| {
            fs::create_dir(path.join("m")).map_err(PackagesError::io("create", path))?;
            fs::write(path.join("m/x"), text).map_err(PackagesError::io("write", path))
        })
    };
    let one = make(&first, "1", "x").unwrap();
    assert_eq!(one.digest, make(&second, "2", "x").unwrap().digest);
    assert_ne!(one.digest, make(&second, "3", "y").unwrap().digest);
    assert_ne!(one.digest, one.digest_below("m"));
    assert_eq!(one.digest_below("m"), make(&second, "2", "x").unwrap().digest_below("m"));
    assert_eq!(one.digest_below("m"), digest_of_directory(&one.path.join("m")).unwrap());
}

#[test]
fn records_are_kept_and_damaged_ones_forgotten() {
    let (_directory, cache) = cache();
    let key = Digest::of(b"k");
    assert_eq!(cache.recorded::<Vec<u32>>("r", &key).unwrap(), None);
    cache.record("r", &key, &vec![1, 2]).unwrap();
    assert_eq!(cache.recorded::<Vec<u32>>("r", &key).unwrap(), Some(vec![1, 2]));
    let path = cache.root().join(format!("records/r/{key}.json"));
    fs::write(&path, "[1,").unwrap();
    assert_eq!(cache.recorded::<Vec<u32>>("r", &key).unwrap(), None);
    assert!(!path.exists());
}

fn assert_full(error: &PackagesError, at_least: u64) {
    let PackagesError::DiskFull { needed, free, .. } = error else { panic!("{error}") };
    assert!(*needed >= at_least && *free < 5_000_000, "{error}");
    let message = error.to_string();
    assert!(message.starts_with("no space left for the toolchain in /") && message.contains("--cache"), "{message}");
}

#[test]
fn a_full_disk_is_reported_with_how_much_is_needed_and_where() {
    let Some(small) = Small::mount() else { return };
    let cache = Cache::open(small.path()).unwrap();
    let what = "the toolchain";
    assert_full(&cache.add_bytes(what, &vec![0; 8 << 20]).unwrap_err(), 8 << 20);
    assert_full(&cache.make_tree(what, &Digest::of(b""), what, 3_500_000_000, fill).unwrap_err(), 3_500_000_000);
    // The size is unknown: the disk fills up on the way.
    let error = cache
        .add::<PackagesError>(what, 0, |writer| {
            for _ in 0..8 {
                let written = writer.write_all(&vec![1; 1 << 20]);
                written.map_err(|error| cache.write_error(what, 1 << 20, cache.root(), error))?;
            }
            Ok(())
        })
        .unwrap_err();
    assert_full(&error, 1 << 20);
    assert!(tmp_is_empty(&cache));
    // A small object still fits.
    cache.add_bytes(what, b"small").unwrap();
    assert_eq!(cache.check().unwrap().files, 1);
}

proptest! {
    #[test]
    fn objects_read_back_as_written(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 0..6)) {
        let (_directory, cache) = cache();
        let object = cache.add::<PackagesError>("x", 0, |writer| {
            pieces.iter().for_each(|piece| writer.write_all(piece).unwrap());
            Ok(())
        }).unwrap();
        let whole = pieces.concat();
        prop_assert_eq!(fs::read(&object.path).unwrap(), &whole[..]);
        prop_assert_eq!(object.digest, Digest::of(&whole));
        prop_assert_eq!(object.size, whole.len() as u64);
    }
}
