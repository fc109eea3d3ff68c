// SPDX-License-Identifier: MIT OR Apache-2.0
//! Derived figures: exact bytes, overhead by pairs, and a reason for every missing figure.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use bpfassay_protocol::{Arch, Operation, ProbeConfiguration, message::RunFigures, probe::Probe};
use bpfassay_report::{
    derive,
    render::{Style, text},
};
use bpfassay_results::{
    Attach, ByteErrors, CellAccuracy, CellMetric, CellResult, Figure, JournalContents, JournalEntry, MovedSource,
    Outcome, Overhead, Results, Span, Unit,
};
use bpfassay_stats::{Spread, random::Generator};
use bpfassay_study::{Clock, Study, Target, WorkloadKind};

use crate::common::{CGROUP, DEVICE, MIB, MOVED, contents, figures, outcome, sample, study};

fn fexit() -> ProbeConfiguration {
    ProbeConfiguration::with_defaults(Probe::Fexit)
}

/// Creates results of the made-up study in which `change` modifies the figures of every fexit run
/// on x86_64.
fn with_fexit(sampling: Option<&str>, change: impl Fn(&mut RunFigures)) -> Results {
    derive(&contents(&study(sampling, 2, 1), |block, run| match outcome(block, run) {
        Outcome::Measured(mut figures) if run.spec.probe == fexit() => {
            change(&mut figures);
            Outcome::Measured(figures)
        }
        other => other,
    }))
}

fn found<'a>(results: &'a Results, cell: &str) -> &'a CellResult {
    results.cells.iter().find(|found| found.cell == cell).unwrap()
}

fn metric<'a>(results: &'a Results, cell: &str, name: &str) -> &'a CellMetric {
    found(results, cell).metric(name).unwrap()
}

fn accuracy<'a>(results: &'a Results, cell: &str, metric: &str) -> &'a CellAccuracy {
    found(results, cell).accuracy.iter().find(|found| &*found.metric == metric).unwrap()
}

const X86_FEXIT: &str = "x86_64_6.1_w_nfs4.2_fexit";

fn close(figure: Option<f64>, wanted: f64) {
    assert!(figure.is_some_and(|value| (value / wanted - 1.0).abs() < 1e-9), "{figure:?} is not {wanted}");
}

#[test]
fn bytes_are_compared_between_barriers_for_both_operations() {
    let results = with_fexit(None, |_| {});
    let run = results.runs.iter().find(|run| run.record.cell == X86_FEXIT).unwrap();
    let bytes = &run.derived.as_ref().unwrap().bytes;
    assert_eq!(bytes.len(), 4);
    for figure in bytes {
        let Span::Phase { phase, .. } = &figure.span else { panic!("{figure:?}") };
        let moved = if phase == figure.operation.name() { MOVED } else { 0 };
        assert_eq!(figure.workload, Figure::Value(moved));
        assert_eq!((&figure.traced, &figure.mountstats), (&Figure::Value(moved), &Figure::Value(moved)));
        assert_eq!((&figure.error, &figure.mountstats_error), (&Figure::Value(0), &Figure::Value(0)));
        assert_eq!(figure.moved_source, MovedSource::Calls);
    }
}

#[test]
fn one_byte_too_many_or_too_few_is_seen() {
    let results = with_fexit(None, |figures| {
        // The tracer counts one byte more while writing, and five fewer while reading.
        let rows = |reading: &mut bpfassay_protocol::message::Reading, operation, change: i64| {
            let rows = &mut reading.tracer.as_mut().unwrap().rows;
            let row = rows
                .iter_mut()
                .find(|row| row.cgroup == CGROUP && row.device == DEVICE && row.operation == operation)
                .unwrap();
            row.totals.bytes = row.totals.bytes.checked_add_signed(change).unwrap();
        };
        rows(&mut figures.phases[0].interval.after, Operation::Write, 1);
        rows(&mut figures.phases[1].interval.before, Operation::Write, 1);
        rows(&mut figures.phases[1].interval.after, Operation::Write, 1);
        rows(&mut figures.phases[1].interval.after, Operation::Read, -5);
    });
    let errors = |of| *accuracy(&results, X86_FEXIT, of).byte_error.value().unwrap();
    assert_eq!(errors("write"), ByteErrors { min: 0, max: 1, intervals: 4, exact: 2, not_measured: 0 });
    assert_eq!(errors("read"), ByteErrors { min: -5, max: 0, intervals: 4, exact: 2, not_measured: 0 });
    assert_eq!(accuracy(&results, X86_FEXIT, "read").mountstats_error.value().unwrap().max, 0);
}

