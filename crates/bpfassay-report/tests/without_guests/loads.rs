// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools that are only loaded and attached: `bpfassay check`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use bpfassay_protocol::{
    Arch,
    loaded_object::{LoadedObject, ObjectLine, UnattachedProgram, VerifiedProgram},
    tool_job::{BpfObject, OutputPiece, ProgramCode, Source, ToolFigures, VerifierStatistics},
};
use bpfassay_report::{
    compare::{Question, compare},
    derive,
    render::{Screen, Style, comparison_text, html, screen, text},
};
use bpfassay_results::{GateResult, Outcome, Results};
use bpfassay_stats::Verdict;
use bpfassay_study::{Clock, Narrowing, Study};
use bpfassay_tool::{ToolFile, UnderTest};

use crate::common::{contents_of, figures, not_supported};

fn study() -> Study {
    study_of("")
}

/// Creates the study with a tool whose file has the keys `start` in `[start]`.
fn study_of(start: &str) -> Study {
    let mut study = bpfassay_study::load("load").unwrap();
    let text = format!(
        "schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\nbinary = {{ arch = 'x86_64', path = 'a' }}\n[start]\n{start}\n\
         [report]\njson-lines = {{}}\ncounting = 'interval'\nfigures = [{{ value = 'n', operations = 'read', unit = 'calls' }}]\n"
    );
    let file = ToolFile::parse("t.toml", &text).unwrap();
    study.test_tool(UnderTest::of(file)).unwrap();
    study
}

fn program(id: u32, name: &str, verified: Option<u32>, jited_bytes: u32) -> BpfObject {
    let code = Some(ProgramCode { instructions: 90, verified, jited_bytes, log: None });
    BpfObject { id, name: name.to_owned(), kind: 26, memory_bytes: None, code }
}

/// Creates results in which 6.12 loads `programs` of the tool, and every other kernel refuses it.
fn results(programs: &[BpfObject]) -> Results {
    results_with(&study(), programs, &[])
}

/// Creates these results with a loader of bare objects that reports `log` from the verifier.
fn results_with(study: &Study, programs: &[BpfObject], log: &[(u32, VerifierStatistics)]) -> Results {
    let verified = log.iter().map(|&(id, log)| VerifiedProgram { id, log: Some(log) }).collect();
    let loaded = LoadedObject { load_ns: 20_500_000, programs: verified, unattached: Vec::new() };
    results_of(study, programs, (!log.is_empty()).then_some(loaded))
}

/// Creates these results with a loader of bare objects that reports `loaded`.
fn results_of(study: &Study, programs: &[BpfObject], loaded: Option<LoadedObject>) -> Results {
    let line = loaded.map(|loaded| {
        let text = format!("{}\n", serde_json::to_string(&ObjectLine::Loaded(loaded)).unwrap());
        OutputPiece { endpoint: 0, monotonic_ns: 1, source: Source::Output, text, reference: None }
    });
    let narrowing = Narrowing { kernels: vec!["6.1".to_owned(), "6.12".to_owned()], ..Narrowing::default() };
    let plan = bpfassay_study::expand(study, &narrowing, &bpfassay_study::Available::default()).unwrap();
    derive(&contents_of(plan, |block, run| {
        if block.target.kernel != "6.12" {
            return Outcome::Refused(not_supported());
        }
        let mut figures = figures(run.spec.probe, 1.0, 1.0);
        let seen = ToolFigures {
            programs: programs.to_vec(),
            ready_ns: 1_234_000_000,
            ended: "ended".to_owned(),
            stop_ns: Some(1),
            output: line.iter().cloned().collect(),
            ..ToolFigures::default()
        };
        figures.tool = Some(Box::new(seen));
        Outcome::Measured(Box::new(figures))
    }))
}

#[test]
fn programs_are_shown_in_the_order_in_which_they_were_loaded() {
    let results = results(&[program(9, "on_write", None, 0), program(7, "on_read", Some(123), 456)]);
    // The architectures of the tool have one run each, without a reference tracer; others have
    // none.
    let runs: Vec<&str> = results.runs.iter().map(|run| run.record.run.as_str()).collect();
    assert_eq!(runs, ["x86_64_6.1_load_nfs4.2_1_r1_mine", "x86_64_6.12_load_nfs4.2_1_r1_mine"]);
    insta::assert_snapshot!(text(&results, Style::default()));
}

