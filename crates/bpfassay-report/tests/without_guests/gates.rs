// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdicts on the gates of a study.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use bpfassay_protocol::probe::Probe;
use bpfassay_report::{
    derive,
    render::{Style, text},
};
use bpfassay_results::{Demand, GateResult, Outcome, Results};
use bpfassay_stats::Verdict;
use bpfassay_study::{Clock, Gate, MetricName, Share, Study};

use crate::common::{contents, outcome, study};

fn share(percent: &str) -> Share {
    percent.parse().unwrap()
}

/// Creates a study with one boot of three rounds.
fn gated(gates: Vec<Gate>, clock: Clock) -> Study {
    Study { gates, clock, ..study(None, 3, 1) }
}

/// Creates a study with three boots of one round.
fn over_boots(gates: Vec<Gate>, clock: Clock) -> Study {
    Study { gates, clock, ..study(None, 1, 3) }
}

fn of(probe: &str) -> Gate {
    Gate { probes: vec![probe.to_owned()], ..Gate::default() }
}

fn evaluated(gate: Gate) -> Results {
    derive(&contents(&gated(vec![gate], Clock::Instructions), outcome))
}

fn verdicts<'a>(results: &'a Results, cell: &'a str) -> Vec<(Demand, Option<MetricName>, Verdict)> {
    let found = |gate: &&GateResult| gate.cell == cell;
    results.gates.iter().filter(found).map(|gate| (gate.demand, gate.metric, gate.verdict)).collect()
}

const FEXIT: &str = "x86_64_6.1_w_nfs4.2_fexit";

/// The made-up fexit costs 1.049 [1.048, 1.051].
#[test]
fn overheads_are_held_against_the_limit() {
    let verdict = |limit: &str| {
        let study = over_boots(vec![Gate { overhead: Some(share(limit)), ..of("fexit") }], Clock::Instructions);
        let results = derive(&contents(&study, outcome));
        let found = verdicts(&results, FEXIT);
        assert_eq!(found.len(), 2, "write and read");
        assert_eq!(found[0].0, Demand::Overhead { limit: share(limit) });
        (found[0].2, found[1].2)
    };
    assert_eq!(verdict("6%"), (Verdict::Pass, Verdict::Pass));
    assert_eq!(verdict("3%"), (Verdict::Regression, Verdict::Regression));
    assert_eq!(verdict("4.95%"), (Verdict::Inconclusive, Verdict::Inconclusive));
}

#[test]
fn what_was_refused_as_expected_passes_as_attached_and_has_no_figures_to_evaluate() {
    let results = evaluated(Gate { overhead: Some(share("9%")), attach: true, byte_error: Some(0), ..of("fexit") });
    assert_eq!(verdicts(&results, "aarch64_6.1_w_nfs4.2_fexit"), [(Demand::Attach, None, Verdict::Pass)]);
    // All runs of riscv64 ended in a panic: nothing is known, which is no pass.
    let panicked = verdicts(&results, "riscv64_6.12_w_nfs4.2_fexit");
    assert_eq!(panicked.len(), 5);
    assert!(panicked.iter().all(|(_, _, verdict)| *verdict == Verdict::Inconclusive), "{panicked:?}");
}

#[test]
fn bytes_are_evaluated_run_by_run() {
    let with = |missing: u64, limit: u64| {
        let study = gated(vec![Gate { byte_error: Some(limit), ..of("fexit") }], Clock::Instructions);
        let results = derive(&contents(&study, |block, run| match outcome(block, run) {
            Outcome::Measured(mut figures) if run.spec.probe.probe == Probe::Fexit && run.round == 2 => {
                let rows = &mut figures.phases[0].interval.after.tracer.as_mut().unwrap().rows;
                rows[2].totals.bytes -= missing;
                Outcome::Measured(figures)
            }
            other => other,
        }));
        verdicts(&results, FEXIT)[0].2
    };
    assert_eq!(with(0, 0), Verdict::Pass);
    assert_eq!(with(1, 0), Verdict::Regression);
    assert_eq!(with(1, 1), Verdict::Pass);
}

#[test]
fn a_byte_error_that_is_not_known_of_every_run_is_no_pass() {
    let study = gated(vec![Gate { byte_error: Some(0), ..of("fexit") }], Clock::Instructions);
    let results = derive(&contents(&study, |block, run| match (run.spec.probe.probe, run.round) {
        (Probe::Fexit, 3) => Outcome::Failed(crate::common::panic_of_guest()),
        _ => outcome(block, run),
    }));
    assert_eq!(verdicts(&results, FEXIT)[0].2, Verdict::Inconclusive);
}

