// SPDX-License-Identifier: MIT OR Apache-2.0
//! The direct cost of probe configurations, in real guests: it is the same in every round, its parts are the whole, and the guests do not see
//! the plugin that counts it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::env;

use common::{bpfassay, guests_wanted, printed, results, study, without_plugins};
use serde_json::Value;

/// Runs the study and gives its results, its fingerprint, and what was printed.
fn run(path: &str) -> (Value, String, String) {
    let directory = tempfile::tempdir().unwrap();
    let mut command = bpfassay(directory.path());
    command.args(["run", "--yes"]);
    if let Some(manifest) = env::var_os("BPFASSAY_TEST_MANIFEST") {
        command.arg("--manifest").arg(manifest);
    }
    let output = command.arg(study("direct.toml")).args(["--output", "out"]).env("PATH", path).output().unwrap();
    let printed = printed(&output);
    assert!(output.status.success(), "{printed}");
    let fingerprint = printed.lines().find_map(|line| line.strip_prefix("fingerprint of the raw figures: ")).unwrap();
    (results(&directory.path().join("out")), fingerprint.to_owned(), printed.clone())
}

/// Each metric that has a direct cost, with where it is from.
fn costs(results: &Value) -> Vec<(String, &Value)> {
    let cells = results["cells"].as_array().unwrap().iter();
    let metrics = cells.flat_map(|cell| {
        let metrics = cell["metrics"].as_array().unwrap().iter();
        metrics.map(|metric| (format!("{} {}", cell["cell"].as_str().unwrap(), metric["name"]), &metric["direct"]))
    });
    metrics.filter(|(_, direct)| !direct.is_null()).collect()
}

#[test]
fn direct_costs_are_exact_and_counting_them_changes_no_figure() {
    if !guests_wanted() {
        return;
    }
    let path = env::var("PATH").unwrap();
    let (counted, with, printed) = run(&path);
    assert!(printed.contains("direct cost in instructions per call"), "{printed}");
    let costs_of = costs(&counted);
    assert!(costs_of.len() >= 10, "{printed}");
    for (place, direct) in &costs_of {
        assert!(direct["value"].is_object(), "{place}: {direct:#}: {printed}");
        let direct = &direct["value"];
        let number = |name: &str| direct["per_call"][name].as_f64().unwrap();
        let (mean, min, max) = (number("mean"), number("min"), number("max"));
        // Measured: 347 to 520 on x86_64, 348 to 830 on aarch64, and on riscv64, whose kernels interpret programs, 2370 to 3180.
        assert!(mean > 100.0 && mean < 5000.0, "{place}: {direct:#}");
        assert!((max - min) / mean <= 0.005, "{place}: {direct:#}");
        let functions = direct["functions"].as_array().unwrap();
        let sum: f64 = functions.iter().map(|function| function["per_call"].as_f64().unwrap()).sum();
        assert!((sum - mean).abs() < 1e-6 * mean, "{place}: {direct:#}");
        for role in ["program", "entry"] {
            assert!(functions.iter().any(|function| function["role"] == role), "{place}: {direct:#}");
        }
    }
    assert!(counted["provenance"][0]["qemu"]["x86_64"]["plugin_api"].is_u64());

    let directory = tempfile::tempdir().unwrap();
    let (uncounted, without, printed) = run(&without_plugins(directory.path()));
    assert!(printed.contains("does not load the plugin"), "{printed}");
    assert!(costs(&uncounted).is_empty(), "{printed}");
    assert_eq!(with, without, "the guests noticed that they were counted");
}
