// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any program as a workload: its time, its metrics, the bytes that it reports, and how reports
//! show them.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy.toml spares only the test functions themselves")]

use bpfassay_protocol::{
    Operation, ProbeConfiguration,
    message::{Interval, Reading, RunFigures},
};
use bpfassay_report::{
    derive,
    render::{Style, csv, openmetrics, text},
};
use bpfassay_results::{CellResult, MovedSource, Outcome, Results};
use bpfassay_stats::Verdict;
use bpfassay_study::{MetricName, Study};

use crate::common::{contents, figures, reading};

/// Creates a study under the clock `clock`; the program reports its bytes under the keys `w` and
/// `r`, and two figures.
fn study(clock: &str) -> Study {
    let text = format!(
        r#"
schema = 1
name = "commands"
description = "For tests."
clock = "{clock}"
probes = ["none", "fexit"]
[[targets]]
arch = "x86_64"
kernels = "6.12"
[[file_systems]]
type = "nfs"
[[workloads]]
type = "command"
name = "prog"
source = {{ guest = {{ program = "/bin/prog" }} }}
figures = [
  {{ name = "rate", unit = "1/s", better = "higher", pointer = "/rate" }},
  {{ name = "latency", unit = "ns", better = "lower", pointer = "/latency" }},
]
bytes = {{ write = {{ pointer = "/w" }}, read = {{ pointer = "/r" }} }}
[design]
replicates = 1
rounds = 2
seed = 1
control = false
warm_up = 0
[[gates]]
byte_error = 0
"#
    );
    Study::parse("commands.toml", &text, &|_| Ok(None)).unwrap()
}

const WROTE: u64 = 1 << 20;
const READ: u64 = 3 << 18;

/// Creates a run of two seconds, of which one was idle, and half a second more with a probe. The
/// program reports that it wrote `missing` bytes more than the tracer saw.
fn run(probe: ProbeConfiguration, missing: u64) -> RunFigures {
    let slow = !probe.is_baseline();
    let at = |ns, idle, written, read| Reading { idle_ns: Some(idle), ..reading(probe, ns, written, read) };
    let end = if slow { 3_500_000_000 } else { 3_000_000_000 };
    RunFigures {
        engine: None,
        summary: format!(
            r#"{{"rate": {}, "latency": {}, "w": {}, "r": {READ}}}"#,
            if slow { 50 } else { 100 },
            if slow { 300.0 } else { 200.0 },
            WROTE + missing
        ),
        phases: Vec::new(),
        whole: Interval { before: at(1_000_000_000, 0, 0, 0), after: at(end, 1_000_000_000, WROTE, READ) },
        ..figures(probe, 100.0, 100.0)
    }
}

fn results(clock: &str, missing: u64) -> Results {
    derive(&contents(&study(clock), |_, planned| Outcome::Measured(Box::new(run(planned.spec.probe, missing)))))
}

fn cell<'a>(results: &'a Results, probe: &str) -> &'a CellResult {
    results.cells.iter().find(|cell| cell.under_test() == probe).unwrap()
}

#[test]
fn overheads_are_of_time_and_of_every_figure() {
    let results = results("wall", 0);
    let fexit = &cell(&results, "fexit").metrics;
    assert_eq!(fexit.iter().map(|row| row.name.to_string()).collect::<Vec<_>>(), ["work", "rate", "latency"]);
    let overheads: Vec<f64> = fexit.iter().map(|row| row.overhead.value().unwrap().estimate.value).collect();
    // Less is better for time and latency, more for the rate.
    for (overhead, expected) in overheads.iter().zip([1.25, 2.0, 1.5]) {
        assert!((overhead - expected).abs() < 1e-9, "{overheads:?}");
    }
    let time = |results: &Results| {
        let work = &cell(results, "none").metrics[0];
        (work.value.value().unwrap().mean, work.unit.clone())
    };
    assert_eq!(time(&results), (2.0, "s".to_owned()));
    // The time excludes the idle second.
    assert_eq!(time(&self::results("instructions", 0)), (1e9, "instructions".to_owned()));
}