/// bpftrace 0.23 prints `attached_probes` before it attaches.
#[test]
fn a_line_of_a_tool_does_not_show_that_it_loaded() {
    let of = |start: &str, programs: &[BpfObject]| {
        let results = results_with(&study_of(start), programs, &[]);
        let cell = results.cells.iter().find(|cell| cell.target.kernel == "6.12").unwrap();
        let front = screen(&results, Screen { width: None, symbols: false });
        (cell.not_seen_to_load().map(str::to_owned), front.contains("not seen"), front.contains(" yes"))
    };
    let program = [program(7, "on_read", None, 0)];
    for start in ["ready = { line = 'attached' }", "ready = { port = 9100 }", "ready = { started = true }"] {
        assert_eq!(of(start, &program), (None, false, true), "{start}");
        let (reason, is_not_seen, is_yes) = of(start, &[]);
        assert_eq!((is_not_seen, is_yes), (true, false), "{start}");
        assert!(reason.unwrap().contains("neither the kernel nor any figure shows it"), "{start}");
    }
}

#[test]
fn an_object_of_which_a_program_is_left_to_a_loader_is_not_called_attached() {
    let mut study = bpfassay_study::load("load").unwrap();
    let file = "schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\nobject = { path = 'a.o' }\n";
    study.test_tool(UnderTest::of(ToolFile::parse("t.toml", file).unwrap())).unwrap();
    study.demand("attach = true").unwrap();
    let unattached = vec![UnattachedProgram { program: "x".to_owned(), section: "xdp".to_owned() }];
    let loaded = LoadedObject { load_ns: 1, programs: Vec::new(), unattached };
    let results = results_of(&study, &[program(7, "x", None, 0)], Some(loaded));
    let cell = results.cells.iter().find(|cell| cell.target.kernel == "6.12").unwrap();
    assert_eq!(cell.left_to_a_loader(), Some("only a loader can attach `x` (section xdp)"));
    let gate = results.gates.iter().find(|gate| gate.cell == cell.cell).unwrap();
    assert_eq!(gate.verdict, Verdict::Inconclusive, "{}", gate.found);
    let front = screen(&results, Screen { width: None, symbols: false });
    assert!(front.contains(" yes [") && front.contains("loads, not all attached: only a loader"), "{front}");
    let text = text(&results, Style::default());
    assert!(text.contains("loaded, not all attached [") && !text.contains(" attached  "), "{text}");
}

#[test]
fn what_the_kernel_makes_of_programs_is_compared_by_name_and_order() {
    let base = results(&[
        program(1, "same", Some(5), 50),
        program(2, "twice", Some(6), 60),
        program(3, "twice", Some(7), 70),
        program(4, "gone", None, 1),
    ]);
    let new = results(&[
        program(8, "twice", Some(9), 60),
        program(9, "twice", Some(7), 70),
        program(1, "same", Some(5), 50),
        program(2, "new", Some(8), 0),
    ]);
    let compared = compare(&base, &new, &Question::default()).unwrap();
    insta::assert_snapshot!(comparison_text(&compared, Style::default(), false));
    let same = compare(&base, &base, &Question::default()).unwrap();
    assert!(same.cells.iter().all(|cell| cell.programs.is_empty()));
    // A count that is not possible is no regression.
    assert!(!compared.is_regression());
}

fn statistics(total_states: u32, time_us: u64) -> VerifierStatistics {
    VerifierStatistics { instructions: 77, total_states, peak_states: total_states - 1, time_us }
}

#[test]
fn the_verifiers_log_is_shown_beside_the_programs_that_it_is_of() {
    // Two programs share a name; the kernel reported nothing for the last one.
    let programs = [program(7, "twice", Some(123), 456), program(9, "twice", None, 0), program(11, "other", None, 8)];
    let results = results_with(&study(), &programs, &[(9, statistics(4, 61)), (7, statistics(12, 1058))]);
    let cell = results.cells.iter().find(|cell| cell.target.kernel == "6.12").unwrap();
    let loaded = cell.tool_result.as_ref().unwrap().loaded.as_ref().unwrap();
    assert_eq!(loaded.load_ns, Some(20_500_000));
    let code = |id: u32| loaded.programs.iter().find(|program| program.id == id).unwrap().code.unwrap();
    assert_eq!([7, 9, 11].map(|id| code(id).log), [Some(statistics(12, 1058)), Some(statistics(4, 61)), None]);
    // Old kernels report the number of instructions in the log alone.
    assert_eq!([7, 9, 11].map(|id| code(id).verified), [Some(123), Some(77), None]);
    let text = text(&results, Style::default());
    let (table, _) = text.split_once("what was found of tools").unwrap();
    insta::assert_snapshot!(table.trim_end());
}

