// SPDX-License-Identifier: MIT OR Apache-2.0
//! Missing parts of a run's record never clear a tool.

use bpfassay_protocol::tool_job::{BpfObject, KeyCount, LeftBehind, MapKeys, ProcessorTime, Races};
use proptest::prelude::*;

use super::*;

/// Creates a complete run of a tool that counts correctly.
fn whole() -> RunFigures {
    let line = |calls: u64| format!("{{\"n\":{calls},\"mount\":\"/mnt\"}}\n");
    let mut figures = figures(vec![piece(900, &line(0), Some(10)), piece(2100, &line(50), Some(60))]);
    let object = BpfObject { id: 1, name: "x".to_owned(), kind: 26, memory_bytes: Some(4096), code: None };
    let seen = figures.tool.as_mut().unwrap();
    (seen.programs, seen.maps, seen.links) = (vec![object.clone()], vec![BpfObject { kind: 1, ..object }], Some(1));
    seen.left_behind = LeftBehind { links: Some(0), ..LeftBehind::default() };
    let counts = vec![KeyCount { monotonic_ns: 1, keys: 0 }];
    seen.map_keys = vec![MapKeys { id: 1, max_entries: 16, counts }];
    seen.races = Some(Races::default());
    seen.resident_bytes = [1 << 20; 2];
    seen.processor_us = ProcessorTime { ready: 10, idle: 20, idle_ns: 1_000_000_000, stopped: 30 };
    (seen.recursion_misses, seen.ready_ns) = (Some(0), 1);
    figures
}

const OF_FIGURES: &[Kind] =
    &[Kind::SubjectUnknown, Kind::OperationsNotSeen, Kind::FirstTouchLost, Kind::CountsTooLow, Kind::CountsTooHigh];
const OF_OUTPUT: &[Kind] = &[
    Kind::SubjectUnknown,
    Kind::OperationsNotSeen,
    Kind::FirstTouchLost,
    Kind::CountsTooLow,
    Kind::CountsTooHigh,
    Kind::Unreadable,
];

