// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares a tool's reports with the counts of its reference tracer.

mod full_maps;
mod newcomers;
mod processes;
mod unanswered;
mod variants;

use bpfassay_protocol::{
    Operation, ProbeConfiguration,
    checked_prototype::{Checked, Prototypes},
    message::{BystanderFigures, Interval, MountFacts, Reading},
    operation::Totals,
    probe::Probe,
    tool_job::{Reference, Source},
    tracer_messages::{CounterRow, Device, Losses, Refusal, Sample, Step, Task},
};
use bpfassay_tool::{
    ToolFile,
    finding::{Certainty, Kind},
};

use super::*;

const CGROUP: u64 = 77;

/// Evaluates a run whose id has a character that the cgroup's name does not have.
fn of_run(
    tool: &UnderTest,
    object: Option<&[u8]>,
    is_timed: bool,
    figures: &RunFigures,
) -> (Vec<FindingResult>, AgainstReference) {
    super::of_run(tool, object, GuestKind { is_timed, series: None, cpus: 1, seed: None }, "x86_64_6.12_a@b", figures)
}

fn row(cgroup: u64, minor: u32, path: Option<&str>, operation: Operation, calls: u64, bytes: u64) -> CounterRow {
    CounterRow {
        cgroup,
        device: Device { major: 0, minor },
        mount: u64::from(minor) + 100,
        path: path.map(str::to_owned),
        operation,
        variant: None,
        task: (cgroup == CGROUP).then(|| Task::new(4711, 4711, "ior")),
        totals: Totals { calls, bytes, errors: 0 },
        latency: Vec::new(),
    }
}

/// Creates a sample at which the workload has made `calls` calls of 100 bytes, and the rest of the
/// system twice as many through pipes.
fn sample(at_ns: u64, calls: u64) -> Sample {
    let rows = vec![
        row(1, 9, None, Operation::Read, 2 * calls, 2 * calls),
        row(CGROUP, 45, Some("/mnt"), Operation::Read, calls, 100 * calls),
    ];
    Sample { monotonic_ns: at_ns, label: None, rows, events: Vec::new(), losses: Losses::default() }
}

fn reading(at_ns: u64, calls: u64) -> Reading {
    Reading { monotonic_ns: at_ns, idle_ns: None, tracer: Some(sample(at_ns, calls)), mountstats: None }
}

/// Creates samples around a report, in both of which the reference tracer has `rows`.
fn beside(at_ns: u64, rows: &[CounterRow]) -> Option<Box<Reference>> {
    let at = |at_ns: u64| Sample { rows: rows.to_vec(), ..sample(at_ns, 0) };
    Some(Box::new(Reference { before: at(at_ns - 1), after: at(at_ns) }))
}

/// Returns the evidence of the finding of this kind.
fn evidence(findings: &[FindingResult], kind: Kind) -> String {
    match &findings.iter().find(|one| one.kind == kind).unwrap().status {
        FindingStatus::Found { evidence, .. } => evidence.join("\n"),
        other => panic!("{other:?}"),
    }
}

/// Returns the output of a tool after the workload had made `calls` calls.
fn piece(at_ns: u64, text: &str, calls: Option<u64>) -> OutputPiece {
    let reference = calls.map(|calls| around(at_ns, calls, calls));
    OutputPiece { monotonic_ns: at_ns, source: Source::Output, endpoint: 0, text: text.to_owned(), reference }
}

/// Creates samples before and after a report. During the report, the number of the workload's calls
/// rose from `before` to `after`.
fn around(at_ns: u64, before: u64, after: u64) -> Box<Reference> {
    Box::new(Reference { before: sample(at_ns - 1, before), after: sample(at_ns, after) })
}

/// Creates figures of a workload that runs from 1000 to 2000 and makes 50 calls.
fn figures(output: Vec<OutputPiece>) -> RunFigures {
    let seen = ToolFigures { output, ended: "ended".to_owned(), stop_ns: Some(1), ..ToolFigures::default() };
    RunFigures {
        probe: ProbeConfiguration::with_defaults(Probe::Fexit),
        engine: None,
        summary: String::new(),
        features: Vec::new(),
        cgroup: CGROUP,
        mount: MountFacts::default(),
        phases: Vec::new(),
        whole: Interval { before: reading(1000, 10), after: reading(2000, 60) },
        tracer: None,
        ended: None,
        tool_statistics: Vec::new(),
        tool: Some(Box::new(seen)),
        samples: Vec::new(),
        bystander: None,
        warm_up: None,
        namespace: Vec::new(),
    }
}

