// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of cgroups and processes that appeared with the workload: a tool need not have reported
//! them before.

use super::*;

const BY_CGROUP: &str =
    "{ value = 'n', operations = 'read', unit = 'calls', counting = 'cumulative', whose = 'cgroup', label = 'c' }";
const BY_PROCESS: &str =
    "{ value = 'n', operations = 'read', unit = 'calls', counting = 'cumulative', whose = 'process', label = 'c' }";
const OF_SYSTEM: &str = "{ value = 'n', operations = 'read', unit = 'calls', counting = 'cumulative' }";

/// Creates a run whose workload's cgroup did nothing before the workload began, unless `was_there`.
fn run_of(output: Vec<OutputPiece>, was_there: bool) -> RunFigures {
    let mut figures = figures(output);
    if !was_there {
        figures.whole.before.tracer.as_mut().unwrap().rows.retain(|row| row.cgroup != CGROUP);
    }
    figures
}

/// Evaluates a tool that reports once, after the workload, that `subject` made `calls` calls.
/// Returns the findings and why figures were not compared.
fn reported(figure: &str, subject: &str, calls: u64, was_there: bool) -> (Vec<Kind>, Vec<String>) {
    let line = format!("{{\"c\":\"{subject}\",\"n\":{calls}}}\n");
    let run = run_of(vec![piece(2100, &line, Some(60))], was_there);
    let (findings, beside) = of_run(&tool(figure), None, true, &run);
    (found(&findings), beside.not_compared.into_iter().map(|one| one.reason).collect())
}

#[test]
fn what_came_with_the_workload_is_compared_without_a_report_before_it() {
    for (figure, subject) in [(BY_CGROUP, "77"), (BY_PROCESS, "ior")] {
        assert_eq!(reported(figure, subject, 60, false), (vec![], vec![]), "{subject}");
        assert_eq!(reported(figure, subject, 40, false).0, [Kind::CountsTooLow], "{subject}");
        assert_eq!(reported(figure, subject, 61, false).0, [Kind::CountsTooHigh], "{subject}");
    }
}

#[test]
fn what_was_there_before_needs_a_report_before_the_workload() {
    const WHY: &str = "the tool reported nothing before the workload began: what it counted until then is not known";
    for (figure, subject, was_there) in [(BY_CGROUP, "77", true), (BY_PROCESS, "ior", true), (OF_SYSTEM, "", false)] {
        let (kinds, why) = reported(figure, subject, 40, was_there);
        assert_eq!((kinds, why), (vec![], vec![WHY.to_owned()]), "{subject}");
    }
}

/// Another process of that name ran in another cgroup.
#[test]
fn a_name_that_was_there_says_nothing_of_a_new_cgroup() {
    let compared = |figure: &str, subject: &str| {
        let line = format!("{{\"c\":\"{subject}\",\"n\":40}}\n");
        let mut run = run_of(vec![piece(2100, &line, Some(60))], false);
        let before = run.whole.before.tracer.as_mut().unwrap();
        let task = Some(Task::new(9, 9, "ior"));
        before.rows.push(CounterRow { task, ..row(1, 9, Some("/"), Operation::Read, 3, 3) });
        let (findings, beside) = of_run(&tool(figure), None, true, &run);
        (found(&findings), beside.not_compared.len())
    };
    assert_eq!(compared(BY_CGROUP, "77"), (vec![Kind::CountsTooLow], 0));
    assert_eq!(compared(BY_PROCESS, "ior"), (vec![], 1));
}

#[test]
fn figures_that_nothing_is_beside_are_named() {
    let mut run = run_of(vec![piece(2100, "{\"n\":1}\n", None)], false);
    let tool = tool(OF_SYSTEM);
    run.whole.before.tracer = None;
    run.whole.after.tracer = None;
    let (_, beside) = of_run(&tool, None, true, &run);
    assert_eq!(beside.not_compared[0].figure, "`n` (read, calls)");
    assert_eq!(beside.not_compared[0].reason, "there is no ground truth");
    let requested = self::tool("{ value = 'n', operations = 'read', unit = 'bytes-requested' }");
    let (_, beside) = of_run(&requested, None, true, &run_of(vec![piece(2100, "{\"n\":1}\n", Some(60))], false));
    assert_eq!(beside.not_compared[0].reason, "the ground truth has no bytes-requested");
}

/// The bystander is another process of that name, in another cgroup and with mounts that only it
/// has. The reference tracer does not know the mounts.
#[test]
fn the_bystander_is_a_newcomer_whose_mounts_are_known() {
    const BYSTANDER: u64 = 78;
    const PATH: &str = "/proc";
    let mount = |path: &str| MountFacts {
        id: 146,
        device: Device { major: 0, minor: 46 },
        path: path.to_owned(),
        ..MountFacts::default()
    };
    let run = |figure: &str, subject: &str, calls: u64, namespace: Vec<MountFacts>| {
        let tool = tool(&format!("{figure}, only_files = true }}").replace(" }, only", ", only"));
        let own = "{\"c\":\"77\",\"n\":60}\n";
        let lines = format!("{own}{{\"c\":\"{subject}\",\"n\":{calls}}}\n");
        let lines = if figure == BY_CGROUP { &lines } else { lines.trim_start_matches(own) };
        let mut run = run_of(vec![piece(2100, lines, Some(60))], false);
        let task = Some(Task::new(4712, 4712, "ior"));
        let of_bystander = CounterRow { task, ..row(BYSTANDER, 46, None, Operation::Read, 7, 7) };
        run.whole.after.tracer.as_mut().unwrap().rows.push(of_bystander.clone());
        let reference = run.tool.as_mut().unwrap().output[0].reference.as_mut().unwrap();
        reference.before.rows.push(of_bystander.clone());
        reference.after.rows.push(of_bystander);
        run.bystander = Some(Box::new(BystanderFigures { cgroup: BYSTANDER, namespace, phases: Vec::new() }));
        found(&of_run(&tool, None, true, &run).0)
    };
    for (figure, subject, calls) in [(BY_CGROUP, "78", 7), (BY_PROCESS, "ior", 67)] {
        assert_eq!(run(figure, subject, calls, vec![mount(PATH)]), [], "{subject}");
        assert_eq!(run(figure, subject, calls - 3, vec![mount(PATH)]), [Kind::CountsTooLow], "{subject}");
    }
    // What is not known to be a file does not count.
    assert_eq!(run(BY_PROCESS, "ior", 67, Vec::new()), [Kind::CountsTooHigh]);
}