#[test]
fn a_counter_that_goes_back_is_not_measured() {
    let results = with_fexit(None, |figures| {
        for phase in &mut figures.phases {
            std::mem::swap(&mut phase.interval.before, &mut phase.interval.after);
        }
    });
    let run = results.runs.iter().find(|run| run.record.cell == X86_FEXIT).unwrap();
    let write = &run.derived.as_ref().unwrap().bytes.iter().find(|bytes| bytes.operation == Operation::Write).unwrap();
    assert_eq!(write.error.reason(), Some("the tracer's counter of write went back"));
    assert_eq!(write.mountstats_error.reason(), Some("the byte counters of mountstats went back"));
}

#[test]
fn without_barriers_the_whole_run_is_compared_with_iors_own_bytes() {
    let results = with_fexit(None, |figures| figures.phases.clear());
    let run = results.runs.iter().find(|run| run.record.cell == X86_FEXIT).unwrap();
    let derived = run.derived.as_ref().unwrap();
    for figure in &derived.bytes {
        assert_eq!((&figure.span, figure.moved_source), (&Span::WholeRun, MovedSource::Summary));
        assert_eq!((&figure.workload, &figure.error), (&Figure::Value(MOVED), &Figure::Value(0)));
    }
    for accuracy in &derived.accuracy {
        close(accuracy.relative_error_ior_interval.value().copied(), 1.0);
        let reason = accuracy.repetitions[0].relative_error_ior_interval.reason();
        assert_eq!(reason, Some("the engine cannot be held between phases: only figures of the whole run"));
    }
}

#[test]
fn mapped_files_are_moved_without_the_tracer_seeing_it() {
    let mmap = crate::common::study_of("-a MMAP -w -r -t 256k -b 8m", None, 1, 1);
    let results = derive(&contents(&mmap, |_, run| {
        let mut figures = figures(run.spec.probe, 100.0, 200.0);
        for phase in &mut figures.phases {
            phase.moved.clear();
            for reading in [&mut phase.interval.before, &mut phase.interval.after] {
                *reading = crate::common::reading(run.spec.probe, reading.monotonic_ns, 0, 0);
            }
        }
        Outcome::Measured(Box::new(figures))
    }));
    let moved = i64::try_from(MOVED).unwrap();
    for of in ["write", "read"] {
        let errors = *accuracy(&results, X86_FEXIT, of).byte_error.value().unwrap();
        // It counts nothing in the phase of the other access, and everything in the access's own
        // phase.
        assert_eq!((errors.min, errors.max), (-moved, 0));
        assert_eq!(
            accuracy(&results, X86_FEXIT, of).mountstats_error.reason(),
            Some("mountstats count what system calls move, and none moves mapped pages")
        );
        assert_eq!(
            accuracy(&results, X86_FEXIT, of).relative_error_ior_interval.reason(),
            Some("the tracer counted no bytes")
        );
    }
}