fn tool(figures: &str) -> UnderTest {
    let text = format!(
        "schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\nbinary = {{ arch = 'x86_64', path = 'a' }}\n\
         [report]\njson-lines = {{}}\ncounting = 'interval'\nfigures = [{figures}]\n"
    );
    UnderTest::of(ToolFile::parse("t.toml", &text).unwrap())
}

fn found(findings: &[FindingResult]) -> Vec<Kind> {
    let is_found = |finding: &&FindingResult| matches!(finding.status, FindingStatus::Found { .. });
    findings.iter().filter(is_found).map(|finding| finding.kind).collect()
}

#[test]
fn the_whole_system_is_compared_from_report_to_report() {
    let tool = tool("{ value = 'n', operations = 'read', unit = 'calls' }");
    // All programs together made 3 * (62 - 8) calls between the two reports, and the tool reports
    // as many.
    let exact = vec![piece(900, "{\"n\":5}\n", Some(8)), piece(2100, "{\"n\":162}\n", Some(62))];
    let (evaluated, compared) = of_run(&tool, None, true, &figures(exact));
    assert_eq!(found(&evaluated), []);
    assert_eq!(
        (compared.figures[0].reported, compared.figures[0].really, compared.figures[0].is_exact()),
        (162, 162, true)
    );

    // The workload alone made 52 of these calls before the last report. A tool can count calls of
    // the agent, calls of kernel threads, and calls during its report, or leave them out.
    let reported = |calls: u64| {
        let mut last = piece(2100, &format!("{{\"n\":{calls}}}\n"), None);
        last.reference = Some(around(2100, 60, 62));
        of_run(&tool, None, true, &figures(vec![piece(900, "{\"n\":5}\n", Some(8)), last]))
    };
    for calls in [52, 54, 161] {
        let (evaluated, compared) = reported(calls);
        assert_eq!((found(&evaluated), compared.figures[0].is_exact()), (vec![], false), "{calls}");
    }
    let (evaluated, _) = reported(51);
    assert_eq!(found(&evaluated), [Kind::CountsTooLow]);
    let low = evaluated.iter().find(|finding| finding.kind == Kind::CountsTooLow).unwrap();
    assert!(
        matches!(&low.status, FindingStatus::Found { evidence, .. } if evidence[0].ends_with("51, really 52 to 162")),
        "{low:?}"
    );
    assert_eq!(found(&reported(163).0), [Kind::CountsTooHigh]);
}

/// A mount of the workload's own mount namespace has files, although the tracer does not know the
/// mount.
#[test]
fn a_mount_of_another_namespace_has_files_and_the_name_that_it_has_there() {
    let tool = tool(
        "{ value = 'n', operations = 'read', unit = 'calls', whose = 'mount', label = 'mount', only_files = true }",
    );
    let hide = |sample: &mut Sample| sample.rows.iter_mut().for_each(|row| row.path = None);
    let run = |namespace: Vec<MountFacts>| {
        let mut pieces = vec![
            piece(900, "{\"n\":0,\"mount\":\"/own\"}\n", Some(8)),
            piece(2100, "{\"n\":54,\"mount\":\"/own\"}\n", Some(62)),
        ];
        for reference in pieces.iter_mut().filter_map(|piece| piece.reference.as_mut()) {
            hide(&mut reference.before);
            hide(&mut reference.after);
        }
        found(&of_run(&tool, None, true, &RunFigures { namespace, ..figures(pieces) }).0)
    };
    let own = MountFacts {
        id: 145,
        device: Device { major: 0, minor: 45 },
        path: "/own".to_owned(),
        ..MountFacts::default()
    };
    assert_eq!(run(vec![own.clone()]), []);
    // Nothing is known of another mount with that id.
    assert_eq!(run(vec![MountFacts { device: Device { major: 0, minor: 46 }, ..own }]), [Kind::SubjectUnknown]);
}

