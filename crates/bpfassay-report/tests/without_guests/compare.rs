// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparisons of two results.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use bpfassay_protocol::{
    Operation,
    finding_name::{Finding, Pitfall},
    job::Scheduling,
    probe::Probe,
};
use bpfassay_report::{
    compare::{CellComparison, Comparison, Fate, Filter, NotComparable, Question, compare},
    derive,
    render::{Style, comparison_html, comparison_junit, comparison_markdown, comparison_text},
    trend::trend,
};
use bpfassay_results::{Outcome, Pooled, Results};
use bpfassay_stats::gate_decision::Change;
use bpfassay_study::{Block, Clock, PlannedRun, Study, Target};

use crate::common::{contents, figures, not_supported, outcome, study, study_of};

fn instructions() -> Study {
    Study { clock: Clock::Instructions, ..study(None, 3, 1) }
}

/// Creates runs whose bandwidths vary in the same way in each round; fexit is slower by `slower`.
fn steady(slower: f64) -> impl Fn(&Block, &PlannedRun) -> Outcome {
    move |_, run| {
        let probe = run.spec.probe;
        let wobble = 1.0 + 0.001 * f64::from(run.round);
        let cost = match probe.probe {
            Probe::None => 1.0,
            Probe::Kprobe => 1.10,
            // The extra work differs a little between rounds.
            _ => 1.05 * (1.0 + slower * (1.0 + 0.01 * f64::from(run.round))),
        };
        Outcome::Measured(Box::new(figures(probe, 160.0 / cost * wobble, 320.0 / cost * wobble)))
    }
}

fn results(study: &Study, outcome: impl Fn(&Block, &PlannedRun) -> Outcome) -> Results {
    derive(&contents(study, outcome))
}

fn compared(base: &Results, new: &Results) -> Comparison {
    compare(base, new, &Question::default()).unwrap()
}

fn cell<'a>(comparison: &'a Comparison, target: &str, under_test: &str) -> &'a CellComparison {
    let is_it = |cell: &&CellComparison| cell.target() == target && cell.under_test == under_test;
    comparison.cells.iter().find(is_it).unwrap()
}

fn changes(comparison: &Comparison, under_test: &str) -> Vec<Change> {
    let of = |cell: &&CellComparison| cell.under_test == under_test;
    comparison.cells.iter().filter(of).flat_map(|cell| &cell.metrics).map(|metric| metric.change).collect()
}

#[test]
fn results_are_alike_with_themselves() {
    let one = results(&instructions(), steady(0.0));
    let comparison = compared(&one, &one);
    assert!(!comparison.is_regression() && !comparison.is_inconclusive());
    assert!(comparison.cells.iter().all(|cell| cell.fate == Fate::Compared));
    assert_eq!(changes(&comparison, "fexit"), [Change::Equivalent; 6]);
}

#[test]
fn half_a_per_cent_more_is_a_regression_of_that_cell_alone() {
    let base = results(&instructions(), steady(0.0));
    let new = results(&instructions(), steady(0.005));
    let comparison = compared(&base, &new);
    assert!(comparison.is_regression());
    assert_eq!(changes(&comparison, "fexit"), [Change::Increase; 6]);
    assert_eq!(changes(&comparison, "kprobe"), [Change::Equivalent; 6]);
    let ratio = cell(&comparison, "x86_64 6.1", "fexit").metrics[0].ratio.value().unwrap().estimate.value;
    assert!((ratio - 1.0051).abs() < 1e-6, "{ratio}");
    let back = compared(&new, &base);
    assert!(!back.is_regression());
    assert_eq!(changes(&back, "fexit"), [Change::Decrease; 6]);
}

#[test]
fn other_seeds_are_independent_samples() {
    let mut other = instructions();
    other.design.seed = 2;
    let (base, new) = (results(&instructions(), steady(0.0)), results(&other, steady(0.0)));
    let comparison = compared(&base, &new);
    let ratio = cell(&comparison, "x86_64 6.1", "none").metrics[0].ratio.value().unwrap();
    assert!(!ratio.paired);
    // The deviation is 0.001 in both results: three rounds do not show that means are within 0.1 %.
    assert_eq!(changes(&comparison, "none"), [Change::Inconclusive; 6]);
    assert!(comparison.is_inconclusive() && !comparison.is_regression());
}

