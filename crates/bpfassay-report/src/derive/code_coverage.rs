// SPDX-License-Identifier: MIT OR Apache-2.0
//! Source lines and branches of a cell's programs that ran, summed over the runs.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    sync::Arc,
};

use bpfassay_results::{
    BootCoverage, CodeCoverage, CoveredBranch, CoveredLine, CoveredLines, Figure, Outcome, ProgramCoverage,
    ProgramExecutions, ProgramLines, ProgramSource, RunResult,
};

use super::packed::{packed, unpacked};

/// The executions in the boots whose records count, by block and boot.
#[derive(Debug, Default)]
pub(super) struct Coverages {
    blocks: HashMap<String, HashMap<u32, Figure<CoveredBoot>>>,
    /// The programs of all boots, shared: most boots of a target have the same ones.
    sources: HashSet<Arc<ProgramSource>>,
}

#[derive(Debug)]
struct CoveredBoot {
    programs: Vec<Arc<ProgramSource>>,
    /// The executions of programs in each run, packed by [`packed`].
    runs: HashMap<String, Figure<Box<[u8]>>>,
}

/// The lines of a program over several runs, by file and number.
type MergedLines = BTreeMap<(String, u32), MergedLine>;

#[derive(Default)]
struct MergedLine {
    text: String,
    executions: u64,
    /// The outcomes by column, and by position among the branches of that column.
    branches: BTreeMap<(u32, u32), Option<[u64; 2]>>,
}

impl Coverages {
    /// Stores the executions in boot `boot` of `block`.
    pub(super) fn take(&mut self, block: &str, boot: u32, coverage: Figure<BootCoverage>) {
        let of_boot = coverage.map(|coverage| {
            let runs = coverage.runs.into_iter().map(|run| (run.run, run.programs.map(|programs| packed(&programs))));
            let runs = runs.collect();
            CoveredBoot { programs: coverage.programs.into_iter().map(|program| self.shared(program)).collect(), runs }
        });
        self.blocks.entry(block.to_owned()).or_default().insert(boot, of_boot);
    }

    fn shared(&mut self, source: ProgramSource) -> Arc<ProgramSource> {
        let source = Arc::new(source);
        if let Some(same) = self.sources.get(&source) {
            return Arc::clone(same);
        }
        self.sources.insert(Arc::clone(&source));
        source
    }

    /// Sums the executions in `runs`, which belong to one cell; `None` if nothing counted them.
    pub(super) fn of_cell(&self, runs: &[&RunResult]) -> Option<Figure<CodeCoverage>> {
        let measured = runs.iter().filter(|run| matches!(run.record.outcome, Outcome::Measured(_)));
        let (mut count, mut reason) = (0, None);
        let mut programs = CoveredPrograms::default();
        for run in measured {
            let boots = self.blocks.get(run.record.block.as_str());
            let Some(boot) = boots.and_then(|boots| boots.get(&run.record.boot)) else { continue };
            match boot.known().and_then(|boot| programs.add(boot, &run.record.run)) {
                Ok(()) => count += 1,
                Err(why) => drop(reason.get_or_insert(why)),
            }
        }
        match (count, reason) {
            (0, None) => None,
            (0, Some(reason)) => Some(Figure::missing(reason)),
            (runs, _) => Some(Figure::Value(CodeCoverage { runs, programs: programs.finish() })),
        }
    }
}

/// Programs by name. Programs without known lines are kept by name and reason.
#[derive(Default)]
struct CoveredPrograms<'a> {
    lines: BTreeMap<(String, Option<String>), MergedLines>,
    /// Sums of programs that are not in `lines` yet, in the order in which they were first found,
    /// and the position of each by its address.
    sums: Vec<CoverageSums<'a>>,
    places: HashMap<*const ProgramSource, usize>,
}

/// The executions of one program over several runs.
struct CoverageSums<'a> {
    source: &'a ProgramSource,
    is_sound: bool,
    lines: Vec<u64>,
    branches: Vec<Option<[u64; 2]>>,
}

impl<'a> CoveredPrograms<'a> {
    /// Adds the executions in `run` of `boot`.
    fn add(&mut self, boot: &'a CoveredBoot, run: &str) -> Result<(), String> {
        let executions = match boot.runs.get(run) {
            None => return Err("the programs of the run were not looked at".to_owned()),
            Some(Figure::NotMeasured(reason)) => return Err(reason.to_string()),
            Some(Figure::Value(executions)) => executions,
        };
        for executed in unpacked(executions) {
            let Some(source) = boot.programs.get(executed.program as usize) else {
                return Err("the journal does not have the source lines of a program".to_owned());
            };
            match &source.lines {
                Figure::NotMeasured(reason) => {
                    self.lines.entry((source.program.clone(), Some(reason.to_string()))).or_default();
                }
                Figure::Value(lines) => self.add_lines(source, lines, executed)?,
            }
        }
        Ok(())
    }

