// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the places of its context that a program reads. Follows instructions along all branches
//! (Documentation/bpf/standardization/instruction-set.rst).

use std::collections::BTreeSet;

use crate::instruction::{
    CALL, EXIT, FRAME, Following, Instruction, JUMP, JUMP_FAR, LOAD_WIDE, MOVE, OWN_FUNCTION, decode,
};

/// How a program uses its context.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Accesses {
    /// Byte offsets of loads.
    pub(super) offsets: BTreeSet<usize>,
    /// Whether the program asks a helper for the return value or for numbered arguments.
    pub(super) asks_for_return: bool,
    /// Whether the program uses the value at the watched offset as a 32-bit number: it compares 32
    /// bits, extends their sign, or stores them.
    pub(super) narrows: bool,
    /// Whether the program uses that value as a 64-bit number: it calculates with all bits,
    /// compares them, or stores them outside of its stack.
    pub(super) keeps_whole: bool,
    /// The reason why the analysis may be incomplete.
    pub(super) escapes: Option<&'static str>,
}

/// Registers and stack slots that can hold a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Holders {
    registers: u16,
    /// Slots of 8 bytes below the frame pointer, the nearest one first.
    stack: u64,
}

impl Holders {
    const fn has(self, register: u8) -> bool {
        self.registers >> register & 1 == 1
    }

    const fn set(&mut self, register: u8, holds: bool) {
        self.registers = self.registers & !(1 << register) | (holds as u16) << register;
    }

    fn is_in(self, slot: Option<u32>) -> bool {
        slot.is_some_and(|slot| self.stack >> slot & 1 == 1)
    }

    const fn joined(self, other: Self) -> Self {
        Self { registers: self.registers | other.registers, stack: self.stack | other.stack }
    }
}

/// The holders of values before an instruction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct FlowState {
    context: Holders,
    /// Holders of the value that was loaded from the watched offset.
    watched: Holders,
    /// Registers that hold a mask of the lower 32 bits, or of their sign bit, on every path.
    masks: u16,
}

impl FlowState {
    const fn joined(self, other: Self) -> Self {
        Self {
            context: self.context.joined(other.context),
            watched: self.watched.joined(other.watched),
            masks: self.masks & other.masks,
        }
    }
}

/// `bpf_get_func_arg`, `bpf_get_func_ret` and `bpf_get_func_arg_cnt` (include/uapi/linux/bpf.h).
const ASKING: [i32; 3] = [183, 184, 185];

