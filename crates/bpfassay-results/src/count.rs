// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions that QEMU's plugin counted.

use std::fmt;

use bpfassay_study::model::Prices;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Figure;

/// The phases of a run, as QEMU's plugin counted them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCount {
    /// [`bpfassay_protocol::job::RunSpec::id`].
    pub run: String,
    /// Its phases, in order.
    pub phases: Vec<PhaseCount>,
}

/// Instructions between the barriers of a phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhaseCount {
    /// The phase ([`bpfassay_protocol::message::WorkloadPhase`]).
    pub name: String,
    /// Index of the test in the script, from 0.
    pub test: u32,
    /// Repetition within the test, from 0.
    pub repetition: u32,
    /// What was executed.
    pub count: Figure<Instructions>,
}

/// Instructions that a guest executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Instructions {
    /// Of the whole guest, user space included.
    pub all: u64,
    /// Those of user space.
    pub user: u64,
    /// Of these the ones of the tool's processes, by where they have code before and after the
    /// phases; what the kernel does for them is not in it. `None` for the baseline, and in results
    /// from before it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Figure<u64>>,
    /// Those of the kernel at addresses that no function and no program has, without those that are
    /// on a probe's path.
    pub unresolved: u64,
    /// The findings of a model of caches and branches in the phase; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses: Option<PhaseMisses>,
    /// Those on the probe's path, by function, the largest first; empty for the baseline.
    pub direct: Vec<FunctionCount>,
}

/// Instructions of one function on a probe's path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionCount {
    /// The function, `NAME [MODULE]`; of a BPF program its name.
    pub function: String,
    /// Its role there.
    pub role: Role,
    /// Its instructions.
    pub instructions: u64,
    /// What a model found of them; of a function that the baseline executes, too, as large a part
    /// as of its instructions. `None` without a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses: Option<Misses>,
}

/// The findings of a model of caches and branches in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhaseMisses {
    /// In the whole guest, user space included.
    pub all: Misses,
    /// In user space.
    pub user: Misses,
}

/// What a model of caches and branches found: how many accesses missed and how many branches were
/// predicted wrongly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Misses {
    /// Lines of code that were not in the first cache of instructions.
    pub l1i: u64,
    /// Lines of data that were not in the first cache of data.
    pub l1d: u64,
    /// Lines of either that were not in the second cache.
    pub l2: u64,
    /// Branches that were predicted wrongly.
    pub mispredicted: u64,
}

impl Misses {
    /// All numbers, in the order of display.
    #[must_use]
    pub const fn numbers(self) -> [u64; 4] {
        [self.l1i, self.l1d, self.l2, self.mispredicted]
    }

    /// Those whose [`Self::numbers`] these are.
    #[must_use]
    pub const fn of([l1i, l1d, l2, mispredicted]: [u64; 4]) -> Self {
        Self { l1i, l1d, l2, mispredicted }
    }

    /// These and `more`; the largest number where there are more.
    #[must_use]
    pub fn saturating_add(self, more: Self) -> Self {
        let more = more.numbers();
        Self::of(std::array::from_fn(|index| self.numbers()[index].saturating_add(more[index])))
    }

    /// The part of each that `part` is of `whole`, to the nearest whole number.
    #[must_use]
    pub fn part(self, part: u64, whole: u64) -> Self {
        match part >= whole {
            true => self,
            false => Self::of(self.numbers().map(|number| {
                let share = u128::from(number) * u128::from(part) + u128::from(whole / 2);
                // Below the number itself, since the part is smaller than the whole.
                u64::try_from(share / u128::from(whole)).unwrap_or(number)
            })),
        }
    }

    /// Of each so many per call.
    #[must_use]
    pub fn per_call(self, calls: u64) -> MissesPerCall {
        let [l1i, l1d, l2, mispredicted] = self.numbers().map(|number| number as f64 / calls as f64);
        MissesPerCall { l1i, l1d, l2, mispredicted }
    }
}

/// [`Misses`] per call of the workload, in the mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MissesPerCall {
    /// Lines of code that were not in the first cache of instructions.
    pub l1i: f64,
    /// Lines of data that were not in the first cache of data.
    pub l1d: f64,
    /// Lines of either that were not in the second cache.
    pub l2: f64,
    /// Branches that were predicted wrongly.
    pub mispredicted: f64,
}

impl MissesPerCall {
    /// All numbers, in the order of display.
    #[must_use]
    pub const fn numbers(self) -> [f64; 4] {
        [self.l1i, self.l1d, self.l2, self.mispredicted]
    }

    /// These, and `factor` times `more`.
    #[must_use]
    pub fn plus(self, more: Self, factor: f64) -> Self {
        let more = more.numbers();
        let [l1i, l1d, l2, mispredicted] = std::array::from_fn(|index| self.numbers()[index] + factor * more[index]);
        Self { l1i, l1d, l2, mispredicted }
    }

    /// Their cost by `prices`, in instructions per call.
    #[must_use]
    pub fn priced(self, prices: &Prices) -> f64 {
        let of_l1 = f64::from(prices.l1_miss) * (self.l1i + self.l1d);
        of_l1 + f64::from(prices.l2_miss) * self.l2 + f64::from(prices.misprediction) * self.mispredicted
    }
}

/// The role of a function on a probe's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The BPF program itself, as the kernel compiled it; where the kernel interprets it, the
    /// interpreter.
    Program,
    /// The way to the program: trampolines, and the machinery of ftrace and kprobes.
    Trampoline,
    /// The calls of the program: helpers and operations on maps.
    Helpers,
    /// The kernel's work around every program: locking, and bookkeeping against recursion.
    Entry,
}

impl Role {
    /// All, in the order of display.
    pub const ALL: [Self; 4] = [Self::Program, Self::Trampoline, Self::Helpers, Self::Entry];
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Program => "program",
            Self::Trampoline => "trampoline",
            Self::Helpers => "helpers",
            Self::Entry => "entry",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_rounded_and_never_more_than_the_whole() {
        let misses = Misses { l1i: 10, l1d: 3, l2: u64::MAX, mispredicted: 0 };
        assert_eq!(misses.part(1, 2), Misses { l1i: 5, l1d: 2, l2: 1 << 63, mispredicted: 0 });
        assert_eq!(misses.part(0, 5), Misses::default());
        for whole in [0, 7] {
            assert_eq!(misses.part(7, whole), misses);
        }
        assert_eq!(misses.saturating_add(misses).l2, u64::MAX);
    }

    #[test]
    fn prices_are_those_of_the_list() {
        let prices = Prices { l1_miss: 10, l2_miss: 100, misprediction: 7 };
        let misses = Misses { l1i: 8, l1d: 4, l2: 2, mispredicted: 16 }.per_call(4);
        assert_eq!(misses.priced(&prices), 10.0 * 3.0 + 50.0 + 28.0);
        assert_eq!(misses.plus(misses, -1.0), MissesPerCall::default());
    }
}
