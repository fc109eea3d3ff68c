// SPDX-License-Identifier: MIT OR Apache-2.0
//! Direct costs that a model of caches and branches prices: the misses next to the instructions, by
//! role and in every format, and none of it without a model.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use bpfassay_report::{
    compare::{Question, compare},
    derive,
    render::{Style, csv, html, markdown, openmetrics, text},
};
use bpfassay_results::{
    Direct, Figure, FunctionCount, Instructions, JournalEntry, Misses, Outcome, PhaseCount, PhaseMisses, Results, Role,
    RunCount,
};
use bpfassay_study::{Clock, Model, PlannedRun, Study};

use crate::common::{contents, figures, study};

/// Calls in each phase of the made-up workload, and the instructions of a phase without a tool.
const CALLS: u64 = 32;
const BASELINE: u64 = 1_000_000_000;

const fn misses(l1i: u64, l1d: u64, l2: u64, mispredicted: u64) -> Misses {
    Misses { l1i: l1i * CALLS, l1d: l1d * CALLS, l2: l2 * CALLS, mispredicted: mispredicted * CALLS }
}

/// Creates counts of a program that misses the caches, another function on the path that
/// mispredicts a branch, and one mispredicted branch elsewhere.
fn count(run: &PlannedRun, is_modelled: bool) -> Instructions {
    let of = |misses: Misses| is_modelled.then_some(misses);
    let part = |function: &str, role, per_call, found| FunctionCount {
        function: function.to_owned(),
        role,
        instructions: per_call * CALLS,
        misses: of(found),
    };
    let (direct, more, all) = match run.spec.probe.is_baseline() {
        true => (Vec::new(), 0, misses(50, 60, 70, 80)),
        false => {
            let program = part("on_call", Role::Program, 100, misses(1, 2, 1, 0));
            let entry = part("migrate_enable", Role::Entry, 30, misses(0, 0, 0, 3));
            (vec![program, entry], 137, misses(51, 62, 71, 84))
        }
    };
    let misses = is_modelled.then_some(PhaseMisses { all, user: Misses::default() });
    Instructions { all: BASELINE + more * CALLS, user: 5, tool: None, unresolved: 0, misses, direct }
}

/// Creates results of the made-up study with `model`; the plugin counts with or without a model.
fn results_with(model: Option<Model>, is_modelled: bool) -> Results {
    let study = Study { model, clock: Clock::Instructions, clock_of_host: false, ..study(None, 2, 1) };
    let mut contents = contents(&study, |_, run| Outcome::Measured(Box::new(figures(run.spec.probe, 100.0, 200.0))));
    let blocks = contents.header.plan.blocks.clone();
    for entry in &mut contents.entries {
        let JournalEntry::BlockEnded(ended) = entry else { continue };
        let block = blocks.iter().find(|block| block.id == ended.block).unwrap();
        let phase = |name: &str, run: &PlannedRun| PhaseCount {
            name: name.to_owned(),
            test: 0,
            repetition: 0,
            count: Figure::Value(count(run, is_modelled)),
        };
        let of_run = |run: &PlannedRun| RunCount {
            run: run.spec.id.clone(),
            phases: ["write", "read"].map(|name| phase(name, run)).into(),
        };
        ended.counts = Some(Figure::Value(block.runs.iter().map(of_run).collect()));
    }
    derive(&contents)
}

fn results() -> Results {
    results_with(Model::named("cachegrind"), true)
}

fn direct(results: &Results) -> impl Iterator<Item = &Direct> {
    let metrics = results.cells.iter().flat_map(|cell| &cell.metrics);
    metrics.filter_map(|metric| metric.direct.as_ref()?.value())
}

