// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds which source lines and branches of programs ran, from block executions and the programs'
//! line tables. docs/explanation/code-coverage.md has the rules.

use std::collections::BTreeMap;

use bpfassay_protocol::{
    source::{Destination, LineTable, MAX_RECORDS, MAX_TRANSFERS, ProgramSource as Reported, SourceLines},
    symbols::{ProgramCode, Symbols},
};
use bpfassay_results::{
    BootCoverage, Figure, ProgramExecutions, ProgramLines, ProgramSource, RunCoverage, SourceBranch, SourceLine,
};

use crate::{
    Window,
    executions::Executions,
    flow::{Conditional, Flow},
};

/// Largest number of programs, bytes of text, and numbers that are kept of a boot, because a boot's
/// entry in the journal is one line.
const MAX_PROGRAMS: usize = 4096;
const MAX_TEXT: usize = 4 << 20;
const MAX_NUMBERS: usize = 1 << 20;
/// Largest number of bytes of line tables that a guest can send.
const MAX_TABLES: usize = 64 << 20;
/// Largest number of functions of one program (`BPF_MAX_SUBPROGS`).
const MAX_FUNCTIONS: usize = 256;

/// The lines and branches of programs under test that have run in a boot so far.
#[derive(Debug, Default)]
pub struct Coverage {
    /// Line tables by the programs' ids.
    tables: BTreeMap<u32, SourceLines>,
    /// The size of all tables in bytes.
    size: usize,
    /// The loaded programs under test, as the guest listed them last.
    loaded: Vec<ProgramCode>,
    boot: BootCoverage,
    text: usize,
    numbers: usize,
}

impl Coverage {
    /// Adds the source lines of a program.
    pub fn source(&mut self, source: Reported) {
        self.size = self.size.saturating_add(source.size());
        let lines = match self.size > MAX_TABLES || self.tables.len() >= MAX_PROGRAMS {
            true => SourceLines::Unknown("the programs of this boot have more source lines than are kept".to_owned()),
            false => source.lines,
        };
        if self.tables.len() < MAX_PROGRAMS {
            self.tables.entry(source.id).or_insert(lines);
        }
    }

    /// Adds the addresses of the loaded programs' machine code.
    pub fn symbols(&mut self, symbols: &Symbols) {
        if symbols.functions.is_empty() {
            self.loaded = symbols.programs.iter().filter(|program| program.is_under_test).cloned().collect();
        }
    }

    /// Adds the finished `run`. `windows` are those of the run's phases, or the reason why there
    /// are none. The programs are the programs in the guest's last list.
    pub fn run(&mut self, run: &str, windows: Result<&[Window], String>) {
        let programs = match windows {
            Ok(windows) => self.executed(windows).map_or_else(Figure::missing, Figure::Value),
            Err(reason) => Figure::missing(reason),
        };
        self.boot.runs.push(RunCoverage { run: run.to_owned(), programs });
    }

    /// Returns what ran in all runs so far.
    #[must_use]
    pub fn finish(self) -> BootCoverage {
        self.boot
    }

    fn executed(&mut self, windows: &[Window]) -> Result<Vec<ProgramExecutions>, String> {
        let mut all = Vec::new();
        for code in std::mem::take(&mut self.loaded) {
            let unreported = || "the guest did not report the source lines of the program".to_owned();
            let prepared = match self.tables.get(&code.id) {
                Some(SourceLines::Known(table)) => Prepared::of(table, &code.functions),
                Some(SourceLines::Unknown(reason)) => Err(reason.clone()),
                None => Err(unreported()),
            };
            let (lines, (executions, branches)) = match prepared {
                Ok(prepared) => {
                    let executed = prepared.executed(&Executions::of(windows, &code.functions));
                    (Figure::Value(prepared.lines), executed)
                }
                Err(reason) => (Figure::missing(reason), (Vec::new(), Vec::new())),
            };
            let program = self.program(ProgramSource { program: code.name.clone(), lines })?;
            self.numbers = self.numbers.saturating_add(1 + executions.len() + 2 * branches.len());
            if self.numbers > MAX_NUMBERS {
                return Err("the runs of this boot have more executed lines than a journal keeps".to_owned());
            }
            all.push(ProgramExecutions { program, lines: executions, branches });
            self.loaded.push(code);
        }
        Ok(all)
    }

