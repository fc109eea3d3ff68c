// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a probe configuration costs in instructions.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

mod common;

use bpfassay_protocol::{ProbeConfiguration, probe::Probe, tool::Tool, tracer::ProgramStatistics};
use bpfassay_report::{
    derive,
    render::{Style, markdown, text},
};
use bpfassay_results::{Access, Basis, Cost, Figure, Outcome, Results};
use bpfassay_stats::Bounds;
use bpfassay_study::{Clock, Study};
use common::{contents, figures, study};

/// Calls of each phase.
const CALLS: u64 = 32;

/// Results in which each call of fexit takes `extra` instructions more than those of the baseline, by round.
fn results(clock: Clock, extra: fn(u32) -> u64, idle: Option<u64>) -> Results {
    let study = Study { clock, ..study(None, 3, 1) };
    derive(&contents(&study, |_, run| {
        let mut figures = figures(run.spec.probe, 100.0, 200.0);
        let traced = run.spec.probe.probe == Probe::Fexit;
        for phase in &mut figures.phases {
            let (before, after) = (&mut phase.interval.before, &mut phase.interval.after);
            if traced {
                after.monotonic_ns += extra(run.round) * CALLS;
            }
            // The traced runs wait longer, too, which is no cost.
            before.idle_ns = idle.map(|_| 7);
            after.idle_ns = idle.map(|idle| 7 + if traced { idle } else { 0 });
            after.monotonic_ns += idle.filter(|_| traced).unwrap_or(0);
        }
        Outcome::Measured(Box::new(figures))
    }))
}

fn cost(results: &Results, probe: Probe) -> &Figure<Cost> {
    let probe = ProbeConfiguration::with_defaults(probe);
    let cell = results.cells.iter().find(|cell| cell.probe == probe).unwrap();
    let access = cell.accesses.iter().find(|access| access.access == Access::Write).unwrap();
    if probe.is_baseline() { &access.control_cost } else { &access.cost }
}

#[test]
fn cost_is_the_difference_to_the_baseline_of_the_same_round_per_call() {
    let results = results(Clock::Instructions, |round| 500 + u64::from(round), None);
    let found = cost(&results, Probe::Fexit).value().unwrap();
    assert!((found.per_call.value - 502.0).abs() < 1e-9, "{found:?}");
    // 8 MiB in 32 calls.
    assert!((found.per_mib.value - 502.0 * 4.0).abs() < 1e-9, "{found:?}");
    assert_eq!((found.calls, found.per_call.n, found.basis), (CALLS, 3, Basis::Elapsed));
    // Standard deviation 1, three observations: 4.303 / sqrt(3).
    let interval = found.per_call.bounds.interval().unwrap();
    assert!((interval.upper - 502.0 - 2.484).abs() < 1e-3, "{interval:?}");
    for nothing in [Probe::None, Probe::Kprobe] {
        let nothing = cost(&results, nothing).value().unwrap();
        assert_eq!((nothing.per_call.value, nothing.per_call.bounds), (0.0, Bounds::NoSpread));
    }
}

#[test]
fn time_without_work_is_no_cost() {
    let results = results(Clock::Instructions, |_| 500, Some(40_000_000));
    let found = cost(&results, Probe::Fexit).value().unwrap();
    assert_eq!((found.per_call.value, found.basis), (500.0, Basis::Busy));
}

#[test]
fn wall_clock_time_has_no_instructions() {
    let results = results(Clock::Wall, |_| 500, None);
    assert_eq!(cost(&results, Probe::Fexit).reason(), Some("the study's clock does not count instructions"));
    assert!(!text(&results, Style::default()).contains("cost of each"));
}

#[test]
fn the_table_of_costs() {
    let results = results(Clock::Instructions, |round| 500 + u64::from(round), None);
    let shown = text(&results, Style::default());
    let (_, table) = shown.split_once("cost of each").unwrap();
    insta::assert_snapshot!(table);
    assert!(shown.contains("instructions, 1 ns each, not cycles"), "{shown}");
    assert!(markdown(&results).contains("| instructions per call \\[95 %\\] |"));
}

#[test]
fn run_times_are_reported_for_each_program_and_for_each_call_counted() {
    let mut study = Study { clock: Clock::Instructions, ..study(None, 1, 1) };
    study.design.bpf_stats = true;
    let time = |program: &str, runs, run_time_ns| ProgramStatistics { program: program.to_owned(), runs, run_time_ns };
    let results = derive(&contents(&study, |_, run| {
        let mut figures = figures(run.spec.probe, 100.0, 200.0);
        if run.spec.bpf_stats {
            let ended = figures.ended.as_mut().unwrap();
            ended.statistics = vec![time("read_exit", 40, 4_000), time("write_exit", 20, 1_000), time("unused", 0, 0)];
            ended.events = Some(50);
        }
        Outcome::Measured(Box::new(figures))
    }));
    let of = |probe| results.cells.iter().find(|cell| cell.probe == ProbeConfiguration::with_defaults(probe)).unwrap();
    assert_eq!((of(Probe::None).run_times.len(), &of(Probe::None).event_time), (0, &None));
    let fexit = of(Probe::Fexit);
    assert_eq!(fexit.run_times.len(), 3);
    let event = fexit.event_time.as_ref().unwrap();
    assert_eq!((event.events, event.run_time_ns, &event.per_event_ns), (50, 5_000, &Figure::Value(100.0)));
    // Compared with no other run: one round, one run.
    assert_eq!((fexit.runs.planned, fexit.runs.measured), (1, 1));
    let shown = text(&results, Style::default());
    let (_, table) = shown.split_once("run time of programs").unwrap();
    insta::assert_snapshot!(table);
}

#[test]
fn run_times_of_other_tools_are_reported_by_the_kernels_names() {
    let mut study = study(None, 1, 1);
    study.design.bpf_stats = true;
    study.tools = vec![Tool::new("vfsstat", vec!["/usr/sbin/vfsstat".to_owned()], 1)];
    let results = derive(&contents(&study, |_, run| {
        let mut figures = figures(run.spec.probe, 100.0, 200.0);
        if run.spec.bpf_stats && run.spec.tool.is_some() {
            figures.tool_statistics =
                vec![ProgramStatistics { program: "fentry_vfs_read".to_owned(), runs: 8, run_time_ns: 800 }];
        }
        Outcome::Measured(Box::new(figures))
    }));
    let cell = results.cells.iter().find(|cell| cell.tool.is_some()).unwrap();
    assert_eq!(cell.run_times.len(), 1);
    assert_eq!((cell.run_times[0].runs, &cell.run_times[0].per_run_ns), (8, &Figure::Value(100.0)));
    assert_eq!(cell.event_time, None);
    let shown = text(&results, Style::default());
    assert!(shown.contains("fentry_vfs_read") && shown.contains("time of the emulator"), "{shown}");
}
