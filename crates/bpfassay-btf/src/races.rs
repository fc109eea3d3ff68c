// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds updates of shared maps that lose what other CPUs add. A program loads a number from a
//! value, changes or compares the number, and stores to the same place or updates the same map.
//! Neither an atomic instruction nor a spin lock protects the update.
//!
//! Follows the instructions of a loaded program along all branches, as the kernel shows them
//! (`bpf_insn_prepare_dump`, kernel/bpf/syscall.c). Map lookups can be inlined
//! (`map_gen_lookup`). Values in maps with keys that differ on each CPU or thread are not shared.
//! Callbacks are not followed.

mod domain;

use std::collections::BTreeSet;

use self::domain::{Place, State, Value};
use crate::instruction::{CALL, Following, Instruction, LOAD_WIDE, MOVE, OWN_FUNCTION};

/// The part of a map's description that decides whether its values are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedMap {
    /// Size of a key in bytes.
    pub key_size: u32,
    /// Size of a value in bytes.
    pub value_size: u32,
    /// Whether all CPUs see the same values.
    pub is_shared: bool,
}

/// An update of a shared value that another CPU can undo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RacyUpdate {
    /// Index of the instruction that stores.
    pub instruction: u32,
    /// The kernel's id of the map.
    pub map: u32,
    /// Whether the instruction does not store to this map on all paths. The compiler merged two
    /// statements, and the source line can be that of the other one.
    pub is_merged: bool,
}

/// Answers of the kernel about a program.
pub trait Kernel {
    /// Returns what is known of the map with this id.
    fn map(&self, id: u32) -> Option<SharedMap>;

    /// Returns the name of the kernel function that a call with this immediate value calls.
    fn function(&self, immediate: i32) -> Option<&str>;
}

/// Analyses that go through more states than this end without an answer.
const MAX_STEPS: usize = 4_000_000;

/// `BPF_ALU64 | BPF_ADD | BPF_K` and `| BPF_X`.
const ADD_CONSTANT: u8 = 0x07;
const ADD: u8 = 0x0f;
/// `BPF_ALU64 | BPF_MOV | BPF_K` and `BPF_ALU | BPF_MOV | BPF_K`.
const MOVE_CONSTANT: u8 = 0xb7;
const MOVE_CONSTANT_HALF: u8 = 0xb4;
/// `BPF_ALU | BPF_MOV | BPF_X`.
const MOVE_HALF: u8 = 0xbc;
/// `BPF_ALU64 | BPF_RSH | BPF_K`.
const SHIFT_RIGHT: u8 = 0x77;
/// `BPF_JMP | BPF_JEQ | BPF_K` and `BPF_JMP | BPF_JNE | BPF_K`.
const IF_EQUAL: u8 = 0x15;
const IF_NOT_EQUAL: u8 = 0x55;
/// The offset of a move that makes an address of this CPU (`BPF_ADDR_PERCPU`,
/// include/linux/filter.h).
const OF_THIS_CPU: i16 = -1;
/// Helpers that the kernel shows by number: `BPF_FUNC_tail_call`, and helpers that a JIT inlines
/// (`bpf_jit_inlines_helper_call` of arch/*/net; the verifier leaves their numbers, 6.10 and
/// later).
const BY_NUMBER: [(i32, &str); 4] = [
    (8, "bpf_get_smp_processor_id"),
    (12, "bpf_tail_call"),
    (35, "bpf_get_current_task"),
    (158, "bpf_get_current_task_btf"),
];
/// `BPF_PSEUDO_MAP_FD` and `BPF_PSEUDO_MAP_VALUE`.
const MAP: u8 = 1;
const MAP_VALUE: u8 = 2;