#[test]
fn what_the_verifier_took_is_compared_by_the_instruction_clock_alone() {
    let programs = [program(7, "on_read", Some(123), 456)];
    let of = |clock, log| results_with(&Study { clock, ..study() }, &programs, &[(7, log)]);
    let changes = |clock, base, new| {
        let compared = compare(&of(clock, base), &of(clock, new), &Question::default()).unwrap();
        let text = comparison_text(&compared, Style::default(), false);
        let changes: usize = compared.cells.iter().map(|cell| cell.programs.len()).sum();
        (changes, text)
    };
    for clock in [Clock::Instructions, Clock::Wall] {
        let (count, text) = changes(clock, statistics(12, 1058), statistics(13, 1058));
        assert!(count == 1 && text.contains("12 → 13 (+1)"), "{text}");
        assert_eq!(text.contains("1.058"), clock == Clock::Instructions, "{text}");
    }
    let (count, text) = changes(Clock::Instructions, statistics(12, 1058), statistics(12, 1161));
    assert!(count == 1 && text.contains("1.058 → 1.161"), "{text}");
    assert_eq!(changes(Clock::Wall, statistics(12, 1058), statistics(12, 1161)).0, 0);
}

#[test]
fn without_a_tool_there_is_nothing_to_load() {
    let study = bpfassay_study::load("load").unwrap();
    let error =
        bpfassay_study::expand(&study, &Narrowing::default(), &bpfassay_study::Available::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "nothing of study `load` can be run here: it has no probe configurations, and no tool was named: name one with --tool"
    );
}

#[test]
fn instructions_are_counted_only_where_something_is_measured_by_them() {
    let study = |name| bpfassay_study::load(name).unwrap();
    assert!(study("quick").counts_instructions());
    // The wall clock has nothing to count, and neither has a study that only loads and attaches.
    assert_eq!((study("io-paths").clock, study("io-paths").counts_instructions()), (Clock::Wall, false));
    assert_eq!((study("load").clock, study("load").counts_instructions()), (Clock::Instructions, false));
}

#[test]
fn budgets_are_decided_by_what_the_kernel_made_of_the_programs() {
    let decided = |limits: &str, programs: &[BpfObject]| {
        let mut study = study();
        study.demand(limits).unwrap();
        let results = results_with(&study, programs, &[]);
        let gates = results.gates.into_iter().filter(|gate| gate.cell.starts_with("x86_64_6.12_"));
        let found: Vec<_> = gates.map(|gate| (gate.verdict, gate.demand.to_string(), gate.found)).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().unwrap()
    };
    let programs = [program(7, "on_read", Some(800_001), 400), program(9, "on_write", Some(5), 56)];
    let (verdict, demand, found) = decided("verified_instructions = 800000", &programs);
    assert_eq!((verdict, &*demand), (Verdict::Regression, "at most 800000 instructions verified"));
    assert_eq!(found, "800001 instructions verified of on_read");
    assert_eq!(decided("verified_instructions = 800001", &programs).0, Verdict::Pass);
    // The sum of all programs.
    assert_eq!(decided("jited_bytes = 456", &programs).0, Verdict::Pass);
    assert_eq!(decided("jited_bytes = 455", &programs).0, Verdict::Regression);
    assert_eq!(decided("attach_ms = 1234", &programs).0, Verdict::Pass);
    assert_eq!(decided("attach_ms = 1233", &programs).0, Verdict::Regression);
    // One program that the kernel does not report, or that it interprets, leaves the verdict open.
    let unknown = [programs[0].clone(), program(9, "on_write", None, 0)];
    for limits in ["verified_instructions = 900000", "jited_bytes = 900000"] {
        let (verdict, _, found) = decided(limits, &unknown);
        assert!(verdict == Verdict::Inconclusive && found.starts_with("not known: "), "{limits}: {found}");
    }
    assert_eq!(decided("verified_instructions = 1", &[]).0, Verdict::Inconclusive);
}

