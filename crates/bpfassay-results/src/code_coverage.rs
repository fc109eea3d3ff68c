// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which source lines and branches of eBPF programs ran, and how often.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Figure;

/// The code of the programs under test that ran in a boot, in phases of the workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BootCoverage {
    /// The programs, each once however often it was loaded.
    pub programs: Vec<ProgramSource>,
    /// The runs with something under test, warm-ups not included.
    pub runs: Vec<RunCoverage>,
}

/// A program and its source lines.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramSource {
    /// Its name, cut off behind 15 bytes.
    pub program: String,
    /// Its lines; not measured where the kernel interprets it, or where it was loaded without line
    /// information.
    pub lines: Figure<ProgramLines>,
}

/// The source lines that a program has code of. Those whose code the verifier removed are not among
/// them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramLines {
    /// Source files, as the compiler recorded their names.
    pub files: Vec<String>,
    /// The lines, by file and number.
    pub lines: Vec<SourceLine>,
    /// The branches of the lines: conditional jumps that belong to the source, and not to what
    /// kernel or compiler put in.
    pub branches: Vec<SourceBranch>,
}

/// A source line.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceLine {
    /// Index into [`ProgramLines::files`].
    pub file: u32,
    /// Its number, from 1.
    pub line: u32,
    /// Its text, as the compiler recorded it.
    pub text: String,
}

/// A conditional jump.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceBranch {
    /// Index into [`ProgramLines::lines`].
    pub line: u32,
    /// The column of its condition, from 1; 0 where the compiler knew none.
    pub column: u32,
}

/// The code that ran in one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCoverage {
    /// [`bpfassay_protocol::job::RunSpec::id`].
    pub run: String,
    /// The programs that were under test.
    pub programs: Figure<Vec<ProgramExecutions>>,
}

/// How often the lines of a program ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramExecutions {
    /// Index into [`BootCoverage::programs`].
    pub program: u32,
    /// Executions of each of [`ProgramLines::lines`].
    pub lines: Vec<u64>,
    /// Of each of [`ProgramLines::branches`] how often it jumped and how often it did not; `None`
    /// where the counts do not determine it.
    pub branches: Vec<Option<[u64; 2]>>,
}

/// The code of a cell's programs that ran, over all runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CodeCoverage {
    /// Runs that were counted.
    pub runs: u32,
    /// The programs by name.
    pub programs: Vec<ProgramCoverage>,
}

/// The code of a program that ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramCoverage {
    /// Its name, cut off behind 15 bytes.
    pub program: String,
    /// Its lines; not measured where the kernel interprets it, or where it was loaded without line
    /// information.
    pub lines: Figure<CoveredLines>,
}

/// The lines of a program with their executions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoveredLines {
    /// Source files, as the compiler recorded their names.
    pub files: Vec<String>,
    /// The lines, by file and number.
    pub lines: Vec<CoveredLine>,
}

/// A line and how often it ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoveredLine {
    /// Index into [`CoveredLines::files`].
    pub file: u32,
    /// Its number, from 1.
    pub line: u32,
    /// Its text, as the compiler recorded it.
    pub text: String,
    /// Executions of the instruction that its code begins with; where its code has several places
    /// in the program, of the one that ran most.
    pub executions: u64,
    /// Its branches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<CoveredBranch>,
}

/// A conditional jump and its outcomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoveredBranch {
    /// The column of its condition, from 1; 0 where the compiler knew none.
    pub column: u32,
    /// How often the program jumped, and how often it did not; `None` where the counts do not
    /// determine it. Compilers invert conditions, so that a jump may be taken where the condition
    /// of the source does not hold.
    pub outcomes: Option<[u64; 2]>,
}

impl CoveredLines {
    /// How many of the lines ran, and how many there are.
    #[must_use]
    pub fn ran(&self) -> (usize, usize) {
        (self.lines.iter().filter(|line| line.executions > 0).count(), self.lines.len())
    }

    /// How many outcomes of branches occurred, and of how many it is known whether they did.
    #[must_use]
    pub fn outcomes(&self) -> (usize, usize) {
        let outcomes = self.lines.iter().flat_map(|line| &line.branches).filter_map(|branch| branch.outcomes).flatten();
        let counts: Vec<u64> = outcomes.collect();
        (counts.iter().filter(|count| **count > 0).count(), counts.len())
    }
}
