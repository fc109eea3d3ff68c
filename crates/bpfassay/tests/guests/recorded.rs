// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares figures of this checkout with those of results/: the only test with guests that
//! `ci/test` runs without `--all`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, path::Path};

use bpfassay_results::{RunRecord, file, fingerprint};

use crate::common::{bpfassay, guests_wanted, printed};

/// Returns the runs of results on `kernel`, by name.
fn runs(path: &Path, kernel: &str) -> BTreeMap<String, RunRecord> {
    let results = file::read(path).unwrap();
    let of_kernel = results.runs.into_iter().map(|run| *run.record).filter(|record| record.block.contains(kernel));
    of_kernel.map(|record| (record.run.clone(), record)).collect()
}

#[test]
fn one_boot_of_each_architecture_gives_the_recorded_figures_of_quick() {
    if !guests_wanted() {
        return;
    }
    // Debian has this kernel for the three architectures.
    const KERNEL: &str = "6.12";
    let directory = tempfile::tempdir().unwrap();
    let mut command = bpfassay(directory.path());
    // This QEMU measured the recorded figures.
    command.args(["run", "quick", "--kernel", KERNEL, "--qemu", "lock", "--yes", "--output", "out"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/quick/results.json.xz");
    let (recorded, found) = (runs(&recorded, KERNEL), runs(&directory.path().join("out/results.json"), KERNEL));
    assert_eq!(found.keys().collect::<Vec<_>>(), recorded.keys().collect::<Vec<_>>());
    for (run, record) in &found {
        assert_eq!(fingerprint([record]), fingerprint([&recorded[run]]), "{run}: the figures are not those recorded");
    }
}