    /// Returns the index of `source`. Equal sources are kept once.
    fn program(&mut self, source: ProgramSource) -> Result<u32, String> {
        let index = match self.boot.programs.iter().position(|known| *known == source) {
            Some(index) => index,
            None => {
                let lines = source.lines.value();
                let files = lines.map_or(0, |lines| lines.files.iter().map(String::len).sum());
                let texts: usize = lines.map_or(0, |lines| lines.lines.iter().map(|line| line.text.len() + 32).sum());
                self.text = self.text.saturating_add(source.program.len() + files + texts);
                if self.text > MAX_TEXT || self.boot.programs.len() >= MAX_PROGRAMS {
                    return Err("the programs of this boot have more source lines than a journal keeps".to_owned());
                }
                self.boot.programs.push(source);
                self.boot.programs.len() - 1
            }
        };
        Ok(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// A program with a consistent line table.
struct Prepared {
    lines: ProgramLines,
    /// The line records in the table's order: address, end of the code, whether a function begins
    /// at the record, and the index of its line.
    records: Vec<(u64, u64, bool, Option<usize>)>,
    flow: Flow,
    /// The conditional jumps of [`ProgramLines::branches`].
    conditionals: Vec<Conditional>,
}

impl Prepared {
    /// # Errors
    /// The reason why the table, which the guest sent, cannot be used.
    fn of(table: &LineTable, functions: &[(u64, u32)]) -> Result<Self, String> {
        check(table, functions)?;
        let begins = |address| functions.iter().any(|(start, _)| *start == address);
        let place = |record: &bpfassay_protocol::source::LineRecord| {
            let (file, text) = (table.files.get(record.file as usize)?, table.texts.get(record.text as usize)?);
            (record.line > 0).then_some(((file, record.line), text))
        };
        // If macros give a line several texts, the first one is kept.
        let mut texts = BTreeMap::new();
        for ((file, line), text) in table.records.iter().filter_map(place) {
            texts.entry((file, line)).or_insert(text);
        }
        let mut files: Vec<&String> = texts.keys().map(|(file, _)| *file).collect();
        files.dedup();
        let file = |name: &String| files.partition_point(|file| *file < name);
        let line = |(&(name, line), text): (&(&String, u32), &&String)| SourceLine {
            file: file(name) as u32,
            line,
            text: text.trim_end().to_owned(),
        };
        let indices: BTreeMap<(&String, u32), usize> = texts.keys().copied().zip(0..).collect();
        let index = |record| place(record).and_then(|(place, _)| indices.get(&place).copied());
        let flow = Flow::of(table, |record| begins(record.address));
        let (mut branches, mut conditionals) = (Vec::new(), Vec::new());
        let mut records = Vec::with_capacity(table.records.len());
        for (at, record) in table.records.iter().enumerate() {
            let next = table.records.get(at + 1);
            let function =
                functions.iter().find(|(start, length)| (*start..start + u64::from(*length)).contains(&record.address));
            let end = function.map_or(record.address, |(start, length)| start + u64::from(*length));
            let end = next.map(|next| next.address).filter(|next| (record.address..end).contains(next)).unwrap_or(end);
            let line = index(record);
            records.push((record.address, end, begins(record.address), line));
            let last = next.map_or(table.instructions, |next| next.instruction).saturating_sub(1);
            if let (Some(line), Some(conditional)) = (line, own_condition(table, record.instruction, last, &flow)) {
                branches.push(((line, record.column), conditional));
            }
        }
        branches.sort_by_key(|(place, _)| *place);
        conditionals.extend(branches.iter().map(|(_, conditional)| *conditional));
        let branch = |&((line, column), _): &((usize, u32), Conditional)| SourceBranch { line: line as u32, column };
        let lines = ProgramLines {
            files: files.iter().map(|file| (*file).clone()).collect(),
            lines: texts.iter().map(line).collect(),
            branches: branches.iter().map(branch).collect(),
        };
        Ok(Self { lines, records, flow, conditionals })
    }

    /// Returns how often each line ran and how often each branch had which outcome.
    fn executed(&self, executions: &Executions) -> (Vec<u64>, Vec<Option<[u64; 2]>>) {
        let of_record = |&(address, end, is_entry, _): &(u64, u64, bool, Option<usize>)| match is_entry {
            // A tail call enters after the prologue.
            true => executions.most(address, end),
            false => executions.at(address),
        };
        let counts: Vec<u64> = self.records.iter().map(of_record).collect();
        let mut lines = vec![0; self.lines.lines.len()];
        for (count, (.., line)) in counts.iter().zip(&self.records) {
            if let Some(line) = line.and_then(|line| lines.get_mut(line)) {
                *line = (*line).max(*count);
            }
        }
        let solved = self.flow.solve(&counts).ok();
        let outcomes = |conditional: &Conditional| solved.as_ref()?.outcomes(*conditional);
        (lines, self.conditionals.iter().map(outcomes).collect())
    }
}

/// Returns the conditional jump of a line record with the instructions from `first` to `last`. It
/// must be their only conditional jump and the last of them. Other jumps belong to no condition of
/// the source, or to an unknown one. If the verifier replaces a call, a division or a load by
/// instructions, these do not end with a conditional jump.
fn own_condition(table: &LineTable, first: u32, last: u32, flow: &Flow) -> Option<Conditional> {
    let begin = table.transfers.partition_point(|transfer| transfer.at < first);
    let within = table.transfers.get(begin..).unwrap_or_default().iter().take_while(|transfer| transfer.at <= last);
    let mut conditional = within.filter(|transfer| matches!(transfer.to, Destination::Branch(_)));
    let only = conditional.next().filter(|transfer| transfer.at == last)?;
    flow.conditional(only.at)
}

/// Checks that the parts of `table` fit together and fit the machine code.
fn check(table: &LineTable, functions: &[(u64, u32)]) -> Result<(), String> {
    let is_in_code = |address: u64| {
        functions.iter().any(|(start, length)| (*start..start.saturating_add(u64::from(*length))).contains(&address))
    };
    let is_target = |to| match to {
        Destination::Branch(target) | Destination::Jump(target) => target < table.instructions,
        Destination::Exit | Destination::TailCall | Destination::Indirect => true,
    };
    let is_sound = functions.len() <= MAX_FUNCTIONS
        && functions.iter().all(|(start, length)| start.checked_add(u64::from(*length)).is_some())
        && table.records.len() <= MAX_RECORDS
        && table.transfers.len() <= MAX_TRANSFERS
        && table.records.is_sorted_by(|one, next| one.instruction < next.instruction)
        && table.transfers.is_sorted_by(|one, next| one.at < next.at)
        && table.records.iter().all(|record| {
            record.instruction < table.instructions
                && is_in_code(record.address)
                && (record.file as usize) < table.files.len()
                && (record.text as usize) < table.texts.len()
        })
        && table.transfers.iter().all(|transfer| transfer.at < table.instructions && is_target(transfer.to));
    match is_sound {
        true => Ok(()),
        false => Err("what the guest reported of the program's source lines contradicts itself".to_owned()),
    }
}

#[cfg(test)]
mod tests;
