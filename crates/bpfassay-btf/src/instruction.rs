// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions of BPF programs (Documentation/bpf/standardization/instruction-set.rst).

/// One slot of 8 bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Instruction {
    pub(crate) code: u8,
    pub(crate) target: u8,
    pub(crate) source: u8,
    pub(crate) offset: i16,
    pub(crate) immediate: i32,
}

/// The register with the address of the stack's end.
pub(crate) const FRAME: u8 = 10;
/// `BPF_PSEUDO_CALL`: the source register in a call to a function of the program.
pub(crate) const OWN_FUNCTION: u8 = 1;
/// `BPF_LD | BPF_IMM | BPF_DW`, two slots long.
pub(crate) const LOAD_WIDE: u8 = 0x18;
pub(crate) const CALL: u8 = 0x85;
pub(crate) const EXIT: u8 = 0x95;
pub(crate) const JUMP: u8 = 0x05;
/// A jump with a 32-bit offset (BPF v4).
pub(crate) const JUMP_FAR: u8 = 0x06;
/// `BPF_ALU64 | BPF_MOV | BPF_X`.
pub(crate) const MOVE: u8 = 0xbf;

/// Decodes `code`; `None` if `code` is empty or no sequence of slots.
pub(crate) fn decode(code: &[u8]) -> Option<Vec<Instruction>> {
    let is_whole = !code.is_empty() && code.len().is_multiple_of(8);
    is_whole.then(|| code.chunks_exact(8).map(slot).collect())
}

fn slot(word: &[u8]) -> Instruction {
    let byte = |index: usize| word.get(index).copied().unwrap_or_default();
    Instruction {
        code: byte(0),
        target: byte(1) & 0xf,
        source: byte(1) >> 4,
        offset: i16::from_le_bytes([byte(2), byte(3)]),
        immediate: i32::from_le_bytes([byte(4), byte(5), byte(6), byte(7)]),
    }
}

/// Where a program continues after an instruction.
pub(crate) enum Following {
    End,
    Next,
    Jump(i32),
    Branch(i32),
}

impl Instruction {
    /// Returns where the program continues, in slots after the next instruction.
    pub(crate) const fn following(&self) -> Following {
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
    pub(crate) const fn slots(&self) -> usize {
        if self.code == LOAD_WIDE { 2 } else { 1 }
    }
}
