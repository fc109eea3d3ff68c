// SPDX-License-Identifier: MIT OR Apache-2.0
//! A missing source clears no finding: tests every kind with every source, and partial answers.

use bpfassay_protocol::{checked_prototype::Checked, loaded_object::UnattachedProgram};

use super::*;
use crate::{
    finding::finding_source::{KindSources, Source},
    readings::{Bucket, Distribution},
};

/// Complete data on a run of a tool without any finding.
#[derive(Clone)]
struct Whole {
    start: Option<Start>,
    prototypes: Option<Vec<Checked>>,
    report: Option<Report>,
    readings: Option<Readings>,
    truth: Option<Truth>,
    kernel: KernelFacts,
}

impl Whole {
    fn new() -> Self {
        let shares = vec![share("a", "m", Operation::Read, 4, 400, 512), share("b", "n", Operation::Read, 3, 30, 64)];
        let of = |whose| figure(&[Operation::Read], MOVED, whose);
        let mut samples = Vec::new();
        for at in [10, 50, 100] {
            let moved = |bytes| if at == 10 { 0 } else { bytes };
            samples.push((at, 3, None, moved(7)));
            samples.push((at, 0, None, moved(430)));
            for (figure, names) in [(1, ["a", "b"]), (2, ["m", "n"])] {
                samples.push((at, figure, Some(names[0]), moved(400)));
                samples.push((at, figure, Some(names[1]), moved(30)));
            }
        }
        let durations = ReportedFigure {
            value: "nsecs.count".to_owned(),
            ..figure(&[Operation::Read], CountedUnit::Calls, Whose::System)
        };
        let buckets = vec![Bucket { least: 0, up_to: "1".to_owned(), count: 7 }];
        let values = Distribution { at_ns: 100, figure: 3, subject: None, buckets };
        let program = Checked {
            program: "on_read".to_owned(),
            section: "kprobe/vfs_read".to_owned(),
            differs: Vec::new(),
            unchecked: None,
        };
        Self {
            start: Some(Start::Ready),
            prototypes: Some(vec![program]),
            report: Some(report(vec![of(Whose::System), of(Whose::Cgroup), of(Whose::Mount), durations])),
            readings: Some(Readings { lost: Some(0), distributions: vec![values], ..readings(&samples) }),
            truth: Some(truth(shares)),
            kernel: KernelFacts {
                missed_probes: Some(0),
                recursion_misses: Some(0),
                programs: vec![2, 26],
                evicting: Vec::new(),
                cpus: 1,
                seed: None,
                racy: Some(Vec::new()),
                racy_lacks: None,
                full_maps: Some(Vec::new()),
                keys_lacks: None,
                links: Some(2),
                kernel: Some((6, 12)),
                left_behind: Some(Vec::new()),
                left_lacks: None,
                memory_bytes: Some(1 << 20),
                memory_lacks: None,
                idle_cpu: Some((1, 1000)),
                attach_ns: Some(1),
                detach: Some(Detach::After(1)),
            },
        }
    }

    fn without(mut self, source: Source) -> Self {
        let kernel = &mut self.kernel;
        match source {
            Source::Start => self.start = None,
            Source::Prototypes => self.prototypes = None,
            // No report is read if the tool file has no figures.
            Source::Figures => (self.report, self.readings) = (None, None),
            Source::Reports => self.readings = None,
            Source::Truth => self.truth = None,
            Source::Lost => self.readings().lost = None,
            Source::Programs => kernel.programs.clear(),
            Source::Links => kernel.links = None,
            Source::ProgramMisses => kernel.recursion_misses = None,
            Source::ProbeHits => kernel.missed_probes = None,
            Source::Left => kernel.left_behind = None,
            Source::Instructions => kernel.racy = None,
            Source::Keys => kernel.full_maps = None,
            Source::Memory => kernel.memory_bytes = None,
            Source::IdleTime => kernel.idle_cpu = None,
            Source::AttachTime => kernel.attach_ns = None,
            Source::DetachTime => kernel.detach = None,
        }
        self
    }

    fn readings(&mut self) -> &mut Readings {
        self.readings.as_mut().unwrap()
    }

