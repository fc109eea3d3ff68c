// SPDX-License-Identifier: MIT OR Apache-2.0
//! Direct costs: counts of QEMU's plugin per call and by role, and a reason if they cannot be
//! trusted.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use bpfassay_report::{
    compare::{Comparison, Question, compare},
    derive,
    render::{
        Style, collapsed, comparison_html, comparison_junit, comparison_text, csv, html, openmetrics, pprof, text,
    },
    trend::{Quantity, trend},
};
use bpfassay_results::{
    CellMetric, Direct, Figure, FunctionCount, Instructions, JournalContents, JournalEntry, Outcome, PhaseCount,
    Results, Role, RunCount, RunResult,
};
use bpfassay_stats::{Verdict, gate_decision::Change};
use bpfassay_study::{Clock, Gate, PlannedRun, Study};

use crate::common::{contents, figures, pprof::read, quick, study};

/// Calls in each phase of the made-up workload, and the instructions of a phase without a tool.
const CALLS: u64 = 32;
const BASELINE: u64 = 1_000_000_000;

/// Creates the instructions of each phase of a made-up run. Runs with a tool execute a program,
/// another function on the path, and something elsewhere.
fn count(is_baseline: bool) -> Figure<Instructions> {
    count_of(100, is_baseline)
}

/// Creates these instructions with `program` instructions in the program.
fn count_of(program: u64, is_baseline: bool) -> Figure<Instructions> {
    let part = |function: &str, role, per_call| FunctionCount {
        function: function.to_owned(),
        role,
        instructions: per_call * CALLS,
        misses: None,
    };
    let direct = match is_baseline {
        true => Vec::new(),
        false => vec![part("on_call", Role::Program, program), part("migrate_enable", Role::Entry, 30)],
    };
    let all = BASELINE + if is_baseline { 0 } else { (program + 30 + 7) * CALLS };
    let tool = (!is_baseline).then_some(Figure::Value(0));
    Figure::Value(Instructions { all, user: 5, tool, unresolved: 0, misses: None, direct })
}

/// Creates the journal of the made-up study, with counts in every boot.
fn counted(counts: impl Fn(bool) -> Figure<Instructions>, idle_ns: Option<u64>) -> JournalContents {
    counted_in(&study(None, 2, 1), |_, is_baseline| counts(is_baseline), idle_ns)
}

/// Creates the journal of `study`, with counts by run in every boot.
fn counted_in(
    study: &Study,
    counts: impl Fn(&PlannedRun, bool) -> Figure<Instructions>,
    idle_ns: Option<u64>,
) -> JournalContents {
    let mut contents = contents(study, |_, run| {
        let mut figures = figures(run.spec.probe, 100.0, 200.0);
        for phase in &mut figures.phases {
            phase.interval.before.idle_ns = idle_ns.map(|_| 0);
            phase.interval.after.idle_ns = idle_ns;
        }
        Outcome::Measured(Box::new(figures))
    });
    let blocks = contents.header.plan.blocks.clone();
    for entry in &mut contents.entries {
        let JournalEntry::BlockEnded(ended) = entry else { continue };
        let block = blocks.iter().find(|block| block.id == ended.block).unwrap();
        let of_run = |run: &PlannedRun| RunCount {
            run: run.spec.id.clone(),
            phases: ["write", "read"]
                .map(|name| PhaseCount {
                    name: name.to_owned(),
                    test: 0,
                    repetition: 0,
                    count: counts(run, run.spec.probe.is_baseline()),
                })
                .into(),
        };
        ended.counts = Some(Figure::Value(block.runs.iter().map(of_run).collect()));
    }
    contents
}

/// Returns the direct cost of every metric with a tool.
fn direct(results: &Results) -> Vec<&Figure<Direct>> {
    let metrics = results.cells.iter().filter(|cell| !cell.is_baseline()).flat_map(|cell| &cell.metrics);
    metrics.map(|metric| metric.direct.as_ref().unwrap()).collect()
}

