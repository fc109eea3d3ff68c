// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache of the command: nothing is removed from a directory that is not a cache.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints what it skips")]

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::Path,
    process::{Command, Stdio},
};

use crate::common::{bpfassay, printed, spec};

/// A user without any rights.
const NOBODY: u32 = 65534;

/// Whether this test can become another user; prints a message if not.
fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: only root can act as another user; run this test as root");
    }
    root
}

/// Creates a directory that every user can enter, with a copy of the command.
fn open_to_all() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_bpfassay"), directory.path().join("bpfassay")).unwrap();
    directory
}

/// Returns the command in `directory`, run by the user `nobody`.
fn as_nobody(directory: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups", "--"])
        .arg(directory.join("bpfassay"))
        .current_dir(directory)
        .env_remove("RUST_LOG")
        .env("HOME", directory)
        .stdin(Stdio::null());
    command
}

/// Checks that `kernels` refuses `cache`, and names the directory and the remedy.
fn refuses(mut command: Command, cache: &Path, part: &str) {
    let output = command.args(["list", "kernels", "--offline", "--cache"]).arg(cache).output().unwrap();
    let printed = printed(&output);
    assert_eq!(output.status.code(), Some(2), "{}: {printed}", cache.display());
    let printed = printed.replace('\n', " ");
    for part in [part, "cannot be the cache", "name a directory that is missing or empty", "--cache"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(printed.contains(&cache.display().to_string()), "{printed}");
}

fn precious(directory: &Path) -> std::path::PathBuf {
    fs::create_dir_all(directory.join("tmp/work")).unwrap();
    let file = directory.join("tmp/work/precious");
    fs::write(&file, "text").unwrap();
    file
}

#[test]
fn a_directory_that_is_no_cache_keeps_its_tmp() {
    let work = tempfile::tempdir().unwrap();
    let home = work.path().join("home");
    let file = precious(&home);
    refuses(bpfassay(work.path()), &home, "it is not empty");
    // The directory is also refused as $HOME, and through a link.
    let mut command = bpfassay(work.path());
    command.env("HOME", &home);
    refuses(command, &home, "it is not empty");
    symlink(&home, work.path().join("link")).unwrap();
    refuses(bpfassay(work.path()), &work.path().join("link"), "it is not empty");
    assert!(file.exists());
    assert_eq!(fs::read_dir(&home).unwrap().count(), 1, "nothing was made in it");
}

#[test]
fn the_root_directory_is_no_cache() {
    // The command gets another root directory, so that a fault cannot empty this machine's /tmp.
    if !root() {
        return;
    }
    let place = open_to_all();
    let file = precious(place.path());
    let script = "for d in dev proc lib lib64 usr bin etc; do [ -e /$d ] && mkdir -p $0/$d && mount --rbind /$d $0/$d; done; \
                  chroot $0 /bpfassay list kernels --offline --cache /; code=$?; exit $code";
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(place.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = printed(&output);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("/ cannot be the cache: it is not empty"), "{printed}");
    assert!(file.exists());
    assert!(!place.path().join("objects").exists());
}

#[test]
fn whoever_holds_a_lock_is_named_to_those_who_wait() {
    let work = tempfile::tempdir().unwrap();
    let kernels = || {
        let mut command = bpfassay(work.path());
        command.args(["list", "kernels", "--offline", "--cache", "cache"]);
        command
    };
    assert!(kernels().output().unwrap().status.success());
    for lock in ["in-use", "tmp"] {
        // The limit is 20 s: if nothing is printed, this test fails instead of waiting forever.
        let mut holder = Command::new("flock")
            .arg("--no-fork")
            .arg(work.path().join("cache/locks").join(lock))
            .args(["timeout", "20", "sh", "-c", "echo held; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut held = [0; 5];
        holder.stdout.as_mut().unwrap().read_exact(&mut held).unwrap();
        let mut waiting = kernels().stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut stderr = BufReader::new(waiting.stderr.take().unwrap());
        stderr.read_line(&mut line).unwrap();
        let part = format!("waiting for the lock `{lock}` of the cache: process {} (timeout) has it", holder.id());
        assert!(line.contains(&part), "{line}");
        drop(holder.stdin.take());
        holder.wait().unwrap();
        assert!(waiting.wait().unwrap().success());
    }
}

#[test]
fn a_cache_of_roots_is_used_by_others_as_far_as_it_goes() {
    if !root() {
        return;
    }
    let place = open_to_all();
    spec(place.path());
    let cache = place.path().join("cache");
    let compose = |mut command: Command, output: &str| {
        command
            .args(["testbed", "compose", "spec.json", "--cache"])
            .arg(&cache)
            .args(["--output", output])
            .output()
            .unwrap()
    };
    let output = compose(bpfassay(place.path()), "made");
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    let nobodys = place.path().join("nobodys");
    fs::create_dir(&nobodys).unwrap();
    chown(&nobodys, Some(NOBODY), Some(NOBODY)).unwrap();
    let output = compose(as_nobody(place.path()), "nobodys/made");
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    let manifest = |of: &str| fs::read(place.path().join(of).join("manifest.json")).unwrap();
    assert_eq!(manifest("made"), manifest("nobodys/made"));
    let output =
        as_nobody(place.path()).args(["list", "kernels", "--offline", "--cache"]).arg(&cache).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));

    fs::write(place.path().join("programs/bpfassay-ior"), "another").unwrap();
    let output = compose(as_nobody(place.path()), "nobodys/other");
    let stderr = printed(&output).replace('\n', " ");
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("is not in the cache") && stderr.contains("bpfassay testbed fetch"), "{stderr}");
}