#[test]
fn bytes_that_iors_summary_does_not_report_are_not_guessed() {
    let checked = crate::common::study_of("-a POSIX -w -r -W -t 256k -b 8m", None, 1, 1);
    let results = derive(&contents(&checked, |_, run| {
        let mut figures = figures(run.spec.probe, 100.0, 200.0);
        figures.phases.clear();
        Outcome::Measured(Box::new(figures))
    }));
    assert_eq!(accuracy(&results, X86_FEXIT, "write").byte_error.value().map(|errors| errors.max), Some(0));
    let read = accuracy(&results, X86_FEXIT, "read");
    let reason = Some("IOR's summary does not report the bytes read by -W");
    assert_eq!(read.byte_error.reason(), reason);
    // The tracer's counts include these bytes; IOR's report does not.
    assert_eq!(read.relative_error_ior_interval.reason(), reason);
    assert_eq!(read.relative_error_instantaneous.reason(), reason);
    close(accuracy(&results, X86_FEXIT, "write").relative_error_ior_interval.value().map(|summary| summary.mean), 1.0);
}

#[test]
fn relative_error_over_iors_interval_follows_the_traced_bytes() {
    let results = with_fexit(None, |figures| {
        // The tracer saw three quarters of the read bytes.
        let rows = &mut figures.phases[1].interval.after.tracer.as_mut().unwrap().rows;
        rows.last_mut().unwrap().totals.bytes = MOVED / 4 * 3;
    });
    close(accuracy(&results, X86_FEXIT, "write").relative_error_ior_interval.value().map(|summary| summary.mean), 1.0);
    close(
        accuracy(&results, X86_FEXIT, "read").relative_error_ior_interval.value().map(|summary| summary.mean),
        4.0 / 3.0,
    );
}

#[test]
fn iors_rounding_of_short_times_does_not_show_as_an_error() {
    // 8 MiB in 0.345 ms: IOR prints a time of 0.0003 s.
    let results = with_fexit(None, |figures| {
        let rounded = |bandwidth: f64| format!("{:.4}", bandwidth).parse::<f64>().unwrap();
        let mut summary: serde_json::Value =
            serde_json::from_str(&crate::common::summary(rounded(8.0 / 0.000_345), 10.0)).unwrap();
        summary["tests"][0]["Results"][0]["totalTime"] = serde_json::json!(0.0003);
        figures.summary = summary.to_string();
    });
    close(accuracy(&results, X86_FEXIT, "write").relative_error_ior_interval.value().map(|summary| summary.mean), 1.0);
}

#[test]
fn sampled_bandwidth_takes_the_intervals_around_the_phase() {
    // The run writes from 1 s to 2 s, and reads from 3 s to 4 s, at 8 MiB/s. The intervals of half
    // a second from 0.75 s and from 2.75 s are half, whole and half busy. The run ends with the
    // read, before the last interval does.
    let results = with_fexit(Some("500ms"), |figures| {
        let moved = |ns: u64, from: u64| (ns.clamp(from, from + 1_000_000_000) - from) / 1_000_000 * MOVED / 1000;
        let times = (0..8).map(|step| 250_000_000 + step * 500_000_000);
        figures.samples =
            times.map(|ns| sample(ns, None, moved(ns, 1_000_000_000), moved(ns, 3_000_000_000))).collect();
        figures.whole.after = crate::common::reading(fexit(), 4_010_000_000, MOVED, MOVED);
        figures.samples.push(sample(4_010_000_000, Some("barrier"), MOVED, MOVED));
        figures.summary = crate::common::summary(8.0, 8.0);
    });
    let run = results.runs.iter().find(|run| run.record.cell == X86_FEXIT).unwrap();
    for of in &run.derived.as_ref().unwrap().accuracy {
        assert_eq!(of.repetitions[0].sampling_intervals, Figure::Value(3), "{}", of.metric);
        // The mean of 4, 8 and 4 MiB/s.
        close(of.relative_error_instantaneous.value().copied(), 8.0 / (16.0 / 3.0));
    }
}

