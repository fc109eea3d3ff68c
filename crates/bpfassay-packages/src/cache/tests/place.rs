// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests which directories are accepted as caches, and what is removed from them.

use std::os::unix::fs::{MetadataExt, chown, symlink};

use super::*;

const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by bpfassay.\n";

/// Creates a directory that somebody keeps files in, also in its `tmp`.
fn somebodys() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("tmp/work")).unwrap();
    fs::write(directory.path().join("tmp/work/precious"), "text").unwrap();
    fs::write(directory.path().join("notes"), "text").unwrap();
    directory
}

/// Lists everything below `directory` without following links.
fn everything(directory: &Path) -> Vec<PathBuf> {
    let mut paths = vec![];
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            paths.extend(everything(&entry.path()));
        }
        paths.push(entry.path());
    }
    paths.sort();
    paths
}

/// Checks that opening `directory` fails with a message that has `part`, and changes nothing.
fn refused(directory: &Path, part: &str) {
    let before = everything(directory);
    let error = Cache::open(directory).unwrap_err();
    let PackagesError::NotACache { path, .. } = &error else { panic!("{error}") };
    assert_eq!(path, directory);
    let message = error.to_string();
    assert!(message.contains(part) && message.contains("--cache"), "{message}");
    assert_eq!(everything(directory), before);
}

/// Creates a cache without a marker, with what a dead process left in `tmp`.
fn unmarked() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for part in ["objects", "trees", "records", "apt", "locks", "tmp/scratch-gone", "logs"] {
        fs::create_dir_all(directory.path().join(part)).unwrap();
    }
    fs::write(directory.path().join("CACHEDIR.TAG"), TAG).unwrap();
    directory
}

#[test]
fn a_directory_that_is_no_cache_is_refused_and_stays_as_it_is() {
    refused(somebodys().path(), "it is not empty and has no CACHEDIR.TAG");
    // A build directory is tagged, but not by us.
    let target = somebodys();
    fs::write(target.path().join("CACHEDIR.TAG"), TAG.replace("bpfassay", "cargo")).unwrap();
    refused(target.path(), "no bpfassay-cache");
    // A backup program's list can bring our tag alone.
    fs::write(target.path().join("CACHEDIR.TAG"), TAG).unwrap();
    refused(target.path(), "no bpfassay-cache");
    // Our marker alone is not enough.
    fs::remove_file(target.path().join("CACHEDIR.TAG")).unwrap();
    fs::write(target.path().join("bpfassay-cache"), "bpfassay cache 1\n").unwrap();
    refused(target.path(), "no CACHEDIR.TAG");
    // Symbolic links to tag and marker do not count.
    let links = somebodys();
    let cache = Cache::open(links.path().join("tmp/cache")).unwrap();
    for name in ["CACHEDIR.TAG", "bpfassay-cache"] {
        symlink(cache.root().join(name), links.path().join(name)).unwrap();
    }
    refused(links.path(), "no CACHEDIR.TAG");
    let error = Cache::open(links.path().join("notes")).unwrap_err();
    assert!(error.to_string().contains("is no directory"), "{error}");
    let error = Cache::open(links.path().join("notes/below")).unwrap_err();
    assert!(matches!(error, PackagesError::NotACache { .. }), "{error}");
}

#[test]
fn a_link_in_place_of_a_part_is_refused_and_not_followed() {
    for part in ["objects", "trees", "records", "apt", "locks", "tmp", "logs"] {
        let elsewhere = somebodys();
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("cache");
        drop(Cache::open(&root).unwrap());
        let _ = fs::remove_dir_all(root.join(part));
        symlink(elsewhere.path().join("tmp"), root.join(part)).unwrap();
        refused(&root, &format!("its `{part}` is a symbolic link"));
        assert!(elsewhere.path().join("tmp/work/precious").exists(), "{part}");
        // The same is true for a cache without a marker.
        let old = unmarked();
        fs::remove_dir_all(old.path().join(part)).unwrap();
        symlink(elsewhere.path().join("tmp"), old.path().join(part)).unwrap();
        assert!(matches!(Cache::open(old.path()), Err(PackagesError::NotACache { .. })), "{part}");
        assert!(elsewhere.path().join("tmp/work/precious").exists(), "{part}");
    }
}

#[test]
fn checking_removes_nothing_behind_a_link() {
    let elsewhere = somebodys();
    let (_directory, cache) = cache();
    for part in ["objects/ab", "trees/kind"] {
        symlink(elsewhere.path(), cache.root().join(part)).unwrap();
    }
    assert_eq!(cache.check().unwrap(), CacheCheck::default());
    let key = Digest::of(b"inputs");
    fs::create_dir(elsewhere.path().join(key.to_string())).unwrap();
    assert!(cache.tree("kind", &key).is_err(), "a damaged tree behind a link");
    assert!(cache.remove(&cache.root().join("records/../../tmp").join(key.to_string())).is_err());
    assert_eq!(everything(elsewhere.path()).len(), 5);
}

