// SPDX-License-Identifier: MIT OR Apache-2.0
//! A study that is measured in shards: the merged results equal those of one run, even if a shard
//! was killed.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints progress")]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
};

use serde_json::Value;

use crate::common::{guests_wanted, on_aarch64, printed, results, uncounted};

/// Runs the command in `directory` and returns its output.
fn exits(directory: &Path, arguments: &[&str], code: i32) -> String {
    let output = uncounted(directory).args(arguments).output().unwrap();
    let printed = printed(&output);
    println!("{arguments:?}\n{printed}");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {printed}");
    printed
}

fn fingerprint(printed: &str) -> String {
    let line = printed.lines().find_map(|line| line.strip_prefix("fingerprint of the raw figures: "));
    line.unwrap().to_owned()
}

/// Removes what differs between two runs of the same study on one host. These are the digests of
/// the file and of the journal, the host's times, and the paths in QEMU's command lines.
fn comparable(mut value: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for key in ["digest", "journal", "started_unix_ms", "duration_ms", "ready_after_ms", "jobs"] {
                    map.remove(key);
                }
                map.values_mut().for_each(strip);
            }
            Value::Array(all) => all.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut value);
    // The two guests of the whole run can end in another order than that of the plan.
    let sorted = |list: &mut Value, key: fn(&Value) -> String| list.as_array_mut().unwrap().sort_by_key(key);
    sorted(&mut value["runs"], |run| run["record"]["run"].to_string());
    sorted(&mut value["boots"], |boot| boot["block"].to_string());
    value
}

/// Kills a run of `arguments` with SIGKILL once one of its runs has ended.
fn killed(directory: &Path, arguments: &[&str]) {
    let mut command = uncounted(directory);
    let mut child = command.args(arguments).args(["--message-format", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    let events = BufReader::new(child.stdout.take().unwrap());
    let ended = events.lines().find(|line| line.as_ref().unwrap().contains("\"event\":\"run_ended\""));
    assert!(ended.is_some(), "no run ended");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn merged_shards_are_what_one_run_measures() {
    if !guests_wanted() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();
    let study = on_aarch64("shards.toml", directory);
    let run = ["run", study.to_str().unwrap(), "--yes", "--offline"];
    let with = |more: &[&'static str]| -> Vec<String> { run.iter().chain(more).map(|&text| text.to_owned()).collect() };
    let go = |more: &[&'static str], code| {
        let arguments = with(more);
        exits(directory, &arguments.iter().map(String::as_str).collect::<Vec<_>>(), code)
    };
    let whole = go(&["--output", "whole"], 0);

    let first = go(&["--shard", "1/2", "--output", "1"], 0);
    assert!(first.contains("shard 1 of 2") && !first.contains("aarch64 7.2"), "{first}");

    // The missing boots are named.
    let refused = exits(directory, &["cluster", "merge", "out", "1"], 2);
    assert!(refused.contains("2 of 4 boots are missing: aarch64_7.2_small_tmpfs_1"), "{refused}");
    go(&["--shard", "2/2", "--output", "2"], 0);
    let refused = exits(directory, &["cluster", "merge", "out", "1", "2", "1"], 2);
    assert!(refused.contains("both have the block aarch64_6.12_small_tmpfs_1"), "{refused}");
    assert!(!directory.join("out").exists());

    // Everything but times of the host is equal: plan, provenance, boots, runs, cells, gates.
    let merged = exits(directory, &["cluster", "merge", "out", "2", "1"], 0);
    assert_eq!(fingerprint(&merged), fingerprint(&whole));
    let [of_merged, of_whole] = ["out", "whole"].map(|name| comparable(results(&directory.join(name))));
    for (key, of_whole) in of_whole.as_object().unwrap() {
        assert_eq!(&of_merged[key], of_whole, "{key}");
    }
    assert_eq!(of_merged.as_object().unwrap().len(), of_whole.as_object().unwrap().len());

    // One shard is killed in its first boot, and continued.
    let arguments = with(&["--shard", "2/2", "--output", "killed"]);
    killed(directory, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let refused = exits(directory, &["cluster", "merge", "again", "1", "killed"], 2);
    assert!(refused.contains("killed cannot be merged: results.json: it does not exist"), "{refused}");
    let refused = exits(directory, &["run", "--resume", "killed", "--shard", "1/2"], 2);
    assert!(refused.contains("this run is shard 2 of 2 of a study, and --shard requests 1/2"), "{refused}");
    exits(directory, &["run", "--resume", "killed", "--shard", "2/2", "--yes", "--offline"], 0);
    let again = exits(directory, &["cluster", "merge", "again", "1", "killed"], 0);
    assert_eq!(fingerprint(&again), fingerprint(&whole));

    exits(directory, &["verify", "out", "--files"], 0);
    exits(directory, &["compare", "whole", "out", "--fail-on", "regression"], 0);
    let listed = exits(directory, &["list", "results", "1", "out"], 0);
    assert!(listed.contains("shards, shard 1 of 2, instructions, 4 of 4 runs"), "{listed}");
    exits(directory, &["verify", "1", "--sample", "1", "--offline", "--yes"], 0);

    // A partial merge is continued like any run.
    let part = exits(directory, &["cluster", "merge", "part", "1", "--partial"], 3);
    assert!(part.contains("2 of 4 boots are missing; continue with: bpfassay run --resume part"), "{part}");
    let continued = exits(directory, &["run", "--resume", "part", "--yes", "--offline"], 0);
    assert_eq!(fingerprint(&continued), fingerprint(&whole));
    assert_eq!(fs::read_dir(directory.join("part/logs")).unwrap().count(), 4);
}
