// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs 17 seeds with real guests, so that each of the 17 faults occurs once. Faults of tools have
//! no drawn parameters, so more seeds would add nothing to them.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints what it skips")]

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

/// Runs `count` seeds from `first` with the testbed's guests, if tests with guests are enabled.
fn seeds(first: u64, count: u64) {
    if env::var("BPFASSAY_VM_TESTS").is_ok_and(|value| value == "required") {
        let manifest = env::var("BPFASSAY_TEST_MANIFEST").unwrap();
        let beside = Path::new(env!("CARGO_BIN_EXE_chaos")).with_file_name("bpfassay");
        let command = env::var_os("BPFASSAY_CHAOS_COMMAND").map_or(beside, PathBuf::from);
        let output = Command::new(env!("CARGO_BIN_EXE_chaos"))
            .args(["--guests", "--verbose", "--manifest", &manifest])
            .args(["--seed", &first.to_string(), "--faults", &count.to_string(), "--bpfassay"])
            .arg(command)
            .output()
            .unwrap();
        let printed = [output.stdout, output.stderr].concat();
        println!("{}", String::from_utf8_lossy(&printed));
        assert!(output.status.success());
    } else {
        println!("skipped: boots guests; set BPFASSAY_VM_TESTS=required (ci/test does)");
    }
}

macro_rules! parts {
    ($($name:ident = $first:literal, $count:literal);+) => {
        $(#[test]
        fn $name() {
            seeds($first, $count);
        })+
    };
}

// Seeds of the host's faults are together, because each is compared with the study without a fault.
parts!(host_seeds_10_to_16 = 10, 7; tool_seeds_17_to_21 = 17, 5; tool_seeds_22_to_26 = 22, 5);
