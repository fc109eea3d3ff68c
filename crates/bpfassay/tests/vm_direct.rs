// SPDX-License-Identifier: MIT OR Apache-2.0
//! The direct cost of probe configurations, in real guests: it is the same in every round, its parts are the whole, and the guests do not see
//! the plugin that counts it; and one instruction more is found from one run each.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/wrong_tools.rs"]
mod wrong_tools;

use std::{env, fs, path::Path};

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

/// Instructions per call that the tracer takes more where another key has the first slot of its key (`map_percpu.h`), which depends on the identifier of the
/// run's cgroup: 11.0 on x86_64, 2.0 on aarch64.
const SECOND_SLOT: f64 = 11.5;

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
        assert!(max - min <= 0.005 * mean + SECOND_SLOT, "{place}: {direct:#}");
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

/// What `compare` calls of each metric: the change, and the functions that differ, with their roles and by how many instructions per call.
type Called = Vec<(String, String, f64, Vec<(String, String, f64)>)>;

fn called(directory: &Path, base: &str, new: &str) -> Called {
    let output = bpfassay(directory).args(["compare", base, new, "--format", "json"]).output().unwrap();
    let comparison: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", printed(&output)));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let difference = |value: &Value| value[1].as_f64().unwrap() - value[0].as_f64().unwrap();
    let cells = comparison["cells"].as_array().unwrap().iter().filter(|cell| cell["under_test"] == "counter");
    let metrics =
        cells.flat_map(|cell| cell["metrics"].as_array().unwrap()).filter(|metric| !metric["direct"].is_null());
    let of_metric = |metric: &Value| {
        let direct = &metric["direct"]["value"];
        let functions = direct["functions"].as_array().unwrap_or_else(|| panic!("{metric:#}")).iter();
        let functions = functions
            .map(|function| (text(&function["function"]), text(&function["role"]), difference(&function["per_call"])));
        (text(&metric["metric"]), text(&direct["change"]), difference(&direct["per_call"]), functions.collect())
    };
    metrics.map(of_metric).collect()
}

/// Two builds of a tool whose programs differ by one instruction: one run of each is enough, and the same build twice is the same.
#[test]
fn one_instruction_more_in_the_programs_of_a_tool_is_called_from_one_run_each() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/planted");
    for (build, options) in [("base", &[][..]), ("planted", &["-DPLANTED"])] {
        let tool = directory.path().join(build);
        fs::create_dir(&tool).unwrap();
        fs::copy(sources.join("counter.toml"), tool.join("counter.toml")).unwrap();
        let object = tool.join("counter.bpf.o");
        wrong_tools::compile(&wrong_tools::clang(), &sources.join("counter.bpf.c"), options, &object);
    }
    for (out, build) in [("one", "base"), ("same", "base"), ("more", "planted")] {
        let mut command = bpfassay(directory.path());
        command.arg("run").arg(study("one-instruction.toml")).args(["--yes", "--output", out]);
        let output = command.arg("--tool").arg(format!("{build}/counter.toml")).output().unwrap();
        assert!(output.status.success(), "{}", printed(&output));
    }
    let more = called(directory.path(), "one", "more");
    assert_eq!(more.len(), 2, "{more:?}");
    for (metric, change, difference, functions) in &more {
        assert_eq!(change, "increase", "{more:?}");
        let [(function, role, by)] = functions.as_slice() else { panic!("{more:?}") };
        assert_eq!((function.as_str(), role.as_str()), (format!("on_{metric}").as_str(), "program"), "{more:?}");
        // The workload's calls, and the few others that the guest makes in the phase.
        assert!((1.0..1.05).contains(by) && (difference - by).abs() < 0.05, "{more:?}");
    }
    let less = called(directory.path(), "more", "one");
    assert!(less.iter().all(|(_, change, ..)| change == "decrease"), "{less:?}");
    for (new, code) in [("more", 5), ("same", 0)] {
        let output =
            bpfassay(directory.path()).args(["compare", "one", new, "--fail-on", "regression"]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", printed(&output));
    }
    for (metric, change, difference, functions) in called(directory.path(), "one", "same") {
        assert_eq!((change.as_str(), difference), ("equivalent", 0.0), "{metric}");
        assert_eq!(functions, [], "{metric}");
    }
}
