// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bystander, a process that tools are not meant to trace, and the bill of a tool: what was
//! counted is shown, 0 as 0, and all else has a reason.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use std::collections::BTreeMap;

use bpfassay_protocol::{
    Operation,
    message::{BystanderFigures, MountFacts, RunFigures},
    operation::Totals,
    tool_job::{BpfObject, OutputPiece, ProcessorTime, Source, ToolFigures},
};
use bpfassay_report::{
    derive,
    render::{Screen, Style, html, markdown, screen, text},
};
use bpfassay_results::{
    Figure, FunctionCount, Instructions, JournalEntry, Outcome, PhaseCount, Results, Role, RunCount,
};
use bpfassay_study::{Clock, PlannedRun, Study, WorkloadKind};
use bpfassay_tool::{ToolFile, UnderTest};

use crate::common::{contents, figures, study};

/// Calls of the bystander in each phase, and instructions of a phase without a tool.
const CALLS: u64 = 16;
const BASELINE: u64 = 1_000_000_000;

const TOOL: &str = "schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\n\
    script = { path = 'a', interpreter = '/bin/sh' }\n[start]\nready = { line = '^ready' }\n[report]\n\
    events = { line = '^(?<op>read)$', ignore = '^ready' }\nfigures = [{ operations = 'read', unit = 'calls' }]\n";

/// Creates the made-up study with a bystander and with a tool from a tool file.
fn with_bystander() -> Study {
    let mut study = study(None, 2, 1);
    let WorkloadKind::Ior(ior) = &mut study.workloads[0].kind else { panic!("{:?}", study.workloads) };
    ior.bystander = Some(["-w", "-r"].map(str::to_owned).into());
    study.clock = Clock::Instructions;
    study.test_tool(UnderTest::of(ToolFile::parse("mine.toml", TOOL).unwrap())).unwrap();
    study
}

/// Creates the figures of a run with a bystander, and with a tool if the run has one.
fn run_of(run: &PlannedRun) -> RunFigures {
    let mut figures = figures(run.spec.probe, 100.0, 200.0);
    let mut phases = figures.phases.clone();
    for phase in &mut phases {
        phase.name.insert_str(0, "bystander-");
        let operation = if phase.name.ends_with("write") { Operation::Write } else { Operation::Read };
        phase.moved = BTreeMap::from([(operation, Totals { calls: CALLS, bytes: 4096 * CALLS, errors: 0 })]);
    }
    figures.bystander = Some(Box::new(BystanderFigures { cgroup: 9, namespace: vec![MountFacts::default()], phases }));
    figures.tool = run.spec.tool.as_ref().map(|_| {
        let object = |memory_bytes| BpfObject { id: 7, name: "on_read".to_owned(), kind: 26, memory_bytes, code: None };
        Box::new(ToolFigures {
            ready_ns: 812_345_678,
            stop_ns: Some(20_100_000),
            ended: "ended".to_owned(),
            programs: vec![object(Some(4096)); 2],
            maps: vec![object(Some(10_000))],
            resident_bytes: [3 << 20, 4 << 20],
            processor_us: ProcessorTime { ready: 5, idle: 305, idle_ns: 1_000_000_000, stopped: 355 },
            output: vec![OutputPiece {
                endpoint: 0,
                monotonic_ns: 1_500_000_000,
                source: Source::Output,
                text: "ready\nread\nread\nread\nread\n".to_owned(),
                reference: None,
            }],
            ..ToolFigures::default()
        })
    });
    figures
}

/// Derives the results if each call of the bystander costs `per_call` instructions; `None` if
/// nothing was counted.
fn results(study: &Study, per_call: Option<u64>) -> Results {
    let mut contents = contents(study, |_, run| Outcome::Measured(Box::new(run_of(run))));
    let blocks = contents.header.plan.blocks.clone();
    let count = |run: &PlannedRun, per_call: u64| {
        let is_baseline = run.spec.probe.is_baseline() && run.spec.tool.is_none();
        let part = |per_call| FunctionCount {
            function: "on_call".to_owned(),
            role: Role::Program,
            instructions: per_call * CALLS,
            misses: None,
        };
        let direct = if is_baseline || per_call == 0 { Vec::new() } else { vec![part(per_call)] };
        let all = BASELINE + direct.iter().map(|part| part.instructions).sum::<u64>();
        Figure::Value(Instructions { all, user: 5, tool: None, unresolved: 0, misses: None, direct })
    };
    for entry in &mut contents.entries {
        let (JournalEntry::BlockEnded(ended), Some(per_call)) = (entry, per_call) else { continue };
        let block = blocks.iter().find(|block| block.id == ended.block).unwrap();
        let of_run = |run: &PlannedRun| {
            let phases = [("write", 100), ("read", 100), ("bystander-write", per_call), ("bystander-read", per_call)];
            let phase = |(name, per_call): (&str, u64)| PhaseCount {
                name: name.to_owned(),
                test: 0,
                repetition: 0,
                count: count(run, per_call),
            };
            RunCount { run: run.spec.id.clone(), phases: phases.map(phase).into() }
        };
        ended.counts = Some(Figure::Value(block.runs.iter().map(of_run).collect()));
    }
    derive(&contents)
}

/// Returns the words of each line from the word `start` on.
fn lines(text: &str, start: &str) -> Vec<Vec<String>> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).skip_while(|word| word != start).collect();
    text.lines().map(words).filter(|words: &Vec<String>| words.len() > 2).collect()
}

