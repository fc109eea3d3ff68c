// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time per call, and the time of the whole phase.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use bpfassay_protocol::{
    call_list::{CallDistribution, CallTimes},
    probe::Probe,
};
use bpfassay_report::{
    compare::{Question, compare},
    derive,
    render::{Style, csv, html, openmetrics, text},
    trend::{Quantity, trend},
};
use bpfassay_results::{CellMetric, Outcome, Results};
use bpfassay_stats::{Verdict, gate_decision::Change};
use bpfassay_study::{Clock, Gate, Study};

use crate::common::{contents, figures, study};

/// Calls in each phase of the made-up figures.
const CALLS: u64 = 32;

/// Creates results in which calls of the baseline take a little more than 1000 ns, and those of
/// fexit `slower` ns more; the whole phase shows a tenth of that.
fn results(study: &Study, slower: u64) -> Results {
    derive(&contents(study, |block, run| {
        let extra = if run.spec.probe.probe == Probe::Fexit { slower } else { 0 };
        let whole = 1.0 + extra as f64 / 10_000.0;
        let mut figures = figures(run.spec.probe, 160.0 / whole, 320.0 / whole);
        for phase in &mut figures.phases {
            let middle = CALLS / 2 * (1000 + extra) + u64::from(run.round) + 2 * u64::from(block.replicate);
            // The time of the slowest calls is in the sum only.
            phase.calls = Some(times(middle, 3 * middle + 100 * u64::from(run.round)));
        }
        Outcome::Measured(Box::new(figures))
    }))
}

/// Creates times of calls. Half of the calls take `middle_ns` together, as if they remained without
/// the extreme ones, and all of them take `sum_ns`.
fn times(middle_ns: u64, sum_ns: u64) -> CallTimes {
    let (trimmed_calls, median_ns) = (CALLS / 2, 2 * middle_ns / CALLS);
    let distribution = CallDistribution { median_ns, trimmed_calls, trimmed_sum_ns: middle_ns };
    CallTimes { ranks: 1, calls: CALLS, sum_ns, tail_ns: 9, max_ns: sum_ns, distribution: Some(distribution) }
}

fn by_instructions(rounds: u32, replicates: u32) -> Study {
    Study { clock: Clock::Instructions, ..study(None, rounds, replicates) }
}

fn metric<'a>(results: &'a Results, probe: Probe, name: &str) -> &'a CellMetric {
    results.cells.iter().find(|cell| cell.probe.probe == probe).unwrap().metric(name).unwrap()
}

#[test]
fn calls_have_an_overhead_of_their_own_with_all_that_bandwidths_have() {
    let results = results(&by_instructions(3, 1), 19);
    let names: Vec<&str> = results.cells[0].metrics.iter().map(|metric| &*metric.name).collect();
    assert_eq!(names, ["write", "read", "write-call", "read-call"]);
    let calls = metric(&results, Probe::Fexit, "write-call");
    let overhead = calls.overhead.value().unwrap();
    assert!((overhead.estimate.value - 1.019).abs() < 1e-4, "{overhead:?}");
    assert!(overhead.estimate.bounds.interval().is_some() && overhead.detectable.is_some());
    assert!((calls.value.value().unwrap().center() - 1019.0).abs() < 0.5);
    assert!((calls.cost.value().unwrap().per_call.value - 19.0).abs() < 0.1, "{:?}", calls.cost);
    // The control has the same rounds as the baseline.
    let control = metric(&results, Probe::None, "write-call").control.value().unwrap();
    assert!((control.estimate.value - 1.0).abs() < 1e-4);
    let whole = metric(&results, Probe::Fexit, "write").overhead.value().unwrap();
    assert!((whole.estimate.value - 1.0019).abs() < 1e-9);
    // Times per call are not bandwidths, so their bytes are not checked.
    assert!(results.cells.iter().flat_map(|cell| &cell.accuracy).all(|row| !row.metric.ends_with("call")));
}

#[test]
fn calls_have_a_table_and_rows_in_every_format() {
    let results = results(&by_instructions(3, 1), 19);
    let table = |width: Option<u16>| {
        let shown = text(&results, Style { width });
        let (_, table) = shown.split_once("\ntime per call").unwrap();
        table.split_once("\ncost of each").unwrap().0.to_owned()
    };
    let narrow = table(Some(80));
    assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    insta::assert_snapshot!(table(None));
    assert!(csv(&results).unwrap().lines().any(|line| line.contains(",write-call,,1019")));
    let metrics = openmetrics(&results);
    for family in ["bpfassay_overhead_ratio", "bpfassay_metric_value"] {
        let is_of_calls = |line: &&str| line.starts_with(family) && line.contains("metric=\"write-call\"");
        assert!(metrics.lines().any(|line| is_of_calls(&line)), "{family}");
    }
    assert!(html(&results).unwrap().contains("<h3>time per call"));
}