/// One boot each has another seed, and so another layout. A change of an overhead is claimed beyond
/// the layout term of both. Baselines differ more, so nothing is claimed.
#[test]
fn one_boot_with_another_seed_claims_of_overheads_beyond_the_layout_term() {
    let mut other = instructions();
    other.design.seed = 2;
    // The rounds of a boot differ by 0.001 % in a probe's cost, in another order in each result.
    let of = |slower: f64, sign: f64| {
        move |_: &Block, run: &PlannedRun| {
            let noise = 1.0 + sign * 0.000_01 * (f64::from(run.round) - 2.0);
            let cost = match run.spec.probe.probe {
                Probe::None => 1.0,
                Probe::Kprobe => 1.10 * noise,
                _ => 1.05 * (1.0 + slower) * noise,
            };
            Outcome::Measured(Box::new(figures(run.spec.probe, 160.0 / cost, 320.0 / cost)))
        }
    };
    let base = results(&instructions(), of(0.0, 1.0));
    let found = |slower: f64, under_test: &str| {
        let comparison = compared(&base, &results(&other, of(slower, -1.0)));
        let ratio = cell(&comparison, "x86_64 6.1", "fexit").metrics[1].ratio.value().unwrap();
        let layout = 0.000_12 * 2.0_f64.sqrt();
        assert!(!ratio.paired && (ratio.pooled.unwrap().layout - layout).abs() < 1e-12, "{ratio:?}");
        changes(&comparison, under_test)
    };
    for under_test in ["kprobe", "fexit"] {
        assert!(
            !found(0.0, under_test).contains(&Change::Increase) && !found(0.0, under_test).contains(&Change::Decrease)
        );
    }
    assert_eq!(found(0.02, "fexit"), [Change::Increase; 6]);
    assert_eq!(found(0.001, "fexit"), [Change::Increase; 6]);
    // The margin is 0.02 %, and the layout terms are 0.005 % for writes and 0.012 % for reads.
    assert_eq!(found(0.000_25, "fexit"), [Change::Inconclusive; 6]);
    assert_eq!(found(0.02, "none"), [Change::Inconclusive; 6]);
}

/// All bandwidths of the new boot are lower by 1 %: under the wall clock boots can differ by that.
#[test]
fn one_boot_by_the_wall_clock_makes_no_claim() {
    let slower = |by: f64| {
        move |block: &Block, run: &PlannedRun| {
            let boot = 1.0 + 0.001 * f64::from(block.replicate % 2);
            let wobble = 1.0 + 0.0001 * f64::from(run.round);
            Outcome::Measured(Box::new(figures(run.spec.probe, 160.0 / by * boot * wobble, 320.0 / by * boot * wobble)))
        }
    };
    let found = |replicates: u32| {
        let study = study(None, 5, replicates);
        changes(&compared(&results(&study, slower(1.0)), &results(&study, slower(1.01))), "none")
    };
    assert_eq!(found(1), [Change::Inconclusive; 6]);
    assert_eq!(found(8), [Change::Increase; 6]);
    // The results are not shown to be alike either.
    let one = results(&study(None, 5, 1), slower(1.0));
    assert!(
        compared(&one, &one)
            .cells
            .iter()
            .flat_map(|cell| &cell.metrics)
            .all(|metric| metric.change == Change::Inconclusive)
    );
}

/// One boot each has the same seed under the instruction clock. An effect that another layout can
/// have is not claimed, and figures that are identical to the instruction are alike.
#[test]
fn one_boot_by_the_instruction_clock_claims_beyond_the_layout_term_only() {
    let one = |slower: f64| results(&instructions(), steady(slower));
    let found = |slower: f64| changes(&compared(&one(0.0), &one(slower)), "fexit");
    assert_eq!(found(0.0), [Change::Equivalent; 6]);
    assert_eq!(found(0.000_25), [Change::Inconclusive; 6]);
    assert_eq!(found(0.001), [Change::Increase; 6]);
    let mut several = instructions();
    several.design.replicates = 5;
    let over_boots = |slower: f64| results(&several, steady(slower));
    assert_eq!(changes(&compared(&over_boots(0.0), &over_boots(0.000_25)), "fexit"), [Change::Increase; 6]);
}

