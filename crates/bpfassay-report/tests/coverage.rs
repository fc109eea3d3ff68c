//! What the tracer saw of each path of the workload `io-paths`, and how that is shown.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

mod common;

use std::collections::BTreeMap;

use bpfassay_protocol::{
    Arch, IoPath, Operation, ProbeConfiguration,
    io_path::{Amount, PathReport, RefusedCall, Summary},
    message::{Interval, Reading, RunFigures, WorkloadPhase},
    operation::Totals,
    probe::Probe,
    tracer::{CounterRow, Sample},
};
use bpfassay_report::{
    Figure, Outcome, Results, derive,
    render::{Style, markdown, text},
    results::PathCoverage,
};
use bpfassay_study::Study;
use common::{CGROUP, DEVICE, contents, figures, not_supported};

const SIZE: u64 = 65_536;

fn study() -> Study {
    let text = r#"
schema = 1
name = "paths"
description = "For tests."
clock = "wall"
probes = ["none", "kprobe", "fexit"]
[[targets]]
arch = ["x86_64", "aarch64", "riscv64"]
kernels = "6.12"
[[file_systems]]
type = "nfs"
[[workloads]]
type = "io-paths"
size = 65536
[design]
replicates = 1
seed = 1
control = false
"#;
    Study::parse("paths.toml", text, &|_| Ok(None)).unwrap()
}

/// What the workload's calls return.
fn ledger(path: IoPath) -> BTreeMap<Operation, Totals> {
    let of = |amount| match amount {
        Amount::Whole => Totals { calls: 4, bytes: SIZE, errors: 0 },
        Amount::Pages => Totals { calls: 0, bytes: SIZE, errors: 0 },
        Amount::Nothing => Totals { calls: 8, bytes: 0, errors: 0 },
        Amount::Errors => Totals { calls: 8, bytes: 0, errors: 8 },
        Amount::NoCall => Totals::default(),
    };
    path.owed().iter().map(|owed| (owed.operation, of(owed.amount))).collect()
}

/// What a probe on `vfs_read` and `vfs_write` sees of that.
fn seen(probe: Probe, path: IoPath, operation: Operation, returned: Totals) -> Totals {
    let plain = matches!(operation, Operation::Read | Operation::Write)
        && path.calls().split([' ', ',', '(']).any(|call| ["read", "write", "pread64", "pwrite64"].contains(&call));
    match (plain, probe, path) {
        (true, Probe::Kprobe, IoPath::ShortRead) => Totals { bytes: 2 * SIZE, ..returned },
        (true, Probe::Kprobe, _) => Totals { errors: 0, ..returned },
        (true, _, IoPath::PosixAioRead) => Totals { calls: 3, bytes: SIZE - 100, errors: 0 },
        (true, ..) => returned,
        // A second call for the same bytes.
        (false, Probe::Fexit, IoPath::SpliceOut) => Totals { calls: 8, bytes: 2 * SIZE, errors: 1 },
        _ => Totals::default(),
    }
}

fn paths(probe: ProbeConfiguration) -> RunFigures {
    let refused = |path| {
        (path == IoPath::Preadv2Nowait).then(|| RefusedCall {
            call: "preadv2".to_owned(),
            errno: 95,
            message: "Operation not supported (os error 95)".to_owned(),
        })
    };
    let mut counted = BTreeMap::<Operation, Totals>::new();
    let reading = |counted: &BTreeMap<Operation, Totals>| Reading {
        tracer: (!probe.is_baseline()).then(|| Sample {
            monotonic_ns: 1,
            label: None,
            // Another cgroup's and another mount's rows are not the workload's.
            rows: [(CGROUP, DEVICE, 0), (CGROUP + 1, DEVICE, 77)]
                .into_iter()
                .flat_map(|(cgroup, device, extra)| {
                    counted.iter().map(move |(&operation, &totals)| CounterRow {
                        cgroup,
                        device,
                        mount: 30,
                        path: None,
                        operation,
                        totals: Totals { bytes: totals.bytes + extra * totals.calls, ..totals },
                        latency: Vec::new(),
                    })
                })
                .collect(),
            losses: Default::default(),
        }),
        mountstats: None,
        ..common::reading(probe, 1, 0, 0)
    };
    let mut phases = Vec::new();
    for &path in IoPath::ALL {
        let before = reading(&counted);
        let ledger = ledger(path);
        for (&operation, &totals) in &ledger {
            *counted.entry(operation).or_default() += seen(probe.probe, path, operation, totals);
        }
        let interval = Interval { before, after: reading(&counted) };
        phases.push(WorkloadPhase { name: path.name().to_owned(), test: 0, repetition: 0, ledger, interval });
    }
    let paths = IoPath::ALL.iter().map(|&path| PathReport { path, refused: refused(path) }).collect();
    RunFigures {
        engine: None,
        summary: serde_json::to_string(&Summary { size: SIZE, paths }).unwrap(),
        phases,
        ..figures(probe, 100.0, 100.0)
    }
}

