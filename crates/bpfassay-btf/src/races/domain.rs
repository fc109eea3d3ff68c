// SPDX-License-Identifier: MIT OR Apache-2.0
//! What registers and stack slots can hold before an instruction.

use std::collections::{BTreeMap, BTreeSet};

use crate::instruction::{CALL, FRAME, Instruction};

use super::{IF_EQUAL, IF_NOT_EQUAL};

/// A place in a value of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// The kernel's id of the map.
    pub(super) map: u32,
    /// The instruction that found the value; 0 for global variables.
    pub(super) at: usize,
    pub(super) offset: i32,
}

impl Place {
    pub(super) const fn plus(self, more: i32) -> Self {
        Self { offset: self.offset.saturating_add(more), ..self }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Value {
    #[default]
    Unknown,
    Constant(i32),
    /// A number that was calculated from constants.
    Number,
    /// The address of a map.
    Map(u32),
    /// What an inlined lookup in a hash map finds, before the distance of the value is added.
    Inlined(Place),
    /// The address of a place in a value.
    Element(Place),
    /// The address of a place in a value of this map, from different lookups.
    OfMap(u32),
    /// A number from this place.
    Loaded {
        place: Place,
        is_changed: bool,
        /// Whether it depends on a number that no other CPU or thread has.
        is_own: bool,
    },
    /// An address in the stack, as a distance from its end.
    Frame(i32),
    /// The address of a variable of this CPU.
    PerCpu,
    /// A number that no other CPU, or no other thread, has at the same time.
    Private,
}

impl Value {
    /// Returns what `self` and `other` have in common. A constant joins with what it stands in for
    /// where there is none: a missing value is 0.
    fn joined(self, other: Self) -> Self {
        match (self, other) {
            _ if self == other => self,
            (Self::Constant(0), value) | (value, Self::Constant(0)) if value.can_be_missing() => value,
            (Self::Element(Place { map, .. }) | Self::OfMap(map), Self::Element(Place { map: same, .. }))
            | (Self::Element(Place { map, .. }), Self::OfMap(same))
                if map == same =>
            {
                Self::OfMap(map)
            }
            (Self::Number | Self::Constant(_), Self::Loaded { place, .. })
            | (Self::Loaded { place, .. }, Self::Number | Self::Constant(_)) => {
                Self::Loaded { place, is_changed: true, is_own: false }
            }
            (Self::Number | Self::Constant(_), Self::Number | Self::Constant(_)) => Self::Number,
            (Self::Loaded { place, .. }, Self::Loaded { place: same, .. }) if place == same => {
                Self::Loaded { place, is_changed: true, is_own: self.is_own() && other.is_own() }
            }
            _ => Self::Unknown,
        }
    }

    /// Whether no other CPU, or no other thread, has this number at the same time.
    pub(super) const fn is_own(self) -> bool {
        matches!(self, Self::Private | Self::Loaded { is_own: true, .. })
    }

    /// Whether a program can have 0 instead: it looked up a value that the map does not have.
    const fn can_be_missing(self) -> bool {
        matches!(self, Self::Inlined(_) | Self::Element(_) | Self::OfMap(_) | Self::Loaded { .. })
    }

    /// Returns the result of a calculation with `self` and another operand.
    pub(super) fn changed_by(self, other: Option<Self>) -> Self {
        match (self, other) {
            (Self::Loaded { place, .. }, _) | (_, Some(Self::Loaded { place, .. })) => {
                Self::Loaded { place, is_changed: true, is_own: self.is_own() || other.is_some_and(Self::is_own) }
            }
            (Self::Private, _) => Self::Private,
            (Self::Number | Self::Constant(_), None | Some(Self::Number | Self::Constant(_))) => Self::Number,
            _ => Self::Unknown,
        }
    }
}

/// Everything that is known before an instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    registers: [Value; 11],
    /// Size and contents of stored values, by their distance from the end of the stack.
    stack: BTreeMap<i32, (u32, Value)>,
    /// Places whose numbers were compared.
    pub(super) compared: BTreeSet<Place>,
    /// Whether a spin lock is held on every path.
    pub(super) is_locked: bool,
}

impl Default for State {
    fn default() -> Self {
        let mut registers = [Value::Unknown; 11];
        registers[usize::from(FRAME)] = Value::Frame(0);
        Self { registers, stack: BTreeMap::new(), compared: BTreeSet::new(), is_locked: false }
    }
}

impl State {
    pub(super) fn joined(&self, other: &Self) -> Self {
        let mut registers = self.registers;
        for (mine, other) in registers.iter_mut().zip(other.registers) {
            *mine = mine.joined(other);
        }
        let both = self.stack.iter().filter_map(|(offset, &(size, value))| {
            let &(other_size, other) = other.stack.get(offset)?;
            (size == other_size).then(|| (*offset, (size, value.joined(other))))
        });
        Self {
            registers,
            stack: both.collect(),
            compared: self.compared.union(&other.compared).copied().collect(),
            is_locked: self.is_locked && other.is_locked,
        }
    }