/// Variances of twelve or more cells with three pairs are pooled, except for identical cells.
#[test]
fn few_pairs_take_the_variance_of_all_cells_into_account() {
    let mut study = instructions();
    for kernel in ["6.13", "6.14", "6.15", "6.16", "6.17", "6.18", "7.0", "7.1", "7.3"] {
        let arch = study.targets[0].arch;
        study.targets.push(Target { arch, kernel: kernel.to_owned() });
    }
    let base = results(&study, steady(0.0));
    // Each cell has noise of another size, about 0.02 %, with a mean of 0; fexit is slower by 1 %.
    let noisy = |block: &Block, run: &PlannedRun| {
        let round = f64::from(run.round);
        let size = 0.0001 + 0.00002 * (block.id.len() % 7) as f64;
        let noise = 1.0 + size * (round - 2.0);
        let cost = match run.spec.probe.probe {
            Probe::None => 1.0,
            Probe::Kprobe => 1.10 * noise,
            _ => 1.05 * 1.01 * noise,
        };
        let wobble = 1.0 + 0.001 * round;
        Outcome::Measured(Box::new(figures(run.spec.probe, 160.0 / cost * wobble, 320.0 / cost * wobble)))
    };
    let comparison = compared(&base, &results(&study, noisy));
    let pooled = |under_test: &str| -> Vec<Option<usize>> {
        let cells = comparison.cells.iter().filter(|cell| cell.under_test == under_test);
        let ratios = cells.flat_map(|cell| &cell.metrics).map(|metric| metric.ratio.value().unwrap());
        ratios.map(|ratio| ratio.pooled.map(|pooled| pooled.cells)).collect()
    };
    assert_eq!(pooled("none"), [None; 24]);
    assert_eq!(pooled("kprobe"), [Some(24); 24]);
    assert_eq!(pooled("fexit"), [Some(24); 24]);
    assert_eq!(changes(&comparison, "fexit"), [Change::Increase; 24]);
    let text = comparison_text(&comparison, Style::default(), false);
    assert!(
        text.contains("variances of all cells with the same metric into account (moderated t, 24 cells)"),
        "{text}"
    );
}

/// If variances cannot be pooled, the interval still includes the layout terms of both results, and
/// the comparison reports that. Identical cells have none, and neither do several boots.
#[test]
fn a_comparison_reports_what_its_intervals_have_in_them() {
    let with = |replicates: u32| {
        let mut study = instructions();
        study.design.replicates = replicates;
        compared(&results(&study, steady(0.0)), &results(&study, steady(0.01)))
    };
    let pooled = |comparison: &Comparison, under_test: &str| -> Vec<Option<Pooled>> {
        let cells = comparison.cells.iter().filter(|cell| cell.under_test == under_test);
        cells.flat_map(|cell| &cell.metrics).map(|metric| metric.ratio.value().unwrap().pooled).collect()
    };
    let rounds = with(1);
    let of_fexit = pooled(&rounds, "fexit");
    for (found, layout) in of_fexit.iter().zip([0.000_05, 0.000_12].into_iter().cycle()) {
        let Pooled { cells, deviation, degrees_of_freedom, layout: found } = found.unwrap();
        assert_eq!((cells, degrees_of_freedom), (1, Some(2.0)));
        // The deviation is that of three pairs: fexit takes 0.0001 more in each round.
        assert!((deviation - 0.000_1).abs() < 2e-6, "{deviation}");
        assert!((found - layout * 2.0_f64.sqrt()).abs() < 1e-12, "{found}");
    }
    assert_eq!(of_fexit.len(), 6);
    assert_eq!(pooled(&rounds, "none"), [None; 6]);
    let text = comparison_text(&rounds, Style::default(), false);
    assert!(text.contains("one boot each: ") && !text.contains("moderated t"), "{text}");
    let boots = with(5);
    assert_eq!(pooled(&boots, "fexit"), [None; 6]);
    assert!(!comparison_text(&boots, Style::default(), false).contains("layout term"));
}

#[test]
fn what_does_not_attach_any_more_is_broken() {
    let refused = |block: &Block, run: &PlannedRun| match run.spec.probe.probe {
        Probe::Fexit => Outcome::Refused(not_supported()),
        _ => steady(0.0)(block, run),
    };
    let base = results(&instructions(), steady(0.0));
    let new = results(&instructions(), refused);
    let comparison = compared(&base, &new);
    assert!(
        matches!(&cell(&comparison, "x86_64 6.1", "fexit").fate, Fate::Broken { reason } if reason == "refused: attach: errno 524")
    );
    assert!(comparison.is_regression());
    assert!(matches!(cell(&compared(&new, &base), "x86_64 6.1", "fexit").fate, Fate::Mended { .. }));
    assert!(matches!(cell(&compared(&new, &new), "x86_64 6.1", "fexit").fate, Fate::Neither { .. }));
}

