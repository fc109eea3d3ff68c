// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first lines of a report claim no more than the runs show.

use bpfassay_protocol::{Operation, probe::Probe, tracer_messages::Losses};
use bpfassay_report::{
    derive,
    render::{Style, text},
};
use bpfassay_results::{Outcome, Results, ToolResult};
use bpfassay_study::Study;
use bpfassay_tool::{
    CountedUnit, Whose,
    finding::{Compared, FindingResult, FindingStatus, Kind, NotCompared},
};

use crate::common::{contents, figures, panic_of_guest, quick, study};

/// Creates a study of one target with the workloads `ok` and `other`.
fn two_workloads(clock: &str, guest: &str) -> Study {
    let text = format!(
        r#"
schema = 1
name = "two"
description = "For tests."
clock = "{clock}"
probes = ["none", "fexit"]
[[targets]]
arch = "x86_64"
kernels = "6.12"
[[file_systems]]
type = "tmpfs"
[[workloads]]
name = "ok"
options = "-a POSIX -w -r -t 256k -b 8m"
[[workloads]]
name = "other"
options = "-a POSIX -w -r -t 256k -b 8m"
[guest]
{guest}
[design]
replicates = 1
rounds = 1
seed = 1
warm_up = 0
control = false
"#
    );
    Study::parse("two.toml", &text, &|_| Ok(None)).unwrap()
}

fn lines(results: &Results) -> Vec<String> {
    text(results, Style::default()).lines().map(str::to_owned).collect()
}

#[test]
fn a_workload_that_fails_leaves_what_another_shows() {
    let results =
        derive(&contents(&two_workloads("instructions", "cpus = 1"), |block, run| match block.case.as_str() {
            "ok" => {
                let write = if run.spec.probe.is_baseline() { 110.9 } else { 100.0 };
                Outcome::Measured(Box::new(figures(run.spec.probe, write, 200.0)))
            }
            _ => Outcome::Failed(panic_of_guest()),
        }));
    let lines = lines(&results);
    assert_eq!(
        lines[1],
        "  fexit: attaches on 1 of 1; exact in 1 of 2 cells, failed in 1; write +10.9% without an interval, \
         read 0.0% without an interval"
    );
    // The table shows no change in per cent for one observation either.
    let row = lines.iter().find(|line| line.contains("fexit") && line.contains("attached")).unwrap();
    assert!(row.contains("1.109, no interval") && !row.contains("+10.9%"), "{row}");
}

#[test]
fn where_nothing_is_known_nothing_is_said_of_attaching() {
    let results =
        derive(&contents(&two_workloads("instructions", "cpus = 1"), |_, run| match run.spec.probe.is_baseline() {
            true => Outcome::Measured(Box::new(figures(run.spec.probe, 100.0, 200.0))),
            false => Outcome::Failed(panic_of_guest()),
        }));
    assert_eq!(lines(&results)[1], "  fexit: not known on 1 of 1; failed");
}

#[test]
fn races_are_not_evaluated_where_cpus_take_turns() {
    let of = |clock: &str, cpus: u32| {
        let study = two_workloads(clock, &format!("cpus = {cpus}"));
        let results =
            derive(&contents(&study, |_, run| Outcome::Measured(Box::new(figures(run.spec.probe, 100.0, 200.0)))));
        let lines = lines(&results);
        let warned = "races between its 2 CPUs are not evaluated: under this clock they take turns";
        (lines[0].ends_with("; races not evaluated"), lines.iter().any(|line| line.contains(warned)))
    };
    assert_eq!(of("instructions", 2), (true, true));
    assert_eq!(of("instructions", 1), (false, false));
    assert_eq!(of("wall", 2), (false, false));
}

#[test]
fn programs_that_were_skipped_are_losses_only_where_bytes_are_missing() {
    let with = |missing: u64| {
        let results = derive(&contents(&study(None, 2, 1), |_, run| {
            let mut figures = figures(run.spec.probe, 100.0, 200.0);
            if run.spec.probe.probe == Probe::Fexit {
                let read = |reading: &mut bpfassay_protocol::message::Reading| {
                    if let Some(sample) = &mut reading.tracer {
                        sample.losses = Losses { recursion_misses: Some(8), ..sample.losses.clone() };
                    }
                };
                read(&mut figures.whole.after);
                for row in &mut figures.phases[0].interval.after.tracer.as_mut().unwrap().rows {
                    row.totals.bytes = row.totals.bytes.saturating_sub(missing);
                }
            }
            Outcome::Measured(Box::new(figures))
        }));
        let shown = lines(&results).join("\n");
        assert!(!shown.contains("events lost by the tracer"), "{shown}");
        shown
    };
    assert!(with(0).contains("_fexit: programs skipped 8 times, no byte missing"));
    assert!(with(5).contains("_fexit: programs skipped 8 times, bytes or calls are missing"));
}

#[test]
fn nothing_is_found_of_a_tool_only_where_all_its_figures_were_compared() {
    let of = |not_compared: Vec<NotCompared>| {
        let mut results = quick::results();
        let cell = results.cells.iter_mut().find(|cell| cell.under_test() == "fexit").unwrap();
        cell.tool = Some("mine".to_owned());
        let findings = vec![FindingResult { kind: Kind::CountsTooLow, status: FindingStatus::Clear }];
        cell.tool_result = Some(ToolResult { findings, not_compared, ..ToolResult::default() });
        let lines = lines(&results);
        (lines[0].clone(), lines.iter().find(|line| line.starts_with("  mine: ")).unwrap().clone())
    };
    let (all, mine) = of(Vec::new());
    assert!(all.contains("nothing found, 1 of 16") && !all.contains("not compared"), "{all}");
    assert!(mine.contains("; nothing found; "), "{mine}");
    let (all, mine) = of(vec![NotCompared {
        index: 1,
        figure: "`reads` (read, calls)".to_owned(),
        reason: "the tool reported nothing".to_owned(),
    }]);
    assert!(all.contains("nothing found in part of its figures, 1 of 16"), "{all}");
    assert!(all.ends_with("; not compared: `reads` (read, calls)"), "{all}");
    assert!(mine.contains("; nothing found in part of its figures; not compared: `reads` (read, calls); "), "{mine}");
}

/// The losses or excess counts of a system-wide tool can be within its uncertainty.
#[test]
fn a_figure_within_bounds_is_not_said_to_be_exact() {
    let of = |reported: u64, differs: Option<&str>| {
        let mut results = quick::results();
        let cell = results.cells.iter_mut().find(|cell| cell.under_test() == "fexit").unwrap();
        cell.tool = Some("mine".to_owned());
        let figure = Compared {
            figure: "reads".to_owned(),
            operations: vec![Operation::Read],
            variants: Vec::new(),
            unit: CountedUnit::Calls,
            whose: Whose::System,
            subject: None,
            reported,
            really: 100,
            moved: None,
            reported_as: None,
            rounding: 0,
            values: None,
            differs: differs.map(str::to_owned),
        };
        let findings = vec![FindingResult { kind: Kind::CountsTooLow, status: FindingStatus::Clear }];
        let figures = vec![figure];
        cell.tool_result = Some(ToolResult { findings, figures, ..ToolResult::default() });
        lines(&results)[0].clone()
    };
    for reported in [99, 101] {
        let words = of(reported, None);
        assert!(words.contains("nothing found (within bounds, not exact), 1 of 16"), "{words}");
    }
    assert!(of(100, None).contains("nothing found, 1 of 16"));
    assert!(of(99, Some("of another definition")).contains("nothing found, 1 of 16"));
}