/// Creates results of the tool on `kernels`, each with its programs and the figures of the tool.
fn results_along(kernels: &[(&str, Vec<BpfObject>)], limits: &str, change: impl Fn(&mut ToolFigures)) -> Results {
    let mut study = study();
    study.demand(limits).unwrap();
    let names = kernels.iter().map(|(name, _)| (*name).to_owned()).collect();
    let narrowing = Narrowing { kernels: names, archs: vec![Arch::X86_64], ..Narrowing::default() };
    let plan = bpfassay_study::expand(&study, &narrowing, &bpfassay_study::Available::default()).unwrap();
    derive(&contents_of(plan, |block, run| {
        let (_, programs) = kernels.iter().find(|(name, _)| *name == block.target.kernel).unwrap();
        let mut figures = figures(run.spec.probe, 1.0, 1.0);
        let mut seen = ToolFigures {
            programs: programs.clone(),
            ready_ns: 1_234_000_000,
            ended: "ended".to_owned(),
            stop_ns: Some(20_500_000),
            ..ToolFigures::default()
        };
        change(&mut seen);
        figures.tool = Some(Box::new(seen));
        Outcome::Measured(Box::new(figures))
    }))
}

fn verdicts(results: &Results) -> Vec<(String, Verdict, String)> {
    let of = |gate: &GateResult| (gate.cell.clone(), gate.verdict, gate.found.clone());
    results.gates.iter().map(of).collect()
}

#[test]
fn growth_is_that_of_a_program_since_the_kernel_before_above_a_floor() {
    let on = |kernel, verified: &[(&str, Option<u32>)]| {
        let programs = verified.iter().zip(7..).map(|(&(name, verified), id)| program(id, name, verified, 400));
        (kernel, programs.collect::<Vec<_>>())
    };
    let grown = |kernels: &[(&str, Vec<BpfObject>)]| {
        verdicts(&results_along(kernels, "verified_growth_percent = 5", |_| ()))
            .into_iter()
            .map(|(_, verdict, found)| (verdict, found))
            .collect::<Vec<_>>()
    };
    // The oldest kernel has none before it; the order of the study does not matter.
    let found = grown(&[
        on("6.12", &[("large", Some(105_001)), ("small", Some(3_999))]),
        on("6.1", &[("large", Some(100_000)), ("small", Some(2_000))]),
    ]);
    assert_eq!(
        found,
        [(
            Verdict::Regression,
            "6 % more instructions verified than on the kernel before, x86_64 6.1: 100000, then 105001 of large"
                .to_owned()
        )]
    );
    // Five per cent are kept, and a small program can double.
    let found = grown(&[
        on("6.1", &[("large", Some(100_000)), ("small", Some(2_000))]),
        on("6.12", &[("large", Some(105_000)), ("small", Some(4_000))]),
    ]);
    assert_eq!(found[0].0, Verdict::Pass, "{found:?}");
    let found = grown(&[on("6.1", &[("small", Some(2_000))]), on("6.12", &[("small", Some(4_001))])]);
    assert_eq!(found[0].0, Verdict::Regression, "{found:?}");
    // A kernel that does not report it is passed over; without any other, nothing is known.
    let found =
        grown(&[on("5.10", &[("p", Some(10_000))]), on("6.1", &[("p", None)]), on("6.12", &[("p", Some(20_000))])]);
    assert_eq!(found.iter().map(|found| found.0).collect::<Vec<_>>(), [Verdict::Inconclusive, Verdict::Regression]);
    assert!(found[1].1.contains("x86_64 5.10: 10000, then 20000 of p"), "{found:?}");
    for kernels in [
        vec![on("6.12", &[("p", Some(9))])],
        vec![on("5.10", &[("p", None)]), on("6.12", &[("p", Some(9))])],
        vec![on("6.1", &[("q", Some(9))]), on("6.12", &[("p", Some(9))])],
    ] {
        let found = grown(&kernels);
        assert!(
            matches!(&found[..], [(Verdict::Inconclusive, found)] if found.starts_with("not known: ")),
            "{found:?}"
        );
    }
}

