// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures by process, whichever names a tool gives to processes.

use bpfassay_protocol::{message::WorkloadPhase, probe::MapLayout, program_set::ProgramEvent};

use super::{super::truth::of_operation, *};

const READS: &str = "{ value = 'n', operations = 'read', unit = 'calls', whose = 'process', label = 'c' }";

/// Creates the row of a workload's thread that made `calls` calls.
fn read(process: u32, thread: u32, name: &str, calls: u64) -> CounterRow {
    CounterRow {
        task: Some(Task::new(process, thread, name)),
        ..row(CGROUP, 45, Some("/mnt"), Operation::Read, calls, 100 * calls)
    }
}

/// Creates rows of two processes, one of which has two threads, and of the agent's copy that became
/// one of them.
fn rows() -> Vec<CounterRow> {
    vec![
        read(20, 20, "agent", 1),
        read(20, 20, "sh", 5),
        read(21, 21, "cat", 40),
        read(21, 22, "cat", 30),
        row(1, 9, None, Operation::Read, 500, 500),
    ]
}

/// Creates a run in which a tool prints its count for each name, before and after the workload made
/// the calls of `rows`.
fn run_of(rows: &[CounterRow], names: &[(&str, u64)]) -> RunFigures {
    let print = |all: &dyn Fn(u64) -> u64| -> String {
        names.iter().map(|(name, calls)| format!("{{\"c\":\"{name}\",\"n\":{}}}\n", all(*calls))).collect()
    };
    let first = OutputPiece { reference: beside(900, &[]), ..piece(900, &print(&|_| 0), None) };
    let last = OutputPiece { reference: beside(2100, rows), ..piece(2100, &print(&|calls| calls), None) };
    let mut figures = figures(vec![first, last]);
    figures.tool.as_mut().unwrap().agent = "agent".to_owned();
    figures
}

/// Evaluates a tool that reports `names` for processes that made the calls of `rows`. Returns the
/// findings and why figures were not compared.
fn reported(rows: &[CounterRow], names: &[(&str, u64)]) -> (Vec<FindingResult>, Vec<String>) {
    let (findings, beside) = of_run(&tool(READS), None, true, &run_of(rows, names));
    (findings, beside.not_compared.into_iter().map(|one| one.reason).collect())
}

#[test]
fn processes_are_known_by_ids_and_names() {
    let both = |process: u64, thread: u64| (process << 32 | thread).to_string();
    let combined = [(both(20, 20), 5), (both(21, 21), 40), (both(21, 22), 30)];
    let combined: Vec<(&str, u64)> = combined.iter().map(|(name, calls)| (name.as_str(), *calls)).collect();
    let right: [&[(&str, u64)]; 6] = [
        &[("20", 5), ("21", 70)],
        // A tool can count what the agent's copy did, or leave it out.
        &[("20", 6), ("21", 70)],
        &[("20", 5), ("21", 40), ("22", 30)],
        &combined,
        &[("sh", 5), ("cat", 70)],
        &[("sh", 5), ("cat", 70), ("agent", 1), ("kworker/0:1", 77)],
    ];
    for names in right {
        let (findings, not_compared) = reported(&rows(), names);
        assert_eq!((found(&findings), not_compared), (vec![], vec![]), "{names:?}");
    }
}