#[test]
fn sampling_goes_on_before_and_after_the_run() {
    // There is one sample every 2 s, so the run from 0.5 s to 4.5 s has one: at 2.4 s, after the
    // write phase. Counters of a permanent monitor would have been 0 at 0.4 s, and complete at 4.5
    // s.
    for barriers in [true, false] {
        let results = with_fexit(Some("2s"), |figures| {
            figures.samples = vec![sample(2_400_000_000, None, MOVED, 0)];
            figures.summary = crate::common::summary(8.0, 8.0);
            if !barriers {
                figures.phases.clear();
            }
        });
        let run = results.runs.iter().find(|run| run.record.cell == X86_FEXIT).unwrap();
        let [write, read] = run.derived.as_ref().unwrap().accuracy.as_slice() else { panic!("not two rows") };
        close(write.relative_error_instantaneous.value().copied(), 8.0 / (8.0 / 2.0));
        // The reading at 4.5 s is a real one, later than 4.4 s.
        close(read.relative_error_instantaneous.value().copied(), 8.0 / (8.0 / 2.1));
    }
}

#[test]
fn a_run_shorter_than_the_sampling_interval_is_reported() {
    let results = with_fexit(Some("5s"), |_| {});
    let run = results.runs.iter().find(|run| run.record.cell == X86_FEXIT).unwrap();
    for of in &run.derived.as_ref().unwrap().accuracy {
        assert_eq!(
            of.relative_error_instantaneous.reason(),
            Some("too short for sampling every 5000 ms: no sampling interval with bytes")
        );
    }
}

#[test]
fn overhead_pairs_runs_of_one_round() {
    // Some rounds are twice as fast as others; pairs compensate for that.
    let results = derive(&contents(&study(None, 4, 1), |_, run| {
        let speed = f64::from(run.round);
        let cost = if run.spec.probe == fexit() { 1.25 } else { 1.0 };
        Outcome::Measured(Box::new(figures(run.spec.probe, 100.0 * speed / cost, 50.0 * speed)))
    }));
    let write = metric(&results, X86_FEXIT, "write").overhead.value().copied().unwrap();
    close(Some(write.estimate.value), 1.25);
    assert_eq!((write.unit, write.pairs, write.estimate.n, write.pairs_across_boots), (Unit::Rounds, 4, 4, 0));
    close(metric(&results, X86_FEXIT, "read").overhead.value().map(|overhead| overhead.estimate.value), 1.0);
    close(metric(&results, X86_FEXIT, "read").control.value().map(|overhead| overhead.estimate.value), 1.0);
}

#[test]
fn boots_count_as_observations_where_there_are_several() {
    let results = derive(&contents(&study(None, 2, 3), outcome));
    let overhead = metric(&results, X86_FEXIT, "write").overhead.value().copied().unwrap();
    assert_eq!((overhead.unit, overhead.estimate.n, overhead.pairs), (Unit::Boots, 3, 6));
}

#[test]
fn pairs_across_an_interruption_are_distinguished() {
    let mut contents = contents(&study(None, 2, 1), outcome);
    for entry in &mut contents.entries {
        if let JournalEntry::Run(record) = entry
            && record.cell == X86_FEXIT
            && record.round == 2
        {
            record.boot = 2;
        }
    }
    let overhead = metric(&derive(&contents), X86_FEXIT, "write").overhead.value().copied().unwrap();
    assert_eq!((overhead.pairs, overhead.pairs_across_boots), (2, 1));
}

#[test]
fn a_summary_that_is_none_leaves_exact_bytes_and_reasons() {
    let results = with_fexit(None, |figures| figures.summary = "ior: out of luck".to_owned());
    let (bandwidth, write) = (metric(&results, X86_FEXIT, "write"), accuracy(&results, X86_FEXIT, "write"));
    assert_eq!(write.byte_error.value().map(|errors| (errors.min, errors.max)), Some((0, 0)));
    for reason in [bandwidth.value.reason(), write.relative_error_ior_interval.reason()] {
        assert!(reason.is_some_and(|reason| reason.contains("IOR's summary")), "{reason:?}");
    }
    assert_eq!(
        bandwidth.overhead.reason(),
        Some("no round has both a baseline run and a run of this cell with a bandwidth")
    );
}