#[test]
fn memory_of_maps_and_the_time_to_end_are_budgets() {
    let map = |memory_bytes| BpfObject { id: 1, name: "m".to_owned(), kind: 1, memory_bytes, code: None };
    let programs = vec![program(7, "p", Some(9), 400)];
    let decided = |kernel, limits: &str, maps: &[BpfObject], stop_ns| {
        let change = |seen: &mut ToolFigures| (seen.maps, seen.stop_ns) = (maps.to_vec(), stop_ns);
        let (_, verdict, found) = verdicts(&results_along(&[(kernel, programs.clone())], limits, change)).remove(0);
        (verdict, found)
    };
    let maps = [map(Some(4096)), map(Some(904))];
    assert_eq!(decided("6.12", "map_bytes = 5000", &maps, Some(1)), (Verdict::Pass, "5000 bytes of maps".to_owned()));
    assert_eq!(decided("6.12", "map_bytes = 4999", &maps, Some(1)).0, Verdict::Regression);
    // 6.1 reports less than the maps have: more than the limit is enough, less shows nothing.
    assert_eq!(decided("6.1", "map_bytes = 4999", &maps, Some(1)).0, Verdict::Regression);
    assert_eq!(decided("6.1", "map_bytes = 5000", &maps, Some(1)).0, Verdict::Inconclusive);
    assert_eq!(decided("6.12", "map_bytes = 5000", &[map(None)], Some(1)).0, Verdict::Inconclusive);
    for kernel in ["6.1", "6.12"] {
        assert_eq!(decided(kernel, "map_bytes = 0", &[], Some(1)).0, Verdict::Pass, "{kernel}");
    }

    assert_eq!(
        decided("6.12", "detach_ms = 21", &[], Some(20_500_000)),
        (Verdict::Pass, "21 ms until ended".to_owned())
    );
    assert_eq!(decided("6.12", "detach_ms = 20", &[], Some(20_500_000)).0, Verdict::Regression);
    let (verdict, found) = decided("6.12", "detach_ms = 5000", &[], None);
    assert_eq!((verdict, &*found), (Verdict::Regression, "it had not ended after 5000 ms and was killed"));
    assert_eq!(decided("6.12", "detach_ms = 5001", &[], None).0, Verdict::Inconclusive);
    // Only the loader of bare objects reports these.
    for limits in ["states = 9", "load_ms = 9"] {
        assert_eq!(decided("6.12", limits, &[], Some(1)).0, Verdict::Inconclusive, "{limits}");
    }
}

#[test]
fn states_and_the_time_to_load_are_those_that_the_loader_of_bare_objects_reports() {
    let log = VerifierStatistics { instructions: 9, total_states: 40, peak_states: 1, time_us: 40 };
    let decided = |limits: &str| {
        let mut study = study();
        study.demand(limits).unwrap();
        let results = results_with(&study, &[program(7, "p", None, 400)], &[(7, log)]);
        verdicts(&results).into_iter().find(|(cell, ..)| cell.starts_with("x86_64_6.12_")).unwrap()
    };
    assert_eq!(
        (decided("states = 40").1, &*decided("states = 40").2),
        (Verdict::Pass, "40 states of the verifier of p")
    );
    assert_eq!(decided("states = 39").1, Verdict::Regression);
    assert_eq!((decided("load_ms = 21").1, &*decided("load_ms = 21").2), (Verdict::Pass, "21 ms for loading"));
    assert_eq!(decided("load_ms = 20").1, Verdict::Regression);
}

#[test]
fn the_page_shows_what_the_verifier_makes_of_each_program_along_the_kernels() {
    let page = |kernels: &[(&str, Vec<BpfObject>)]| html(&results_along(kernels, "attach_ms = 9000", |_| ())).unwrap();
    let on = |kernel, verified| (kernel, vec![program(7, "on_read", Some(verified), 400)]);
    const TITLE: &str = "x86_64, mine: instructions verified along the kernels";
    assert!(page(&[on("6.1", 90), on("6.12", 200)]).contains(TITLE));
    assert!(!page(&[on("6.12", 200)]).contains(TITLE));
}

#[test]
fn a_program_close_to_the_verifiers_limit_is_named() {
    let warned = |verified| {
        let shown =
            screen(&results(&[program(7, "on_read", Some(verified), 456)]), Screen { width: None, symbols: true });
        shown.lines().filter(|line| line.contains("on_read needs")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(warned(799_999), Vec::<String>::new());
    let [line] = &warned(800_000)[..] else { panic!("no line") };
    assert!(line.contains("800000 of the 1000000 instructions that the verifier processes at most"), "{line}");
}
