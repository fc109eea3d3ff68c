// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the script files in `ior-configs/` are valid and state their purpose.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests, to which clippy does not extend what it allows in tests"
)]

use std::{collections::BTreeMap, fs, path::Path};

use bpfassay_ior::{Api, Invocation, IorPlan};
use bpfassay_protocol::with_causes;

fn plans() -> BTreeMap<String, IorPlan> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ior-configs");
    let mut plans = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# "), "{}: no comment about what it is for", path.display());
        let names_a_file = text.lines().any(|line| line.trim().to_ascii_lowercase().starts_with("testfile"));
        assert!(!names_a_file, "{}: the runner names the file", path.display());
        let plan = Invocation::parse(["-f", "script", "-o", "t"]).unwrap().plan(Some(&text));
        let plan = plan.unwrap_or_else(|error| panic!("{}: {}", path.display(), with_causes(&error)));
        plans.insert(path.file_stem().unwrap().to_str().unwrap().to_owned(), plan);
    }
    plans
}

#[test]
fn every_file_is_valid_and_every_test_can_be_given_as_arguments() {
    for (name, plan) in plans() {
        for test in &plan.tests {
            let args = test.to_args();
            let again = Invocation::parse(args.iter().map(String::as_str)).unwrap().plan(None).unwrap();
            assert_eq!(again.tests, std::slice::from_ref(test), "{name}");
        }
    }
}

#[test]
fn the_published_experiment_has_its_transfer_sizes_and_repetitions_on_both_interfaces() {
    let plans = plans();
    for (name, api) in [("ceems-ior-posix", Api::Posix), ("ceems-ior-mpiio", Api::MpiIo)] {
        let tests = &plans[name].tests;
        let sizes: Vec<u64> = tests.iter().map(|test| test.transfer_size >> 20).collect();
        assert_eq!(sizes, [1, 2, 4, 8, 16]);
        assert!(tests.iter().all(|test| test.api == api && test.repetitions == 8 && test.read && test.write));
    }
}

#[test]
fn the_quick_workload_is_small() {
    let plans = plans();
    let [test] = plans["quick"].tests.as_slice() else { panic!("one test") };
    assert!(test.read && test.write && !test.keep);
    assert!(test.aggregate_size(1).unwrap() <= 64 << 20);
}