#[test]
fn refusals_are_expected_only_as_declared() {
    let attach = |errno| {
        let results = derive(&contents(&study(None, 1, 1), |block, run| match outcome(block, run) {
            Outcome::Refused(refusal) => {
                Outcome::Refused(bpfassay_protocol::tracer_messages::Refusal { errno, ..refusal })
            }
            other => other,
        }));
        results.cells.into_iter().find(|cell| cell.cell == "aarch64_6.1_w_nfs4.2_fexit").unwrap().attach
    };
    assert!(matches!(attach(Some(524)), Attach::Refused { expected: true, .. }));
    assert!(matches!(attach(Some(22)), Attach::Refused { expected: false, expectation: Some(_), .. }));
    assert!(matches!(attach(None), Attach::Refused { expected: false, .. }));
}

#[test]
fn an_empty_journal_has_every_cell_and_no_figure() {
    let mut contents: JournalContents = contents(&study(None, 1, 1), outcome);
    contents.entries.clear();
    let results = derive(&contents);
    assert_eq!(results.cells.len(), 9);
    for cell in &results.cells {
        assert_eq!(cell.runs.planned, 1);
        assert_eq!((cell.metrics.len(), cell.accuracy.len()), (2, 2));
        for (metric, accuracy) in cell.rows() {
            assert_eq!(metric.value.reason(), Some("not run"));
            assert!(accuracy.unwrap().byte_error.reason().is_some() && metric.overhead.reason().is_some());
        }
    }
    assert_eq!(results.notes, ["12 of 12 planned runs were not done"]);
}

#[test]
fn absurd_counters_are_no_panic() {
    let results = with_fexit(None, |figures| {
        for phase in &mut figures.phases {
            phase.moved.values_mut().for_each(|totals| totals.bytes = u64::MAX);
            phase.interval.after.tracer.as_mut().unwrap().rows.iter_mut().for_each(|row| row.totals.bytes = u64::MAX);
            phase.interval.after.mountstats.as_mut().unwrap().normal_read = u64::MAX;
            phase.interval.after.mountstats.as_mut().unwrap().direct_read = u64::MAX;
        }
        figures.samples = vec![sample(u64::MAX, None, u64::MAX, MIB), sample(0, None, 0, 0)];
    });
    assert!(accuracy(&results, X86_FEXIT, "write").byte_error.value().is_some());
}

#[test]
fn mountstats_are_no_reference_beside_a_neighbour() {
    let mut study = study(None, 1, 1);
    let WorkloadKind::Ior(ior) = &mut study.workloads[0].kind else { panic!("{:?}", study.workloads[0]) };
    ior.neighbour = true;
    let results = derive(&contents(&study, outcome));
    let derived = results.runs[0].derived.as_ref().unwrap();
    for figure in &derived.bytes {
        assert_eq!(figure.mountstats_error.reason(), Some("mountstats count what the neighbour moves, too"));
        assert!(figure.mountstats.value().is_some());
    }
}

/// Creates targets with two probe configurations and the control, in one boot each. The rounds of
/// all targets vary alike.
fn wide(targets: usize, rounds: u32, clock: Clock) -> Results {
    let mut study = Study { clock, ..study(None, rounds, 1) };
    let target = |patch| Target { arch: Arch::X86_64, kernel: format!("6.18.{patch}") };
    study.targets = (0..targets).map(target).collect();
    derive(&contents(&study, |block, run| {
        let patch = block.target.kernel.trim_start_matches("6.18.").parse::<u64>().unwrap();
        let seed = 64 * patch + 16 * u64::from(run.round) + 4 * u64::from(run.control) + run.spec.probe.probe as u64;
        let speed = 160.0 * (0.01 * Generator::new(seed).normal()).exp();
        Outcome::Measured(Box::new(figures(run.spec.probe, speed, 320.0)))
    }))
}

/// Returns the overheads of writes, with the A/A controls.
fn overheads(results: &Results) -> Vec<Overhead> {
    let metrics = results.cells.iter().flat_map(|cell| &cell.metrics).filter(|metric| &*metric.name == "write");
    metrics.flat_map(|metric| [&metric.overhead, &metric.control]).filter_map(Figure::value).copied().collect()
}