/// Calls before the reading of the reference tracer and after the tool's report show in the tool's
/// next report.
#[test]
fn what_happened_while_the_first_report_was_made_may_be_counted() {
    let tool = tool("{ value = 'n', operations = 'read', unit = 'calls' }");
    let reported = |calls: u64| {
        let mut first = piece(900, "{\"n\":5}\n", None);
        first.reference = Some(around(900, 6, 8));
        let last = piece(2100, &format!("{{\"n\":{calls}}}\n"), Some(62));
        found(&of_run(&tool, None, true, &figures(vec![first, last])).0)
    };
    // There are 6 calls between the two readings.
    assert_eq!((reported(168), reported(169)), (vec![], vec![Kind::CountsTooHigh]));
}

#[test]
fn what_a_tool_file_leaves_out_is_not_missing() {
    let run = |leaves_out: &str, path: &str| {
        let mut tool = tool("{ value = 'n', operations = 'read', unit = 'calls', whose = 'cgroup' }");
        tool.file.report.as_mut().unwrap().leaves_out = vec![leaves_out.to_owned()];
        let line = |calls: u64| format!("{{\"n\":{calls},\"cgroup\":\"{CGROUP}\"}}\n");
        let mut figures = figures(vec![piece(900, &line(0), Some(10)), piece(2100, &line(50), Some(60))]);
        // The workload's cgroup makes 7 calls on another mount before the workload ends.
        let elsewhere = row(CGROUP, 46, Some(path), Operation::Read, 7, 7);
        figures.whole.after.tracer.as_mut().unwrap().rows.push(elsewhere.clone());
        let reference = figures.tool.as_mut().unwrap().output[1].reference.as_mut().unwrap();
        reference.before.rows.push(elsewhere.clone());
        reference.after.rows.push(elsewhere);
        found(&of_run(&tool, None, true, &figures).0)
    };
    assert_eq!(run("/sys", "/sys/kernel/debug"), []);
    assert_eq!(run("/sys/kernel/debug", "/sys/kernel/debug"), []);
    for path in ["/sysfs", "/mnt/sys"] {
        assert_eq!(run("/sys", path), [Kind::CountsTooLow], "{path}");
    }
    // A tool need not count the agent's own entry into the workload's cgroup.
    assert_eq!(run("/proc", "/sys/fs/cgroup"), []);
}

#[test]
fn without_a_report_before_the_workload_the_whole_system_is_not_evaluated() {
    let tool = tool("{ value = 'n', operations = 'read', unit = 'calls' }");
    let (evaluated, compared) = of_run(&tool, None, true, &figures(vec![piece(2100, "{\"n\":162}\n", Some(62))]));
    assert_eq!(found(&evaluated), []);
    let dropped = evaluated.iter().find(|finding| finding.kind == Kind::CountsTooLow).unwrap();
    assert!(
        matches!(&dropped.status, FindingStatus::NotEvaluated { reason } if reason.contains("whole system")),
        "{dropped:?}"
    );
    assert_eq!(compared.figures[0].really, 3 * 52);
}

#[test]
fn the_workload_is_known_by_cgroup_mount_and_process() {
    for (whose, name) in [
        ("cgroup", "77"),
        ("cgroup", "/run-x86_64_6.12_a_b"),
        ("mount", "/mnt"),
        ("mount", "0:45"),
        ("mount", "45"),
        ("process", "ior"),
    ] {
        let tool = tool(&format!("{{ value = 'n', operations = 'read', unit = 'bytes-returned', whose = '{whose}' }}"));
        let line = |bytes: u64| format!("{{\"n\":{bytes},\"{whose}\":\"{name}\"}}\n");
        let run = |bytes| figures(vec![piece(900, &line(0), Some(10)), piece(2100, &line(bytes), Some(60))]);
        // Cgroup 1 read, too, and its pipe has a mount of its own: the tool reported neither.
        let evaluated = of_run(&tool, None, true, &run(5000));
        let of_ior = evaluated.1.figures.iter().find(|one| one.really == 5000).unwrap();
        assert!(of_ior.is_exact(), "{of_ior:?}");
        let evaluated = of_run(&tool, None, true, &run(4900));
        assert!(found(&evaluated.0).contains(&Kind::FirstTouchLost), "{whose} {name}: {:?}", evaluated.0);
    }
}