/// Returns the racy updates in `instructions`, all slots of a program, in the order of slots.
///
/// # Errors
/// A sentence that says why there is no answer.
pub fn racy_updates(instructions: &[Instruction], kernel: &impl Kernel) -> Result<Vec<RacyUpdate>, String> {
    if instructions.is_empty() {
        return Err("the kernel does not show its instructions".to_owned());
    }
    let mut states: Vec<Option<State>> = vec![None; instructions.len()];
    let (mut found, mut is_unnamed) = (BTreeSet::new(), false);
    let mut work = vec![(0, State::default())];
    let outside = || "a jump leads out of it".to_owned();
    for _ in 0..MAX_STEPS {
        let Some((at, coming)) = work.pop() else {
            // A function without a name may be one that locks.
            if is_unnamed && !found.is_empty() {
                return Err("the kernel does not show which functions it calls".to_owned());
            }
            let update = |(at, map): (usize, u32)| RacyUpdate {
                instruction: u32::try_from(at).unwrap_or(u32::MAX),
                map,
                is_merged: states[at].as_ref().and_then(|state| state.stored_to(&instructions[at])) != Some(map),
            };
            return Ok(found.into_iter().map(update).collect());
        };
        let known = states.get_mut(at).ok_or_else(outside)?;
        let state = match known.take() {
            None => coming,
            Some(known_state) => {
                let joined = known_state.joined(&coming);
                if joined == known_state {
                    *known = Some(known_state);
                    continue;
                }
                joined
            }
        };
        *known = Some(state.clone());
        let instruction = instructions[at];
        let next = at + instruction.slots();
        let to = |by: i32| isize::try_from(by).ok().and_then(|by| next.checked_add_signed(by)).ok_or_else(outside);
        if instruction.code == CALL && instruction.source == OWN_FUNCTION {
            // A compiled program has the distance in `offset`, an interpreted one in the immediate
            // value (`jit_subprogs`, kernel/bpf/verifier.c).
            let by = if instruction.offset == 0 { instruction.immediate } else { instruction.offset.into() };
            work.push((to(by)?, state.of_callee()));
        }
        let wide = instructions.get(at + 1).map_or(0, |second| second.immediate);
        let mut step = Step { at, state, kernel, found: &mut found, is_unnamed: &mut is_unnamed };
        step.follow(&instruction, wide);
        let state = step.state;
        match instruction.following() {
            Following::End => {}
            Following::Next => work.push((next, state)),
            Following::Jump(by) => work.push((to(by)?, state)),
            Following::Branch(by) => {
                let (taken, fallen) = state.branched(&instruction);
                work.extend(fallen.map(|state| (next, state)));
                let to = to(by)?;
                work.extend(taken.map(|state| (to, state)));
            }
        }
    }
    Err("it has too many paths to follow".to_owned())
}

/// One instruction with the state before it.
struct Step<'a, K> {
    at: usize,
    state: State,
    kernel: &'a K,
    /// Index of each instruction that stores, and the map.
    found: &'a mut BTreeSet<(usize, u32)>,
    /// Whether the name of a called function is not known.
    is_unnamed: &'a mut bool,
}