    /// Adds the executions of the program `source`, which has the lines `lines`.
    fn add_lines(
        &mut self,
        source: &'a ProgramSource,
        lines: &ProgramLines,
        executed: ProgramExecutions,
    ) -> Result<(), String> {
        let ProgramExecutions { program: _, lines: of_lines, branches: of_branches } = executed;
        if (lines.lines.len(), lines.branches.len()) != (of_lines.len(), of_branches.len()) {
            self.lines.entry((source.program.clone(), None)).or_default();
            return Err(contradiction());
        }
        let place = *self.places.entry(std::ptr::from_ref(source)).or_insert(self.sums.len());
        let is_sound = match self.sums.get_mut(place) {
            Some(sums) => {
                for (sum, more) in sums.lines.iter_mut().zip(of_lines) {
                    *sum = sum.saturating_add(more);
                }
                for (sum, more) in sums.branches.iter_mut().zip(of_branches) {
                    *sum = plus(*sum, more);
                }
                sums.is_sound
            }
            None => {
                let is_sound = is_sound(lines);
                self.sums.push(CoverageSums { source, is_sound, lines: of_lines, branches: of_branches });
                is_sound
            }
        };
        if is_sound { Ok(()) } else { Err(contradiction()) }
    }

    fn finish(mut self) -> Vec<ProgramCoverage> {
        for sums in &self.sums {
            if let Figure::Value(lines) = &sums.source.lines {
                let all = self.lines.entry((sums.source.program.clone(), None)).or_default();
                // The part before a contradiction counts; `add_lines` has reported the
                // contradiction.
                let _ = add(all, lines, sums);
            }
        }
        let program = |((program, reason), lines): ((String, Option<String>), MergedLines)| ProgramCoverage {
            program,
            lines: reason.map_or_else(|| Figure::Value(covered(lines)), Figure::missing),
        };
        self.lines.into_iter().map(program).collect()
    }
}

/// Adds `sums` of a program with the lines `lines` to the sums of all programs of the same name, up
/// to the first contradiction within the journal.
fn add(all: &mut MergedLines, lines: &ProgramLines, sums: &CoverageSums<'_>) -> Option<()> {
    let place = |index: u32| {
        let line = lines.lines.get(index as usize)?;
        Some((lines.files.get(line.file as usize)?.clone(), line.line))
    };
    for (index, (line, executions)) in (0..).zip(lines.lines.iter().zip(&sums.lines)) {
        let sum = all.entry(place(index)?).or_default();
        sum.executions = sum.executions.saturating_add(*executions);
        if sum.text.is_empty() {
            sum.text.clone_from(&line.text);
        }
    }
    // Several branches of one column are distinguished by their order among the instructions.
    let mut seen = HashMap::new();
    for (branch, outcomes) in lines.branches.iter().zip(&sums.branches) {
        let ordinal = match seen.entry((branch.line, branch.column)) {
            Entry::Vacant(entry) => *entry.insert(0_u32),
            Entry::Occupied(mut entry) => {
                *entry.get_mut() += 1;
                *entry.get()
            }
        };
        let line = all.get_mut(&place(branch.line)?)?;
        let sum = line.branches.entry((branch.column, ordinal)).or_insert(Some([0; 2]));
        *sum = plus(*sum, *outcomes);
    }
    Some(())
}

/// Adds two outcomes of a branch. The sum is unknown if one of them is.
fn plus(sum: Option<[u64; 2]>, more: Option<[u64; 2]>) -> Option<[u64; 2]> {
    sum.zip(more).map(|(sum, more)| [0, 1].map(|of| sum[of].saturating_add(more[of])))
}

/// Whether each line has a file, and each branch a line.
fn is_sound(lines: &ProgramLines) -> bool {
    lines.lines.iter().all(|line| (line.file as usize) < lines.files.len())
        && lines.branches.iter().all(|branch| (branch.line as usize) < lines.lines.len())
}

fn contradiction() -> String {
    "the journal contradicts itself about the source lines of a program".to_owned()
}

fn covered(lines: MergedLines) -> CoveredLines {
    let mut covered = CoveredLines::default();
    for ((file, line), sum) in lines {
        if covered.files.last() != Some(&file) {
            covered.files.push(file);
        }
        let branch = |((column, _), outcomes)| CoveredBranch { column, outcomes };
        covered.lines.push(CoveredLine {
            file: u32::try_from(covered.files.len() - 1).unwrap_or(u32::MAX),
            line,
            text: sum.text,
            executions: sum.executions,
            branches: sum.branches.into_iter().map(branch).collect(),
        });
    }
    covered
}