#[test]
fn a_model_gives_a_vector_by_role_and_its_price() {
    let results = results();
    assert!(direct(&results).count() >= 4);
    for direct in direct(&results) {
        let priced = direct.priced.as_ref().unwrap();
        assert_eq!(priced.misses.numbers(), [1.0, 2.0, 1.0, 3.0]);
        // 130 instructions, three misses of L1, one of L2, three mispredicted branches.
        assert_eq!((priced.per_call.min, priced.per_call.max), (130.0 + 160.0, 130.0 + 160.0));
        assert_eq!(priced.elsewhere_misses.numbers(), [0.0, 0.0, 0.0, 1.0]);
        assert!((priced.elsewhere.mean - 17.0).abs() < 1e-6, "{priced:?}");
        let roles: Vec<_> =
            priced.roles.iter().map(|of| (of.role, of.instructions, of.misses.numbers(), of.per_call)).collect();
        let program = (Role::Program, 100.0, [1.0, 2.0, 1.0, 0.0], 230.0);
        assert_eq!(roles, [program, (Role::Entry, 30.0, [0.0, 0.0, 0.0, 3.0], 60.0)]);
        assert_eq!(direct.functions[0].misses.unwrap().numbers(), [1.0, 2.0, 1.0, 0.0]);
    }
    let json = serde_json::to_string(&results).unwrap();
    assert_eq!(serde_json::from_str::<Results>(&json).unwrap(), results);
    assert!(!json.contains("cycles"));
}

#[test]
fn without_a_model_there_is_nothing_of_it() {
    let without = results_with(None, false);
    for text in [
        serde_json::to_string(&without.cells).unwrap(),
        serde_json::to_string(&without.runs).unwrap(),
        serde_json::to_string(&without.plan).unwrap(),
        text(&without, Style::default()),
        csv(&without).unwrap(),
        openmetrics(&without),
    ] {
        for word in ["direct_misses", "\"priced\"", "priced_direct", "l1i", "\"model\"", "by the model"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
    }
    // A study without a model does not show the model's counts in a journal. A study with a model
    // has no figure for missing counts.
    for results in [results_with(None, true), results_with(Model::named("cachegrind"), false)] {
        assert!(direct(&results).all(|direct| direct.priced.is_none()));
        assert!(!text(&results, Style::default()).contains("by the model"));
    }
}

#[test]
fn every_format_shows_the_vector_beside_the_instructions() {
    let results = results();
    let section = |text: &str| {
        let (_, table) = text.split_once("direct cost priced by").unwrap();
        format!("direct cost priced by{}", table.split("\n\n").next().unwrap())
    };
    let terminal = text(&results, Style { width: Some(80) });
    assert!(section(&terminal).lines().all(|line| line.chars().count() <= 80), "{terminal}");
    insta::assert_snapshot!(section(&terminal));
    let plain = text(&results, Style::default());
    insta::assert_snapshot!(section(&plain));
    assert!(markdown(&results).contains("| mispredicted "));
    let page = html(&results).unwrap();
    assert!(page.contains("direct cost priced by the model cachegrind") && page.contains("--model cachegrind"));
    let of_fexit = |line: &&str| line.contains("6.1\"") && line.contains("x86_64") && line.contains("fexit");
    let gauges = openmetrics(&results);
    let lines: Vec<&str> = gauges.lines().filter(of_fexit).filter(|line| line.contains("\"cachegrind\"")).collect();
    insta::assert_snapshot!(lines.join("\n"));
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/report-formats.md"))
        .unwrap();
    let named: Vec<&str> = page.split('`').filter(|name| name.starts_with("bpfassay_")).collect();
    let named = named.iter().filter(|name| name.contains("_priced_") || name.contains("_model_"));
    assert_eq!(named.filter(|name| gauges.contains(&format!("# TYPE {name} gauge\n"))).count(), 3);
    let table = csv(&results).unwrap();
    let lines: Vec<&str> = table.lines().filter(|line| line.contains("metric") || line.contains("fexit")).collect();
    insta::assert_snapshot!(lines[..2].join("\n"));
    // Every line has as many fields as the header.
    let fields = |line: &str| line.matches(',').count();
    assert!(table.lines().all(|line| line.contains('"') || fields(line) == fields(lines[0])), "{table}");
}

#[test]
fn figures_of_different_models_are_said_not_to_be_comparable() {
    let priced = results();
    let notes = |base: &Results, new: &Results| compare(base, new, &Question::default()).unwrap().notes.join("\n");
    assert!(!notes(&priced, &priced).contains("model"));
    let mut other = Model::named("cachegrind").unwrap();
    other.prices.l2_miss = 35;
    let found = notes(&priced, &results_with(Some(other), true));
    assert!(found.contains("priced direct costs are not comparable") && found.contains("35 per miss of L2"), "{found}");
    let found = notes(&results_with(None, false), &priced);
    assert!(found.contains("the base has no model; the new results have cachegrind"), "{found}");
}
