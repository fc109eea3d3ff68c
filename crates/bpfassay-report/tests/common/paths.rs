// SPDX-License-Identifier: MIT OR Apache-2.0
//! A made-up study of I/O paths: x86_64 and riscv64 measure it, aarch64 refuses fexit.

use std::collections::BTreeMap;

use bpfassay_protocol::{
    Arch, IoPath, Operation, ProbeConfiguration,
    io_path::{Amount, IoPathsSummary, PathReport, RefusedCall},
    message::{Interval, Reading, RunFigures, WorkloadPhase},
    operation::Totals,
    probe::Probe,
    tracer_messages::{CounterRow, Sample},
};
use bpfassay_report::derive;
use bpfassay_results::{JournalContents, Outcome, Results};
use bpfassay_study::Study;

use super::{CGROUP, DEVICE, contents, figures, not_supported};

pub(crate) const SIZE: u64 = 65_536;

pub(crate) fn study() -> Study {
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

/// Returns what the workload's calls return.
fn moved(path: IoPath) -> BTreeMap<Operation, Totals> {
    let of = |amount| match amount {
        Amount::Whole => Totals { calls: 4, bytes: SIZE, errors: 0 },
        Amount::Pages => Totals { calls: 0, bytes: SIZE, errors: 0 },
        Amount::Nothing => Totals { calls: 8, bytes: 0, errors: 0 },
        Amount::Errors => Totals { calls: 8, bytes: 0, errors: 8 },
        Amount::NoCall => Totals::default(),
    };
    path.expected().iter().map(|expected| (expected.operation, of(expected.amount))).collect()
}

/// Returns what a probe on `vfs_read` and `vfs_write` sees of these calls.
fn seen(probe: Probe, path: IoPath, operation: Operation, returned: Totals) -> Totals {
    let plain = matches!(operation, Operation::Read | Operation::Write)
        && path.calls().split([' ', ',', '(']).any(|call| ["read", "write", "pread64", "pwrite64"].contains(&call));
    match (plain, probe, path) {
        (true, Probe::Kprobe, IoPath::ShortRead) => Totals { bytes: 2 * SIZE, ..returned },
        (true, Probe::Kprobe, _) => Totals { errors: 0, ..returned },
        (true, _, IoPath::PosixAioRead) => Totals { calls: 3, bytes: SIZE - 100, errors: 0 },
        (true, ..) => returned,
        // A second call moves the same bytes.
        (false, Probe::Fexit, IoPath::SpliceOut) => Totals { calls: 8, bytes: 2 * SIZE, errors: 1 },
        _ => Totals::default(),
    }
}

pub(crate) fn paths(probe: ProbeConfiguration) -> RunFigures {
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
            // Rows of another cgroup or mount do not belong to the workload.
            rows: [(CGROUP, DEVICE, 0), (CGROUP + 1, DEVICE, 77)]
                .into_iter()
                .flat_map(|(cgroup, device, extra)| {
                    counted.iter().map(move |(&operation, &totals)| CounterRow {
                        cgroup,
                        device,
                        mount: 30,
                        path: None,
                        operation,
                        variant: None,
                        task: None,
                        totals: Totals { bytes: totals.bytes + extra * totals.calls, ..totals },
                        latency: Vec::new(),
                    })
                })
                .collect(),
            events: Vec::new(),
            losses: Default::default(),
        }),
        mountstats: None,
        ..super::reading(probe, 1, 0, 0)
    };
    let mut phases = Vec::new();
    for &path in IoPath::ALL {
        let before = reading(&counted);
        let moved = moved(path);
        for (&operation, &totals) in &moved {
            *counted.entry(operation).or_default() += seen(probe.probe, path, operation, totals);
        }
        let interval = Interval { before, after: reading(&counted) };
        phases.push(WorkloadPhase {
            tasks: None,
            window: None,
            mount: None,
            name: path.name().to_owned(),
            test: 0,
            repetition: 0,
            moved,
            events: BTreeMap::new(),
            calls: None,
            activity: None,
            interval,
        });
    }
    let paths = IoPath::ALL.iter().map(|&path| PathReport { path, refused: refused(path) }).collect();
    RunFigures {
        engine: None,
        summary: serde_json::to_string(&IoPathsSummary { size: SIZE, paths }).unwrap(),
        phases,
        ..figures(probe, 100.0, 100.0)
    }
}

pub(crate) fn contents_of_paths() -> JournalContents {
    contents(&study(), |block, run| match (block.target.arch, run.spec.probe.probe) {
        (Arch::Aarch64, Probe::Fexit) => Outcome::Refused(not_supported()),
        _ => Outcome::Measured(Box::new(paths(run.spec.probe))),
    })
}

pub(crate) fn results() -> Results {
    derive(&contents_of_paths())
}