/// A run whose kernel does not report its idle time has another unit than its baseline.
#[test]
fn two_units_are_never_in_one_ratio() {
    let of = |cpus, lacking: bool| {
        let mut study = study("instructions");
        study.guest.cpus = cpus;
        derive(&contents(&study, |_, planned| {
            let mut figures = run(planned.spec.probe, 0);
            if lacking && !planned.spec.probe.is_baseline() {
                figures.whole.after.idle_ns = None;
            }
            Outcome::Measured(Box::new(figures))
        }))
    };
    let work = |results: &Results| cell(results, "fexit").metrics[0].clone();
    let mixed = work(&of(1, true));
    let reason = "the baseline is in instructions, and another run in instructions, idle included";
    assert_eq!(mixed.overhead.reason(), Some(reason));
    assert!((work(&of(1, false)).overhead.value().unwrap().estimate.value - 1.5).abs() < 1e-9);
    // The idle times of two CPUs do not add up to one time.
    let two = work(&of(2, false));
    assert_eq!(two.unit, "instructions, idle included");
    assert!((two.overhead.value().unwrap().estimate.value - 1.25).abs() < 1e-9, "{two:?}");
}

#[test]
fn bytes_that_the_program_reports_are_compared_with_the_tracers() {
    let verdicts = |results: &Results| results.gates.iter().map(|gate| (gate.metric, gate.verdict)).collect::<Vec<_>>();
    let exact = results("wall", 0);
    let row = |results: &Results| *cell(results, "fexit").accuracy[0].byte_error.value().unwrap();
    assert_eq!((row(&exact).min, row(&exact).max, row(&exact).exact), (0, 0, 4));
    // The accuracy occurs once, for the whole work.
    let work = Some("work".parse::<MetricName>().unwrap());
    assert_eq!(cell(&exact, "fexit").accuracy.len(), 1);
    assert_eq!(verdicts(&exact), [(work, Verdict::Pass)]);
    let short = results("wall", 7);
    assert_eq!((row(&short).min, row(&short).max, row(&short).exact), (-7, 0, 2));
    assert_eq!(verdicts(&short), [(work, Verdict::Regression)]);
    let run = short.runs.iter().find(|run| run.record.cell.ends_with("_fexit")).unwrap();
    let bytes = &run.derived.as_ref().unwrap().bytes;
    let write = bytes.iter().find(|figure| figure.operation == Operation::Write).unwrap();
    assert_eq!(
        (write.moved_source, write.error.value(), write.mountstats_error.value()),
        (MovedSource::Summary, Some(&-7), Some(&-7))
    );
    assert!(cell(&short, "none").accuracy[0].byte_error.value().is_none());
}

#[test]
fn results_are_read_back_as_they_were() {
    let results = results("wall", 0);
    let text = serde_json::to_string(&results).unwrap();
    assert!(text.contains(r#""name":"latency","unit":"ns","better":"lower""#));
    assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
}

#[test]
fn programs_have_rows_in_the_table() {
    insta::assert_snapshot!(text(&results("wall", 7), Style::default()));
}

#[test]
fn metrics_are_in_every_format_with_their_units() {
    let results = results("wall", 0);
    let metrics = openmetrics(&results);
    let line = |of: &str| metrics.lines().find(|line| line.starts_with("bpfassay_metric_value{") && line.contains(of));
    assert!(
        line("under_test=\"fexit\",clock=\"wall\",metric=\"rate\",unit=\"1/s\"")
            .is_some_and(|line| line.ends_with(" 50")),
        "{metrics}"
    );
    let runs = csv(&results).unwrap();
    let head: Vec<&str> = runs.lines().next().unwrap().split(',').collect();
    assert_eq!(head[11..15], ["metric", "direct_instructions_per_call", "value", "unit"]);
    let latency = runs.lines().find(|line| line.contains("_fexit,") && line.contains(",latency,")).unwrap();
    assert!(latency.contains(",latency,,300,"), "{latency}");
}