#[test]
fn relative_errors_are_shown_to_be_small_or_they_do_not_pass() {
    let verdict = |limit: &str| {
        let results = evaluated(Gate { relative_error: Some(share(limit)), ..of("fexit") });
        verdicts(&results, FEXIT)[0].2
    };
    assert_eq!(verdict("0.1%"), Verdict::Pass);
    let study = gated(vec![Gate { relative_error: Some(share("1%")), ..of("fexit") }], Clock::Instructions);
    let short = derive(&contents(&study, |block, run| match outcome(block, run) {
        Outcome::Measured(mut figures) if run.spec.probe.probe == Probe::Fexit => {
            let rows = &mut figures.phases[0].interval.after.tracer.as_mut().unwrap().rows;
            rows[2].totals.bytes -= crate::common::MOVED / 20;
            Outcome::Measured(figures)
        }
        other => other,
    }));
    assert_eq!(verdicts(&short, FEXIT)[0].2, Verdict::Regression);
}

#[test]
fn the_wall_clock_of_an_emulator_is_evaluated_on_demand_only() {
    let gate = Gate { overhead: Some(share("3%")), ..of("fexit") };
    let verdict = |study: &Study| {
        let results = derive(&contents(study, outcome));
        let gate = results.gates.iter().find(|gate| gate.cell == FEXIT).unwrap();
        (gate.verdict, gate.found.clone())
    };
    let mut study = over_boots(vec![gate], Clock::Wall);
    let (found, why) = verdict(&study);
    assert_eq!(found, Verdict::Inconclusive);
    assert!(why.contains("without KVM"), "{why}");
    study.design.certainty.insist = true;
    assert_eq!(verdict(&study).0, Verdict::Regression);
}

#[test]
fn a_baseline_that_differs_from_itself_blames_no_tool() {
    let study = over_boots(vec![Gate { overhead: Some(share("3%")), ..of("fexit") }], Clock::Instructions);
    let results = derive(&contents(&study, |block, run| match outcome(block, run) {
        Outcome::Measured(_) if run.control => {
            let wobble = 1.0 + 0.001 * f64::from(block.replicate);
            Outcome::Measured(Box::new(crate::common::figures(run.spec.probe, 150.0 * wobble, 300.0 * wobble)))
        }
        other => other,
    }));
    let gate = results.gates.iter().find(|gate| gate.cell == FEXIT).unwrap();
    assert_eq!(gate.verdict, Verdict::Inconclusive);
    assert!(gate.found.contains("the baseline differs from itself by 1.0"), "{}", gate.found);
}

/// Under both clocks, a pass or a regression over three boots is inconclusive within one boot,
/// where nothing is negligible.
#[test]
fn one_boot_does_not_decide_on_overheads() {
    for clock in [Clock::Instructions, Clock::Wall] {
        for limit in ["3%", "6%"] {
            let gate = Gate { overhead: Some(share(limit)), attach: true, byte_error: Some(0), ..of("fexit") };
            let found = |mut study: Study| {
                study.design.certainty.insist = true;
                study.design.margin = Some(share("6%"));
                derive(&contents(&study, outcome))
            };
            let (one, several) = (found(gated(vec![gate.clone()], clock)), found(over_boots(vec![gate], clock)));
            for (results, is_one) in [(&one, true), (&several, false)] {
                for gate in results.gates.iter().filter(|gate| gate.cell == FEXIT) {
                    let is_overhead = matches!(gate.demand, Demand::Overhead { .. });
                    let is_open = gate.verdict == Verdict::Inconclusive;
                    assert_eq!(is_open, is_overhead && is_one, "{clock} {limit}: {gate:?}");
                    assert!(!is_open || gate.found.contains("needs two boots or more"), "{}", gate.found);
                }
                let cell = results.cells.iter().find(|cell| cell.cell == FEXIT).unwrap();
                assert_eq!(cell.metrics[0].overhead.value().unwrap().negligible, Some(!is_one));
            }
        }
    }
}

#[test]
fn gates_speak_of_what_they_name() {
    let cells = |gate: Gate| {
        let results = evaluated(Gate { attach: true, ..gate });
        results.gates.iter().map(|gate| gate.cell.clone()).collect::<Vec<_>>()
    };
    assert_eq!(cells(Gate::default()).len(), 6, "every cell but the baselines");
    assert_eq!(cells(of("kprobe")).len(), 3);
    assert_eq!(cells(Gate { kernels: vec!["6.12".to_owned()], ..of("kprobe") }), ["riscv64_6.12_w_nfs4.2_kprobe"]);
    assert_eq!(cells(Gate { workloads: vec!["w".to_owned()], ..Gate::default() }).len(), 6);
}

#[test]
fn verdicts_as_they_look() {
    let gates = vec![
        Gate { byte_error: Some(0), attach: true, ..of("fexit") },
        Gate { overhead: Some(share("6%")), ..Gate::default() },
    ];
    let shown = text(&derive(&contents(&over_boots(gates, Clock::Instructions), outcome)), Style::default());
    let table: Vec<&str> = shown.lines().take_while(|line| !line.starts_with("study")).collect();
    insta::assert_snapshot!(table.join("\n"));
    let gates = vec![Gate { overhead: Some(share("20%")), ..of("kprobe") }];
    let shown = text(&derive(&contents(&over_boots(gates, Clock::Instructions), outcome)), Style::default());
    let verdicts = shown.lines().skip_while(|line| !line.starts_with("verdicts"));
    insta::assert_snapshot!(verdicts.take(3).collect::<Vec<_>>().join("\n"));
}