impl<K: Kernel> Step<'_, K> {
    fn follow(&mut self, instruction: &Instruction, wide: i32) {
        let Instruction { code, target, source, offset, immediate } = *instruction;
        let state = &mut self.state;
        match code & 7 {
            0 if code == LOAD_WIDE => {
                let id = immediate.cast_unsigned();
                let value = match source {
                    MAP => Value::Map(id),
                    MAP_VALUE => Value::Element(Place { map: id, at: 0, offset: wide }),
                    _ => Value::Unknown,
                };
                state.set(target, value);
            }
            0 => state.set(0, Value::Unknown),
            1 => {
                let value = self.loaded(source, offset);
                self.state.set(target, value);
            }
            2 | 3 => self.store(instruction),
            4 | 7 => {
                let value = self.calculated(instruction);
                self.state.set(target, value);
            }
            _ if code == CALL => self.call(instruction),
            // A number is compared: what is stored to its place later depends on it.
            5 | 6 => {
                let with_source = (code & 8 != 0).then_some(source);
                for register in [Some(target), with_source].into_iter().flatten() {
                    if let Value::Loaded { place, .. } = state.get(register) {
                        state.compared.insert(place);
                    }
                }
            }
            _ => {}
        }
    }

    fn loaded(&self, source: u8, offset: i16) -> Value {
        match self.state.get(source) {
            Value::Element(place) => {
                Value::Loaded { place: place.plus(offset.into()), is_changed: false, is_own: false }
            }
            Value::Frame(frame) => self.state.slot(frame.saturating_add(offset.into())),
            Value::PerCpu => Value::Private,
            _ => Value::Unknown,
        }
    }

    fn calculated(&self, instruction: &Instruction) -> Value {
        let Instruction { code, target, source, offset, immediate } = *instruction;
        let (of_target, of_source) = (self.state.get(target), self.state.get(source));
        match code {
            MOVE | MOVE_HALF if offset == OF_THIS_CPU => Value::PerCpu,
            MOVE => of_source,
            MOVE_HALF if matches!(of_source, Value::Loaded { .. } | Value::Private | Value::Constant(_)) => of_source,
            MOVE_CONSTANT | MOVE_CONSTANT_HALF => Value::Constant(immediate),
            ADD_CONSTANT => match of_target {
                Value::Frame(frame) => Value::Frame(frame.saturating_add(immediate)),
                Value::Element(place) => Value::Element(place.plus(immediate)),
                Value::OfMap(_) => of_target,
                // An inlined lookup of a hash map adds the distance of the value.
                Value::Inlined(place) => Value::Element(place),
                // An inlined lookup of an array adds the index to the address of the values.
                Value::Map(map) => Value::Element(Place { map, at: self.at, offset: 0 }),
                _ => of_target.changed_by(None),
            },
            ADD => match (of_target, of_source) {
                (Value::Element(_), own) | (own, Value::Element(_)) if own.is_own() => Value::Unknown,
                (Value::Element(place), _) | (_, Value::Element(place)) => {
                    Value::Element(Place { at: self.at, offset: 0, ..place })
                }
                (of_target, of_source) => of_target.changed_by(Some(of_source)),
            },
            // The upper half of `bpf_get_current_pid_tgid` is the process, which threads share.
            SHIFT_RIGHT if of_target == Value::Private && immediate >= 32 => Value::Unknown,
            _ if code & 8 != 0 => of_target.changed_by(Some(of_source)),
            _ => of_target.changed_by(None),
        }
    }

    fn store(&mut self, instruction: &Instruction) {
        let Instruction { code, target, source, offset, .. } = *instruction;
        /// `BPF_STX | BPF_ATOMIC`, without the size.
        const ATOMIC: u8 = 0xc3;
        let value = if code & 7 == 3 { self.state.get(source) } else { Value::Constant(instruction.immediate) };
        match self.state.get(target) {
            Value::Frame(frame) if code & 0xe7 != ATOMIC => {
                let size = [4, 2, 1, 8][usize::from(code >> 3 & 3)];
                self.state.set_slot(frame.saturating_add(offset.into()), size, value);
            }
            Value::Element(place) if code & 0xe7 != ATOMIC => {
                let place = place.plus(offset.into());
                let depends = matches!(value, Value::Loaded { place: from, is_changed: true, .. } if from == place);
                if depends || self.state.compared.contains(&place) {
                    self.found(place.map);
                }
            }
            _ => {}
        }
    }

    /// Notes an update of a value of the map, unless it is protected or nothing is shared.
    fn found(&mut self, map: u32) {
        let is_shared = self.kernel.map(map).is_some_and(|map| map.is_shared);
        if is_shared && !self.state.is_locked {
            self.found.insert((self.at, map));
        }
    }

    fn call(&mut self, instruction: &Instruction) {
        let arguments = [1, 2, 3, 4, 5].map(|register| self.state.get(register));
        if instruction.source == OWN_FUNCTION {
            self.state.forget_stack(&arguments);
            return self.state.end_call(Value::Unknown);
        }
        let numbered = BY_NUMBER.iter().find(|(number, _)| *number == instruction.immediate);
        let name = numbered.map(|(_, name)| *name).or_else(|| self.kernel.function(instruction.immediate));
        *self.is_unnamed |= name.is_none();
        let name = name.unwrap_or_default();
        let mut returned = Value::Unknown;
        match (arguments[0], name) {
            (Value::Map(map), name) if name.contains("lookup") => {
                returned = self.looked_up(map, &arguments, name == "__htab_map_lookup_elem");
            }
            (Value::Map(map), name) if name.contains("update_elem") => {
                let is_of_map =
                    |value: &Value| matches!(value, Value::Loaded { place, is_changed: true, .. } if place.map == map);
                let size = self.kernel.map(map).map_or(0, |map| map.value_size);
                let stores = match arguments[2] {
                    Value::Frame(frame) => {
                        let end = frame.saturating_add_unsigned(size);
                        self.state.slots_between(frame, end).any(|value| is_of_map(&value))
                    }
                    _ => false,
                };
                if stores && !self.has_own_key(map, &arguments) {
                    self.found(map);
                }
            }
            (_, "bpf_spin_lock" | "bpf_res_spin_lock") => self.state.is_locked = true,
            (_, "bpf_spin_unlock" | "bpf_res_spin_unlock") => self.state.is_locked = false,
            (_, name)
                if name == "bpf_get_current_pid_tgid"
                    || name.contains("processor_id")
                    || name.starts_with("bpf_get_current_task") =>
            {
                returned = Value::Private;
            }
            _ => self.state.forget_stack(&arguments),
        }
        self.state.end_call(returned);
    }

    fn looked_up(&self, map: u32, arguments: &[Value; 5], is_inlined: bool) -> Value {
        if self.has_own_key(map, arguments) {
            return Value::Unknown;
        }
        let place = Place { map, at: self.at, offset: 0 };
        if is_inlined { Value::Inlined(place) } else { Value::Element(place) }
    }

    /// Whether the key, the second argument, has a part that no other CPU or thread has.
    fn has_own_key(&self, map: u32, arguments: &[Value; 5]) -> bool {
        let size = self.kernel.map(map).map_or(0, |map| map.key_size);
        let Value::Frame(frame) = arguments[1] else { return false };
        let end = frame.saturating_add_unsigned(size);
        self.state.slots_between(frame, end).any(Value::is_own)
    }
}

#[cfg(test)]
mod tests;
