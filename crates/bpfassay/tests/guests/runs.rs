// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command with real guests, on the three architectures.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints what it skips")]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::common::{bpfassay, guests_wanted, printed, results, run, study, uncounted, under_load};

fn cells(results: &Value) -> &Vec<Value> {
    results["cells"].as_array().unwrap()
}

/// Checks that the byte error of every interval of `row` is 0.
fn assert_exact(cell: &str, row: &Value, figure: &str) {
    let errors = &row[figure]["value"];
    assert!(errors["intervals"].as_u64().is_some_and(|n| n > 0), "{cell} {figure}: {row:#}");
    assert_eq!(errors["exact"], errors["intervals"], "{cell} {figure}: {errors:#}");
    assert_eq!(errors["not_measured"], 0, "{cell} {figure}: {errors:#}");
}

/// Counts the probe configurations of each target in `results`. Checks that every guest booted, and
/// that every byte was counted.
fn counted_on_targets(directory: &Path, results: &Value) -> BTreeMap<String, u32> {
    let mut targets = BTreeMap::<String, u32>::new();
    for cell in cells(results) {
        let id = cell["cell"].as_str().unwrap();
        *targets.entry(format!("{} {}", cell["target"]["arch"], cell["target"]["kernel"])).or_default() += 1;
        assert_eq!(cell["runs"]["failed"], 0, "{id}: {cell:#}");
        let probe = cell["probe"].as_str().unwrap();
        if probe == "fexit" && cell["target"]["arch"] == "aarch64" && cell["target"]["kernel"] == "6.1" {
            let attach = &cell["attach"];
            assert_eq!(
                (attach["outcome"].as_str(), &attach["expected"]),
                (Some("refused"), &Value::Bool(true)),
                "{attach:#}"
            );
            assert_eq!(attach["refusal"]["errno"], 524, "{attach:#}");
            continue;
        }
        assert_eq!(cell["runs"]["measured"], cell["runs"]["planned"], "{id}: {cell:#}");
        let (metrics, accuracy) = (cell["metrics"].as_array().unwrap(), cell["accuracy"].as_array().unwrap());
        let names: Vec<&str> = metrics.iter().map(|metric| metric["name"].as_str().unwrap()).collect();
        assert_eq!(
            (names.as_slice(), accuracy.len()),
            (["write", "read", "write-call", "read-call"].as_slice(), 2),
            "{id}"
        );
        for (metric, row) in metrics.iter().zip(accuracy) {
            assert!(metric["value"]["value"].is_object(), "{id}: {metric:#}");
            assert_exact(id, row, "mountstats_error");
            // Every call of this workload moves all requested bytes, so requested bytes are exact,
            // too.
            if probe != "none" {
                assert_eq!(cell["attach"]["outcome"], "attached", "{id}");
                assert_exact(id, row, "byte_error");
            }
        }
    }
    for boot in results["boots"].as_array().unwrap() {
        assert_eq!(boot["failure"], Value::Null, "{boot:#}");
        assert!(boot["facts"]["kernel_release"].is_string());
        assert!(boot["facts"]["mitigations"].is_object());
        assert!(boot["facts"]["mount"]["file_system"].as_str().is_some_and(|name| name.starts_with("nfs")));
        let log = directory.join("out").join(boot["log"].as_str().unwrap());
        assert!(log.exists(), "{}", log.display());
    }
    // Real results conform to the published schema.
    let schema: Value =
        serde_json::from_slice(&bpfassay(directory).args(["generate", "schema", "results"]).output().unwrap().stdout)
            .unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(results).take(5).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    targets
}

/// Covers all targets except for those of `programs_in_rust_…`.
#[test]
fn every_target_boots_and_counts_every_byte() {
    if !guests_wanted() {
        return;
    }
    let (directory, results) = run("every-target.toml", 0);
    let targets = counted_on_targets(directory.path(), &results);
    assert_eq!(targets.len(), 5, "{targets:?}");
    assert!(targets.values().all(|&probes| probes == 3), "{targets:?}");
}