/// A gap in the record, and the kinds that are not evaluated because of it.
type Lack = (fn(&mut RunFigures, &mut ToolFigures), &'static [Kind]);

const LACKS: &[Lack] = &[
    (|_, seen| seen.left_behind.links = None, &[Kind::LeftBehind]),
    (|_, seen| seen.recursion_misses = None, &[Kind::MissedProbes]),
    (|_, seen| seen.programs.clear(), &[Kind::MissedProbes]),
    (|_, seen| seen.maps[0].memory_bytes = None, &[Kind::MemoryHeld]),
    (|_, seen| seen.map_keys.clear(), &[Kind::MapFull]),
    (|_, seen| seen.races = None, &[Kind::RacyUpdate]),
    (|_, seen| seen.resident_bytes = [0; 2], &[Kind::MemoryHeld]),
    (|_, seen| seen.processor_us.idle_ns = 0, &[Kind::IdleCpu]),
    (|_, seen| seen.processor_us.idle = 9, &[Kind::IdleCpu]),
    (|_, seen| seen.dropped_bytes = 1, OF_OUTPUT),
    (|_, seen| seen.output.clear(), OF_OUTPUT),
    (|_, seen| seen.output.truncate(1), OF_FIGURES),
    (
        |figures, seen| {
            seen.output.iter_mut().for_each(|piece| piece.reference = None);
            figures.whole.after.tracer = None;
        },
        OF_FIGURES,
    ),
    (|figures, _| figures.probe = ProbeConfiguration::with_defaults(Probe::None), OF_FIGURES),
];

/// Returns the kinds that are clear in a run with the gaps `lacks`, and those that must not be.
fn clear(lacks: &[usize]) -> (Vec<Kind>, Vec<Kind>) {
    let mut tool = tool(
        "{ value = 'n', operations = 'read', unit = 'calls', whose = 'mount', label = 'mount', only_files = true }",
    );
    tool.file.ready = Ready::Line { pattern: "^ready".to_owned(), stream: None };
    let mut figures = whole();
    let mut seen = figures.tool.take().unwrap();
    for &lack in lacks {
        (LACKS[lack].0)(&mut figures, &mut seen);
    }
    figures.tool = Some(seen);
    let (findings, _) = of_run(&tool, None, true, &figures);
    assert_eq!(found(&findings), [], "{lacks:?}: {findings:?}");
    let is_clear = |finding: &FindingResult| (finding.status == FindingStatus::Clear).then_some(finding.kind);
    let open = lacks.iter().flat_map(|&lack| LACKS[lack].1).copied().collect();
    (findings.iter().filter_map(is_clear).collect(), open)
}

#[test]
fn everything_that_a_whole_record_can_show_is_clear() {
    let (of_whole, _) = clear(&[]);
    for kind in LACKS.iter().flat_map(|(_, kinds)| *kinds) {
        assert!(of_whole.contains(kind), "{kind}");
    }
}

proptest! {
    #[test]
    fn what_a_record_lacks_clears_nothing(lacks in proptest::collection::vec(0..LACKS.len(), 0..4)) {
        let (of_whole, _) = clear(&[]);
        let (clear, open) = clear(&lacks);
        for kind in Kind::ALL {
            let expected = of_whole.contains(kind) && !open.contains(kind);
            prop_assert_eq!(clear.contains(kind), expected, "{}: {:?}", kind, lacks);
        }
    }
}

/// The kernels of these series report only the keys and values of maps.
#[test]
fn a_kernel_that_understates_maps_clears_no_memory() {
    let tool = tool("{ value = 'n', operations = 'read', unit = 'calls' }");
    let held = |kernel: &str, figures: &RunFigures| {
        let guest = GuestKind { is_timed: true, series: Series::of(kernel), cpus: 1, seed: None };
        let (findings, _) = super::super::of_run(&tool, None, guest, "x86_64_6.12_a@b", figures);
        findings.into_iter().find(|finding| finding.kind == Kind::MemoryHeld).unwrap().status
    };
    for kernel in ["5.11", "6.1", "6.3"] {
        let FindingStatus::NotEvaluated { reason } = held(kernel, &whole()) else { panic!("{kernel}") };
        assert!(reason.contains("only the keys and values"), "{reason}");
    }
    for kernel in ["5.10", "6.4", "6.12", "7.2"] {
        assert_eq!(held(kernel, &whole()), FindingStatus::Clear, "{kernel}");
    }
    let (mut without_maps, mut large) = (whole(), whole());
    without_maps.tool.as_mut().unwrap().maps.clear();
    assert_eq!(held("6.1", &without_maps), FindingStatus::Clear);
    large.tool.as_mut().unwrap().maps[0].memory_bytes = Some(1 << 30);
    assert!(matches!(held("6.1", &large), FindingStatus::Found { .. }));
}

/// Nothing shows when a tool that was just started is ready.
#[test]
fn a_tool_without_a_sign_is_not_known_to_load_to_attach_or_how_soon() {
    let mut tool = tool("{ value = 'n', operations = 'read', unit = 'calls' }");
    tool.file.ready = Ready::Started;
    let open = |figures: &RunFigures| {
        let of_start = [Kind::DoesNotLoad, Kind::DoesNotAttach, Kind::DoesNotStart, Kind::SlowAttach];
        let (findings, _) = of_run(&tool, None, true, figures);
        let is_open = |finding: &&FindingResult| {
            of_start.contains(&finding.kind) && matches!(finding.status, FindingStatus::NotEvaluated { .. })
        };
        findings.iter().filter(is_open).map(|finding| finding.kind).collect::<Vec<_>>()
    };
    let mut silent = figures(Vec::new());
    assert_eq!(open(&silent), [Kind::DoesNotLoad, Kind::DoesNotAttach, Kind::DoesNotStart, Kind::SlowAttach]);
    silent.tool.as_mut().unwrap().programs = whole().tool.unwrap().programs;
    assert_eq!(open(&silent), [Kind::DoesNotAttach, Kind::SlowAttach]);
    // The tool counted.
    assert_eq!(open(&figures(vec![piece(2100, "{\"n\":162}\n", Some(62))])), [Kind::SlowAttach]);
}