    pub(super) fn get(&self, register: u8) -> Value {
        self.registers.get(usize::from(register)).copied().unwrap_or_default()
    }

    /// Returns the map to which `instruction`, a store or a call of an update, stores; `None` if it
    /// is not the same map on all paths.
    pub(super) fn stored_to(&self, instruction: &Instruction) -> Option<u32> {
        let register = if instruction.code == CALL { 1 } else { instruction.target };
        match self.get(register) {
            Value::Element(place) => Some(place.map),
            Value::Map(map) | Value::OfMap(map) => Some(map),
            _ => None,
        }
    }

    pub(super) fn set(&mut self, register: u8, value: Value) {
        if let Some(place) = self.registers.get_mut(usize::from(register)) {
            *place = value;
        }
    }

    /// Returns what was stored at `offset`.
    pub(super) fn slot(&self, offset: i32) -> Value {
        self.stack.get(&offset).map_or(Value::Unknown, |&(_, value)| value)
    }

    /// Stores a value of `size` bytes at `offset`, and forgets what it overwrites.
    pub(super) fn set_slot(&mut self, offset: i32, size: u32, value: Value) {
        self.forget(offset, offset.saturating_add_unsigned(size));
        self.stack.insert(offset, (size, value));
    }

    fn forget(&mut self, from: i32, end: i32) {
        self.stack.retain(|&at, &mut (size, _)| at >= end || at.saturating_add_unsigned(size) <= from);
    }

    /// Returns the values that were stored between these offsets.
    pub(super) fn slots_between(&self, from: i32, end: i32) -> impl Iterator<Item = Value> {
        self.stack.range(from..end.max(from)).map(|(_, &(_, value))| value)
    }

    /// Forgets what a function with these arguments can overwrite. The argument after an address is
    /// usually the size.
    pub(super) fn forget_stack(&mut self, arguments: &[Value; 5]) {
        for (index, argument) in arguments.iter().enumerate() {
            if let Value::Frame(frame) = *argument {
                let end = match arguments.get(index + 1) {
                    Some(Value::Constant(size)) if *size > 0 => frame.saturating_add(*size),
                    _ => 0,
                };
                self.forget(frame, end);
            }
        }
    }

    /// Sets what registers hold after a call.
    pub(super) fn end_call(&mut self, returned: Value) {
        for register in 1..=5 {
            self.set(register, Value::Unknown);
        }
        self.set(0, returned);
    }

    /// Returns the state at the beginning of a function of the program that is called here.
    pub(super) fn of_callee(&self) -> Self {
        let mut callee = Self { compared: self.compared.clone(), is_locked: self.is_locked, ..Self::default() };
        for register in 1..=5 {
            let argument = self.get(register);
            if !matches!(argument, Value::Frame(_)) {
                callee.set(register, argument);
            }
        }
        callee
    }

    /// Returns the states after a branch that is taken, and after one that is not; `None` for a way
    /// that a known number excludes. Where a register is 0, it holds no address.
    pub(super) fn branched(self, branch: &Instruction) -> (Option<Self>, Option<Self>) {
        let (IF_EQUAL | IF_NOT_EQUAL) = branch.code else { return (Some(self.clone()), Some(self)) };
        let (equal, other) = match self.get(branch.target) {
            Value::Constant(number) if number == branch.immediate => (Some(self), None),
            Value::Constant(_) => (None, Some(self)),
            Value::Element(_) | Value::Inlined(_) if branch.immediate == 0 => {
                let mut missing = self.clone();
                missing.set(branch.target, Value::Constant(0));
                (Some(missing), Some(self))
            }
            _ => (Some(self.clone()), Some(self)),
        };
        if branch.code == IF_EQUAL { (equal, other) } else { (other, equal) }
    }
}