fn results() -> Results {
    derive(&contents(&study(), |block, run| match (block.target.arch, run.order.probe.probe) {
        (Arch::Aarch64, Probe::Fexit) => Outcome::Refused(not_supported()),
        _ => Outcome::Measured(Box::new(paths(run.order.probe))),
    }))
}

fn coverage<'a>(results: &'a Results, probe: &str, path: IoPath) -> Vec<&'a PathCoverage> {
    let run =
        results.runs.iter().find(|run| run.record.cell == format!("x86_64_6.12_io-paths_nfs4.2_{probe}")).unwrap();
    run.derived.as_ref().unwrap().coverage.iter().filter(|row| row.path == path).collect()
}

#[test]
fn differences_are_exact_and_of_the_right_rows() {
    let results = results();
    let difference = |probe, path| {
        let rows = coverage(&results, probe, path);
        let difference = rows[0].difference.value().unwrap();
        (difference.bytes, difference.calls, difference.errors)
    };
    assert_eq!(difference("fexit", IoPath::Pread), (0, Some(0), 0));
    assert_eq!(difference("fexit", IoPath::FailedRead), (0, Some(0), 0));
    assert_eq!(difference("fexit", IoPath::PosixAioRead), (-100, Some(-1), 0));
    assert_eq!(difference("fexit", IoPath::SpliceOut), (SIZE as i64, Some(4), 1));
    assert_eq!(difference("fexit", IoPath::MapRead), (-(SIZE as i64), None, 0));
    assert_eq!(difference("kprobe", IoPath::ShortRead), (SIZE as i64, Some(0), 0));
    assert_eq!(coverage(&results, "fexit", IoPath::CopyFileRange).len(), 2);
}

#[test]
fn what_was_not_done_has_no_figures_but_its_error() {
    let results = results();
    let row = coverage(&results, "fexit", IoPath::Preadv2Nowait)[0];
    assert_eq!(row.refused.as_ref().unwrap().errno, 95);
    assert!(row.moved.reason().unwrap().starts_with("not done: preadv2: Operation not supported"));
    assert!(row.difference.value().is_none());
    assert!(matches!(&coverage(&results, "none", IoPath::Read)[0].traced, Figure::NotMeasured(_)));
}

#[test]
fn a_summary_that_cannot_be_read_leaves_nothing_measured() {
    let contents = contents(&study(), |_, run| {
        Outcome::Measured(Box::new(RunFigures { summary: "{".to_owned(), ..paths(run.order.probe) }))
    });
    let results = derive(&contents);
    let row = coverage(&results, "fexit", IoPath::Read)[0];
    assert!(row.difference.reason().unwrap().starts_with("the workload's summary cannot be read"));
    let shown = text(&results, Style::default());
    assert!(shown.lines().any(|line| line.starts_with(" read ") && line.contains("not measured")), "{shown}");
}

#[test]
fn coverage_as_text() {
    insta::assert_snapshot!(text(&results(), Style::default()));
}

#[test]
fn coverage_as_markdown() {
    insta::assert_snapshot!(markdown(&results()));
}
