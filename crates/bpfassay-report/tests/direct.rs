// SPDX-License-Identifier: MIT OR Apache-2.0
//! Direct costs: what QEMU's plugin counted, per call and by role, and a reason where it cannot be trusted.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

mod common;

use bpfassay_report::{
    derive,
    render::{Style, text},
};
use bpfassay_results::{
    Contents, Direct, Entry, Figure, FunctionCount, Instructions, Outcome, PhaseCount, Results, Role, RunCount,
};
use common::{contents, figures, study};

/// Calls of each phase of the made-up workload, and what it executes in a phase without a tool.
const CALLS: u64 = 32;
const BASELINE: u64 = 1_000_000_000;

/// What the made-up runs executed in each of their phases: those with a tool a program, a function beside it, and something elsewhere.
fn count(is_baseline: bool) -> Figure<Instructions> {
    let part = |function: &str, role, per_call| FunctionCount {
        function: function.to_owned(),
        role,
        instructions: per_call * CALLS,
    };
    let direct = match is_baseline {
        true => Vec::new(),
        false => vec![part("on_call", Role::Program, 100), part("migrate_enable", Role::Entry, 30)],
    };
    let all = BASELINE + if is_baseline { 0 } else { (130 + 7) * CALLS };
    Figure::Value(Instructions { all, user: 5, unresolved: 0, direct })
}

/// The made-up study, with counts in every boot.
fn counted(counts: impl Fn(bool) -> Figure<Instructions>, idle_ns: Option<u64>) -> Contents {
    let mut contents = contents(&study(None, 2, 1), |_, run| {
        let mut figures = figures(run.spec.probe, 100.0, 200.0);
        for phase in &mut figures.phases {
            phase.interval.before.idle_ns = idle_ns.map(|_| 0);
            phase.interval.after.idle_ns = idle_ns;
        }
        Outcome::Measured(Box::new(figures))
    });
    let blocks = contents.header.plan.blocks.clone();
    for entry in &mut contents.entries {
        let Entry::BlockEnded(ended) = entry else { continue };
        let block = blocks.iter().find(|block| block.id == ended.block).unwrap();
        let of_run = |run: &bpfassay_study::PlannedRun| RunCount {
            run: run.spec.id.clone(),
            phases: ["write", "read"]
                .map(|name| PhaseCount {
                    name: name.to_owned(),
                    test: 0,
                    repetition: 0,
                    count: counts(run.spec.probe.is_baseline()),
                })
                .into(),
        };
        ended.counts = Some(Figure::Value(block.runs.iter().map(of_run).collect()));
    }
    contents
}

/// The direct cost of every metric with a tool.
fn direct(results: &Results) -> Vec<&Figure<Direct>> {
    let metrics = results.cells.iter().filter(|cell| !cell.is_baseline()).flat_map(|cell| &cell.metrics);
    metrics.map(|metric| metric.direct.as_ref().unwrap()).collect()
}

#[test]
fn the_direct_cost_is_per_call_and_the_rest_is_elsewhere() {
    let results = derive(&counted(count, None));
    let found = direct(&results);
    assert!(found.len() >= 4);
    for direct in found {
        let direct = direct.value().unwrap();
        assert_eq!((direct.per_call.min, direct.per_call.mean, direct.per_call.max), (130.0, 130.0, 130.0));
        assert_eq!((direct.of(Role::Program), direct.of(Role::Entry), direct.of(Role::Helpers)), (100.0, 30.0, 0.0));
        assert!((direct.elsewhere.mean - 7.0).abs() < 1e-6, "{direct:?}");
        assert_eq!(direct.calls, CALLS);
    }
    let baseline = results.cells.iter().find(|cell| cell.is_baseline()).unwrap();
    assert!(baseline.metrics.iter().all(|metric| metric.direct.is_none()));
    let text = text(&results, Style::default());
    assert!(text.contains("direct cost in instructions per call, study made-up"), "{text}");
    assert!(text.contains("+7.0"), "{text}");
}

#[test]
fn a_count_that_the_clock_contradicts_is_not_measured() {
    // The made-up phases take a second, in which the guest was idle for so long.
    let reason_with = |idle_ns| {
        let results = derive(&counted(count, Some(idle_ns)));
        direct(&results)[0].reason().map(str::to_owned)
    };
    assert_eq!(reason_with(0), None);
    assert_eq!(reason_with(900_000), None);
    let reason = reason_with(2_000_000).unwrap();
    assert!(reason.contains("where the clock counted 998000000"), "{reason}");
}

#[test]
fn what_was_not_counted_has_its_reason_and_without_a_plugin_there_is_no_table() {
    let results = derive(&counted(|_| Figure::missing("the plugin counted nothing in this phase"), None));
    for direct in direct(&results) {
        assert_eq!(direct.reason(), Some("the plugin counted nothing in this phase"));
    }
    let without =
        contents(&study(None, 2, 1), |_, run| Outcome::Measured(Box::new(figures(run.spec.probe, 100.0, 200.0))));
    let results = derive(&without);
    assert!(results.cells.iter().flat_map(|cell| &cell.metrics).all(|metric| metric.direct.is_none()));
    assert!(!text(&results, Style::default()).contains("direct cost"));
}
