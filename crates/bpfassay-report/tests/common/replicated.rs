// SPDX-License-Identifier: MIT OR Apache-2.0
//! A large journal of realistic size: the recorded study `quick` with more boots. Each boot has the
//! records, counts and executed lines of the recorded one, with varied figures.

use std::{collections::HashMap, path::Path};

use bpfassay_protocol::message::RunFigures;
use bpfassay_results::{
    BlockEnded, BlockStarted, Boot, BootCoverage, BootVerdict, CellResult, Figure, FunctionCount, GuestReady,
    Instructions, JOURNAL_VERSION, Journal, JournalEntry, JournalHeader, Outcome, PhaseCount, ProgramExecutions,
    ProgramLines, ProgramSource, Results, RunCount, RunCoverage, RunRecord, SourceBranch, SourceLine,
};
use bpfassay_study::{Block, Plan, PlannedRun};

use super::{plan, quick};

/// The number of blocks that are written at once.
const AT_ONCE: usize = 100;

/// `quick` with as many boots as `runs` allow.
pub(crate) struct Replicated {
    template: Results,
    pub(crate) plan: Plan,
}

impl Replicated {
    pub(crate) fn new(runs: usize) -> Self {
        let template = quick::results();
        let mut study = template.plan.study.clone();
        study.design.replicates = u32::try_from(runs / template.runs.len()).unwrap();
        Self { template, plan: plan(&study) }
    }

    pub(crate) fn write(&self, directory: &Path) {
        let source = Source::new(&self.template);
        let header = JournalHeader {
            journal: JOURNAL_VERSION,
            started_unix_ms: self.template.started_unix_ms,
            plan: self.plan.clone(),
            provenance: self.template.provenance[0].clone(),
        };
        let mut journal = Journal::create(directory, &header).unwrap();
        for blocks in self.plan.blocks.chunks(AT_ONCE) {
            let entries: Vec<JournalEntry> = blocks.iter().flat_map(|block| source.entries(block)).collect();
            journal.append_all(&entries).unwrap();
        }
    }
}

/// Indexes of the recorded boots and runs.
struct Source<'a> {
    boots: HashMap<&'a str, &'a Boot>,
    runs: HashMap<&'a str, &'a RunRecord>,
    cells: HashMap<&'a str, &'a CellResult>,
}

impl<'a> Source<'a> {
    fn new(template: &'a Results) -> Self {
        Self {
            boots: template.boots.iter().map(|boot| (boot.block.as_str(), boot)).collect(),
            runs: template.runs.iter().map(|run| (run.record.run.as_str(), &*run.record)).collect(),
            cells: template.cells.iter().map(|cell| (cell.cell.as_str(), cell)).collect(),
        }
    }

    fn entries(&self, block: &Block) -> Vec<JournalEntry> {
        let name = block.id.clone();
        let boot = self.boots[first(&name, block.replicate).as_str()];
        let records: Vec<RunRecord> = block.runs.iter().map(|run| self.record(block, run)).collect();
        let counts = records.iter().map(|record| self.counts(record)).collect();
        let coverage = self.coverage(&records);
        let mut entries = vec![
            JournalEntry::BlockStarted(Box::new(BlockStarted {
                block: name.clone(),
                boot: 1,
                attempt: 1,
                at_unix_ms: boot.started_unix_ms,
                qemu: boot.qemu.clone(),
                log: boot.log.clone(),
                runs: block.runs.iter().map(|run| run.spec.id.clone()).collect(),
                confirming: None,
                reused: None,
            })),
            JournalEntry::GuestReady(Box::new(GuestReady {
                block: name.clone(),
                boot: 1,
                ready_after_ms: *boot.ready_after_ms.value().unwrap(),
                facts: boot.facts.clone().unwrap(),
                nodes: Vec::new(),
            })),
        ];
        entries.extend(records.into_iter().map(|record| JournalEntry::Run(Box::new(record))));
        entries.push(JournalEntry::BlockEnded(Box::new(BlockEnded {
            block: name,
            boot: 1,
            at_unix_ms: boot.started_unix_ms,
            failure: None,
            notes: boot.notes.clone(),
            counts: Some(Figure::Value(counts)),
            code_coverage: Some(Figure::Value(coverage)),
            verdict: BootVerdict::Complete,
            settled: Vec::new(),
        })));
        entries
    }

    fn record(&self, block: &Block, run: &PlannedRun) -> RunRecord {
        let id = run.spec.id.replacen(&block.id, &first(&block.id, block.replicate), 1);
        let mut record = self.runs[id.as_str()].clone();
        if let Outcome::Measured(figures) = &mut record.outcome {
            vary(figures, u64::from(block.replicate), &id, &run.spec.id);
        }
        record.run.clone_from(&run.spec.id);
        record.block.clone_from(&block.id);
        record.replicate = block.replicate;
        record
    }

