// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts of program sets, metrics, and how reports show both.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use std::collections::BTreeMap;

use bpfassay_protocol::{
    ProbeConfiguration,
    message::{Interval, Reading, RunFigures, WorkloadPhase},
    operation::Totals,
    program_set::{EventRow, ProgramEvent},
    tracer_messages::Sample,
};
use bpfassay_report::{
    derive,
    render::{Style, text},
};
use bpfassay_results::{
    CellResult, Figure, FunctionCount, Instructions, JournalEntry, Outcome, PhaseCount, Results, Role, RunCount,
};
use bpfassay_study::Study;

use crate::common::{CGROUP, contents, figures, reading};

fn study() -> Study {
    let text = r#"
schema = 1
name = "sets"
description = "For tests."
clock = "wall"
probes = ["none", "programs+tcp", "programs"]
[[targets]]
arch = "x86_64"
kernels = "6.12"
[[file_systems]]
type = "tmpfs"
[[workloads]]
type = "tcp"
operations = 100
size = 1000
[design]
replicates = 1
rounds = 2
seed = 1
control = false
warm_up = 0
"#;
    Study::parse("sets.toml", text, &|_| Ok(None)).unwrap()
}

/// The sum of the workload's messages.
const DONE: Totals = Totals { calls: 200, bytes: 200_000, errors: 0 };

/// Creates a run in which the sets counted `lost` calls too few. It does 100 operations in one
/// second, or in two seconds with all sets.
fn run(probe: ProbeConfiguration, lost: u64) -> RunFigures {
    let all = probe.sets.count() > 1;
    let at = |done: u64| {
        let row = |cgroup, event, totals, time_ns| EventRow { cgroup, event, processes: 2, totals, time_ns };
        let counted = Totals { calls: (200 - lost) * done, bytes: (200 - lost) * 1000 * done, errors: 0 };
        let mut events = vec![
            // Rows of another cgroup do not belong to the workload.
            row(CGROUP + 1, ProgramEvent::TcpSend, DONE, 7),
            row(CGROUP, ProgramEvent::TcpSend, counted, 1000 * done),
        ];
        if all {
            events.push(row(CGROUP, ProgramEvent::FutexWake, Totals { calls: 3, ..Totals::default() }, 5));
        }
        let sample = Sample { events, rows: Vec::new(), ..crate::common::sample(1, None, 0, 0) };
        Reading { tracer: (!probe.is_baseline()).then_some(sample), mountstats: None, ..reading(probe, 1, 0, 0) }
    };
    let interval = Interval { before: at(0), after: at(1) };
    let phase = WorkloadPhase {
        tasks: None,
        window: None,
        mount: None,
        name: "work".to_owned(),
        test: 0,
        repetition: 0,
        moved: BTreeMap::new(),
        events: [(ProgramEvent::TcpSend, DONE), (ProgramEvent::TcpReceive, DONE)].into(),
        calls: None,
        activity: None,
        interval: interval.clone(),
    };
    RunFigures {
        engine: None,
        summary: format!(
            "{{\"operations\":100,\"elapsed_ns\":{}}}",
            if all { 2_000_000_000u64 } else { 1_000_000_000 }
        ),
        phases: vec![phase],
        whole: interval,
        ..figures(probe, 100.0, 100.0)
    }
}

fn results(lost: u64) -> Results {
    derive(&contents(&study(), |_, planned| Outcome::Measured(Box::new(run(planned.spec.probe, lost)))))
}

fn cell<'a>(results: &'a Results, probe: &str) -> &'a CellResult {
    results.cells.iter().find(|cell| cell.under_test() == probe).unwrap()
}

/// The operations are what the study asks for, not what the summary in the guest says.
#[test]
fn direct_costs_are_per_operation() {
    let mut contents = contents(&study(), |_, planned| Outcome::Measured(Box::new(run(planned.spec.probe, 0))));
    for entry in &mut contents.entries {
        let JournalEntry::BlockEnded(ended) = entry else { continue };
        let runs = contents.header.plan.blocks.iter().find(|block| block.id == ended.block).unwrap().runs.iter();
        let counts = runs.map(|planned| {
            let instructions = if planned.spec.probe.is_baseline() { 0 } else { 4200 };
            let (function, misses) = ("on_send".to_owned(), None);
            let direct = vec![FunctionCount { function, role: Role::Program, instructions, misses }];
            let (all, user, tool, unresolved) = (1_000_000_000 + instructions, 0, None, 0);
            let count = Figure::Value(Instructions { all, user, tool, unresolved, misses: None, direct });
            let phases = vec![PhaseCount { name: "work".to_owned(), test: 0, repetition: 0, count }];
            RunCount { run: planned.spec.id.clone(), phases }
        });
        ended.counts = Some(Figure::Value(counts.collect()));
    }
    let results = derive(&contents);
    let direct = |probe| cell(&results, probe).metrics[0].direct.as_ref();
    assert!(direct("none").is_none());
    let found = direct("programs+tcp").unwrap().value().unwrap();
    assert_eq!((found.calls, found.per_call.mean), (100, 42.0));
}

#[test]
fn overheads_are_of_the_metric() {
    let results = results(0);
    let none = &cell(&results, "none").metrics[0];
    assert_eq!((&*none.name, none.operation), ("work", None));
    assert_eq!((none.unit.as_str(), none.value.value().unwrap().mean), ("operations/s", 100.0));
    let all = &cell(&results, "programs").metrics[0];
    assert!((all.overhead.value().unwrap().estimate.value - 2.0).abs() < 1e-9);
    assert!(cell(&results, "programs").accuracy[0].byte_error.value().is_none());
}

#[test]
fn events_are_those_of_the_workload_and_of_the_sets_attached() {
    let results = results(0);
    let of = |probe: &str| {
        let run = results.runs.iter().find(|run| run.record.cell.ends_with(probe)).unwrap();
        run.derived.as_ref().unwrap().events.clone()
    };
    let tcp = of("_programs+tcp");
    let names: Vec<&str> = tcp.iter().map(|row| row.event.name()).collect();
    assert_eq!(names, ["tcp-send", "tcp-receive"]);
    assert_eq!((tcp[0].counted.value(), tcp[0].time_ns.value()), (Some(&DONE), Some(&1000)));
    let difference = tcp[0].difference.value().unwrap();
    assert_eq!((difference.calls, difference.bytes, difference.errors), (Some(0), 0, 0));
    // The set should have counted these calls.
    assert_eq!(tcp[1].difference.value().unwrap().calls, Some(-200));
    // Events before the phase do not count, and every phase has switches.
    let all: Vec<_> = of("_programs").iter().map(|row| row.event.name()).collect();
    assert_eq!(all, ["switch", "tcp-send", "tcp-receive"]);
    assert!(of("_none").is_empty());
}

#[test]
fn sets_that_saw_nothing_are_loud() {
    insta::assert_snapshot!(text(&results(3), Style::default()));
}