/// Follows `code` from its first instruction, where register 1 is the context, and the 8 bytes at
/// the context's offset `watched`. Returns `None` if `code` is not a sequence of instructions.
pub(super) fn accesses(code: &[u8], watched: Option<usize>) -> Option<Accesses> {
    let instructions = decode(code)?;
    let mut states: Vec<Option<FlowState>> = vec![None; instructions.len()];
    let mut found = Accesses::default();
    let context = Holders { registers: 1 << 1, stack: 0 };
    let mut work = vec![(0, FlowState { context, ..FlowState::default() })];
    while let Some((at, coming)) = work.pop() {
        let known = states.get_mut(at)?;
        // Holders only grow and masks only shrink, so the loop ends.
        let mut state = known.map_or(coming, |known| known.joined(coming));
        if *known == Some(state) {
            continue;
        }
        *known = Some(state);
        let instruction = *instructions.get(at)?;
        let next = at + instruction.slots();
        let high = instructions.get(at + 1).map_or(0, |second| second.immediate);
        let size = follow_watched(&instruction, high, &mut state, watched);
        found.narrows |= size == Some(Size::Half);
        found.keeps_whole |= size == Some(Size::Whole);
        step(&instruction, &mut state.context, &mut found);
        match instruction.following() {
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

/// Returns the stack slot that contains an offset from the frame pointer.
fn slot(offset: i16) -> Option<u32> {
    (-512..0).contains(&offset).then(|| (u32::from(offset.unsigned_abs()) - 1) / 8)
}

fn step(instruction: &Instruction, state: &mut Holders, found: &mut Accesses) {
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
            let spilled = source == FRAME && state.is_in(slot(offset));
            state.set(target, spilled);
        }
        // Stores of a register.
        3 => {
            if target == FRAME
                && let Some(slot) = slot(offset)
            {
                // A slot that can hold the context continues to do so, because a store can
                // overwrite only part of it.
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

/// The size of the number that an instruction uses a value as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    /// At most 32 bits.
    Half,
    /// 64 bits.
    Whole,
}

/// `BPF_ALU | BPF_MOV | BPF_X`.
const MOVE_HALF: u8 = 0xbc;
/// `BPF_ALU64 | BPF_LSH | BPF_K`.
const SHIFT_LEFT: u8 = 0x67;
/// `BPF_ALU64 | BPF_AND | BPF_X`.
const AND: u8 = 0x5f;
/// `BPF_ALU64 | BPF_AND | BPF_K`.
const AND_CONSTANT: u8 = 0x57;

/// Updates the holders of the value from the context's offset `watched`. Returns the size that the
/// instruction uses the value with, if it uses it. `high` is the upper half of a loaded constant.
/// Before version 3 of the instruction set, compilers shift by 32 and more, or apply a mask, where
/// they later extend a number.
fn follow_watched(instruction: &Instruction, high: i32, state: &mut FlowState, watched: Option<usize>) -> Option<Size> {
    const MASKS: [i32; 2] = [i32::MIN, -1];
    let Instruction { code, target, source, offset, immediate } = *instruction;
    let FlowState { context, watched: holders, masks } = state;
    let with_source = code & 8 != 0 && holders.has(source);
    let is_masked = code == AND && *masks >> source & 1 == 1;
    // Any other write to a register removes a mask.
    if !matches!(code & 7, 2 | 3 | 5 | 6) {
        let is_mask = code == LOAD_WIDE && source == 0 && high == 0 && MASKS.contains(&immediate);
        *masks = *masks & !(1 << target) | u16::from(is_mask) << target;
    }
    // The size of a load or store.
    let size = match code & 0x18 {
        0x18 => Size::Whole,
        _ => Size::Half,
    };
    match code & 7 {
        1 if source == FRAME => {
            let is_held = holders.is_in(slot(offset));
            holders.set(target, is_held && size == Size::Whole);
            (is_held && size == Size::Half).then_some(size)
        }
        1 => {
            let is_watched = usize::try_from(offset).is_ok_and(|offset| Some(offset) == watched);
            holders.set(target, context.has(source) && is_watched && size == Size::Whole);
            None
        }
        // Stores, of a constant or of a register.
        2 | 3 => {
            let is_held = code & 7 == 3 && holders.has(source);
            let slot = if target == FRAME { slot(offset) } else { None };
            if let Some(slot) = slot {
                holders.stack = holders.stack & !(1 << slot) | u64::from(is_held) << slot;
            }
            // The stack may just keep the whole value.
            (is_held && (slot.is_none() || size == Size::Half)).then_some(size)
        }
        4 | 7 if code == MOVE || code == MOVE_HALF => {
            let is_held = holders.has(source);
            holders.set(target, is_held);
            // An offset other than 0 means sign extension from so many bits.
            (is_held && (offset != 0 || code == MOVE_HALF)).then_some(Size::Half)
        }
        4 | 7 => {
            let is_move = code & 0xf0 == 0xb0;
            // Lower bits can be of interest in any value.
            let is_used = with_source || (!is_move && code != AND_CONSTANT && holders.has(target));
            let is_shifted = code == SHIFT_LEFT && immediate >= 32;
            holders.set(target, false);
            let size = if code & 7 == 4 || is_shifted || is_masked { Size::Half } else { Size::Whole };
            is_used.then_some(size)
        }
        5 if code == CALL => {
            *masks &= !0x3f;
            holders.registers &= !0x3f;
            None
        }
        5 | 6 if !matches!(code, JUMP | JUMP_FAR | EXIT) => {
            let size = if code & 7 == 6 { Size::Half } else { Size::Whole };
            (holders.has(target) || with_source).then_some(size)
        }
        0 => {
            holders.set(target, false);
            None
        }
        _ => None,
    }
}