/// Rounds of one boot do not show how much boots differ, however many there are.
#[test]
fn many_rounds_of_one_boot_have_the_layout_term_and_their_own_variance() {
    for overhead in overheads(&wide(6, 14, Clock::Instructions)) {
        let Some(pooled) = overhead.pooled else { panic!("{overhead:?}") };
        assert_eq!((pooled.cells, pooled.layout), (1, 0.000_05), "{overhead:?}");
    }
    assert!(overheads(&wide(6, 14, Clock::Wall)).iter().all(|overhead| overhead.pooled.is_none()));
}

/// Six targets, two probe configurations and the control give eighteen rows of each metric.
#[test]
fn few_rounds_have_the_variance_of_all_rows() {
    let wide = |targets: usize, clock: Clock| wide(targets, 3, clock);
    let results = wide(6, Clock::Wall);
    let found = overheads(&results);
    // The control of a target is in each of its cells, and counts once.
    assert_eq!(found.len(), 6 * (2 + 3));
    for overhead in &found {
        let pooled = overhead.pooled.unwrap();
        assert_eq!((pooled.cells, pooled.layout), (18, 0.0));
        let Spread::Student { standard_error, degrees_of_freedom } = overhead.effect.spread else {
            panic!("{overhead:?}")
        };
        let own = overhead.within_boots.unwrap() / 3.0_f64.sqrt();
        assert!(standard_error >= own * 0.999_999 && degrees_of_freedom > 2.0, "{overhead:?}");
    }
    let shown = text(&results, Style::default());
    assert!(shown.contains("] ~") && shown.contains("than its own spread: the variance of all rows"), "{shown}");
    assert!(!shown.contains("declared layout term"), "{shown}");
    let counted = wide(6, Clock::Instructions);
    assert!(overheads(&counted).iter().all(|overhead| overhead.pooled.unwrap().layout > 0.0));
    assert!(
        text(&counted, Style::default())
            .contains("(moderated t), and the declared layout term: 0.012 % of read, 0.005 % of write")
    );
    // Nine rows are too few, so nothing is marked.
    let few = wide(3, Clock::Wall);
    assert!(overheads(&few).iter().all(|overhead| overhead.pooled.is_none()));
    assert!(!text(&few, Style::default()).contains('~'));
}

/// Parallel guests end in any order, so the order of the journal is chance.
#[test]
fn figures_of_cells_do_not_depend_on_which_guest_ended_first() {
    let measured = contents(&study(None, 2, 2), |block, run| match outcome(block, run) {
        Outcome::Measured(mut figures) => {
            // The tracer lists its programs in no particular order.
            if let Some(tracer) = &mut figures.tracer {
                let mut other = tracer.programs[0].clone();
                other.attached_to = "vfs_readv".to_owned();
                tracer.programs.push(other);
                if block.replicate == 2 {
                    tracer.programs.reverse();
                }
            }
            Outcome::Measured(figures)
        }
        other => other,
    });
    let block_of = |entry: &JournalEntry| match entry {
        JournalEntry::BlockStarted(started) => started.block.clone(),
        JournalEntry::GuestReady(ready) => ready.block.clone(),
        JournalEntry::Run(record) => record.block.clone(),
        JournalEntry::BlockEnded(ended) => ended.block.clone(),
        JournalEntry::Provisioned { .. } | JournalEntry::Resumed { .. } => panic!("an entry that is of no block"),
    };
    let mut other = measured.clone();
    // The sort is stable: entries of a block keep their order.
    let place = |entry: &JournalEntry| measured.header.plan.blocks.iter().position(|block| block.id == block_of(entry));
    other.entries.sort_by_key(|entry| std::cmp::Reverse(place(entry)));
    assert_ne!(other.entries, measured.entries);
    let (first, second) = (derive(&measured), derive(&other));
    assert!(
        first
            .cells
            .iter()
            .any(|cell| matches!(&cell.attach, Attach::Attached { functions, .. } if functions.len() > 1))
    );
    assert_eq!(first.cells, second.cells);
    assert_eq!(first.gates, second.gates);
}
