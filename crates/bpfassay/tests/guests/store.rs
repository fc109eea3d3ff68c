// SPDX-License-Identifier: MIT OR Apache-2.0
//! A store of blocks: stored blocks are not measured again and have the same figures, and `verify`
//! finds those that do not reproduce.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints progress")]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
};

use bpfassay_results::{JournalContents, JournalEntry, Outcome};

use crate::common::{bpfassay, guests_wanted, on_aarch64, printed, results};

/// Runs the command in `directory` and returns its output.
fn exits(directory: &Path, arguments: &[&str], code: i32) -> String {
    // `verify` keeps its measurement of a block that does not reproduce.
    let output = bpfassay(directory).args(arguments).env("TMPDIR", directory).output().unwrap();
    let printed = printed(&output);
    println!("{arguments:?}\n{printed}");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
    printed
}

fn fingerprint(printed: &str) -> String {
    let line = printed.lines().find_map(|line| line.strip_prefix("fingerprint of the raw figures: "));
    line.unwrap().to_owned()
}

/// Returns the entries of the store in `directory`.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let files = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let mut folders = files(directory.join("bpfassay-blocks-1"));
    folders.retain(|folder| folder.file_name().unwrap().len() == 2);
    let mut all: Vec<PathBuf> = folders.into_iter().flat_map(files).collect();
    all.sort();
    all
}

/// Counts the guests that were booted for the results in `directory`.
fn booted(directory: &Path) -> usize {
    fs::read_dir(directory.join("logs")).unwrap().count()
}

/// Kills a run of `arguments` with SIGKILL once one of its runs has ended.
fn killed(directory: &Path, arguments: &[&str]) {
    let mut command = bpfassay(directory);
    let mut child = command.args(arguments).args(["--message-format", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    let events = BufReader::new(child.stdout.take().unwrap());
    let ended = events.lines().find(|line| line.as_ref().unwrap().contains("\"event\":\"run_ended\""));
    assert!(ended.is_some(), "no run ended");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Changes a figure in the entry `path`, with matching sums, as anyone with write access could.
fn forge(path: &Path) {
    let mut contents = JournalContents::read_file(path, fs::File::open(path).unwrap(), u64::MAX).unwrap();
    let phase = contents.entries.iter_mut().find_map(|entry| match entry {
        JournalEntry::Run(record) => match &mut record.outcome {
            Outcome::Measured(figures) => figures.phases.first_mut(),
            _ => None,
        },
        _ => None,
    });
    phase.unwrap().interval.after.monotonic_ns += 1;
    fs::write(path, contents.text(path).unwrap()).unwrap();
}

#[test]
fn what_a_store_has_is_not_measured_again() {
    if !guests_wanted() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();
    let study = on_aarch64("shards.toml", directory);
    let run = ["run", study.to_str().unwrap(), "--yes", "--offline", "--kernel", "6.12", "--store", "store"];
    let go = |more: &[&str]| exits(directory, &[&run, more].concat(), 0);
    let of = |name: &str| directory.join(name);

    // A run that is killed in its first boots leaves a valid store.
    killed(directory, &[&run[..], &["--output", "killed"]].concat());
    let of_killed = entries(&of("store")).len();
    let first = go(&["--output", "first"]);
    assert_eq!((entries(&of("store")).len(), booted(&of("first"))), (2, 2 - of_killed));

    let again = go(&["--output", "again"]);
    assert_eq!(booted(&of("again")), 0);
    assert!(again.contains("2 of 2 boots were measured before, and are reused from the store store"), "{again}");
    assert_eq!(fingerprint(&again), fingerprint(&first));
    // Direct costs, which are not part of the fingerprint, are equal, too. (Facts of a cell are
    // those of the boot that ended first.)
    let metrics = |name: &str| {
        let results = results(&of(name));
        results["cells"].as_array().unwrap().iter().map(|cell| cell["metrics"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(metrics("again"), metrics("first"));
    assert!(metrics("again")[1][0]["direct"]["value"]["per_call"]["mean"].as_f64().unwrap() > 0.0);
    let reused = &results(&of("again"))["boots"][0]["reused"];
    assert_eq!(reused["store"], "store");
    assert!(
        entries(&of("store")).iter().any(|entry| entry.ends_with(format!("{}.jsonl", reused["key"].as_str().unwrap())))
    );
    // The results are intact, mergeable and reproducible like any others.
    exits(directory, &["verify", "again", "--files"], 0);
    let verified = exits(directory, &["verify", "again", "--sample", "1", "--yes", "--offline"], 0);
    assert!(verified.contains("1 of 2 boots, 2 runs: identical raw figures"), "{verified}");

    // An interrupted run continues with the entries of the store.
    let resumed = ["run", "--resume", "killed", "--yes", "--offline", "--store", "store"];
    assert_eq!(fingerprint(&exits(directory, &resumed, 0)), fingerprint(&first));

    // Other blocks are measured: a third boot, and a boot with other rounds.
    go(&["--output", "more", "--replicates", "3"]);
    assert_eq!((entries(&of("store")).len(), booted(&of("more"))), (3, 1));
    go(&["--output", "other", "--replicates", "1", "--rounds", "2"]);
    assert_eq!((entries(&of("store")).len(), booted(&of("other"))), (4, 1));

    // Everything is measured again with `--fresh`, with the same figures.
    let fresh = go(&["--output", "fresh", "--fresh"]);
    assert_eq!((entries(&of("store")).len(), booted(&of("fresh"))), (4, 2));
    assert_eq!(fingerprint(&fresh), fingerprint(&first));

    // The store is not used under the wall clock.
    let wall = go(&["--output", "wall", "--clock", "wall", "--replicates", "1"]);
    assert!(
        wall.contains("the store of blocks is not used, because figures of the wall clock are different each time"),
        "{wall}"
    );
    assert_eq!((entries(&of("store")).len(), booted(&of("wall"))), (4, 1));

    // A new measurement of blocks finds forged figures.
    let verify = ["verify", "--store", "store", "--yes", "--offline"];
    let verified = exits(directory, &[&verify[..], &["--sample", "1"]].concat(), 0);
    assert!(verified.contains("verified: 1 of 4 blocks of store: identical raw figures"), "{verified}");
    let [forged, other, gone @ ..] = &entries(&of("store"))[..] else { panic!("no entries") };
    gone.iter().for_each(|entry| fs::remove_file(entry).unwrap());
    forge(forged);
    let found = exits(directory, &verify, 7);
    assert!(found.contains("not reproduced: 1 of 2 blocks of store, put aside; 1 others were"), "{found}");
    assert!(found.contains("its entry is put aside: store/bpfassay-blocks-1/aside/"), "{found}");
    assert!(!forged.exists() && other.exists());
}