#[test]
fn a_tool_that_miscounts_now_is_a_regression_whatever_its_cost() {
    let short = |block: &Block, run: &PlannedRun| match steady(0.0)(block, run) {
        Outcome::Measured(mut figures) if run.spec.probe.probe == Probe::Fexit => {
            figures.phases[0].interval.after.tracer.as_mut().unwrap().rows[2].totals.bytes -= 4096;
            Outcome::Measured(figures)
        }
        other => other,
    };
    let base = results(&instructions(), steady(0.0));
    let comparison = compared(&base, &results(&instructions(), short));
    let [write, read] = cell(&comparison, "x86_64 6.1", "fexit").metrics.as_slice() else { panic!("two metrics") };
    assert!(write.miscounts() && write.is_regression() && !read.is_regression());
}

/// The kernel alone became slower, by 2 % with and without a tool, whose overhead stays the same.
#[test]
fn a_slower_baseline_is_reported_and_no_regression() {
    let slower = |_: &Block, run: &PlannedRun| {
        let probe = run.spec.probe;
        let cost = match probe.probe {
            Probe::None => 1.0,
            Probe::Kprobe => 1.10,
            _ => 1.05,
        };
        let wobble = (1.0 + 0.001 * f64::from(run.round)) / 1.02;
        Outcome::Measured(Box::new(figures(probe, 160.0 / cost * wobble, 320.0 / cost * wobble)))
    };
    let base = results(&instructions(), steady(0.0));
    let comparison = compared(&base, &results(&instructions(), slower));
    assert_eq!(changes(&comparison, "none"), [Change::Increase; 6]);
    assert_eq!(changes(&comparison, "fexit"), [Change::Equivalent; 6]);
    assert!(!comparison.is_regression() && !comparison.is_inconclusive());
    let text = comparison_text(&comparison, Style::default(), false);
    assert!(text.contains("0 slower, 0 faster, 12 alike, 0 inconclusive, 6 baseline slower"), "{text}");
    assert!(text.contains("baseline slower   x86_64 6.1"), "{text}");
    let junit = comparison_junit(&comparison).unwrap();
    assert!(
        junit.contains("failures=\"0\"") && junit.contains("skipped message=\"baseline slower: time new / base 1.02"),
        "{junit}"
    );
}

fn filtered(base: &Results, new: &Results, filter: Filter) -> Result<Comparison, NotComparable> {
    compare(base, new, &Question { filter, ..Question::default() })
}

#[test]
fn what_a_filter_leaves_out_is_no_regression() {
    let base = results(&instructions(), steady(0.0));
    let new = results(&instructions(), steady(0.005));
    let names = |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.to_owned()).collect() };
    let kprobe = Filter { probes: names(&["kprobe"]), ..Filter::default() };
    let comparison = filtered(&base, &new, kprobe).unwrap();
    assert!(!comparison.is_regression() && comparison.cells.iter().all(|cell| cell.under_test == "kprobe"));
    // The filter also accepts the full name.
    let whole = Filter { probes: names(&["fexit+percpu@libbpf"]), ..Filter::default() };
    assert!(filtered(&base, &new, whole).unwrap().is_regression());
    for (filter, metrics) in [
        (Filter { metrics: names(&["read"]), ..Filter::default() }, ["read"]),
        (Filter { accesses: vec![Operation::Write], ..Filter::default() }, ["write"]),
    ] {
        let comparison = filtered(&base, &new, filter).unwrap();
        let left = comparison.cells.iter().flat_map(|cell| &cell.metrics).map(|metric| metric.metric.to_string());
        assert!(left.clone().count() > 0 && left.into_iter().all(|metric| metrics.contains(&metric.as_str())));
        assert!(comparison.is_regression());
        let text = comparison_text(&comparison, Style::default(), false);
        assert!(text.contains(": nothing else was compared"), "{text}");
    }
}

