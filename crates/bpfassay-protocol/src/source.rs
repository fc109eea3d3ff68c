// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source lines of a BPF program's machine code, as the kernel knows them.

use serde::{Deserialize, Serialize};

/// Largest number of line records of a program that are sent.
pub const MAX_RECORDS: usize = 16_384;
/// Largest number of transfers of control of a program that are sent.
pub const MAX_TRANSFERS: usize = 16_384;
/// Longest file name that is sent, in bytes. The end of a longer one is sent.
pub const MAX_FILE_NAME: usize = 1024;
/// Longest text of a line that is sent, in bytes. The start of a longer one is sent.
pub const MAX_TEXT: usize = 240;

/// The source lines of a loaded program, sent once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramSource {
    /// The program's id, which is unique within a boot.
    pub id: u32,
    /// The source lines.
    pub lines: SourceLines,
}

/// The source lines of a program, or the reason why they are unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceLines {
    /// The line table.
    Known(LineTable),
    /// The reason why the lines are unknown.
    Unknown(String),
}

/// The line table of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineTable {
    /// Names of source files, as the compiler recorded them.
    pub files: Vec<String>,
    /// Texts of source lines, as the compiler recorded them.
    pub texts: Vec<String>,
    /// Line records, sorted by instruction.
    pub records: Vec<LineRecord>,
    /// Transfers of control, sorted by instruction.
    pub transfers: Vec<Transfer>,
    /// Number of instructions after the verifier's rewriting. A 16-byte instruction counts as two.
    pub instructions: u32,
}

impl ProgramSource {
    /// Returns the approximate size in bytes.
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

/// The start of a source line's code, which ends where the code of the next record begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineRecord {
    /// The first instruction.
    pub instruction: u32,
    /// The address of its machine code.
    pub address: u64,
    /// Index into [`LineTable::files`].
    pub file: u32,
    /// The line, from 1; 0 if the compiler knew none.
    pub line: u32,
    /// The column, from 1; 0 if the compiler knew none.
    pub column: u32,
    /// Index into [`LineTable::texts`].
    pub text: u32,
}

/// An instruction after which control can go elsewhere than to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// The instruction.
    pub at: u32,
    /// The destination.
    pub to: Destination,
}

/// A destination of control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Destination {
    /// This instruction or the next one, depending on a condition.
    Branch(u32),
    /// This instruction.
    Jump(u32),
    /// Return from the function.
    Exit,
    /// Another program, without a return; the next instruction if there is no program.
    TailCall,
    /// An unknown instruction.
    Indirect,
}