type Names<'a> = &'a [(&'a str, u64)];

#[test]
fn a_process_of_which_less_or_more_is_reported_is_named() {
    let wrong: [(Names<'_>, Kind, &str); 7] = [
        (&[("20", 5), ("21", 67)], Kind::CountsTooLow, "of process 21 (cat): 67, really 70"),
        (&[("20", 5), ("21", 71)], Kind::CountsTooHigh, "of process 21 (cat): 71, really 70"),
        (&[("21", 70)], Kind::CountsTooLow, "of process 20 (sh): 0, really 5 to 6"),
        (&[("20", 5), ("21", 40), ("22", 27)], Kind::CountsTooLow, "of process 22 (cat): 27, really 30"),
        (&[("sh", 5), ("cat", 30)], Kind::CountsTooLow, "of process cat: 30, really 70"),
        // All threads but the first are missing.
        (&[("20", 5), ("21", 40)], Kind::CountsTooLow, "of process 21 (cat): 40, really 70"),
        (&[("sh", 7), ("cat", 70)], Kind::CountsTooHigh, "of process sh: 7, really 5"),
    ];
    for (names, kind, text) in wrong {
        let (findings, _) = reported(&rows(), names);
        assert_eq!(found(&findings), [kind], "{names:?}: {findings:?}");
        assert!(evidence(&findings, kind).contains(text), "{names:?}: {findings:?}");
    }
    // The tool reports only one of several ranks, by name.
    let ranks = [read(31, 31, "ior", 8), read(32, 32, "ior", 9)];
    let (findings, _) = reported(&ranks, &[("ior", 8)]);
    let text = evidence(&findings, Kind::CountsTooLow);
    assert!(text.ends_with("of process ior: 8, really 17; as much as process 32"), "{text}");
}

#[test]
fn names_that_nobody_has_are_compared_with_nothing() {
    for names in [&[("cat-21", 70), ("sh-20", 5)][..], &[("4321", 75)]] {
        let (findings, not_compared) = reported(&rows(), names);
        assert_eq!(found(&findings), [], "{findings:?}");
        let [reason] = not_compared.as_slice() else { panic!("{not_compared:?}") };
        assert!(reason.starts_with("no process that is known to have done anything has a name"), "{reason}");
        let low = &findings.iter().find(|one| one.kind == Kind::CountsTooLow).unwrap().status;
        assert_eq!(*low, FindingStatus::NotEvaluated { reason: reason.clone() });
    }
}

/// The reference tracer had no room for threads, or does not distinguish them.
#[test]
fn calls_of_threads_that_are_not_recorded_are_compared_with_nothing() {
    let mut rows = rows();
    rows.push(CounterRow { task: None, ..read(0, 0, "", 3) });
    let by = |names: &[(&str, u64)]| {
        let (findings, not_compared) = reported(&rows, names);
        assert_eq!(found(&findings), [], "{findings:?}");
        not_compared.concat()
    };
    let id = by(&[("20", 5), ("21", 70)]);
    assert_eq!(id, "which process, by its id, did 3 of the calls that `n` counts (read) is not recorded");
    assert!(by(&[("cat", 70)]).starts_with("which process, by its name,"));
    assert!(by(&[("20", 5), ("22", 30)]).starts_with("which thread"));
    // The total is known.
    let of_system = tool("{ value = 'n', operations = 'read', unit = 'calls', whose = 'cgroup', label = 'c' }");
    let (findings, beside) = of_run(&of_system, None, true, &run_of(&rows, &[("77", 79)]));
    assert_eq!((found(&findings), beside.figures.iter().map(|one| one.really).max()), (vec![], Some(500)));
}

/// Older records come from reference tracers that did not distinguish threads.
#[test]
fn of_earlier_records_bundled_workloads_are_known_by_their_name_alone() {
    let old = |names: &[(&str, u64)], is_bundled: bool| {
        let rows = [CounterRow { task: None, ..read(0, 0, "", 30) }];
        let mut run = run_of(&rows, names);
        if is_bundled {
            run.phases = vec![phase(None)];
        }
        let (findings, beside) = of_run(&tool(READS), None, true, &run);
        (found(&findings), beside.not_compared.len())
    };
    assert_eq!(old(&[("ior", 30)], true), (vec![], 0));
    assert_eq!(old(&[("ior", 29)], true), (vec![Kind::FirstTouchLost], 0));
    assert_eq!(old(&[("4711", 30)], true), (vec![], 1));
    assert_eq!(old(&[("cat", 30)], false), (vec![], 1));
}

fn phase(tasks: Option<Vec<Task>>) -> WorkloadPhase {
    WorkloadPhase {
        name: "work".to_owned(),
        test: 0,
        repetition: 0,
        moved: Default::default(),
        events: [(ProgramEvent::TcpSend, Totals { calls: 10, bytes: 640, errors: 0 })].into(),
        mount: None,
        tasks,
        window: None,
        calls: None,
        activity: None,
        interval: Interval { before: reading(1000, 10), after: reading(2000, 60) },
    }
}

/// There was no room for threads of a bundled workload, or it had too many.
#[test]
fn no_thread_is_taken_for_the_workload_where_threads_are_recorded() {
    let by = |label: &str, rows: &[CounterRow], names: &[(&str, u64)]| {
        let mut run = run_of(rows, names);
        run.probe.map = MapLayout::Threads;
        run.phases = vec![phase(None)];
        let (findings, beside) = of_run(&tool(label), None, true, &run);
        (found(&findings), beside.not_compared.into_iter().map(|one| one.reason).collect::<String>())
    };
    let mut some = rows();
    some.push(CounterRow { task: None, ..read(0, 0, "", 3) });
    let expected = "which process, by its name, did 3 of the calls that `n` counts (read) is not recorded";
    assert_eq!(by(READS, &some, &[("sh", 5), ("cat", 70)]), (vec![], expected.to_owned()));
    let sends = READS.replace("read", "send");
    let (findings, reason) = by(&sends, &rows(), &[("ior", 7)]);
    assert_eq!(findings, []);
    assert!(reason.ends_with("did 10 of the calls that `n` counts (send) is not recorded"), "{reason}");
}

#[test]
fn what_the_workload_sends_is_that_of_its_process() {
    let threads = || vec![Task::new(21, 21, "ior"), Task::new(21, 22, "ior")];
    let sent = |names: &[(&str, u64)], tasks: Vec<Task>| {
        let mut run = run_of(&rows(), names);
        run.phases = vec![phase(Some(tasks))];
        let tool = tool("{ value = 'n', operations = 'send', unit = 'calls', whose = 'process', label = 'c' }");
        let (findings, beside) = of_run(&tool, None, true, &run);
        (found(&findings), beside.not_compared.into_iter().map(|one| one.reason).collect::<String>())
    };
    assert_eq!(sent(&[("21", 10)], threads()), (vec![], String::new()));
    assert_eq!(sent(&[("ior", 10)], threads()), (vec![], String::new()));
    assert_eq!(sent(&[("21", 7)], threads()).0, [Kind::CountsTooLow]);
    let (findings, reason) = sent(&[("21", 6), ("22", 4)], threads());
    assert_eq!(findings, []);
    assert_eq!(reason, "which thread did 10 of the calls that `n` counts (send) is not recorded");
    let two = vec![Task::new(21, 21, "ior"), Task::new(23, 23, "ior")];
    let (findings, reason) = sent(&[("21", 6), ("23", 4)], two);
    assert_eq!(findings, []);
    assert_eq!(reason, "which process, by its id, did 10 of the calls that `n` counts (send) is not recorded");
}

/// A reference tracer at entry counts requested bytes of files, and the workload counts what its
/// sockets moved.
#[test]
fn how_much_was_to_be_sent_is_not_known_to_any_reference() {
    let why = |probe: Probe, unit: &str| {
        let mut run = run_of(&rows(), &[("ior", 640)]);
        run.probe = ProbeConfiguration::with_defaults(probe);
        run.phases = vec![phase(Some(vec![Task::new(21, 21, "ior")]))];
        let figure = format!("{{ value = 'n', operations = 'send', unit = '{unit}', whose = 'process', label = 'c' }}");
        let (_, beside) = of_run(&tool(&figure), None, true, &run);
        (beside.figures.len(), beside.not_compared.into_iter().map(|one| one.reason).collect::<String>())
    };
    assert_eq!(why(Probe::Fexit, "bytes-returned"), (1, String::new()));
    assert_eq!(why(Probe::Fexit, "bytes-requested"), (0, "the ground truth has no bytes-requested".to_owned()));
    let unknown = "the ground truth does not know the bytes-requested of `n`".to_owned();
    assert_eq!(why(Probe::Fentry, "bytes-requested"), (0, unknown));
}

/// The kernel's threads of io_uring have their own names and did nothing in this phase.
#[test]
fn what_a_phase_did_is_that_of_the_only_thread_that_did_it() {
    let threads = vec![Task::new(21, 21, "ior"), Task::new(21, 22, "iou-wrk-21")];
    let names = |first: u64, second: u64| {
        let run = run_of(&[], &[]);
        let mut phase = phase(Some(threads.clone()));
        let rows = |rows: [CounterRow; 2]| rows.map(|row| CounterRow { cgroup: run.cgroup, ..row }).to_vec();
        let sample = |more: [u64; 2]| Sample {
            rows: rows([read(21, 21, "ior", 5 + more[0]), read(21, 22, "iou-wrk-21", 7 + more[1])]),
            ..sample(1000, 0)
        };
        phase.interval.before.tracer = Some(sample([0, 0]));
        phase.interval.after.tracer = Some(sample([first, second]));
        of_operation(&run, &SumsByCgroup::of("r", &ToolFigures::default(), &run), &phase, Operation::Read).name
    };
    assert_eq!(names(2, 0), ["ior"]);
    assert_eq!(names(0, 2), ["iou-wrk-21"]);
    assert_eq!(names(2, 2), [""; 0]);
    assert_eq!(names(0, 0), [""; 0]);
}
