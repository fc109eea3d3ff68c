// SPDX-License-Identifier: MIT OR Apache-2.0
//! Made-up results with more content than the plain study.

use bpfassay_protocol::{
    Arch,
    probe::Probe,
    tool_job::{BpfObject, ToolFigures},
};
use bpfassay_report::derive;
use bpfassay_results::{JournalEntry, Outcome, Results};
use bpfassay_study::{Clock, Gate, Study, Target};
use bpfassay_tool::{ToolFile, UnderTest, finding::Kind};

use super::{MOVED, contents, figures, not_supported, outcome, sample, study};

/// Creates results with two samples in every traced run: half of what is written, then all of it.
pub(crate) fn sampled() -> Results {
    let mut contents = contents(&study(Some("2s"), 1, 2), outcome);
    for entry in &mut contents.entries {
        if let JournalEntry::Run(record) = entry
            && let Outcome::Measured(figures) = &mut record.outcome
            && !figures.probe.is_baseline()
        {
            figures.samples = vec![sample(1_500_000_000, None, MOVED / 2, 0), sample(3_500_000_000, None, MOVED, 0)];
        }
    }
    derive(&contents)
}

/// Calls in each phase.
const CALLS: u64 = 32;

/// Instructions of each call of the baseline.
const PER_CALL: u64 = 10_000;

/// Creates results of twenty-four kernels. fexit takes about 500 instructions per call, and about
/// 550 from the thirteenth kernel on.
pub(crate) fn series(clock: Clock) -> Results {
    let mut study = Study { clock, ..study(None, 2, 1) };
    // The kernels are unordered; the trend sorts them.
    let kernels = (1..=24).map(|patch| patch * 7 % 25);
    let target = |patch| Target { arch: Arch::X86_64, kernel: format!("6.18.{patch}") };
    study.targets = kernels.map(target).collect();
    derive(&contents(&study, |block, run| {
        let patch: u64 = block.target.kernel.trim_start_matches("6.18.").parse().unwrap();
        let traced = run.spec.probe.probe == Probe::Fexit;
        if traced && patch == 4 {
            return Outcome::Refused(not_supported());
        }
        let extra = if traced { if patch >= 13 { 550 + patch % 3 } else { 500 + patch % 3 } } else { 0 };
        let mut figures = figures(run.spec.probe, 100.0 / (1.0 + extra as f64 / PER_CALL as f64), 200.0);
        for phase in &mut figures.phases {
            let begun = phase.interval.before.monotonic_ns;
            phase.interval.after.monotonic_ns = begun + (PER_CALL + extra) * CALLS;
        }
        Outcome::Measured(Box::new(figures))
    }))
}

/// Creates results of the made-up study with a tool that leaves a program and memory behind on
/// riscv64 6.12 only. The kernels of `refused` refuse the tool, and a gate denies `deny`.
pub(crate) fn with_tool(deny: &[Kind], refused: Option<Arch>) -> Results {
    let text = "schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\nscript = { path = 'a', interpreter = '/bin/sh' }\n";
    let file = ToolFile::parse("mine.toml", text).unwrap();
    let mut study: Study = study(None, 3, 1);
    study.test_tool(UnderTest::of(file)).unwrap();
    study.gates = vec![Gate { deny: deny.to_vec(), ..Gate::default() }];
    study.gates.retain(|gate| !gate.deny.is_empty());
    derive(&contents(&study, |block, run| {
        if run.spec.tool.is_none() {
            return outcome(block, run);
        }
        if Some(block.target.arch) == refused {
            return Outcome::Refused(not_supported());
        }
        let program = BpfObject { id: 7, name: "on_read".to_owned(), kind: 26, memory_bytes: None, code: None };
        let mut seen = ToolFigures {
            programs: vec![program],
            ended: "ended".to_owned(),
            stop_ns: Some(1),
            ..ToolFigures::default()
        };
        if block.target.arch == Arch::Riscv64 {
            seen.left_behind.programs = vec!["on_read".to_owned()];
            seen.resident_bytes = [1 << 30; 2];
        }
        let mut figures = figures(run.spec.probe, 100.0, 100.0);
        figures.tool = Some(Box::new(seen));
        Outcome::Measured(Box::new(figures))
    }))
}