/// A tool that uses paths also names its own cgroup and the root.
#[test]
fn cgroups_are_known_by_their_paths() {
    let tool = tool("{ value = 'n', operations = 'read', unit = 'calls', whose = 'cgroup' }");
    for (of_root, of_tool) in [("/", "/run-x86_64_6.12_a_b-tool"), ("1", "99")] {
        let lines = |all: [u64; 3]| {
            let names = [of_root, "/run-x86_64_6.12_a_b", of_tool];
            let line = |(name, calls): (&str, u64)| format!("{{\"n\":{calls},\"cgroup\":\"{name}\"}}\n");
            names.into_iter().zip(all).map(line).collect::<String>()
        };
        let with_tool = |at_ns, text: &str, calls| {
            let mut piece = piece(at_ns, text, Some(calls));
            let reference = piece.reference.as_mut().unwrap();
            for sample in [&mut reference.before, &mut reference.after] {
                sample.rows.push(row(99, 46, Some("/tmp"), Operation::Read, calls / 10, 0));
            }
            piece
        };
        let pieces = vec![with_tool(900, &lines([0; 3]), 10), with_tool(2100, &lines([100, 50, 5]), 60)];
        let mut figures = figures(pieces);
        figures.tool.as_mut().unwrap().cgroup = 99;
        let (evaluated, compared) = of_run(&tool, None, true, &figures);
        assert_eq!(found(&evaluated), [], "{of_root}: {evaluated:?}");
        let figures = compared.figures.iter().map(|one| (one.subject.as_deref().unwrap(), one.reported, one.really));
        let figures: BTreeSet<_> = figures.collect();
        assert_eq!(figures, [("1", 100, 100), ("77", 50, 50), ("99", 5, 5)].into(), "{of_root}");
    }
}

/// On a running system, the cgroups of runs are below the cgroup of the agent, and other programs
/// work on mounts whose names are unknown here.
#[test]
fn on_a_running_system_cgroups_have_longer_paths_and_others_have_mounts_of_their_own() {
    let by_cgroup = tool("{ value = 'n', operations = 'read', unit = 'calls', whose = 'cgroup' }");
    let by_mount = tool("{ value = 'n', operations = 'read', unit = 'calls', whose = 'mount' }");
    let run = |tool: &UnderTest, cgroups: &str, whose: &str, names: [&str; 2]| {
        let lines = |all: [u64; 2]| {
            let line = |(name, calls): (&str, u64)| format!("{{\"n\":{calls},\"{whose}\":\"{name}\"}}\n");
            names.into_iter().zip(all).map(line).collect::<String>()
        };
        let mut figures = figures(vec![piece(900, &lines([0, 0]), Some(10)), piece(2100, &lines([50, 7]), Some(60))]);
        figures.tool.as_mut().unwrap().cgroups = cgroups.to_owned();
        of_run(tool, None, true, &figures)
    };
    let path = "/user.slice/bpfassay-here-9/run-x86_64_6.12_a_b";
    let (evaluated, compared) = run(&by_cgroup, "/user.slice/bpfassay-here-9", "cgroup", [path, "/other"]);
    assert!(!found(&evaluated).contains(&Kind::SubjectUnknown), "{evaluated:?}");
    let of_workload = compared.figures.iter().find(|one| one.really == 50).unwrap();
    assert!(of_workload.is_exact(), "{of_workload:?}");
    assert!(
        !found(&run(&by_mount, "/bpfassay-here-9", "mount", ["/mnt", "/elsewhere"]).0).contains(&Kind::SubjectUnknown)
    );
    // A guest runs nothing else.
    let (evaluated, _) = run(&by_mount, "", "mount", ["/mnt", "/elsewhere"]);
    assert!(found(&evaluated).contains(&Kind::SubjectUnknown), "{evaluated:?}");
}

#[test]
fn only_files_leaves_out_what_has_no_path() {
    let tool = tool("{ value = 'n', operations = 'read', unit = 'calls', only_files = true }");
    let reported = vec![piece(900, "{\"n\":0}\n", Some(10)), piece(2100, "{\"n\":50}\n", Some(60))];
    let (evaluated, compared) = of_run(&tool, None, true, &figures(reported));
    assert_eq!((found(&evaluated), compared.figures[0].is_exact()), (Vec::new(), true));
}

#[test]
fn what_a_tool_does_itself_is_left_out_where_it_is_declared_so() {
    let mut tool = tool("{ value = 'n', operations = 'read', unit = 'calls' }");
    let run = || {
        let reported = vec![piece(900, "{\"n\":0}\n", Some(10)), piece(2100, "{\"n\":50}\n", Some(60))];
        let mut figures = figures(reported);
        // The tool reads from pipes and makes 100 calls in the meantime.
        figures.tool.as_mut().unwrap().cgroup = 1;
        figures
    };
    assert_eq!(of_run(&tool, None, true, &run()).1.figures[0].really, 150);
    tool.file.report.as_mut().unwrap().excludes_itself = true;
    let (evaluated, compared) = of_run(&tool, None, true, &run());
    assert_eq!((found(&evaluated), compared.figures[0].is_exact()), (Vec::new(), true));
}