#[test]
fn what_was_not_timed_is_not_measured_and_no_zero() {
    let none = derive(&contents(&study(None, 2, 1), crate::common::outcome));
    assert!(none.cells.iter().flat_map(|cell| &cell.metrics).all(|metric| metric.calls_of.is_none()));
    let shown = text(&none, Style::default());
    assert!(shown.contains("time per call: not measured: the workload did not time its calls."), "{shown}");
    let mut untimed = contents(&by_instructions(2, 1), crate::common::outcome);
    // The run of fexit has no barriers, like that of a real IOR.
    for entry in &mut untimed.entries {
        let bpfassay_results::JournalEntry::Run(record) = entry else { continue };
        let Outcome::Measured(figures) = &mut record.outcome else { continue };
        match record.cell.contains("fexit") {
            true => figures.phases.clear(),
            false => figures.phases.iter_mut().for_each(|phase| {
                let distribution = times(320, 640).distribution.filter(|_| record.cell.contains("none"));
                phase.calls = Some(CallTimes { distribution, ..times(320, 640) });
            }),
        }
    }
    let shown = text(&derive(&untimed), Style::default());
    assert!(shown.contains("the engine cannot be held between phases"), "{shown}");
    assert!(!shown.contains("time per call: not measured"), "{shown}");
    // If there is no room for all times, sum and maximum are known, but the trimmed mean is not.
    assert!(shown.contains("more calls than the workload has room for the times of"), "{shown}");
}

#[test]
fn a_gate_on_calls_is_one_of_its_own() {
    let gated = |gate: Gate| results(&Study { gates: vec![gate], ..by_instructions(1, 3) }, 19);
    let verdicts = |results: &Results| -> Vec<(String, Verdict)> {
        let of = |gate: &&bpfassay_results::GateResult| gate.cell.contains("fexit") && gate.cell.contains("x86_64");
        let row = |gate: &bpfassay_results::GateResult| (gate.metric.unwrap().to_string(), gate.verdict);
        results.gates.iter().filter(of).map(row).collect()
    };
    let named =
        |of: &[(&str, Verdict)]| of.iter().map(|&(name, verdict)| (name.to_owned(), verdict)).collect::<Vec<_>>();
    let per_call = |limit: &str| Gate { overhead_per_call: Some(limit.parse().unwrap()), ..Gate::default() };
    let both = |verdict| named(&[("write-call", verdict), ("read-call", verdict)]);
    assert_eq!(verdicts(&gated(per_call("2%"))), both(Verdict::Pass));
    assert_eq!(verdicts(&gated(per_call("1.8%"))), both(Verdict::Regression));
    // A limit on the whole phase does not limit calls.
    let whole = gated(Gate { overhead: Some("1%".parse().unwrap()), ..Gate::default() });
    assert_eq!(verdicts(&whole), named(&[("write", Verdict::Pass), ("read", Verdict::Pass)]));
    // If no calls are timed, the gate does not pass.
    let untimed =
        derive(&contents(&Study { gates: vec![per_call("2%")], ..by_instructions(1, 3) }, crate::common::outcome));
    let found = untimed.gates.iter().find(|gate| gate.cell.contains("x86_64")).unwrap();
    assert_eq!((found.metric, found.verdict), (None, Verdict::Inconclusive));
    assert!(found.found.starts_with("not measured"), "{}", found.found);
}

#[test]
fn calls_are_compared_and_have_a_trend() {
    let (base, new) = (results(&by_instructions(2, 3), 19), results(&by_instructions(2, 3), 24));
    let comparison = compare(&base, &new, &Question::default()).unwrap();
    let fexit = comparison.cells.iter().find(|cell| cell.under_test == "fexit").unwrap();
    let calls = fexit.metrics.iter().find(|metric| &*metric.metric == "write-call").unwrap();
    assert!((calls.ratio.value().unwrap().estimate.value - 1.024 / 1.019).abs() < 1e-5);
    assert!(calls.instructions_per_call[1].is_some_and(|cost| (cost - 24.0).abs() < 0.1));
    let series = trend(&[("base".to_owned(), base), ("new".to_owned(), new)]).unwrap().series;
    let quantity = |probe: &str| {
        series.iter().find(|series| series.under_test == probe && &*series.metric == "write-call").unwrap().quantity
    };
    assert_eq!((quantity("none"), quantity("fexit")), (Quantity::TimePerCall, Quantity::InstructionsPerCall));
}

/// One boot each shows that calls take 0.1 % longer: their layout term is a tenth of that of whole
/// writes.
#[test]
fn a_tenth_of_a_per_cent_of_a_call_is_called_from_one_boot_each() {
    let study = by_instructions(2, 1);
    let [base, new] = [10, 11].map(|slower| results(&study, slower));
    let comparison = compare(&base, &new, &Question::default()).unwrap();
    let cell = comparison.cells.iter().find(|cell| cell.under_test == "fexit").unwrap();
    let change = |name: &str| cell.metrics.iter().find(|metric| &*metric.metric == name).unwrap().change;
    assert_eq!((change("read-call"), change("write-call")), (Change::Increase, Change::Increase));
    // The whole phases show a tenth of it, which is within their layout terms.
    assert_eq!((change("read"), change("write")), (Change::Inconclusive, Change::Inconclusive));
}
