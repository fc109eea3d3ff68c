// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests `ci/action` from a release to its report, with guests; `tests/without_guests/action.rs`
//! uses stored results.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use crate::common::{
    bpfassay, guests_wanted, printed,
    release::{Ended, action, release},
    results,
};

const STUDY: &str = r#"
schema = 1
name = "one"
description = "For a test."
clock = "instructions"
probes = ["none", "fexit"]
[[targets]]
arch = "x86_64"
kernels = "6.12"
[[file_systems]]
type = "nfs"
[[workloads]]
name = "w"
options = "-a POSIX -w -r -t 256k -b 1m"
[design]
replicates = 1
rounds = 1
seed = 1
"#;

#[test]
fn a_release_measures_with_the_guests_of_its_packed_testbed_and_nothing_else() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("one.toml"), STUDY).unwrap();
    for arguments in [
        &["testbed", "fetch", "./one.toml", "--yes", "--manifest-out", "manifest.json"][..],
        &["testbed", "pack", "manifest.json", "--output", "testbed-one"],
    ] {
        let output = bpfassay(directory.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", printed(&output));
    }
    let program = fs::read(env!("CARGO_BIN_EXE_bpfassay")).unwrap();
    let release = release(directory.path(), &program, Some(&directory.path().join("testbed-one")));
    let inputs =
        [("STUDY", "./one.toml"), ("TESTBED", "one"), ("GATES", "byte_error=0, attach=true"), ("STORE", "blocks")];
    let Ended { code, stdout, stderr } = action(directory.path(), &release, &inputs);
    assert_eq!(code, Some(0), "{stdout}\n{stderr}");

    let results = results(&directory.path().join("out/results"));
    let measured =
        results["runs"].as_array().unwrap().iter().filter(|run| run["record"]["outcome"]["type"] == "measured");
    assert!(measured.count() >= 2, "{stdout}");
    // The action used nothing but the release, with a separate cache.
    assert!(directory.path().join("cache/bpfassay").is_dir() && stdout.contains("guests of the packed testbed one"));
    let badge = fs::read_to_string(directory.path().join("out/badge.json")).unwrap();
    assert!(
        badge.contains("\"message\": \"gates: 3 pass; exact, 1 of 1\"") && badge.contains("brightgreen"),
        "{badge}"
    );
    let notice = "::notice title=bpfassay%2C study one::gates: 3 pass; exact, 1 of 1\n";
    assert!(stdout.ends_with(notice) && !stdout.contains("::error") && !stdout.contains("::warning"), "{stdout}");
    assert!(
        fs::read_to_string(directory.path().join("summary")).unwrap().contains("**one: gates: 3 pass; exact, 1 of 1**")
    );

    // The next job does not measure again what the store has.
    fs::rename(directory.path().join("out"), directory.path().join("first")).unwrap();
    let Ended { code, stdout, stderr } = action(directory.path(), &release, &inputs);
    assert_eq!(code, Some(0), "{stdout}\n{stderr}");
    let again = crate::common::results(&directory.path().join("out/results"));
    let outcomes = |of: &serde_json::Value| -> Vec<_> {
        of["runs"].as_array().unwrap().iter().map(|run| run["record"]["outcome"].clone()).collect()
    };
    assert_eq!(outcomes(&again), outcomes(&results));
    assert!(!again["boots"][0]["reused"].is_null() && results["boots"][0]["reused"].is_null(), "{:#}", again["boots"]);
}
