// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions of BPF programs (Documentation/bpf/standardization/instruction-set.rst).

/// One slot of 8 bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Instruction {
    /// The class of the instruction, its operation, and the kind or size of an operand.
    pub code: u8,
    /// The register that is written.
    pub target: u8,
    /// The register that is read.
    pub source: u8,
    /// Offset of a jump in slots, or of memory in bytes.
    pub offset: i16,
    /// The constant operand.
    pub immediate: i32,
}

/// The register with the address of the stack's end.
pub(crate) const FRAME: u8 = 10;
/// `BPF_PSEUDO_CALL`: the source register in a call to a function of the program.
pub const OWN_FUNCTION: u8 = 1;
/// `BPF_LD | BPF_IMM | BPF_DW`, two slots long.
pub const LOAD_WIDE: u8 = 0x18;
/// `BPF_JMP | BPF_CALL`.
pub const CALL: u8 = 0x85;
pub(crate) const EXIT: u8 = 0x95;
pub(crate) const JUMP: u8 = 0x05;
/// A jump with a 32-bit offset (BPF v4).
pub(crate) const JUMP_FAR: u8 = 0x06;
/// `BPF_ALU64 | BPF_MOV | BPF_X`.
pub(crate) const MOVE: u8 = 0xbf;

/// Decodes `code`; `None` if `code` is empty or no sequence of slots.
pub(crate) fn decode(code: &[u8]) -> Option<Vec<Instruction>> {
    let is_whole = !code.is_empty() && code.len().is_multiple_of(8);
    is_whole.then(|| code.as_chunks().0.iter().copied().map(Instruction::of).collect())
}

/// The place at which a program continues, in slots after the next instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Following {
    /// The program or function ends.
    End,
    /// The program continues with the next instruction.
    Next,
    /// The program continues at this distance.
    Jump(i32),
    /// The program continues at this distance, or with the next instruction.
    Branch(i32),
}

impl Instruction {
    /// Decodes a slot.
    #[must_use]
    pub const fn of(slot: [u8; 8]) -> Self {
        let [code, registers, c, d, e, f, g, h] = slot;
        Self {
            code,
            target: registers & 0xf,
            source: registers >> 4,
            offset: i16::from_le_bytes([c, d]),
            immediate: i32::from_le_bytes([e, f, g, h]),
        }
    }

    /// Returns where the program continues, in slots after the next instruction.
    #[must_use]
    pub const fn following(&self) -> Following {
        match (self.code, self.code & 7) {
            (EXIT, _) => Following::End,
            (CALL, _) => Following::Next,
            (JUMP, _) => Following::Jump(self.offset as i32),
            (JUMP_FAR, _) => Following::Jump(self.immediate),
            (_, 5 | 6) => Following::Branch(self.offset as i32),
            _ => Following::Next,
        }
    }

    /// Returns the number of slots.
    #[must_use]
    pub const fn slots(&self) -> usize {
        if self.code == LOAD_WIDE { 2 } else { 1 }
    }
}