#[test]
fn what_a_bystander_pays_is_shown_and_nothing_as_0() {
    for (per_call, shown) in [(0, "0"), (40, "40.0")] {
        let results = results(&with_bystander(), Some(per_call));
        let tested = results.cells.iter().filter(|cell| !cell.is_baseline() && cell.runs.measured > 0);
        let mut costs = 0;
        for cell in tested {
            assert_eq!(
                cell.bystander.iter().map(|cost| &*cost.name).collect::<Vec<_>>(),
                ["bystander-write", "bystander-read"]
            );
            for cost in &cell.bystander {
                let direct = cost.direct.value().unwrap();
                assert_eq!(
                    (direct.per_call.min, direct.per_call.max, direct.calls),
                    (per_call as f64, per_call as f64, CALLS)
                );
                costs += 1;
            }
        }
        assert!(costs >= 6, "{costs}");
        assert!(results.cells.iter().filter(|cell| cell.is_baseline()).all(|cell| cell.bystander.is_empty()));
        let text = text(&results, Style::default());
        let rows = lines(&text, "bystander-read");
        assert!(!rows.is_empty() && rows.iter().all(|row| row[1] == shown), "{shown}: {text}");
        let on_screen = screen(&results, Screen::default());
        assert!(on_screen.contains(&format!("bystander {per_call}")), "{on_screen}");
    }
}

/// The baseline shows that there is a bystander, so that nothing is silently left out.
#[test]
fn what_was_not_counted_has_a_reason() {
    let results = results(&with_bystander(), None);
    let mine = results.cells.iter().find(|cell| cell.tool.is_some()).unwrap();
    assert_eq!(mine.bystander.len(), 2);
    for cost in &mine.bystander {
        assert!(cost.direct.reason().unwrap().starts_with("no plugin of QEMU counted"), "{cost:?}");
    }
    let text = text(&results, Style::default());
    let rows = lines(&text, "bystander-read");
    assert!(!rows.is_empty() && rows.iter().all(|row| row[1..3] == ["not", "measured"]), "{text}");
    assert!(!screen(&results, Screen::default()).contains("bystander 0"));
}

/// The bystander has its own cgroup and mount, so that the bytes of the workload stay exact.
#[test]
fn figures_of_the_workload_do_not_include_the_bystander() {
    let study = with_bystander();
    let all = results(&study, Some(40));
    let mut contents =
        contents(&study, |_, run| Outcome::Measured(Box::new(RunFigures { bystander: None, ..run_of(run) })));
    contents.header.started_unix_ms = all.started_unix_ms;
    let without = derive(&contents);
    assert_eq!(all.runs.len(), without.runs.len());
    for (with, without) in all.runs.iter().zip(&without.runs) {
        let [with, without] = [with, without].map(|run| run.derived.as_ref());
        assert_eq!(with.map(|run| &run.bytes), without.map(|run| &run.bytes));
        assert_eq!(with.map(|run| &run.accuracy), without.map(|run| &run.accuracy));
        assert_eq!(without.map_or(0, |run| run.bystander.len()), 0);
    }
}

#[test]
fn the_bill_of_a_tool_has_each_figure_with_its_unit() {
    let results = results(&with_bystander(), Some(0));
    let text = text(&results, Style { width: Some(400) });
    let bill = text.split("bill of mine").nth(1).unwrap();
    let row = bill.lines().find(|line| line.contains("x86_64 6.1")).unwrap();
    for figure in
        ["write 50.0, read 50.0", "write 0, read 0", "0.03 %", "12.5 µs", "8 KiB", "4.0 MiB", "812.3 ms", "20.1 ms"]
    {
        assert!(row.contains(figure), "{figure}: {row}");
    }
    // Linux 6.1 reports only the keys and values of maps, and 6.12 all of their memory.
    assert!(row.contains("not measured ["), "{row}");
    assert!(bill.contains("Linux 5.11 to 6.3 report only the keys and values of maps"), "{bill}");
    assert!(bill.lines().any(|line| line.contains("riscv64 6.12") && line.contains("10 KiB")), "{bill}");
    assert!(markdown(&results).contains("bill of mine") && html(&results).unwrap().contains("bill of mine"));
    let words = "idle CPU 0.03 %, kernel 18 KiB, process 4.0 MiB, attach 0.81 s, detach 0.02 s";
    for head in [screen(&results, Screen::default()), text.clone()] {
        let head = head.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(head.contains(words), "{head}");
    }
}

#[test]
fn a_bill_without_a_bystander_and_without_events_says_so() {
    let mut study = with_bystander();
    let WorkloadKind::Ior(ior) = &mut study.workloads[0].kind else { panic!("{:?}", study.workloads) };
    ior.bystander = None;
    let contents = contents(&study, |_, run| {
        let mut figures = RunFigures { bystander: None, ..run_of(run) };
        if let Some(tool) = &mut figures.tool {
            tool.output.clear();
            (tool.stop_ns, tool.processor_us) = (None, ProcessorTime::default());
        }
        Outcome::Measured(Box::new(figures))
    });
    let text = text(&derive(&contents), Style { width: Some(400) });
    let bill = text.split("bill of mine").nth(1).unwrap();
    for reason in ["the workload has no bystander", "its CPU time was not read", "the tool was killed"] {
        assert!(bill.contains(reason), "{reason}: {bill}");
    }
}