#[test]
fn a_filter_that_takes_nothing_is_refused_with_what_there_is() {
    let base = results(&instructions(), steady(0.0));
    let refused = |filter: Filter| filtered(&base, &base, filter).unwrap_err().to_string();
    assert_eq!(
        refused(Filter { probes: vec!["fexi".to_owned()], ..Filter::default() }),
        "the filter takes nothing: --probe names `fexi`, which neither has (did you mean `fexit`?); there are: fexit, kprobe, none"
    );
    assert_eq!(
        refused(Filter { metrics: vec!["\u{1b}[2J".to_owned()], ..Filter::default() }),
        "the filter takes nothing: --metric names `\\u{1b}[2J`, which neither has; there are: read, write"
    );
    assert_eq!(
        refused(Filter { accesses: vec![Operation::Mkdir], ..Filter::default() }),
        "the filter takes nothing: --access names `mkdir`, which neither has; there are: read, write"
    );
    let contradiction =
        Filter { metrics: vec!["read".to_owned()], accesses: vec![Operation::Write], ..Filter::default() };
    assert_eq!(
        refused(contradiction),
        "the filter takes nothing: nothing is left of it; the two have fexit (read, write), kprobe (read, write), none (read, write)"
    );
}

#[test]
fn what_does_not_attach_any_more_is_broken_whatever_metric_is_asked_for() {
    let refused = |block: &Block, run: &PlannedRun| match run.spec.probe.probe {
        Probe::Fexit => Outcome::Refused(not_supported()),
        _ => steady(0.0)(block, run),
    };
    let (base, new) = (results(&instructions(), steady(0.0)), results(&instructions(), refused));
    let read = Filter { metrics: vec!["read".to_owned()], ..Filter::default() };
    assert!(filtered(&base, &new, read).unwrap().is_regression());
    let kprobe = Filter { probes: vec!["kprobe".to_owned()], ..Filter::default() };
    assert!(!filtered(&base, &new, kprobe).unwrap().is_regression());
}

#[test]
fn cells_and_pitfalls_come_and_go() {
    let base = results(&instructions(), steady(0.0));
    let mut fewer = instructions();
    fewer.probes.retain(|probe| probe.probe != Probe::Kprobe);
    let found = |block: &Block, run: &PlannedRun| match steady(0.0)(block, run) {
        Outcome::Measured(mut figures) => {
            if let Some(tracer) = &mut figures.tracer {
                tracer.findings.push(Finding {
                    pitfall: Pitfall::SymbolMissing,
                    subject: "vfs_fsync_range".to_owned(),
                    detail: "gone".to_owned(),
                });
            }
            Outcome::Measured(figures)
        }
        other => other,
    };
    let comparison = compared(&base, &results(&fewer, found));
    assert_eq!(cell(&comparison, "x86_64 6.1", "kprobe").fate, Fate::Gone);
    assert_eq!(cell(&comparison, "x86_64 6.1", "fexit").findings_new.len(), 1);
    // The tool now misses calls, and did not before.
    assert!(comparison.is_regression() && !compared(&results(&fewer, found), &base).is_regression());
    let read = Filter { metrics: vec!["read".to_owned()], ..Filter::default() };
    assert!(!filtered(&base, &results(&fewer, found), read).unwrap().is_regression());
    assert_eq!(cell(&compared(&results(&fewer, found), &base), "x86_64 6.1", "kprobe").fate, Fate::New);
}

#[test]
fn another_kernel_is_compared_by_its_place_or_by_what_the_user_names() {
    let mut other = instructions();
    for target in &mut other.targets {
        target.kernel = "7.2".to_owned();
    }
    let base = results(&instructions(), steady(0.0));
    let comparison = compared(&base, &results(&other, steady(0.0)));
    assert_eq!(cell(&comparison, "x86_64 6.1 → 7.2", "fexit").fate, Fate::Compared);
    other.targets[0].kernel = "6.12".to_owned();
    let mut more = other.targets[0].clone();
    more.kernel = "6.18".to_owned();
    other.targets.push(more);
    let new = results(&other, steady(0.0));
    assert_eq!(cell(&compared(&base, &new), "x86_64 6.12", "fexit").fate, Fate::New);
    let question = Question { kernels: vec![("6.1".to_owned(), "6.18".to_owned())], ..Question::default() };
    let comparison = compare(&base, &new, &question).unwrap();
    assert_eq!(cell(&comparison, "x86_64 6.1 → 6.18", "fexit").fate, Fate::Compared);
    // If one result has two kernels, the one that is compared with the other is not gone.
    let question = Question { kernels: vec![("6.12".to_owned(), "6.18".to_owned())], ..Question::default() };
    let comparison = compare(&new, &new, &question).unwrap();
    assert_eq!(cell(&comparison, "x86_64 6.12 → 6.18", "fexit").fate, Fate::Compared);
    assert!(comparison.cells.iter().all(|cell| cell.fate == Fate::Compared), "{:#?}", comparison.cells);
}

