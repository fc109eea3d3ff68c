// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the engine with recorded calls of a real IOR. Runs everywhere.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests, to which clippy does not extend what it allows in tests"
)]

use crate::common::{Case, Places, allows_direct, cases, expectation, run_engine};

fn check(file: &str, cases: Vec<Case>) {
    let mut expected = expectation::read(&expectation::directory().join(file));
    let is_direct_allowed = allows_direct();
    let mut failures = Vec::new();
    let mut skipped = 0;
    for case in cases {
        let Some((input, expected)) = expected.remove(&case.name) else {
            failures.push(format!("case {}: no expectation", case.name));
            continue;
        };
        if input != expectation::input(&case) {
            failures.push(format!("case {}: recorded for other input: record again", case.name));
            continue;
        }
        if case.is_direct() && !is_direct_allowed {
            skipped += 1;
            continue;
        }
        let places = Places::new();
        let (ours, output) = run_engine(&case, &places);
        if let Some(difference) = ours.comparable(&case).difference(&expected) {
            let messages = String::from_utf8_lossy(&output.stderr);
            failures.push(format!("case {}: {}\n{difference}\n{messages}", case.name, case.describe()));
        }
    }
    if skipped > 0 {
        println!("skipped: {skipped} cases with O_DIRECT, which this file system does not have");
    }
    failures.extend(expected.keys().map(|name| format!("case {name}: recorded, and there is no such case")));
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn generated_combinations() {
    let cases = cases::generated();
    assert!(cases.len() >= 200);
    check("generated.txt", cases);
}

#[test]
fn script_files() {
    check("ior-configs.txt", cases::configs());
}
