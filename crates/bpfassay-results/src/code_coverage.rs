// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which source lines and branches of eBPF programs ran, and how often.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Figure;

/// Code of the programs under test that ran in one boot, in phases of the workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BootCoverage {
    /// The programs, each listed once even if it was loaded several times.
    pub programs: Vec<ProgramSource>,
    /// The runs with something under test, without warm-ups.
    pub runs: Vec<RunCoverage>,
}

/// A program and its source lines.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramSource {
    /// Program name, cut off after 15 bytes.
    pub program: String,
    /// The program's lines. Not measured if the kernel interprets the program, or if it was loaded
    /// without line information.
    pub lines: Figure<ProgramLines>,
}

/// Source lines for which a program has code. Lines whose code the verifier removed are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramLines {
    /// Source files, with the names that the compiler recorded.
    pub files: Vec<String>,
    /// The lines, sorted by file and number.
    pub lines: Vec<SourceLine>,
    /// Branches of the lines: conditional jumps that come from the source. Jumps that the kernel or
    /// the compiler added are absent.
    pub branches: Vec<SourceBranch>,
}

/// A source line.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceLine {
    /// Index into [`ProgramLines::files`].
    pub file: u32,
    /// Line number, from 1.
    pub line: u32,
    /// Text of the line, as the compiler recorded it.
    pub text: String,
}

/// A conditional jump in the source.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceBranch {
    /// Index into [`ProgramLines::lines`].
    pub line: u32,
    /// Column of the condition, from 1; 0 if the compiler recorded none.
    pub column: u32,
}

/// Code that ran in one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCoverage {
    /// The run, as in [`bpfassay_protocol::job::RunSpec::id`].
    pub run: String,
    /// The programs under test.
    pub programs: Figure<Vec<ProgramExecutions>>,
}

/// Executions of a program's lines and branches in one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramExecutions {
    /// Index into [`BootCoverage::programs`].
    pub program: u32,
    /// Executions of each line in [`ProgramLines::lines`].
    pub lines: Vec<u64>,
    /// How often each branch in [`ProgramLines::branches`] jumped, and how often it did not. `None`
    /// if the counts do not determine it.
    pub branches: Vec<Option<[u64; 2]>>,
}

/// Code of a cell's programs that ran, summed over all runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CodeCoverage {
    /// Number of runs that were counted.
    pub runs: u32,
    /// The programs, sorted by name.
    pub programs: Vec<ProgramCoverage>,
}

/// Code of one program that ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramCoverage {
    /// Program name, cut off after 15 bytes.
    pub program: String,
    /// The program's lines. Not measured if the kernel interprets the program, or if it was loaded
    /// without line information.
    pub lines: Figure<CoveredLines>,
}

/// The lines of a program with their executions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoveredLines {
    /// Source files, with the names that the compiler recorded.
    pub files: Vec<String>,
    /// The lines, sorted by file and number.
    pub lines: Vec<CoveredLine>,
}

/// A line and how often it ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoveredLine {
    /// Index into [`CoveredLines::files`].
    pub file: u32,
    /// Line number, from 1.
    pub line: u32,
    /// Text of the line, as the compiler recorded it.
    pub text: String,
    /// Executions of the first instruction of the line's code. If the code is in several places of
    /// the program, the place that ran most counts.
    pub executions: u64,
    /// Branches of the line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<CoveredBranch>,
}

/// A conditional jump and its outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoveredBranch {
    /// Column of the condition, from 1; 0 if the compiler recorded none.
    pub column: u32,
    /// How often the program jumped, and how often it did not. `None` if the counts do not
    /// determine it. Compilers invert conditions, so a jump can mean that the source condition is
    /// false.
    pub outcomes: Option<[u64; 2]>,
}

impl CoveredLines {
    /// Returns how many lines ran, and how many lines there are.
    #[must_use]
    pub fn ran(&self) -> (usize, usize) {
        (self.lines.iter().filter(|line| line.executions > 0).count(), self.lines.len())
    }

    /// Returns how many branch outcomes occurred, and how many have a known count.
    #[must_use]
    pub fn outcomes(&self) -> (usize, usize) {
        let outcomes = self.lines.iter().flat_map(|line| &line.branches).filter_map(|branch| branch.outcomes).flatten();
        let counts: Vec<u64> = outcomes.collect();
        (counts.iter().filter(|count| **count > 0).count(), counts.len())
    }
}
