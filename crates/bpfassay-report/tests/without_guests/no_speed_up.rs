// SPDX-License-Identifier: MIT OR Apache-2.0
//! A probe adds work. If the recorded `quick` showed a probe that makes something faster, beyond
//! the noise floor of the baseline, the experiment would be wrong.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy.toml spares only the test functions themselves")]

use bpfassay_results::{Figure, Results};
use bpfassay_stats::Bounds;

use crate::common::quick;

/// Returns the rows whose interval lies below that of the control: `x86_64_6.12_quick_nfs4.2_fexit
/// read`. An overhead above 1 means slower.
fn faster(results: &Results) -> (Vec<String>, usize) {
    let mut rows = 0;
    let mut found = Vec::new();
    for cell in &results.cells {
        for metric in &cell.metrics {
            let (Figure::Value(overhead), Figure::Value(control)) = (&metric.overhead, &metric.control) else {
                continue;
            };
            let upper = overhead.estimate.bounds.interval().unwrap().upper;
            let noise = control.estimate.bounds.interval().unwrap().lower;
            rows += 1;
            if upper < noise.min(1.0) {
                found.push(format!("{} {}", cell.cell, metric.name));
            }
        }
    }
    (found, rows)
}

#[test]
fn no_row_of_quick_shows_a_probe_that_speeds_anything_up() {
    let mut results = quick::results();
    let (found, rows) = faster(&results);
    assert_eq!(found, [""; 0]);
    // There are seven targets with two probe configurations and one with one; reads and writes;
    // whole phases and calls.
    assert_eq!(rows, 60);
    // A faster row is found.
    let metric =
        results.cells.iter_mut().flat_map(|cell| &mut cell.metrics).find(|metric| metric.overhead.value().is_some());
    let Figure::Value(overhead) = &mut metric.unwrap().overhead else { panic!("it has a value") };
    let Bounds::Interval(interval) = &mut overhead.estimate.bounds else { panic!("{overhead:?}") };
    (interval.lower, interval.upper) = (0.98, 0.99);
    assert_eq!(faster(&results).0.len(), 1);
}
