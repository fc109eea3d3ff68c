// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conditions under which phases run: a program in the guest reports them while it is measured.
#![allow(clippy::unwrap_used, clippy::panic, clippy::float_cmp, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use crate::common::{guests_wanted, run_uncounted};

/// Settings that hold in a phase with fixed scheduling.
const SETTINGS: [&str; 8] =
    ["agent", "share", "statistics", "lists", "single-pages", "background", "huge-pages", "dirty"];

#[test]
fn phases_run_under_the_conditions_that_the_study_asks_for() {
    if !guests_wanted() {
        return;
    }
    let (_directory, found) = run_uncounted("steady.toml", 0);
    let mut by_cell = BTreeMap::new();
    for run in found["runs"].as_array().unwrap() {
        let metrics = run["derived"]["metrics"].as_array().unwrap();
        let figures: BTreeMap<&str, f64> = metrics
            .iter()
            .map(|metric| (metric["name"].as_str().unwrap(), metric["value"]["value"].as_f64().unwrap()))
            .collect();
        by_cell.insert(run["record"]["cell"].as_str().unwrap(), figures);
    }
    let of = |file_system: &str| &by_cell[format!("x86_64_6.12_conditions_{file_system}_none").as_str()];
    let (fixed, kernel) = (of("nfs4.2"), of("nfs4.2-kernel"));
    // The metrics exceed the number of fixed threads by one, so that none is 0.
    let all_but =
        |figures: &BTreeMap<&str, f64>, name: &str| figures[name] + 1.0 - figures[format!("{name}-fixed").as_str()];
    assert!((all_but(fixed, "nfsd"), all_but(fixed, "ksoftirqd")) == (0.0, 0.0) && fixed["nfsd"] >= 1.0, "{fixed:?}");
    // Threads that appear during a phase are fixed from the next phase on.
    assert!(fixed["kworker-fixed"] > 4.0 && all_but(fixed, "kworker") <= 3.0, "{fixed:?}");
    for setting in SETTINGS {
        assert_eq!(fixed[setting], 1.0, "{setting}: {fixed:?}");
    }
    // The kernel decides without fixed scheduling how many free pages the CPU's lists have (Linux
    // adapts their size since 6.7).
    assert_eq!(fixed["free-pages"], 1.0, "{fixed:?}");
    for threads in ["nfsd", "kworker", "ksoftirqd"] {
        assert_eq!(kernel[format!("{threads}-fixed").as_str()], 1.0, "{kernel:?}");
    }
    for setting in SETTINGS {
        assert_eq!(kernel[setting], 2.0, "{setting}: {kernel:?}");
    }
    // The workload is an ordinary process in both cases.
    assert_eq!((fixed["workload"], kernel["workload"]), (1.0, 1.0));
    // The facts of the guest tell how many threads got a priority at its start.
    let facts = found["boots"].as_array().unwrap().iter().map(|boot| &boot["facts"]["fixed_threads"]);
    let counts: Vec<Option<u64>> = facts.map(|threads| threads["nfsd"].as_u64()).collect();
    assert_eq!(counts.iter().filter(|count| count.is_some_and(|nfsd| nfsd >= 1)).count(), 1, "{counts:?}");
}