#[test]
fn every_file_system_counts_every_byte() {
    if !guests_wanted() {
        return;
    }
    let (_directory, results) = run("file-systems.toml", 0);
    let mut seen = Vec::new();
    for cell in cells(&results).iter().filter(|cell| cell["probe"] == "fexit") {
        let id = cell["cell"].as_str().unwrap();
        let is_script = cell["case"] == "overwrite-and-reread";
        if !is_script {
            seen.push(cell["file_system"].as_str().unwrap().to_owned());
        }
        for row in cell["accuracy"].as_array().unwrap() {
            assert_exact(id, row, "byte_error");
        }
    }
    assert_eq!(seen, ["nfs3", "nfs4.1", "nfs4.2-nolocalio", "tmpfs"]);
    // The second test overwrites the file of the first one, and the third one reads it.
    let runs = results["runs"].as_array().unwrap().iter();
    let of_script: Vec<&Value> =
        runs.filter(|run| run["record"]["cell"].as_str().unwrap().contains("overwrite-and-reread")).collect();
    assert_eq!(of_script.len(), 8, "two probe configurations on four file systems");
    for run in of_script {
        let tests = |metric: &str| -> Vec<u64> {
            let metrics = run["derived"]["metrics"].as_array().unwrap().iter();
            let repetitions = metrics.filter(|found| found["name"] == metric).map(|found| &found["repetitions"]);
            repetitions.flat_map(|all| all.as_array().unwrap()).map(|one| one["test"].as_u64().unwrap()).collect()
        };
        assert_eq!((tests("write"), tests("read")), (vec![0, 1], vec![2]), "{run:#}");
    }
}

/// Returns the raw figures of every run, by name.
fn figures(results: &Value) -> BTreeMap<String, Value> {
    let runs = results["runs"].as_array().unwrap().iter();
    runs.map(|run| (run["record"]["run"].as_str().unwrap().to_owned(), run["record"]["outcome"].clone())).collect()
}

/// Returns the output of the command, which must exit with `code`.
fn done(command: &mut Command, code: i32) -> String {
    let output = command.output().unwrap();
    let printed = printed(&output);
    assert_eq!(output.status.code(), Some(code), "{printed}");
    printed
}

