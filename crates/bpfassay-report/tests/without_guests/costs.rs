// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of a probe configuration in instructions.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use bpfassay_protocol::{
    Arch, ProbeConfiguration, job::IorEngine, probe::Probe, tool_job::Tool, tracer_messages::ProgramStatistics,
};
use bpfassay_report::{
    compare::{Question, compare},
    derive,
    render::{Style, html, markdown, text},
};
use bpfassay_results::{Basis, CellMetric, Cost, Demand, Figure, Outcome, Results, SamplingEnd};
use bpfassay_stats::{Bounds, Verdict, gate_decision::Change, random::Generator};
use bpfassay_study::{
    Available, Clock, EngineChoice, Gate, Interface, Narrowing, Plan, Study, Target, WorkloadKind, expand,
};

use crate::common::{contents, contents_of, figures, outcome, study};

const CALLS: u64 = 32;

/// Creates results in which each call of fexit takes `extra` instructions more than the baseline's,
/// by round.
fn results(clock: Clock, extra: fn(u32) -> u64, idle: Option<u64>) -> Results {
    results_of(1, clock, extra, idle)
}

fn results_of(cpus: u32, clock: Clock, extra: fn(u32) -> u64, idle: Option<u64>) -> Results {
    let mut study = Study { clock, ..study(None, 3, 1) };
    study.guest.cpus = cpus;
    derive(&contents(&study, |_, run| {
        let mut figures = figures(run.spec.probe, 100.0, 200.0);
        let traced = run.spec.probe.probe == Probe::Fexit;
        for phase in &mut figures.phases {
            let (before, after) = (&mut phase.interval.before, &mut phase.interval.after);
            if traced {
                after.monotonic_ns += extra(run.round) * CALLS;
            }
            // The traced runs also wait longer, which is no cost.
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
    let write = cell.metric("write").unwrap();
    if probe.is_baseline() { &write.control_cost } else { &write.cost }
}

#[test]
fn cost_is_the_difference_to_the_baseline_of_the_same_round_per_call() {
    let results = results(Clock::Instructions, |round| 500 + u64::from(round), None);
    let found = cost(&results, Probe::Fexit).value().unwrap();
    assert!((found.per_call.value - 502.0).abs() < 1e-9, "{found:?}");
    // 8 MiB in 32 calls.
    assert!((found.per_mib.value - 502.0 * 4.0).abs() < 1e-9, "{found:?}");
    assert_eq!((found.calls, found.per_call.n, found.basis), (CALLS, 3, Basis::Elapsed));
    // The standard deviation is 1 over three observations: 4.303 / sqrt(3).
    let interval = found.per_call.bounds.interval().unwrap();
    assert!((interval.upper - 502.0 - 2.484).abs() < 1e-3, "{interval:?}");
    for nothing in [Probe::None, Probe::Kprobe] {
        let nothing = cost(&results, nothing).value().unwrap();
        assert_eq!((nothing.per_call.value, nothing.per_call.bounds), (0.0, Bounds::NoSpread));
    }
}

/// Creates two rounds in one boot of each of `targets` targets. Phases take 1 s ± 0.05 % for 32
/// calls, and 10 ms more with fexit.
fn noisy(targets: usize) -> Results {
    let mut study = Study { clock: Clock::Instructions, ..study(None, 2, 1) };
    let target = |patch| Target { arch: Arch::X86_64, kernel: format!("6.18.{patch}") };
    study.targets = (0..targets).map(target).collect();
    derive(&contents(&study, |block, run| {
        let patch = block.target.kernel.trim_start_matches("6.18.").parse::<u64>().unwrap();
        let seed = 64 * patch + 16 * u64::from(run.round) + 4 * u64::from(run.control) + run.spec.probe.probe as u64;
        let extra = if run.spec.probe.probe == Probe::Fexit { 10_000_000.0 } else { 0.0 };
        let ns = 1e9 + extra + 500_000.0 * Generator::new(seed).normal();
        // Each phase moves 8 MiB.
        let mut figures = figures(run.spec.probe, 8e9 / ns, 8e9 / ns);
        for phase in &mut figures.phases {
            phase.interval.after.monotonic_ns = phase.interval.before.monotonic_ns + ns as u64;
        }
        Outcome::Measured(Box::new(figures))
    }))
}

/// An interval of two rounds alone has one degree of freedom and shows nothing. The cost's interval
/// is as wide as the overhead's, and includes the same terms.
#[test]
fn the_interval_of_a_cost_is_made_as_that_of_the_overhead() {
    // Five targets give 15 rows, whose variances are pooled. Two give too few rows, so only the
    // layout term is added.
    for (targets, cells) in [(5, 15), (2, 1)] {
        let results = noisy(targets);
        let (mut compared, mut narrower) = (0, 0);
        for metric in results.cells.iter().flat_map(|cell| &cell.metrics) {
            for (cost, overhead) in [(&metric.cost, &metric.overhead), (&metric.control_cost, &metric.control)] {
                let (Some(cost), Some(overhead)) = (cost.value(), overhead.value()) else { continue };
                let with = cost.pooled.unwrap().with;
                assert_eq!((with.cells, with.layout), (cells, overhead.pooled.unwrap().layout));
                let [ratio, shown] =
                    [&overhead.estimate, cost.shown()].map(|estimate| estimate.bounds.interval().unwrap());
                assert_eq!(cost.shown().value, cost.per_call.value);
                // The baseline executes 31,250,000 instructions per call.
                let baseline = cost.baseline.unwrap();
                assert!((baseline / 31_250_000.0 - 1.0).abs() < 0.001, "{baseline}");
                let [of_ratio, of_cost] = [ratio.upper - ratio.lower, (shown.upper - shown.lower) / baseline];
                assert!((of_cost / of_ratio - 1.0).abs() < 0.05, "{of_cost} {of_ratio}");
                let own = cost.per_call.bounds.interval().unwrap();
                narrower += u32::from(shown.upper - shown.lower < own.upper - own.lower);
                compared += 1;
            }
        }
        assert!(compared >= 8 * targets, "{compared}");
        // The mean of |t| with one degree of freedom is unbounded, and few rounds can agree by
        // chance.
        assert!(cells == 1 || narrower as usize > compared / 2, "{narrower} of {compared}");
        let text = text(&results, Style::default());
        assert!(text.contains("] ~") && text.contains("~: the interval is made as those of overheads are"), "{text}");
    }
}

/// The cost per call of older results is shown unchanged.
#[test]
fn a_cost_without_its_baseline_keeps_its_own_interval() {
    let cost =
        *cost(&results(Clock::Instructions, |round| 500 + u64::from(round), None), Probe::Fexit).value().unwrap();
    assert_ne!(cost.shown().bounds, cost.per_call.bounds);
    let older = Cost { baseline: None, pooled: None, ..cost };
    let json = serde_json::to_value(older).unwrap();
    assert!(json.get("baseline").is_none() && json.get("pooled").is_none());
    assert_eq!(serde_json::from_value::<Cost>(json).unwrap().shown(), &cost.per_call);
}

/// Two CPUs take turns, so one is idle while the other works.
#[test]
fn on_several_cpus_time_without_work_is_not_known() {
    let results = results_of(2, Clock::Instructions, |_| 500, Some(40_000_000));
    let found = cost(&results, Probe::Fexit).value().unwrap();
    assert_eq!(found.basis, Basis::Elapsed);
    assert!((found.per_call.value - 500.0 - 40_000_000.0 / CALLS as f64).abs() < 1e-6, "{found:?}");
    let run = results.runs.iter().find_map(|run| run.derived.as_ref()).unwrap();
    let busy = &run.metrics[0].work.value().unwrap().busy_ns;
    assert_eq!(busy.reason(), Some("the kernel does not report how long all CPUs were idle at once"));
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
    // One round and one run, which is not compared with another run.
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

fn of_engine(engine: EngineChoice, ranks: u32, mut study: Study) -> Study {
    for workload in &mut study.workloads {
        let WorkloadKind::Ior(ior) = &mut workload.kind else { panic!("the made-up study has IOR only") };
        (ior.engine, ior.ranks) = (engine, ranks);
    }
    study
}

/// Creates the plan for a user who gave a real IOR for every architecture.
fn plan_of(study: &Study) -> Plan {
    let external_ior = Arch::ALL.iter().map(|&arch| (arch, [Interface::Posix].into())).collect();
    expand(study, &Narrowing::default(), &Available { external_ior, ..Available::default() }).unwrap()
}

/// Creates results of the made-up study with `ranks` MPI ranks of `engine`; a gate allows fexit to
/// cost 1000 % and no byte.
fn of_ranks(engine: EngineChoice, ranks: u32, clock: Clock) -> Results {
    let gate = Gate {
        probes: vec!["fexit".to_owned()],
        overhead: Some("1000%".parse().unwrap()),
        byte_error: Some(0),
        ..Gate::default()
    };
    let study = of_engine(engine, ranks, Study { clock, gates: vec![gate], ..study(None, 1, 3) });
    derive(&contents_of(plan_of(&study), |block, run| match outcome(block, run) {
        Outcome::Measured(mut figures) if engine == EngineChoice::External => {
            // Such an engine has no barriers between phases.
            figures.engine = Some(IorEngine::External);
            figures.phases.clear();
            Outcome::Measured(figures)
        }
        other => other,
    }))
}

fn write_of(results: &Results, arch: Arch, probe: Probe) -> &CellMetric {
    let probe = ProbeConfiguration::with_defaults(probe);
    let cell = results.cells.iter().find(|cell| cell.target.arch == arch && cell.probe == probe).unwrap();
    cell.metric("write").unwrap()
}

fn verdicts_on(results: &Results, wanted: fn(&Demand) -> bool) -> Vec<(Verdict, String)> {
    let of_x86_64 = results.gates.iter().filter(|gate| gate.cell.starts_with("x86_64") && wanted(&gate.demand));
    of_x86_64.map(|gate| (gate.verdict, gate.found.clone())).collect()
}

#[test]
fn several_ranks_of_a_real_ior_have_no_overhead_by_the_instruction_clock() {
    const REASON: &str = "its 4 MPI ranks spin while they wait for each other";
    let results = of_ranks(EngineChoice::External, 4, Clock::Instructions);
    let (fexit, baseline) =
        (write_of(&results, Arch::X86_64, Probe::Fexit), write_of(&results, Arch::X86_64, Probe::None));
    let reasons =
        [fexit.overhead.reason(), fexit.cost.reason(), baseline.control.reason(), baseline.control_cost.reason()];
    for reason in reasons {
        assert!(reason.is_some_and(|reason| reason.starts_with(REASON)), "{reason:?}");
    }
    // The bandwidth is as IOR reported it.
    assert!(fexit.value.value().is_some());
    // A refused tool stays refused, without any measurement.
    assert!(!write_of(&results, Arch::Aarch64, Probe::Fexit).overhead.reason().unwrap().contains("spin"));

    for (verdict, found) in verdicts_on(&results, |demand| matches!(demand, Demand::Overhead { .. })) {
        assert_eq!((verdict, found.starts_with(&format!("not measured: {REASON}"))), (Verdict::Inconclusive, true));
    }
    let bytes = verdicts_on(&results, |demand| matches!(demand, Demand::ByteError { .. }));
    assert!(!bytes.is_empty() && bytes.iter().all(|(verdict, _)| *verdict == Verdict::Pass), "{bytes:?}");

    let json = serde_json::to_string(&results).unwrap();
    for shown in [text(&results, Style::default()), html(&results).unwrap(), json] {
        assert!(shown.contains(REASON), "{shown}");
    }
}

#[test]
fn several_ranks_of_a_real_ior_are_compared_with_no_others_by_the_instruction_clock() {
    let ratios = |ranks| {
        let results = of_ranks(EngineChoice::External, ranks, Clock::Instructions);
        let comparison = compare(&results, &results, &Question::default()).unwrap();
        let metrics = comparison.cells.into_iter().flat_map(|cell| cell.metrics);
        metrics.map(|metric| (metric.ratio.reason().map(str::to_owned), metric.change)).collect::<Vec<_>>()
    };
    assert!(ratios(1).iter().any(|(reason, change)| reason.is_none() && *change == Change::Equivalent));
    for (reason, change) in ratios(2) {
        assert!(reason.is_some_and(|reason| reason.starts_with("its 2 MPI ranks spin")), "{change:?}");
        assert_eq!(change, Change::Inconclusive);
    }
}

#[test]
fn ranks_that_do_not_spin_or_are_timed_by_a_clock_have_overheads() {
    let others = [
        (EngineChoice::External, 1, Clock::Instructions),
        (EngineChoice::External, 4, Clock::Wall),
        (EngineChoice::Embedded, 4, Clock::Instructions),
    ];
    for (engine, ranks, clock) in others {
        let results = of_ranks(engine, ranks, clock);
        let overhead = &write_of(&results, Arch::X86_64, Probe::Fexit).overhead;
        assert!(overhead.value().is_some(), "{engine:?} {ranks} {clock}: {overhead:?}");
    }
}

#[test]
fn sampling_does_not_wait_for_overheads_that_mean_nothing() {
    let ends = |ranks| {
        let mut study =
            of_engine(EngineChoice::External, ranks, Study { clock: Clock::Instructions, ..study(None, 1, 20) });
        study.design.until = Some("5%".parse().unwrap());
        let results = derive(&contents_of(plan_of(&study), outcome));
        results.sampling.iter().map(|sampled| (sampled.boots, sampled.end)).collect::<Vec<_>>()
    };
    assert!(ends(1).iter().all(|(_, end)| *end != Some(SamplingEnd::NothingMeasured)));
    assert_eq!(ends(2), [(3, Some(SamplingEnd::NothingMeasured)); 3]);
}
