//! What a probe configuration costs in instructions.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

mod common;

use bpfassay_protocol::{ProbeConfiguration, probe::Probe};
use bpfassay_report::{
    Figure, Outcome, Results, derive,
    render::{Style, markdown, text},
    results::{Access, Basis, Cost},
};
use bpfassay_stats::Bounds;
use bpfassay_study::{Clock, Study};
use common::{contents, figures, study};

/// Calls of each phase.
const CALLS: u64 = 32;

/// Results in which each call of fexit takes `extra` instructions more than those of the baseline, by round.
fn results(clock: Clock, extra: fn(u32) -> u64, idle: Option<u64>) -> Results {
    let study = Study { clock, ..study(None, 3, 1) };
    derive(&contents(&study, |_, run| {
        let mut figures = figures(run.order.probe, 100.0, 200.0);
        let traced = run.order.probe.probe == Probe::Fexit;
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