#[test]
fn what_is_not_comparable_is_refused_with_the_reason() {
    let base = results(&instructions(), steady(0.0));
    let refused = |new: &Results| compare(&base, new, &Question::default()).unwrap_err();
    let wall = results(&study(None, 3, 1), steady(0.0));
    assert_eq!(refused(&wall), NotComparable::Clock { base: Clock::Instructions, new: Clock::Wall });
    let larger = Study { clock: Clock::Instructions, ..study_of("-a POSIX -w -r -t 1m -b 8m", None, 3, 1) };
    let error = refused(&results(&larger, steady(0.0))).to_string();
    assert!(error.contains("-t 256k") && error.contains("-t 1m"), "{error}");
    let mut two = instructions();
    two.guest.cpus = 2;
    assert!(refused(&results(&two, steady(0.0))).to_string().contains("2 CPUs"));
    let mut typical = instructions();
    typical.guest.scheduling = Some(Scheduling::Kernel);
    let typical = results(&typical, steady(0.0));
    assert!(refused(&typical).to_string().contains("scheduling kernel"));
    let along = trend(&[("a".to_owned(), base.clone()), ("b".to_owned(), typical)]).unwrap_err();
    assert!(along.to_string().contains("scheduling kernel"), "{along}");
    let mut renamed = instructions();
    renamed.workloads[0].name = "v".to_owned();
    assert!(refused(&results(&renamed, steady(0.0))).to_string().contains("no cell in common"));
    let mut kvm = base.clone();
    for qemu in kvm.provenance[0].qemu.values_mut() {
        qemu.accelerator = "kvm".to_owned();
    }
    assert!(refused(&kvm).to_string().contains("kvm q35"));
    let external = |block: &Block, run: &PlannedRun| match steady(0.0)(block, run) {
        Outcome::Measured(mut figures) => {
            figures.engine = Some(bpfassay_protocol::job::IorEngine::External);
            Outcome::Measured(figures)
        }
        other => other,
    };
    assert!(refused(&results(&instructions(), external)).to_string().contains("done by embedded in the base"));
}

#[test]
fn comparisons_as_they_look() {
    let base = results(&instructions(), steady(0.0));
    let new = results(&instructions(), |block, run| match (block.target.kernel.as_str(), run.spec.probe.probe) {
        ("6.12", Probe::Fexit) => outcome(block, run),
        _ => steady(0.005)(block, run),
    });
    let comparison = compared(&base, &new);
    insta::assert_snapshot!(comparison_text(&comparison, Style::default(), false));
    insta::assert_snapshot!(comparison_markdown(&comparison, true));
    insta::assert_snapshot!(comparison_text(&compared(&base, &base), Style::default(), false));
    insta::assert_snapshot!(comparison_junit(&comparison).unwrap());
    let page = comparison_html(&comparison, true).unwrap();
    let (head, body) = page.split_once("<body>").unwrap();
    assert!(
        head.contains("<title>made-up of 2026-09-21 14:13 UTC against made-up of 2026-09-21 14:13 UTC</title>"),
        "{head}"
    );
    insta::assert_snapshot!(body);
}

/// Two kernels that the user built are both called `local`.
#[test]
fn kernels_of_one_name_that_are_not_the_same_are_told_apart() {
    let study = instructions();
    let base = results(&study, steady(0.0));
    let mut new = base.clone();
    let targets = |comparison: &Comparison| comparison.cells.iter().map(CellComparison::target).collect::<Vec<_>>();
    assert!(targets(&compared(&base, &new)).contains(&"x86_64 6.1".to_owned()));
    for made in new.provenance.iter_mut().flat_map(|made| &mut made.targets) {
        made.kernel.sha256 = Some("0123456789abcdef".repeat(4));
    }
    let expected = "x86_64 6.1 (6.1.147-1, cccccccc) → 6.1 (6.1.147-1, 01234567)";
    assert!(targets(&compared(&base, &new)).contains(&expected.to_owned()));
}