/// The study is measured several times:
/// - two guests in parallel on an idle host
/// - one after the other under load, from copies of the study and the guests in other directories,
///   with another cache
/// - by `verify`, also with guests from a bundle, an empty cache and no network
#[test]
fn the_instruction_clock_gives_the_same_figures_everywhere() {
    if !guests_wanted() {
        return;
    }
    let (here, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // One architecture is enough: quick's fingerprint is compared on all three (results/quick).
    let counting =
        ["--clock", "instructions", "--yes", "--output", "out", "--arch", "aarch64", "--probe", "none,kprobe"];
    let two = ["--jobs", "2", "--replicates", "2"];
    done(bpfassay(here.path()).arg("run").arg(study("smoke.toml")).args(counting).args(two), 0);
    let idle = results(&here.path().join("out"));

    let other = elsewhere.path().join("another/checkout");
    fs::create_dir_all(&other).unwrap();
    fs::copy(study("smoke.toml"), other.join("smoke.toml")).unwrap();
    done(
        bpfassay(here.path()).args(["testbed", "fetch"]).arg(study("smoke.toml")).args([
            "--yes",
            "--manifest-out",
            "here.json",
        ]),
        0,
    );
    done(bpfassay(here.path()).args(["testbed", "pack", "here.json", "--output"]).arg(other.join("testbed")), 0);
    let loaded = under_load(|| {
        let mut run = bpfassay(&other);
        run.args(["run", "./smoke.toml", "--manifest", "testbed/manifest.json", "--cache", "cache"]);
        // Another cache has no record of whether KVM works, which does not matter to this clock.
        done(run.args(counting).args(["--accelerator", "tcg"]), 0);
        results(&other.join("out"))
    });
    let verified = done(bpfassay(here.path()).args(["verify", "out", "--sample", "1", "--yes"]), 0);
    assert!(verified.contains("1 of 2 boots, 2 runs: identical raw figures"), "{verified}");
    let bundled = done(bpfassay(here.path()).args(["testbed", "bundle", "out", "--output", "guests.bundle"]), 0);
    assert!(bundled.contains("aarch64  6.1"), "{bundled}");
    let has_qemu = bundled.contains("in it: QEMU 1:7.2");
    assert!(has_qemu || bundled.contains("not in it: QEMU; the run was measured with"), "{bundled}");
    for name in ["out", "guests.bundle"] {
        fs::rename(here.path().join(name), other.join(format!("carried-{name}"))).unwrap();
    }
    let carried = ["--bundle", "carried-guests.bundle", "--offline", "--cache", "empty", "--sample", "1", "--yes"];
    let mut verify = bpfassay(&other);
    if has_qemu {
        // No QEMU, apt, dpkg or tar of the host is available.
        verify.env("PATH", &other).env_remove("BPFASSAY_QEMU");
    }
    let verified = done(verify.args(["verify", "carried-out"]).args(carried), 0);
    assert!(verified.contains("1 of 2 boots, 2 runs: identical raw figures"), "{verified}");
    let (idle, loaded) = (figures(&idle), figures(&loaded));
    // The load was on for one of the two boots.
    assert_eq!((idle.len(), loaded.len()), (4, 2));
    assert!(idle.iter().all(|(_, outcome)| outcome["type"] == "measured"), "{idle:#?}");
    for (run, outcome) in &loaded {
        assert!(idle[run] == *outcome, "{run} differs:\n{outcome:#}\n{:#}", idle[run]);
    }
}

/// Compares a tracer that adds a third of a per cent to reads with the previous one: one run of
/// five rounds each.
#[test]
fn a_regression_of_less_than_half_a_per_cent_is_found() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let measurements = [("planted.toml", "base"), ("planted-slower.toml", "new")].map(|(name, out)| {
        let mut run = uncounted(directory.path());
        run.arg("run").arg(study(name)).args(["--jobs", "1", "--yes", "--output", out]);
        run
    });
    std::thread::scope(|scope| {
        for mut run in measurements {
            scope.spawn(move || done(&mut run, 0));
        }
    });
    let compare = |base: &str, new: &str, code: i32| -> Value {
        let arguments = ["compare", base, new, "--format", "json", "--fail-on", "regression"];
        let output = bpfassay(directory.path()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", printed(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let found = compare("base", "new", 5);
    let cell = found["cells"].as_array().unwrap().iter().find(|cell| cell["under_test"] == "fexit").unwrap();
    let read = cell["metrics"].as_array().unwrap().iter().find(|metric| metric["metric"] == "read").unwrap();
    assert_eq!(read["change"], "increase", "{read:#}");
    let ratio = read["ratio"]["value"]["estimate"]["value"].as_f64().unwrap();
    assert!((1.002..1.005).contains(&ratio), "planted were 0.33 %: {ratio}");
    // Neither is a regression against itself.
    compare("base", "base", 0);
    compare("new", "new", 0);
}

#[test]
fn boots_go_on_until_intervals_are_narrow() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // Three boots of one round each leave wide intervals, but not that wide.
    let arguments = ["--arch", "aarch64", "--probe", "kprobe", "--clock", "instructions", "--replicates", "20"];
    let mut run = uncounted(directory.path());
    run.arg("run").arg(study("smoke.toml")).args(arguments).args(["--until", "2000%", "--yes", "--output", "out"]);
    let printed = done(&mut run, 0);
    assert!(printed.contains("of at most 20 boots: stopped after 3: every interval is within 2000%"), "{printed}");
    let first = results(&directory.path().join("out"));
    assert_eq!(first["boots"].as_array().unwrap().len(), 3);
    assert_eq!(first["sampling"][0]["end"], "narrow_enough", "{:#}", first["sampling"]);
    // A study that stopped does not continue.
    done(uncounted(directory.path()).args(["run", "--resume", "out", "--yes"]), 0);
    assert_eq!(figures(&results(&directory.path().join("out"))), figures(&first));
}

#[test]
fn a_run_that_hangs_passes_its_deadline() {
    if !guests_wanted() {
        return;
    }
    let (_directory, results) = run("deadline.toml", 4);
    let kinds: Vec<&str> = results["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["record"]["outcome"]["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["phase_timeout", "phase_timeout"], "{results:#}");
    // The baseline hangs by itself in any order, which is tried twice.
    assert!((2..=3).contains(&results["boots"].as_array().unwrap().len()), "{:#}", results["boots"]);
}

#[test]
fn interrupted_and_resumed_does_every_run_once() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut child = bpfassay(directory.path())
        .arg("run")
        .arg(study("every-target.toml"))
        .args(["--yes", "--arch", "x86_64", "--probe", "none,kprobe", "--jobs", "1", "--output", "out"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Send Ctrl-C once the first run is reported as measured, and drain the rest of the output.
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.by_ref().map_while(Result::ok).find(|line| line.contains(": measured in"));
    assert!(first.is_some());
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    lines.by_ref().for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(130));

    let journal = directory.path().join("out/journal.jsonl");
    let done = |text: &str| {
        text.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|entry| entry["entry"] == "run")
            .map(|entry| entry["run"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let before = done(&fs::read_to_string(&journal).unwrap());
    assert!(!before.is_empty() && before.len() < 6, "{before:?}");
    // A crash in the middle of a line would leave this.
    let mut torn = fs::OpenOptions::new().append(true).open(&journal).unwrap();
    std::io::Write::write_all(&mut torn, b"{\"entry\":\"run\",\"run\":\"x86").unwrap();
    drop(torn);

    let output = bpfassay(directory.path()).args(["run", "--yes", "--resume", "out"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    let mut after = done(&fs::read_to_string(&journal).unwrap());
    after.sort();
    after.dedup();
    assert_eq!(after.len(), 6, "2 kernels, 2 probe configurations and the control");
    // The interrupted block was measured again, whole in another boot, and nothing else.
    let runs = results(&directory.path().join("out"))["runs"].take();
    let of_boot = |boot: u64| runs.as_array().unwrap().iter().filter(|run| run["record"]["boot"] == boot).count();
    assert_eq!((of_boot(1), of_boot(2)), (3, 3));
}

#[test]
fn programs_in_rust_count_what_programs_in_c_count() {
    if !guests_wanted() {
        return;
    }
    let (directory, results) = run("loaders.toml", 0);
    let targets = counted_on_targets(directory.path(), &results);
    assert_eq!(targets.len(), 3, "{targets:?}");
    assert!(targets.values().all(|&probes| probes == 8), "{targets:?}");
    let mut attached = BTreeMap::<String, Vec<String>>::new();
    for cell in cells(&results) {
        let (id, probe) = (cell["cell"].as_str().unwrap(), cell["probe"].as_str().unwrap());
        assert_eq!(cell["runs"]["failed"], 0, "{id}: {cell:#}");
        if probe == "none" || cell["attach"]["expected"] == true {
            continue;
        }
        assert_eq!(cell["attach"]["outcome"], "attached", "{id}: {:#}", cell["attach"]);
        for row in cell["accuracy"].as_array().unwrap() {
            assert_exact(id, row, "byte_error");
            assert_exact(id, row, "call_error");
        }
        attached.entry(probe.to_owned()).or_default().push(cell["target"]["arch"].as_str().unwrap().to_owned());
    }
    for probe in ["kprobe@aya", "fexit@aya", "fexit+lru-shared@aya", "uprobe@aya"] {
        assert_eq!(attached.get(probe).map(Vec::len), Some(3), "{probe}: {attached:?}");
    }
}

#[test]
fn what_kernels_offer_is_as_expected() {
    if !guests_wanted() {
        return;
    }
    let (_directory, results) = run("kernel-features.toml", 0);
    let matrix = &results["kernel_features"];
    assert_eq!(matrix["targets"].as_array().unwrap().len(), 2);
    for row in matrix["configurations"].as_array().unwrap() {
        for cell in row["cells"].as_array().unwrap() {
            assert_eq!(cell["verdict"], "works", "{row:#}");
            let counted = &cell["counted"]["value"];
            assert_eq!((&counted["call_error"], &counted["byte_error"]), (&0.into(), &0.into()), "{row:#}");
            // 64 writes and 64 reads of 4 KiB.
            assert!(counted["calls"].as_u64().unwrap() >= 128, "{counted:#}");
            assert!(cell["programs"]["value"]["jited_bytes"].as_u64().unwrap() > 0, "{row:#}");
        }
    }
    let features = matrix["features"].as_array().unwrap();
    assert!(features.len() > 200, "{}", features.len());
    // Neither x86_64 6.1 nor aarch64 6.12 has fprobe or the functions for strings; aarch64 6.12 has
    // arenas.
    let verdicts = |kind: &str, name: &str| {
        let row = features.iter().find(|row| row["kind"] == kind && row["name"] == name).unwrap();
        row["cells"].as_array().unwrap().iter().map(|cell| cell["verdict"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(verdicts("kfunc", "fexit/bpf_strcmp"), ["refused", "refused"]);
    assert_eq!(verdicts("attach-type", "kprobe.multi"), ["refused", "refused"]);
    assert_eq!(verdicts("construct", "arena"), ["refused", "works"]);
    assert_eq!(verdicts("map-type", "ringbuf"), ["works", "works"]);
}

#[test]
fn a_wrong_expectation_of_a_feature_fails_the_run_in_either_direction() {
    if !guests_wanted() {
        return;
    }
    let (_directory, results) = run("kernel-features-wrong.toml", 4);
    let features = results["kernel_features"]["features"].as_array().unwrap();
    let surprises: Vec<(&str, &str)> = features
        .iter()
        .map(|row| (row["name"].as_str().unwrap(), row["cells"][0]["verdict"].as_str().unwrap()))
        .filter(|(_, verdict)| verdict.starts_with("unexpected"))
        .collect();
    assert_eq!(surprises, [("ringbuf", "unexpected_success"), ("fexit/bpf_strcmp", "unexpected_refusal")]);
}