/// The plugin follows calls without distinguishing CPUs.
#[test]
fn direct_costs_are_not_measured_on_several_cpus() {
    let mut study = study(None, 2, 1);
    study.guest.cpus = 2;
    let results = derive(&counted_in(&study, |_, is_baseline| count(is_baseline), None));
    let all = direct(&results);
    assert!(!all.is_empty());
    for direct in all {
        assert!(direct.reason().is_some_and(|reason| reason.starts_with("with several CPUs")), "{direct:?}");
    }
}

#[test]
fn instructions_that_no_function_has_are_counted_and_shown() {
    let unresolved = |is_baseline: bool| {
        let Figure::Value(count) = count(is_baseline) else { panic!("not counted") };
        Figure::Value(Instructions { unresolved: 3 * CALLS, ..count })
    };
    let results = derive(&counted(unresolved, None));
    assert!(direct(&results).iter().all(|direct| (direct.value().unwrap().unresolved - 3.0).abs() < 1e-9));
    let shown = "Up to 3.0 instructions per call are at addresses that no function has";
    // Undo the wrapping of lines.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&text(&results, Style::default())).contains(shown), "{}", text(&results, Style::default()));
    assert!(!text(&derive(&counted(count, None)), Style::default()).contains("no function has"));
}

#[test]
fn what_the_tool_executes_in_user_space_is_shown_where_there_is_any() {
    let of_tool = |tool: Figure<u64>| {
        derive(&counted(
            |is_baseline| {
                let Figure::Value(count) = count(is_baseline) else { panic!("not counted") };
                Figure::Value(Instructions { tool: (!is_baseline).then(|| tool.clone()), ..count })
            },
            None,
        ))
    };
    let results = of_tool(Figure::Value(3 * CALLS));
    for direct in direct(&results) {
        let Some(Figure::Value(tool)) = &direct.value().unwrap().tool else { panic!("{direct:?}") };
        assert_eq!((tool.min, tool.mean, tool.max), (3.0, 3.0, 3.0));
        // It is part of what is elsewhere, and not of the direct cost.
        assert_eq!(direct.value().unwrap().per_call.mean, 130.0);
    }
    let shows = |results: &Results, words: &str| {
        text(results, Style::default()).split_whitespace().collect::<Vec<_>>().join(" ").contains(words)
    };
    assert!(
        shows(&results, "elsewhere tool whole") && shows(&results, "what the tool's processes executed in user space")
    );
    assert!(openmetrics(&results).contains("bpfassay_tool_user_instructions_per_call{"));
    let unknown = of_tool(Figure::missing("nobody can divide them"));
    assert!(!shows(&unknown, "elsewhere tool whole"));
    assert!(shows(&unknown, "is not measured in some rows (`tool` in results.json): nobody can divide them."));
    assert!(!shows(&of_tool(Figure::Value(0)), "elsewhere tool whole"));
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
    let runs = |is_baseline: bool| {
        let of = |run: &&RunResult| results.plan.cell(&run.record.cell).unwrap().is_baseline() == is_baseline;
        let metrics = results.runs.iter().filter(of).flat_map(|run| &run.derived).flat_map(|derived| &derived.metrics);
        metrics.map(|metric| metric.direct_cost.clone()).collect::<Vec<_>>()
    };
    assert!(runs(false).len() >= 8 && runs(false).iter().all(|cost| *cost == Some(Figure::Value(130.0))));
    assert!(runs(true).iter().all(Option::is_none));
    let text = text(&results, Style::default());
    assert!(text.contains("direct cost in instructions per call, study made-up"), "{text}");
    assert!(text.contains("+7.0"), "{text}");
}