    fn evaluated(&self) -> Vec<FindingResult> {
        let evidence = Evidence {
            start: self.start.as_ref(),
            prototypes: self.prototypes.as_deref(),
            report: self.report.as_ref(),
            readings: self.readings.as_ref(),
            truth: self.truth.as_ref(),
            requested: None,
            kernel: Some(&self.kernel),
        };
        evaluate(&evidence, &ValueLimits::default())
    }

    /// Asserts that the kinds in `open` are not evaluated, those in `found` are found, and all
    /// others are clear.
    fn assert(&self, what: &str, open: &[Kind], found: &[Kind]) {
        for FindingResult { kind, status } in self.evaluated() {
            let expected = match status {
                FindingStatus::Found { .. } => found.contains(&kind),
                FindingStatus::NotEvaluated { .. } => open.contains(&kind),
                FindingStatus::Clear => !open.contains(&kind) && !found.contains(&kind),
            };
            assert!(expected, "{what}: {kind} is {status:?}");
        }
    }
}

impl Kind {
    /// The sources that the kind is evaluated from.
    fn answers_of(self) -> &'static [Source] {
        match &self.definition().sources {
            KindSources::Figures(_) => &[Source::Figures, Source::Reports, Source::Truth],
            KindSources::Of(sources) => sources,
        }
    }
}

#[test]
fn a_kind_is_clear_only_where_each_of_its_sources_answers() {
    Whole::new().assert("everything answers", &[], &[]);
    for &source in Source::ALL {
        let of_source: Vec<Kind> =
            Kind::ALL.iter().copied().filter(|kind| kind.answers_of().contains(&source)).collect();
        assert!(!of_source.is_empty(), "{} is a source of no kind", source.name());
        Whole::new().without(source).assert(source.name(), &of_source, &[]);
    }
}

/// Every kind that figures can show.
const OF_FIGURES: [Kind; 8] = [
    Kind::RequestedAsMoved,
    Kind::MountsMerged,
    Kind::CgroupsMerged,
    Kind::SubjectUnknown,
    Kind::OperationsNotSeen,
    Kind::FirstTouchLost,
    Kind::CountsTooLow,
    Kind::CountsTooHigh,
];
const OF_COURSES: [Kind; 2] = [Kind::CountsGoBackwards, Kind::CountsVanish];

#[test]
fn what_is_answered_in_part_clears_nothing_that_the_rest_may_show() {
    let of_reports = [&OF_FIGURES[..], &OF_COURSES, &[Kind::EventsDropped, Kind::ImpossibleDurations]].concat();
    let with = |change: fn(&mut Whole)| {
        let mut whole = Whole::new();
        change(&mut whole);
        whole
    };
    let cut = with(|whole| whole.readings().cut = true);
    cut.assert("cut", &[&of_reports[..], &[Kind::Unreadable]].concat(), &[]);
    with(|whole| whole.readings().unread = 1).assert("a line", &of_reports, &[Kind::Unreadable]);
    let silent = with(|whole| *whole.readings() = Readings { lost: Some(0), ..Readings::default() });
    silent.assert("no report", &[&of_reports[..], &[Kind::Unreadable]].concat(), &[]);
    // Kinds by cgroup and mount need a report from before the workload.
    let late = with(|whole| {
        whole.report.as_mut().unwrap().figures[0].counting = Counting::Interval;
        whole.readings().reports.remove(0);
        whole.readings().samples.retain(|sample| sample.at_ns > 10 && (sample.figure > 0 || sample.at_ns > 50));
    });
    late.assert("a late report", &OF_FIGURES, &[]);
    let known = with(|whole| whole.truth.as_mut().unwrap().is_whole_system = false);
    let of_system = [
        Kind::RequestedAsMoved,
        Kind::SubjectUnknown,
        Kind::OperationsNotSeen,
        Kind::FirstTouchLost,
        Kind::CountsTooLow,
        Kind::CountsTooHigh,
    ];
    known.assert("the workload alone", &of_system, &[]);
    let unasked =
        with(|whole| whole.truth.as_mut().unwrap().shares.iter_mut().for_each(|one| one.bytes_requested = None));
    unasked.assert("what was asked for", &[Kind::RequestedAsMoved], &[]);
    let shared = with(|whole| {
        whole.truth.as_mut().unwrap().is_shared = true;
        whole.readings().samples.push(ReportedSample {
            at_ns: 100,
            figure: 2,
            subject: Some("/theirs".to_owned()),
            value: 7,
        });
    });
    shared.assert("a mount of others", &[Kind::SubjectUnknown], &[]);
}

