// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the engine with a real IOR, call by call as strace shows them. The test needs `ior`,
//! `strace` and, for several ranks, `mpiexec` in PATH.
//!
//! If `BPFASSAY_RECORD_EXPECTATIONS=1` is set, the calls of the real IOR are written to
//! `results/ior-expectations/`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests, to which clippy does not extend what it allows in tests"
)]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use bpfassay_ior::Options;
use serde_json::Value;

use crate::common::{
    Case, ENGINE, Job, Observed, Places, cases, expectation, observed, run_engine, skeleton, strace, trace,
};

fn on_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// The required tools. If one is missing, a message is printed.
struct Tools {
    ior: PathBuf,
    mpiexec: Option<PathBuf>,
    strace: PathBuf,
}

impl Tools {
    fn find() -> Option<Self> {
        let Some(ior) = on_path("ior") else {
            println!("skipped: no ior");
            return None;
        };
        let Some(strace) = on_path("strace") else {
            println!("skipped: no strace");
            return None;
        };
        Some(Self { ior, mpiexec: on_path("mpiexec"), strace })
    }
}

fn run_real(tools: &Tools, case: &Case, places: &Places) -> Observed {
    let prefix = places.root.path().join("strace");
    let args = places.args(case);
    let mut command = if case.ranks == 1 {
        let mut command = Command::new(&tools.strace);
        command.args(strace::OPTIONS).arg("-o").arg(format!("{}.0", prefix.display())).arg(&tools.ior);
        command
    } else {
        let mut command = Command::new(tools.mpiexec.as_ref().unwrap());
        let rank = "${PMI_RANK:-$OMPI_COMM_WORLD_RANK}";
        let script = format!(
            r#"exec {} {} -o "{}.{rank}" {} "$@""#,
            tools.strace.display(),
            strace::OPTIONS.join(" "),
            prefix.display(),
            tools.ior.display()
        );
        command.args(["-n", &case.ranks.to_string(), "sh", "-c", &script, "ior"]);
        command
    };
    let output = command.args(args).stdin(Stdio::null()).output().unwrap();
    let ranks = (0..case.ranks)
        .map(|rank| {
            let text = fs::read_to_string(format!("{}.{rank}", prefix.display())).unwrap();
            compacted(strace::lines(&text, &places.data(), None), &places.data())
        })
        .collect();
    observed(places, ranks, output.status.success())
}

/// Runs the engine under strace.
fn run_traced(tools: &Tools, case: &Case, places: &Places) -> Observed {
    let path = places.root.path().join("strace");
    let output = Command::new(&tools.strace)
        .args(strace::OPTIONS)
        .arg("-o")
        .arg(&path)
        .args([ENGINE, "--ranks", &case.ranks.to_string()])
        .args(places.args(case))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = fs::read_to_string(path).unwrap();
    let pids = if case.ranks == 1 { vec![None] } else { strace::children(&text).into_iter().map(Some).collect() };
    assert_eq!(pids.len(), case.ranks as usize);
    let ranks =
        pids.into_iter().map(|pid| compacted(strace::lines(&text, &places.data(), pid), &places.data())).collect();
    observed(places, ranks, output.status.success())
}

fn compacted(lines: Vec<String>, data: &Path) -> Vec<String> {
    trace::compact(lines.into_iter().map(|line| trace::relative(&line, data)))
}

/// Returns the parts of the summary that do not depend on time: settings, and what was moved.
fn settled(places: &Places) -> Value {
    let text = fs::read_to_string(places.summary()).unwrap_or_default();
    let data = places.data().display().to_string();
    let text = skeleton::without_nan(&text).replace(&data, "@");
    let mut value: Value = serde_json::from_str(&text).unwrap_or_default();
    let timed = [
        "bw",
        "OPs",
        "MeanTime",
        "StoneWall",
        "iops",
        "latency",
        "openTime",
        "wrRdTime",
        "closeTime",
        "totalTime",
        "Version",
        "Began",
        "Finished",
        "StartTime",
        "Command line",
        "Used Capacity",
        "Used Inodes",
        "writeM",
        "readM",
    ];
    fn strip(value: &mut Value, timed: &[&str]) {
        match value {
            Value::Array(values) => values.iter_mut().for_each(|value| strip(value, timed)),
            Value::Object(entries) => {
                entries.retain(|key, _| !timed.iter().any(|start| key.starts_with(start)));
                entries.values_mut().for_each(|value| strip(value, timed));
            }
            _ => {}
        }
    }
    strip(&mut value, &timed);
    value
}

fn compare(file: &str, cases: Vec<Case>) {
    let Some(tools) = Tools::find() else { return };
    let is_recording = env::var_os("BPFASSAY_RECORD_EXPECTATIONS").is_some();
    let mut failures = Vec::new();
    let mut record = Vec::new();
    let mut skipped = 0;
    for case in cases {
        if case.ranks > 1 && tools.mpiexec.is_none() {
            skipped += 1;
            continue;
        }
        let (real, traced, recorded) = (Places::new(), Places::new(), Places::new());
        let theirs = run_real(&tools, &case, &real).comparable(&case);
        let ours = run_traced(&tools, &case, &traced).comparable(&case);
        let own_record = run_engine(&case, &recorded).0.comparable(&case);
        for (what, ours) in [("strace", &ours), ("its own record", &own_record)] {
            if let Some(difference) = ours.difference(&theirs) {
                failures.push(format!("case {} ({what}): {}\n{difference}", case.name, case.describe()));
            }
        }
        let (our_values, their_values) = (settled(&traced), settled(&real));
        if our_values != their_values {
            failures.push(format!("case {} (values): {}\n{our_values}\n{their_values}", case.name, case.describe()));
        }
        record.push((case, theirs));
    }
    if skipped > 0 {
        println!("skipped: no mpiexec for {skipped} cases with several ranks");
    }
    println!("{} cases compared with {}", record.len(), tools.ior.display());
    if is_recording {
        fs::create_dir_all(expectation::directory()).unwrap();
        expectation::write(&expectation::directory().join(file), &record);
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn generated_combinations() {
    compare("generated.txt", cases::generated());
}

#[test]
fn script_files() {
    compare("ior-configs.txt", cases::configs());
}

/// The number of transfers of a stonewalled run depends on the time. Comparable are its report, and
/// that all ranks make the same number.
#[test]
fn stonewalled() {
    let Some(tools) = Tools::find() else { return };
    if tools.mpiexec.is_none() {
        println!("skipped: no mpiexec");
        return;
    }
    let options = Options {
        block_size: 1 << 20,
        transfer_size: 4 << 10,
        segments: 64,
        write: true,
        fsync_per_write: true,
        deadline: 1,
        wear_out: true,
        ..Options::default()
    };
    let case = Case { name: "stonewalled".to_owned(), ranks: 2, job: Job::Args(Box::new(options)) };
    let (real, traced) = (Places::new(), Places::new());
    let theirs = run_real(&tools, &case, &real);
    let ours = run_traced(&tools, &case, &traced);
    assert_eq!(ours.skeleton, theirs.skeleton);
    for observed in [ours, theirs] {
        let writes: Vec<usize> =
            observed.ranks.iter().map(|calls| calls.iter().filter(|call| call.starts_with("W ")).count()).collect();
        assert!(writes[0] > 0 && writes[0] == writes[1], "{writes:?}");
    }
}
