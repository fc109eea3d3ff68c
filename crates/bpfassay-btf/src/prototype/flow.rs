// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which places of its context a program reads: instructions followed along all branches
//! (Documentation/bpf/standardization/instruction-set.rst).

use std::collections::BTreeSet;

/// What a program does with its context.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Accesses {
    /// Offsets in bytes that it loads from.
    pub(super) offsets: BTreeSet<usize>,
    /// Whether it asks a helper for the return value or for arguments by number.
    pub(super) asks_for_return: bool,
    /// Why that may not be all.
    pub(super) escapes: Option<&'static str>,
}

/// Registers and slots of the stack that may hold the context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct State {
    registers: u16,
    /// Slots of 8 bytes below the frame pointer, from its side.
    stack: u64,
}

impl State {
    const fn has(self, register: u8) -> bool {
        self.registers >> register & 1 == 1
    }

    const fn set(&mut self, register: u8, holds: bool) {
        self.registers = self.registers & !(1 << register) | (holds as u16) << register;
    }
}

#[derive(Debug, Clone, Copy)]
struct Instruction {
    code: u8,
    target: u8,
    source: u8,
    offset: i16,
    immediate: i32,
}

const FRAME: u8 = 10;
/// `BPF_PSEUDO_CALL`: the source register of a call to a function of the program.
const OWN_FUNCTION: u8 = 1;
/// `bpf_get_func_arg`, `bpf_get_func_ret` and `bpf_get_func_arg_cnt` (include/uapi/linux/bpf.h).
const ASKING: [i32; 3] = [183, 184, 185];

/// Follows `code` from its first instruction, where register 1 is the context. `None` where it is no sequence of instructions.
pub(super) fn accesses(code: &[u8]) -> Option<Accesses> {
    if code.is_empty() || !code.len().is_multiple_of(8) {
        return None;
    }
    let instructions: Vec<Instruction> = code.chunks_exact(8).map(decode).collect();
    let mut states: Vec<Option<State>> = vec![None; instructions.len()];
    let mut found = Accesses::default();
    let mut work = vec![(0, State { registers: 1 << 1, stack: 0 })];
    while let Some((at, coming)) = work.pop() {
        let known = states.get_mut(at)?;
        // States only ever grow, so this comes to an end.
        let mut state = known.unwrap_or_default();
        state.registers |= coming.registers;
        state.stack |= coming.stack;
        if *known == Some(state) {
            continue;
        }
        *known = Some(state);
        let instruction = *instructions.get(at)?;
        let next = at + if instruction.code == LOAD_WIDE { 2 } else { 1 };
        step(&instruction, &mut state, &mut found);
        match following(&instruction) {
            Following::End => {}
            Following::Next => work.push((next, state)),
            Following::Jump(by) => work.push((next.checked_add_signed(isize::try_from(by).ok()?)?, state)),
            Following::Branch(by) => {
                work.push((next, state));
                work.push((next.checked_add_signed(isize::try_from(by).ok()?)?, state));
            }
        }
    }
    Some(found)
}

/// `BPF_LD | BPF_IMM | BPF_DW`, of two words.
const LOAD_WIDE: u8 = 0x18;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const JUMP: u8 = 0x05;
/// With a 32-bit offset (BPF v4).
const JUMP_FAR: u8 = 0x06;
/// `BPF_ALU64 | BPF_MOV | BPF_X`.
const MOVE: u8 = 0xbf;

fn decode(word: &[u8]) -> Instruction {
    let byte = |index: usize| word.get(index).copied().unwrap_or_default();
    Instruction {
        code: byte(0),
        target: byte(1) & 0xf,
        source: byte(1) >> 4,
        offset: i16::from_le_bytes([byte(2), byte(3)]),
        immediate: i32::from_le_bytes([byte(4), byte(5), byte(6), byte(7)]),
    }
}

enum Following {
    End,
    Next,
    Jump(i32),
    Branch(i32),
}

const fn following(instruction: &Instruction) -> Following {
    match (instruction.code, instruction.code & 7) {
        (EXIT, _) => Following::End,
        (CALL, _) => Following::Next,
        (JUMP, _) => Following::Jump(instruction.offset as i32),
        (JUMP_FAR, _) => Following::Jump(instruction.immediate),
        (_, 5 | 6) => Following::Branch(instruction.offset as i32),
        _ => Following::Next,
    }
}

/// The slot of the stack that an offset from the frame pointer lies in.
fn slot(offset: i16) -> Option<u32> {
    (-512..0).contains(&offset).then(|| (u32::from(offset.unsigned_abs()) - 1) / 8)
}

fn step(instruction: &Instruction, state: &mut State, found: &mut Accesses) {
    let Instruction { code, target, source, offset, immediate } = *instruction;
    let class = code & 7;
    match class {
        // Loads from memory.
        1 => {
            if state.has(source) {
                match usize::try_from(offset) {
                    Ok(offset) => drop(found.offsets.insert(offset)),
                    Err(_) => found.escapes = Some("it reads before its context"),
                }
            }
            let spilled = source == FRAME && slot(offset).is_some_and(|slot| state.stack >> slot & 1 == 1);
            state.set(target, spilled);
        }
        // Stores of a register.
        3 => {
            if target == FRAME
                && let Some(slot) = slot(offset)
            {
                // A slot that may hold the context keeps doing so: only part of it may be overwritten.
                state.stack |= u64::from(state.has(source)) << slot;
            } else if state.has(source) {
                found.escapes = Some("it stores its context outside of its stack");
            }
        }
        4 | 7 if code == MOVE && offset == 0 => state.set(target, state.has(source)),
        4 | 7 => {
            let is_move = code & 0xf0 == 0xb0;
            let uses_source = code & 8 != 0 && state.has(source);
            if uses_source || (!is_move && state.has(target)) {
                found.escapes = Some("it reckons with the address of its context");
            }
            state.set(target, false);
        }
        0 => state.set(target, false),
        5 if code == CALL => {
            let others = (2..=5).any(|register| state.has(register));
            if source == OWN_FUNCTION && (others || state.has(1)) {
                found.escapes = Some("it hands its context to a function");
            } else if others {
                found.escapes = Some("it hands its context to a helper");
            }
            found.asks_for_return |= source == 0 && ASKING.contains(&immediate);
            for register in 0..=5 {
                state.set(register, false);
            }
        }
        _ => {}
    }
}
