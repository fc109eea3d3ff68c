// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which source lines the machine code of a BPF program is of, as the kernel knows it.

use serde::{Deserialize, Serialize};

/// Most line records of a program that are sent.
pub const MAX_RECORDS: usize = 16_384;
/// Most transfers of control of a program that are sent.
pub const MAX_TRANSFERS: usize = 16_384;
/// Most bytes of the name of a file; the end of a longer one is sent.
pub const MAX_FILE_NAME: usize = 1024;
/// Most bytes of the text of a line; the beginning of a longer one is sent.
pub const MAX_TEXT: usize = 240;

/// The source lines of a program that is loaded, sent once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramSource {
    /// The program's id, which no other program of the boot has.
    pub id: u32,
    /// Its lines.
    pub lines: SourceLines,
}

/// The source lines of a program, or why they are not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceLines {
    /// They are known.
    Known(LineTable),
    /// They are not known, for this reason.
    Unknown(String),
}

/// The line table of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineTable {
    /// Names of source files, as the compiler recorded them.
    pub files: Vec<String>,
    /// Texts of source lines, as the compiler recorded them.
    pub texts: Vec<String>,
    /// Line records by instruction.
    pub records: Vec<LineRecord>,
    /// Instructions that do not lead to the next one alone, by instruction.
    pub transfers: Vec<Transfer>,
    /// How many instructions the program has, after the verifier's rewriting; an instruction of 16 bytes counts as two.
    pub instructions: u32,
}

impl ProgramSource {
    /// About how many bytes it takes.
    #[must_use]
    pub fn size(&self) -> usize {
        let SourceLines::Known(table) = &self.lines else { return size_of::<Self>() };
        let text: usize = table.files.iter().chain(&table.texts).map(|text| size_of::<String>() + text.len()).sum();
        size_of::<Self>()
            + text
            + table.records.len() * size_of::<LineRecord>()
            + table.transfers.len() * size_of::<Transfer>()
    }
}

/// Where the code of a source line begins; it ends where that of the next record does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineRecord {
    /// The first instruction.
    pub instruction: u32,
    /// The address of its machine code.
    pub address: u64,
    /// Index into [`LineTable::files`].
    pub file: u32,
    /// The line, from 1; 0 where the compiler knew none.
    pub line: u32,
    /// The column, from 1; 0 where the compiler knew none.
    pub column: u32,
    /// Index into [`LineTable::texts`].
    pub text: u32,
}

/// An instruction that does not lead to the next one alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The instruction.
    pub at: u32,
    /// Where it leads.
    pub to: Destination,
}

/// Where control goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Destination {
    /// To this instruction or to the next one, by a condition.
    Branch(u32),
    /// To this instruction.
    Jump(u32),
    /// Out of the function.
    Exit,
    /// To another program, which does not come back; to the next instruction where there is none.
    TailCall,
    /// To an instruction that is not known beforehand.
    Indirect,
}