#[test]
fn a_cache_from_before_the_marker_gets_one_and_keeps_what_it_has() {
    let old = unmarked();
    let stored = Digest::of(b"text");
    let name = stored.to_string();
    let object = old.path().join("objects").join(&name[..2]);
    fs::create_dir(&object).unwrap();
    fs::write(object.join(&name[2..]), "text").unwrap();
    let cache = Cache::open(old.path()).unwrap();
    assert!(cache.object(&stored).unwrap().is_some());
    assert_eq!(fs::read_to_string(old.path().join("bpfassay-cache")).unwrap(), "bpfassay cache 1\n");
    assert!(old.path().join("tmp/scratch-gone").exists(), "it is unknown whether its owner is gone");
    drop(cache);
    fs::write(old.path().join("bpfassay-cache"), "bpfassay cache 2\n").unwrap();
    refused(old.path(), "a cache of layout 2");
    // A full disk cut the marker off.
    fs::write(old.path().join("bpfassay-cache"), "bpfassay ca").unwrap();
    Cache::open(old.path()).unwrap();
}

#[test]
fn a_directory_that_others_make_a_cache_at_the_same_time_is_one() {
    for _ in 0..100 {
        let directory = tempfile::tempdir().unwrap();
        let barrier = Barrier::new(8);
        std::thread::scope(|scope| {
            let open = || {
                barrier.wait();
                Cache::open(directory.path()).map(drop)
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            for thread in threads {
                thread.join().unwrap().unwrap();
            }
        });
    }
}

#[test]
fn a_directory_in_which_a_cache_was_begun_is_made_one() {
    for (tag, marker) in [("", ""), ("", "bpfassay"), ("Signature: 8a", "bpfassay cache 1\n")] {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("bpfassay-cache"), marker).unwrap();
        if !tag.is_empty() {
            fs::write(directory.path().join("CACHEDIR.TAG"), tag).unwrap();
        }
        drop(Cache::open(directory.path()).unwrap());
        Cache::open(directory.path()).unwrap();
    }
}

#[test]
fn only_what_is_ours_and_has_no_owner_is_removed_from_tmp() {
    let (_directory, cache) = cache();
    let tmp = cache.root().join("tmp");
    let scratch = cache.scratch().unwrap();
    fs::write(scratch.path().join("half"), "").unwrap();
    // Killed processes leave directories with their file, and without it.
    for gone in ["bpfassay-gone", "bpfassay-half-removed", ".bpfassay-begun"] {
        fs::create_dir_all(tmp.join(gone).join("scratch-x/deep")).unwrap();
    }
    fs::write(tmp.join("bpfassay-gone/owner"), "1\n").unwrap();
    let elsewhere = somebodys();
    symlink(elsewhere.path(), tmp.join("bpfassay-gone/scratch-x/link")).unwrap();
    symlink(elsewhere.path(), tmp.join("bpfassay-link")).unwrap();
    fs::create_dir(tmp.join("mine")).unwrap();
    fs::write(tmp.join("bpfassay-file"), "").unwrap();

    let other = Cache::open(cache.root()).unwrap();
    assert!(scratch.path().join("half").exists(), "its owner lives");
    assert!(!tmp.join("bpfassay-gone").exists() && !tmp.join(".bpfassay-begun").exists());
    assert!(!tmp.join("bpfassay-half-removed").exists());
    assert!(tmp.join("mine").exists() && tmp.join("bpfassay-file").exists());
    assert!(tmp.join("bpfassay-link").symlink_metadata().is_ok());
    assert!(elsewhere.path().join("tmp/work/precious").exists());
    drop((other, cache));
    assert!(scratch.path().exists(), "it is used longer than the cache");
    let session = scratch.path().parent().unwrap().to_owned();
    drop(scratch);
    assert!(!session.exists());
}

#[test]
fn a_directory_of_another_user_or_of_everybody_is_refused() {
    let (_directory, cache) = cache();
    let root = cache.root().to_owned();
    drop(cache);
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
    refused(&root, "every user may exchange what is in it");
    // This is the mode of a new tmpfs.
    fs::set_permissions(&root, fs::Permissions::from_mode(0o1777)).unwrap();
    drop(Cache::open(&root).unwrap());
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
    if fs::metadata(&root).unwrap().uid() != 0 {
        eprintln!("skipped: only root can give a directory to another user; run this test as root");
        return;
    }
    chown(root.join("tmp"), Some(65534), None).unwrap();
    refused(&root, "its `tmp` belongs to user 65534");
    chown(root.join("tmp"), Some(0), None).unwrap();
    chown(&root, Some(65534), None).unwrap();
    refused(&root, "it belongs to user 65534");
    // An empty directory of another user is refused, too.
    let empty = tempfile::tempdir().unwrap();
    chown(empty.path(), Some(65534), None).unwrap();
    refused(empty.path(), "it belongs to user 65534");
}