#[test]
fn a_missing_and_an_empty_directory_become_caches_and_stay_usable() {
    let work = tempfile::tempdir().unwrap();
    fs::create_dir(work.path().join("empty")).unwrap();
    for cache in ["empty", "missing/below"] {
        for _ in 0..2 {
            let output =
                bpfassay(work.path()).args(["list", "kernels", "--offline", "--cache", cache]).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
        }
        let tmp = work.path().join(cache).join("tmp");
        assert_eq!(fs::read_dir(tmp).unwrap().count(), 0, "{cache}");
    }
}

#[test]
fn another_user_cannot_have_root_empty_a_directory_nor_empty_one_by_itself() {
    if !root() {
        return;
    }
    let place = open_to_all();
    let file = precious(&place.path().join("roots"));
    // Another user made the cache, and then lets its `tmp` point to something of root's.
    let trap = place.path().join("trap");
    fs::create_dir(&trap).unwrap();
    chown(&trap, Some(NOBODY), Some(NOBODY)).unwrap();
    let output = as_nobody(place.path()).args(["list", "kernels", "--offline", "--cache"]).arg(&trap).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    assert!(trap.join("bpfassay-cache").exists());
    fs::remove_dir(trap.join("tmp")).unwrap();
    symlink(file.parent().unwrap(), trap.join("tmp")).unwrap();
    refuses(bpfassay(place.path()), &trap, "it belongs to user 65534");
    assert!(file.exists());
    refuses(as_nobody(place.path()), &trap, "its `tmp` is a symbolic link");
    assert!(file.exists());
    // That user's own directory is not a cache either.
    let home = place.path().join("home");
    let own = precious(&home);
    for path in [&home, &home.join("tmp"), &home.join("tmp/work"), &own] {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    refuses(as_nobody(place.path()), &home, "it is not empty");
    assert!(own.exists());
}

#[test]
fn what_prune_removes_is_printed_as_json_where_that_is_asked_for() {
    let work = tempfile::tempdir().unwrap();
    for arguments in [["testbed", "cache", "--json", "prune"], ["testbed", "cache", "prune", "--json"]] {
        let output = bpfassay(work.path()).args(arguments).args(["--cache", "cache"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
        let removed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(removed["items"], serde_json::json!([]));
        assert!(removed["cache"].as_str().unwrap().ends_with("cache"));
    }
}