#[test]
fn what_the_kernel_answers_in_part_clears_nothing() {
    let with = |change: fn(&mut KernelFacts), open: &[Kind]| {
        let mut whole = Whole::new();
        change(&mut whole.kernel);
        whole.assert("in part", open, &[]);
    };
    with(|kernel| kernel.memory_lacks = Some("of 1 map".to_owned()), &[Kind::MemoryHeld]);
    with(|kernel| kernel.left_lacks = Some("links".to_owned()), &[Kind::LeftBehind]);
    with(|kernel| kernel.idle_cpu = Some((0, 0)), &[Kind::IdleCpu]);
    // One of two programs can be attached without a link. The kernel does not count misses of XDP.
    with(|kernel| kernel.links = Some(1), &[Kind::MissedProbes]);
    with(|kernel| kernel.programs = vec![26, 6], &[Kind::MissedProbes]);
    let mut whole = Whole::new();
    let of_xdp =
        Checked { unchecked: Some("of no function".to_owned()), ..whole.prototypes.clone().unwrap().remove(0) };
    whole.prototypes.as_mut().unwrap().push(of_xdp);
    whole.assert("a program", &[Kind::PrototypeDiffers], &[]);
    whole.prototypes = Some(Vec::new());
    whole.assert("no program", &[Kind::PrototypeDiffers], &[]);
}

#[test]
fn a_tool_that_shows_no_sign_may_have_failed_to_load() {
    let of = |loaded, attached, open: &[Kind]| {
        Whole { start: Some(Start::Running { loaded, attached }), ..Whole::new() }.assert("no sign", open, &[]);
    };
    of(true, true, &[]);
    of(true, false, &[Kind::DoesNotAttach]);
    of(false, false, &[Kind::DoesNotLoad, Kind::DoesNotAttach, Kind::DoesNotStart]);
    let programs = vec![UnattachedProgram { program: "x".to_owned(), section: "xdp".to_owned() }];
    Whole { start: Some(Start::Unattached { programs }), ..Whole::new() }.assert(
        "only a loader can attach `x` (section xdp)",
        &[Kind::DoesNotAttach],
        &[],
    );
}

/// Missing data does not hide a finding.
#[test]
fn a_part_that_does_not_answer_hides_no_finding() {
    let mut whole = Whole::new();
    whole.kernel.memory_lacks = Some("of 1 map".to_owned());
    whole.kernel.memory_bytes = Some(1 << 30);
    whole.kernel.left_lacks = Some("links".to_owned());
    whole.kernel.left_behind = Some(vec!["map m".to_owned()]);
    whole.assert("found", &[], &[Kind::LeftBehind, Kind::MemoryHeld]);
}

/// A figure without data in one run can be compared in another.
#[test]
fn what_no_run_compares_is_left_open() {
    let report = Whole::new().report.unwrap();
    let not = NotCompared { index: 2, figure: "`v`".to_owned(), reason: "no truth".to_owned() };
    let mut findings = Whole::new().evaluated();
    leave_open(&mut findings, &report, &[not]);
    for FindingResult { kind, status } in findings {
        let is_open = OF_FIGURES.contains(&kind) && kind != Kind::CgroupsMerged;
        let expected = FindingStatus::NotEvaluated { reason: "`v`: no truth".to_owned() };
        assert_eq!(status, if is_open { expected } else { FindingStatus::Clear }, "{kind}");
    }
}

/// The table of sources in docs/explanation/finding-evidence.md matches the code.
#[test]
fn the_page_has_the_sources_of_every_kind() {
    let mut table = String::from("| finding | its sources | clear | not evaluated |\n|---|---|---|---|\n");
    for kind in Kind::ALL {
        let definition = kind.definition();
        let sources: Vec<&str> = kind.answers_of().iter().map(|source| source.name()).collect();
        let (_, not) = definition.explanation.split_once("Not evaluated ").unwrap();
        let not = not.trim_end_matches('.');
        let (name, sources, clear) = (definition.name, sources.join("; "), definition.clear);
        table += &format!("| [{name}](../reference/findings.md#{name}) | {sources} | {clear} | {not} |\n");
    }
    let page = include_str!("../../../../../docs/explanation/finding-evidence.md");
    assert!(page.contains(&table), "docs/explanation/finding-evidence.md has not this table:\n{table}");
}