#[test]
fn a_count_that_the_clock_contradicts_is_not_measured() {
    // The made-up phases take a second, in which the guest was idle for `idle_ns`.
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

/// Creates a study under the instruction clock.
fn instructions(rounds: u32, seed: u64) -> Study {
    let mut study = Study { clock: Clock::Instructions, ..study(None, rounds, 1) };
    study.design.seed = seed;
    study
}

fn with_program(study: &Study, program: impl Fn(&PlannedRun) -> u64) -> Results {
    derive(&counted_in(study, |run, is_baseline| count_of(program(run), is_baseline), None))
}

fn changes(comparison: &Comparison) -> Vec<Change> {
    comparison.cells.iter().flat_map(|cell| &cell.metrics).filter_map(|metric| metric.direct_change()).collect()
}

#[test]
fn gates_limit_the_direct_cost_of_every_run_and_what_was_not_counted_does_not_pass() {
    let gated = |limit: u64, figures: &dyn Fn(&PlannedRun, bool) -> Figure<Instructions>| {
        let gate = Gate { direct_cost: Some(limit), ..Gate::default() };
        let results = derive(&counted_in(&Study { gates: vec![gate], ..instructions(2, 1) }, figures, None));
        let found = results.gates.into_iter().map(|gate| (gate.metric.is_some(), gate.verdict, gate.found));
        found.collect::<Vec<_>>()
    };
    let all = |verdict, limit: u64, figures: &dyn Fn(&PlannedRun, bool) -> Figure<Instructions>| {
        let found = gated(limit, figures);
        // There are three targets with two probe configurations and two metrics each. The target
        // that refuses one configuration as expected lacks it.
        assert!(found.len() >= 4 && found.iter().all(|(of_metric, is, _)| *of_metric && *is == verdict), "{found:?}");
        found[0].2.clone()
    };
    let exact = |_: &PlannedRun, is_baseline| count(is_baseline);
    assert_eq!(all(Verdict::Pass, 132, &exact), "130.0 instructions/call, n 2");
    assert_eq!(all(Verdict::Pass, 131, &exact), "130.0 instructions/call, n 2");
    // The cost is so close to the limit that another boot can exceed it.
    let near = "130.0 instructions/call, n 2, in one boot; others may differ by 0.75 %: set `replicates`";
    assert_eq!(all(Verdict::Inconclusive, 130, &exact), near);
    let gate = Gate { direct_cost: Some(130), ..Gate::default() };
    let boots =
        derive(&counted_in(&Study { gates: vec![gate], clock: Clock::Instructions, ..study(None, 2, 2) }, exact, None));
    assert!(boots.gates.iter().all(|gate| gate.verdict == Verdict::Pass), "{:?}", boots.gates);
    assert_eq!(all(Verdict::Regression, 129, &exact), "130.0 instructions/call");
    // One run above the limit is enough.
    let once = |run: &PlannedRun, is_baseline| count_of(99 + u64::from(run.round), is_baseline);
    assert_eq!(all(Verdict::Regression, 130, &once), "130.0..131.0 instructions/call");
    assert_eq!(all(Verdict::Pass, 133, &once), "130.0..131.0 instructions/call, n 2");
    let half = |run: &PlannedRun, is_baseline| match run.round {
        1 => count(is_baseline),
        _ => Figure::missing("the plugin counted nothing in this phase"),
    };
    assert_eq!(all(Verdict::Inconclusive, 200, &half), "130.0 instructions/call, but 1 of 2 runs were counted");
    let none = |_: &PlannedRun, _| Figure::missing("the plugin counted nothing in this phase");
    assert!(all(Verdict::Inconclusive, 200, &none).starts_with("not measured: the plugin counted nothing"));
    // The gate is also inconclusive without any plugin.
    let gate = Gate { direct_cost: Some(200), ..Gate::default() };
    let without = Study { gates: vec![gate], ..instructions(2, 1) };
    let results =
        derive(&contents(&without, |_, run| Outcome::Measured(Box::new(figures(run.spec.probe, 100.0, 200.0)))));
    assert!(!results.gates.is_empty());
    for gate in &results.gates {
        assert_eq!((gate.metric, gate.verdict), (None, Verdict::Inconclusive));
        assert!(gate.found.starts_with("not measured: no plugin of QEMU"), "{}", gate.found);
    }
}

#[test]
fn one_instruction_more_in_a_program_is_called_from_one_run_each() {
    let one = |program: u64| with_program(&instructions(1, 1), |_| program);
    let compared = |base: &Results, new: &Results| compare(base, new, &Question::default()).unwrap();
    let (base, new) = (one(100), one(101));
    let comparison = compared(&base, &new);
    let found = changes(&comparison);
    assert!(found.len() >= 4 && found.iter().all(|change| *change == Change::Increase), "{found:?}");
    assert!(comparison.is_regression());
    let direct = comparison.cells.iter().flat_map(|cell| &cell.metrics).find_map(|metric| metric.direct.as_ref());
    let direct = direct.unwrap().value().unwrap();
    assert_eq!((direct.per_call, direct.spread), ([130.0, 131.0], 0.0));
    // The function that differs is listed, and no other.
    let functions: Vec<_> = direct.functions.iter().map(|of| (of.function.as_str(), of.role, of.per_call)).collect();
    assert_eq!(functions, [("on_call", Role::Program, [100.0, 101.0])]);
    assert!(changes(&compared(&new, &base)).iter().all(|change| *change == Change::Decrease));
    let same = compared(&base, &base);
    assert!(changes(&same).iter().all(|change| *change == Change::Equivalent) && !same.is_regression());

    let text = comparison_text(&comparison, Style::default(), false);
    insta::assert_snapshot!(text);
    let page = comparison_html(&comparison, false).unwrap();
    assert!(page.contains("functions whose direct cost differs") && page.contains("130.0 → 131.0"));
    let junit = comparison_junit(&comparison).unwrap();
    assert_eq!(junit.matches("130.0 → 131.0 instructions/call").count(), found.len(), "{junit}");
    let json = serde_json::to_string(&comparison).unwrap();
    assert_eq!(serde_json::from_str::<Comparison>(&json).unwrap(), comparison);
}

#[test]
fn what_runs_and_seeds_differ_by_is_no_change() {
    let question = Question::default();
    let wobbling = |from: u64| with_program(&instructions(2, 1), move |run| from + u64::from(run.round));
    let found = changes(&compare(&wobbling(100), &wobbling(101), &question).unwrap());
    assert!(found.iter().all(|change| *change == Change::Inconclusive), "{found:?}");
    let found = changes(&compare(&wobbling(100), &wobbling(102), &question).unwrap());
    assert!(found.iter().all(|change| *change == Change::Increase), "{found:?}");
    // The seeds differ, so up to 0.75 % of 130 instructions more are equivalent.
    let other = |program: u64| with_program(&instructions(1, 2), move |_| program);
    let base = with_program(&instructions(1, 1), |_| 100);
    let found = changes(&compare(&base, &other(101), &question).unwrap());
    assert!(found.iter().all(|change| *change == Change::Equivalent), "{found:?}");
    let found = changes(&compare(&base, &other(102), &question).unwrap());
    assert!(found.iter().all(|change| *change == Change::Increase), "{found:?}");
    // 8 of 1030 instructions are within that share and half an instruction.
    let base = with_program(&instructions(1, 1), |_| 1000);
    for (program, expected) in [(1008, Change::Equivalent), (1009, Change::Increase)] {
        let found = changes(&compare(&base, &other(program), &question).unwrap());
        assert!(!found.is_empty() && found.iter().all(|change| *change == expected), "{program}: {found:?}");
    }
    // A cost that only one result has is not compared.
    let none = derive(&counted_in(&instructions(1, 1), |_, _| Figure::missing("nothing was counted"), None));
    let comparison = compare(&base, &none, &question).unwrap();
    assert!(changes(&comparison).is_empty());
    let text = comparison_text(&comparison, Style::default(), false);
    assert!(text.contains("in the new results: nothing was counted"), "{text}");
}

#[test]
fn what_another_tool_costs_is_said_in_words() {
    let question = Question { tools: vec![("kprobe".into(), "fexit".into())], ..Question::default() };
    let more = "costs 41 instructions more per write; costs 41 instructions more per read";
    for (program, words) in [(141, more), (100, "costs as many instructions per write and read")] {
        let of = |run: &PlannedRun| if run.spec.probe.to_string() == "fexit" { program } else { 100 };
        let results = with_program(&instructions(1, 1), of);
        let comparison = compare(&results, &results, &question).unwrap();
        assert!(comparison.cells.iter().all(|cell| cell.under_test == "kprobe → fexit"));
        assert!(comparison_text(&comparison, Style::default(), false).contains(&format!("`fexit` {words}\n")));
    }
}

#[test]
fn a_series_of_kernels_has_its_direct_costs() {
    let named: Vec<(String, Results)> = (0..8)
        .map(|day| {
            let program = if day < 4 { 100 } else { 110 };
            (format!("day {day}"), with_program(&instructions(3, 1), move |_| program))
        })
        .collect();
    let trend = trend(&named).unwrap();
    let series: Vec<_> = trend.series.iter().filter(|series| series.quantity == Quantity::DirectCost).collect();
    assert!(series.len() >= 4);
    for series in series {
        assert_eq!(series.points[0].value.value(), Some(&130.0));
        let changes = &series.segmentation.value().unwrap().changes;
        let [change] = changes.as_slice() else { panic!("{changes:?}") };
        assert_eq!((change.last_before, change.first_after), (3, 4));
    }
}

#[test]
fn other_programs_get_the_direct_cost_first() {
    let results = derive(&counted(count, None));
    let written = csv(&results).unwrap();
    let (mut lines, at) = (written.lines(), |line: &str, column| line.split(',').nth(column).map(str::to_owned));
    let head = lines.next().unwrap();
    let column = head.split(',').position(|name| name == "direct_instructions_per_call").unwrap();
    assert_eq!(at(head, column - 1).as_deref(), Some("metric"));
    for line in lines {
        let is_baseline = at(line, 6).as_deref() == Some("none");
        let measured = at(line, 10).as_deref() == Some("measured");
        let expected = if is_baseline || !measured { "" } else { "130" };
        assert_eq!(at(line, column).as_deref(), Some(expected), "{line}");
    }
    let metrics = openmetrics(&results);
    assert!(metrics.contains("# TYPE bpfassay_direct_instructions_per_call gauge"), "{metrics}");
    let of_fexit = |line: &&str| line.contains("6.1\"") && line.contains("x86_64") && line.contains("fexit");
    let shown: Vec<&str> =
        metrics.lines().filter(of_fexit).filter(|line| line.contains("direct") || line.contains("elsewhere")).collect();
    insta::assert_snapshot!(shown.join("\n"));
    // The documentation names the existing metrics.
    let metrics = openmetrics(&with_program(&instructions(2, 1), |_| 100));
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/report-formats.md"))
        .unwrap();
    let named: Vec<&str> = page.split('`').filter(|name| name.starts_with("bpfassay_")).collect();
    // `priced.rs` checks the metrics of a model.
    let named: Vec<&str> =
        named.into_iter().filter(|name| !name.contains("_priced_") && !name.contains("_model_")).collect();
    assert!(named.len() >= 5, "{named:?}");
    for name in named {
        assert!(metrics.contains(&format!("# TYPE {name} gauge\n")), "{name} is no gauge:\n{metrics}");
    }
    assert!(page.contains("`direct_instructions_per_call`"));
}

#[test]
fn one_call_is_shown_by_role_and_function() {
    let results = derive(&counted(count, None));
    let page = crate::common::without_labels(&html(&results).unwrap());
    assert!(page.contains("<a href=\"#direct\">Direct cost</a>"));
    let title = "x86_64 6.1, w, nfs4.2: fexit, write: direct cost by function";
    let (_, figure) = page.split_once(&format!("<figcaption>{title}</figcaption>")).unwrap();
    let (figure, _) = figure.split_once("</figure>").unwrap();
    assert!(
        figure.contains(">130.0 instructions per call</text>") && figure.contains(">program 100.0</text>"),
        "{figure}"
    );
    // The box is as wide as 100 of 130 instructions.
    assert!(figure.contains("<title>on_call 100.0</title><path d=\"M0.0 56.0H461.5V"), "{figure}");
    // A function too narrow for its name is in the list.
    assert!(figure.contains("<td>migrate_enable</td><td>30.0</td>"), "{figure}");
    let baseline_or_none = derive(&contents(&study(None, 2, 1), |_, run| {
        Outcome::Measured(Box::new(figures(run.spec.probe, 100.0, 200.0)))
    }));
    assert!(!html(&baseline_or_none).unwrap().contains("direct cost by function"));

    let stacks = collapsed(&results);
    let is_of_fexit = |line: &&str| line.starts_with("x86_64 6.1;w;nfs4.2;fexit;write;");
    assert_eq!(
        stacks.lines().filter(is_of_fexit).collect::<Vec<_>>(),
        [
            "x86_64 6.1;w;nfs4.2;fexit;write;program;on_call 100000",
            "x86_64 6.1;w;nfs4.2;fexit;write;entry;migrate_enable 30000"
        ]
    );
    assert_eq!(collapsed(&baseline_or_none), "");
}

#[test]
fn the_profile_has_the_direct_cost_of_every_cell_by_role_and_function() {
    for results in [derive(&counted(count, None)), quick::results()] {
        let profile = read(&pprof(&results).unwrap());
        assert_eq!(profile.sample_types, [["instructions_per_1000_calls", "count"].map(str::to_owned)]);
        assert_eq!(profile.time_nanos, results.started_unix_ms * 1_000_000);
        let mut samples = profile.samples.iter();
        for cell in &results.cells {
            let measured =
                |metric: &CellMetric| Some((metric.name.to_string(), metric.direct.as_ref()?.value()?.clone()));
            for (metric, direct) in cell.metrics.iter().filter_map(measured) {
                let labels = [
                    ("target", cell.target.to_string()),
                    ("case", cell.case.clone()),
                    ("file_system", cell.file_system.clone()),
                    ("probe", cell.under_test()),
                    ("metric", metric),
                ];
                let labels = labels.map(|(key, value)| (key.to_owned(), value)).into();
                let of_cell: Vec<_> = samples.by_ref().take(direct.functions.len()).collect();
                for (sample, function) in of_cell.iter().zip(&direct.functions) {
                    assert_eq!(sample.stack, [cell.under_test(), function.role.to_string(), function.function.clone()]);
                    assert_eq!(sample.labels, labels);
                }
                let sum: i64 = of_cell.iter().map(|sample| sample.values[0]).sum();
                let rounded = 0.5 * direct.functions.len() as f64;
                assert!((sum as f64 - direct.per_call.mean * 1000.0).abs() <= rounded, "{labels:?}: {sum}, {direct:?}");
            }
        }
        assert_eq!(samples.next(), None);
        assert!(profile.samples.len() >= 8);
    }
    let none = read(&pprof(&derive(&counted(|_| Figure::missing("nothing was counted"), None))).unwrap());
    assert_eq!(none.samples, []);
}

#[test]
fn an_overhead_within_noise_is_no_ratio_below_one() {
    // kprobe and fexit are faster in one round and slower in the others, or slower in all.
    let of = |kprobe: [f64; 3], fexit: [f64; 3]| {
        derive(&contents(&instructions(3, 1), |_, run| {
            let round = run.round as usize - 1;
            let factor = match run.spec.probe.to_string().as_str() {
                "kprobe" => kprobe[round],
                "fexit" => fexit[round],
                _ => 1.0,
            };
            Outcome::Measured(Box::new(figures(run.spec.probe, 160.0 * factor, 320.0 * factor)))
        }))
    };
    let results = of([1.03, 0.995, 1.01], [0.90, 0.901, 0.899]);
    let shown = text(&results, Style::default());
    let rows = |probe: &str| shown.lines().filter(|line| line.contains(&format!(" {probe} "))).collect::<Vec<_>>();
    assert!(!rows("kprobe").is_empty() && !rows("fexit").is_empty(), "{shown}");
    assert!(
        rows("kprobe").iter().take(3).all(|row| row.contains("within noise [0.") && !row.contains(" 0.98")),
        "{shown}"
    );
    assert!(rows("fexit").iter().take(2).all(|row| row.contains(" 1.111 [")), "{shown}");
    let gauges = openmetrics(&results);
    let noise = |probe: &str| {
        let of =
            |line: &&str| line.starts_with("bpfassay_overhead_within_noise{") && line.contains(&format!("\"{probe}\""));
        gauges.lines().filter(of).map(|line| line.ends_with(" 1")).collect::<Vec<_>>()
    };
    assert!(noise("kprobe").iter().all(|is| *is) && noise("fexit").iter().all(|is| !is), "{gauges}");
    assert!(html(&results).unwrap().contains("within noise [0."));
}