#[test]
fn requested_bytes_are_held_against_a_reference_of_calls_entries() {
    let tool = tool(
        "{ value = 'asked', operations = 'read', unit = 'bytes-requested', whose = 'process' },
         { value = 'calls', operations = 'read', unit = 'calls', whose = 'process' }",
    );
    let line = |asked: u64, calls: u64| format!("{{\"asked\":{asked},\"calls\":{calls},\"process\":\"ior\"}}\n");
    let run = |probe, asked| RunFigures {
        probe: ProbeConfiguration::with_defaults(probe),
        ..figures(vec![piece(900, &line(0, 0), Some(10)), piece(2100, &line(asked, 50), Some(60))])
    };
    let names = |beside: &AgainstReference| beside.figures.iter().map(|one| one.figure.clone()).collect::<Vec<_>>();
    // Each reference counts what it sees: one counts the bytes that calls moved, the other the
    // bytes that they requested.
    let (evaluated, returned) = of_run(&tool, None, true, &run(Probe::Fexit, 9000));
    assert_eq!((found(&evaluated), names(&returned)), (Vec::new(), vec!["calls".to_owned()]));
    let (evaluated, requested) = of_run(&tool, None, true, &run(Probe::Kprobe, 5000));
    assert_eq!((found(&evaluated), names(&requested)), (Vec::new(), vec!["asked".to_owned()]));
    assert_eq!((requested.figures[0].is_exact(), returned.moved_of(&requested.figures[0])), (true, Some(5000)));
    // A tool that is wrong about requested bytes is found.
    let (evaluated, _) = of_run(&tool, None, true, &run(Probe::Kprobe, 4990));
    assert_eq!(found(&evaluated), [Kind::CountsTooLow]);
}

#[test]
fn a_racy_update_that_lost_nothing_names_the_number_of_seeds() {
    let of = |kind, status| FindingResult { kind, status };
    let fitting = FindingStatus::found(Certainty::Fitting, vec!["n += 1;".to_owned()]);
    let evidence_with = |seeds, racy: &FindingStatus, low: &FindingStatus| {
        let mut findings = vec![of(Kind::RacyUpdate, racy.clone()), of(Kind::CountsTooLow, low.clone())];
        races_not_seen(&mut findings, seeds);
        evidence(&findings, Kind::RacyUpdate)
    };
    let clear = FindingStatus::Clear;
    assert!(evidence_with(20, &fitting, &clear).ends_with("no lost count was seen with 20 seeds"));
    let proven = FindingStatus::found(Certainty::Proven, vec!["n += 1;".to_owned()]);
    let low = FindingStatus::found(Certainty::Bounded, vec!["7, really 10".to_owned()]);
    for (seeds, racy, low) in [(0, &fitting, &clear), (20, &proven, &clear), (20, &fitting, &low)] {
        assert_eq!(evidence_with(seeds, racy, low), "n += 1;");
    }
}

#[test]
fn what_is_found_once_is_found() {
    let clear = |kind| FindingResult { kind, status: FindingStatus::Clear };
    let not = |kind| FindingResult { kind, status: FindingStatus::NotEvaluated { reason: "x".to_owned() } };
    let there = |kind| FindingResult { kind, status: FindingStatus::found(Certainty::Proven, vec!["y".to_owned()]) };
    let mut known = Vec::new();
    merge(&mut known, vec![not(Kind::IdleCpu), clear(Kind::SlowAttach), there(Kind::LeftBehind)]);
    merge(&mut known, vec![clear(Kind::IdleCpu), there(Kind::SlowAttach), clear(Kind::LeftBehind)]);
    assert_eq!(known, [clear(Kind::IdleCpu), there(Kind::SlowAttach), there(Kind::LeftBehind)]);
}

