// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which source lines and branches of the programs of a cell ran, summed over its runs.

use std::collections::{BTreeMap, HashMap, hash_map::Entry};

use bpfassay_results::{
    BootCoverage, CodeCoverage, CoveredBranch, CoveredLine, CoveredLines, Figure, Outcome, ProgramCoverage,
    ProgramExecutions, ProgramLines, RunResult,
};

/// What ran in the boots whose records stand, by block and boot.
#[derive(Debug, Default)]
pub(super) struct Coverages {
    boots: HashMap<(String, u32), Figure<Boot>>,
}

#[derive(Debug)]
struct Boot {
    coverage: BootCoverage,
    /// The place of each run in it.
    runs: HashMap<String, usize>,
}

/// A program over several runs: its lines by file and number.
type Lines = BTreeMap<(String, u32), Line>;

#[derive(Default)]
struct Line {
    text: String,
    executions: u64,
    /// By column, and place among those of one column.
    branches: BTreeMap<(u32, u32), Option<[u64; 2]>>,
}

impl Coverages {
    /// Takes in what ran in boot `boot` of `block`.
    pub(super) fn take(&mut self, block: &str, boot: u32, coverage: Figure<BootCoverage>) {
        let boot_coverage = coverage.map(|coverage| {
            let runs = coverage.runs.iter().enumerate().map(|(index, run)| (run.run.clone(), index)).collect();
            Boot { coverage, runs }
        });
        self.boots.insert((block.to_owned(), boot), boot_coverage);
    }

    /// What ran in `runs`, which are of one cell; `None` where nothing counted it.
    pub(super) fn of_cell(&self, runs: &[&RunResult]) -> Option<Figure<CodeCoverage>> {
        let measured = runs.iter().filter(|run| matches!(run.record.outcome, Outcome::Measured(_)));
        let (mut count, mut reason) = (0, None);
        let mut programs = Programs::default();
        for run in measured {
            let Some(boot) = self.boots.get(&(run.record.block.clone(), run.record.boot)) else { continue };
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

/// Programs by name; those of one name whose lines are not known by the reason, too.
#[derive(Default)]
struct Programs(BTreeMap<(String, Option<String>), Lines>);

impl Programs {
    /// Adds what ran in `run` of `boot`.
    fn add(&mut self, boot: &Boot, run: &str) -> Result<(), String> {
        let of_run = boot.runs.get(run).and_then(|index| boot.coverage.runs.get(*index));
        let executions = match of_run.map(|run| &run.programs) {
            None => return Err("the programs of the run were not looked at".to_owned()),
            Some(Figure::NotMeasured(reason)) => return Err(reason.to_string()),
            Some(Figure::Value(executions)) => executions,
        };
        for executed in executions {
            let Some(source) = boot.coverage.programs.get(executed.program as usize) else {
                return Err("the journal does not have the source lines of a program".to_owned());
            };
            match &source.lines {
                Figure::NotMeasured(reason) => {
                    self.0.entry((source.program.clone(), Some(reason.to_string()))).or_default();
                }
                Figure::Value(lines) => {
                    let sums = self.0.entry((source.program.clone(), None)).or_default();
                    add(sums, lines, executed)?;
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> Vec<ProgramCoverage> {
        let program = |((program, reason), lines): ((String, Option<String>), Lines)| ProgramCoverage {
            program,
            lines: reason.map_or_else(|| Figure::Value(covered(lines)), Figure::missing),
        };
        self.0.into_iter().map(program).collect()
    }
}

/// Adds the executions of one run to `sums`.
fn add(sums: &mut Lines, lines: &ProgramLines, executed: &ProgramExecutions) -> Result<(), String> {
    let wrong = || "the journal contradicts itself about the source lines of a program".to_owned();
    if lines.lines.len() != executed.lines.len() || lines.branches.len() != executed.branches.len() {
        return Err(wrong());
    }
    let place = |index: u32| {
        let line = lines.lines.get(index as usize)?;
        Some((lines.files.get(line.file as usize)?.clone(), line.line))
    };
    for (index, (line, executions)) in (0..).zip(lines.lines.iter().zip(&executed.lines)) {
        let sum = sums.entry(place(index).ok_or_else(wrong)?).or_default();
        sum.executions = sum.executions.saturating_add(*executions);
        if sum.text.is_empty() {
            sum.text.clone_from(&line.text);
        }
    }
    // Several branches of one column are distinguished by their order, which is that of the program's instructions.
    let mut seen = HashMap::new();
    for (branch, outcomes) in lines.branches.iter().zip(&executed.branches) {
        let ordinal = match seen.entry((branch.line, branch.column)) {
            Entry::Vacant(entry) => *entry.insert(0_u32),
            Entry::Occupied(mut entry) => {
                *entry.get_mut() += 1;
                *entry.get()
            }
        };
        let line = sums.get_mut(&place(branch.line).ok_or_else(wrong)?).ok_or_else(wrong)?;
        let sum = line.branches.entry((branch.column, ordinal)).or_insert(Some([0; 2]));
        // What is not known of one run is not known of all.
        *sum = sum.zip(*outcomes).map(|(sum, more)| [0, 1].map(|of| sum[of].saturating_add(more[of])));
    }
    Ok(())
}

fn covered(lines: Lines) -> CoveredLines {
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