    /// Creates the instructions of each phase of `record`; those on the probe's path are as in the
    /// cell's recorded runs.
    fn counts(&self, record: &RunRecord) -> RunCount {
        let mut phases = Vec::new();
        if let Outcome::Measured(figures) = &record.outcome {
            phases.extend(figures.phases.iter().map(|phase| {
                let metric = self.cells[record.cell.as_str()].metric(&phase.name);
                let direct = metric.and_then(|metric| metric.direct.as_ref()?.value());
                let function = |function: &bpfassay_results::DirectFunction| FunctionCount {
                    function: function.function.clone(),
                    role: function.role,
                    instructions: (function.per_call * direct.map_or(0, |direct| direct.calls) as f64) as u64,
                    misses: None,
                };
                let (before, after) = (&phase.interval.before, &phase.interval.after);
                let elapsed = after.monotonic_ns - before.monotonic_ns;
                let idle = after.idle_ns.zip(before.idle_ns).map_or(0, |(after, before)| after - before);
                PhaseCount {
                    name: phase.name.clone(),
                    test: phase.test,
                    repetition: phase.repetition,
                    count: Figure::Value(Instructions {
                        all: elapsed - idle,
                        user: 1_000,
                        tool: direct.map(|_| Figure::Value(0)),
                        unresolved: 0,
                        misses: None,
                        direct: direct.iter().flat_map(|direct| &direct.functions).map(function).collect(),
                    }),
                }
            }));
        }
        RunCount { run: record.run.clone(), phases }
    }

    /// Creates the executed source lines of `records`, as in their cells' recorded runs.
    fn coverage(&self, records: &[RunRecord]) -> BootCoverage {
        let mut coverage = BootCoverage::default();
        let mut first_of = HashMap::new();
        for record in records.iter().filter(|record| !record.warm_up) {
            let cell = self.cells[record.cell.as_str()];
            let Some(known) = cell.code_coverage.as_ref().and_then(Figure::value) else { continue };
            let from = *first_of.entry(record.cell.as_str()).or_insert_with(|| {
                let from = coverage.programs.len();
                coverage.programs.extend(known.programs.iter().map(|program| ProgramSource {
                    program: program.program.clone(),
                    lines: program.lines.clone().map(|covered| lines_of(&covered)),
                }));
                from
            });
            let executed = |(index, program): (usize, &bpfassay_results::ProgramCoverage)| {
                let lines = program.lines.value().map_or(&[][..], |covered| &covered.lines);
                ProgramExecutions {
                    program: u32::try_from(from + index).unwrap(),
                    lines: lines.iter().map(|line| line.executions / 2).collect(),
                    branches: lines.iter().flat_map(|line| &line.branches).map(|branch| branch.outcomes).collect(),
                }
            };
            coverage.runs.push(RunCoverage {
                run: record.run.clone(),
                programs: Figure::Value(known.programs.iter().enumerate().map(executed).collect()),
            });
        }
        coverage
    }
}

/// Returns the id of the first replicate of the block `id`.
fn first(id: &str, replicate: u32) -> String {
    format!("{}_1", id.strip_suffix(&format!("_{replicate}")).unwrap())
}

/// Turns the figures of the run `from` into those of the run `to` in boot `seed`.
fn vary(figures: &mut RunFigures, seed: u64, from: &str, to: &str) {
    let factor = 1.0 + 1e-4 * (seed * 37 % 101) as f64;
    let mut summary = String::with_capacity(figures.summary.len() + 64);
    for line in figures.summary.replace(from, to).split_inclusive('\n') {
        match line.trim_start().strip_prefix("\"bwMiB\": ").and_then(|rest| rest.strip_suffix(",\n")) {
            Some(value) => {
                summary += &format!("          \"bwMiB\": {:.4},\n", value.parse::<f64>().unwrap() * factor);
            }
            None => summary += line,
        }
    }
    figures.summary = summary;
    for phase in &mut figures.phases {
        phase.interval.after.monotonic_ns += seed * 41 % 1009;
    }
}

fn lines_of(covered: &bpfassay_results::CoveredLines) -> ProgramLines {
    let mut branches = Vec::new();
    for (index, line) in (0..).zip(&covered.lines) {
        branches.extend(line.branches.iter().map(|branch| SourceBranch { line: index, column: branch.column }));
    }
    let lines = covered.lines.iter();
    let lines = lines.map(|line| SourceLine { file: line.file, line: line.line, text: line.text.clone() });
    ProgramLines { files: covered.files.clone(), lines: lines.collect(), branches }
}