#[test]
fn a_tool_without_reports_is_evaluated_by_what_the_kernel_saw() {
    let mut run = figures(Vec::new());
    if let Some(seen) = &mut run.tool {
        seen.left_behind.programs = vec!["on_read".to_owned()];
    }
    let mut silent = tool("{ value = 'n', operations = 'read', unit = 'calls' }");
    silent.file.report = None;
    assert_eq!(found(&of_run(&silent, None, true, &run).0), [Kind::LeftBehind]);
}

/// An object with a program of a kprobe and one of XDP has a link.
#[test]
fn an_object_with_a_program_that_only_a_loader_can_attach_is_not_seen_to_attach() {
    let text = "schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\nobject = { path = 'a.o' }\n";
    let object = UnderTest::of(ToolFile::parse("t.toml", text).unwrap());
    let status = |unattached: &str| {
        let line = format!("{{\"type\":\"loaded\",\"load_ns\":7,\"programs\":[]{unattached}}}\n");
        let mut run = figures(vec![OutputPiece { source: Source::Output, ..piece(900, &line, None) }]);
        run.tool.as_mut().unwrap().links = Some(1);
        let findings = of_run(&object, None, true, &run).0;
        let of = |kind| findings.iter().find(|finding| finding.kind == kind).unwrap().status.clone();
        [Kind::DoesNotLoad, Kind::DoesNotAttach, Kind::DoesNotStart].map(of)
    };
    assert_eq!(status(""), [FindingStatus::Clear, FindingStatus::Clear, FindingStatus::Clear]);
    let reason = "only a loader can attach `x` (section xdp)".to_owned();
    let left = FindingStatus::NotEvaluated { reason };
    let unattached = ",\"unattached\":[{\"program\":\"x\",\"section\":\"xdp\"}]";
    assert_eq!(status(unattached), [FindingStatus::Clear, left, FindingStatus::Clear]);
}

#[test]
fn a_tool_that_leaves_its_guest_changed_has_left_something_behind() {
    let excerpt = vec!["the guest was not as before after r7: /mnt/nfs is not mounted any more".to_owned()];
    // Lines of the console prove nothing about the tool.
    let with_console = excerpt.iter().cloned().chain(["clocksource: Switched to clocksource tsc".to_owned()]);
    let failure =
        RunFailure { kind: FailureKind::Unsound, phase: None, excerpt: with_console.collect(), log: None, after: None };
    let findings = left_changed(&failure);
    assert_eq!(found(&findings), [Kind::LeftBehind]);
    let status = findings.into_iter().find(|finding| finding.kind == Kind::LeftBehind).unwrap().status;
    assert_eq!(status, FindingStatus::found(Certainty::Proven, excerpt));
}

/// The loader compares prototypes before it loads an object; differences may be why the kernel
/// refuses it.
#[test]
fn a_refused_object_has_the_findings_of_its_prototypes() {
    let checked = |differs: &[&str], unchecked: Option<&str>| Checked {
        program: "on_mkdir".to_owned(),
        section: "fexit/vfs_mkdir".to_owned(),
        differs: differs.iter().map(|&line| line.to_owned()).collect(),
        unchecked: unchecked.map(str::to_owned),
    };
    let of = |prototypes: Option<Vec<Checked>>| {
        let refusal = Refusal {
            program: Some("on_mkdir".to_owned()),
            errno: Some(13),
            prototypes: prototypes.map(|checked| Box::new(Prototypes(checked))),
            ..Refusal::new(Step::Load, "cannot load on_mkdir: Permission denied".to_owned())
        };
        let findings = of_refusal(&refusal);
        let differs = findings.iter().find(|finding| finding.kind == Kind::PrototypeDiffers).unwrap();
        (found(&findings), differs.status.clone())
    };
    let (kinds, status) = of(Some(vec![checked(&["reads argument 6 of 5: p"], None)]));
    assert_eq!(kinds, [Kind::DoesNotLoad, Kind::PrototypeDiffers]);
    let evidence = vec!["on_mkdir (fexit/vfs_mkdir): reads argument 6 of 5: p".to_owned()];
    assert_eq!(status, FindingStatus::found(Certainty::Reported, evidence));
    assert_eq!(of(Some(vec![checked(&[], None)])).1, FindingStatus::Clear);
    for unknown in [None, Some(vec![checked(&[], Some("it was not followed"))])] {
        let (kinds, status) = of(unknown);
        assert_eq!(kinds, [Kind::DoesNotLoad]);
        assert!(matches!(status, FindingStatus::NotEvaluated { .. }), "{status:?}");
    }
}
