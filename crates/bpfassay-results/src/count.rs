// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions counted by QEMU's plugin.

use std::fmt;

use bpfassay_study::cost_model::Prices;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Figure;

/// The phases of one run, as QEMU's plugin counted them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCount {
    /// The run, as in [`bpfassay_protocol::job::RunSpec::id`].
    pub run: String,
    /// The phases, in order.
    pub phases: Vec<PhaseCount>,
}

/// Instructions between the barriers of one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhaseCount {
    /// Name of the phase, as in [`bpfassay_protocol::message::WorkloadPhase`].
    pub name: String,
    /// Index of the test in the script, from 0.
    pub test: u32,
    /// Repetition within the test, from 0.
    pub repetition: u32,
    /// Executed instructions.
    pub count: Figure<Instructions>,
}

/// Instructions that a guest executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Instructions {
    /// Instructions of the whole guest, user space included.
    pub all: u64,
    /// Instructions in user space.
    pub user: u64,
    /// User-space instructions of the tool's processes. They are found by where those processes
    /// have code before and after the phases. Kernel work for the processes is not included. `None`
    /// for the baseline, and in results made before this was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Figure<u64>>,
    /// Kernel instructions at addresses outside any known function or program, except those on a
    /// probe's path.
    pub unresolved: u64,
    /// Cache misses and mispredictions of the model in this phase; `None` without a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses: Option<PhaseMisses>,
    /// Instructions on the probe's path by function, the largest first. Empty for the baseline.
    pub direct: Vec<FunctionCount>,
}

/// Instructions of one function on a probe's path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionCount {
    /// Function name, as `NAME [MODULE]`, or the name of the BPF program.
    pub function: String,
    /// Role of the function on the path.
    pub role: Role,
    /// Instructions of the function on the path.
    pub instructions: u64,
    /// The function's misses in the model; `None` without a model. If the baseline also executes
    /// the function, only a share of its misses counts. That share is the one of its instructions
    /// on the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses: Option<Misses>,
}

/// Cache misses and mispredictions of a model in one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhaseMisses {
    /// In the whole guest, user space included.
    pub all: Misses,
    /// In user space.
    pub user: Misses,
}

/// Cache misses and wrong predictions that a model of caches and branches found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Misses {
    /// Misses of code lines in the first-level instruction cache.
    pub l1i: u64,
    /// Misses of data lines in the first-level data cache.
    pub l1d: u64,
    /// Misses of code or data lines in the second-level cache.
    pub l2: u64,
    /// Mispredicted branches.
    pub mispredicted: u64,
}

impl Misses {
    /// Returns all numbers in display order.
    #[must_use]
    pub const fn numbers(self) -> [u64; 4] {
        [self.l1i, self.l1d, self.l2, self.mispredicted]
    }

    /// Builds a value from its [`Self::numbers`].
    #[must_use]
    pub const fn of([l1i, l1d, l2, mispredicted]: [u64; 4]) -> Self {
        Self { l1i, l1d, l2, mispredicted }
    }

    /// Adds `more` to each number, saturating.
    #[must_use]
    pub fn saturating_add(self, more: Self) -> Self {
        let more = more.numbers();
        Self::of(std::array::from_fn(|index| self.numbers()[index].saturating_add(more[index])))
    }

    /// Returns `part` / `whole` of each number, rounded to the nearest integer.
    #[must_use]
    pub fn part(self, part: u64, whole: u64) -> Self {
        match part >= whole {
            true => self,
            false => Self::of(self.numbers().map(|number| {
                let share = u128::from(number) * u128::from(part) + u128::from(whole / 2);
                // The result is below `number`, because `part` is smaller than `whole`.
                u64::try_from(share / u128::from(whole)).unwrap_or(number)
            })),
        }
    }

    /// Divides each number by `calls`.
    #[must_use]
    pub fn per_call(self, calls: u64) -> MissesPerCall {
        let [l1i, l1d, l2, mispredicted] = self.numbers().map(|number| number as f64 / calls as f64);
        MissesPerCall { l1i, l1d, l2, mispredicted }
    }
}

/// Mean [`Misses`] per call of the workload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MissesPerCall {
    /// Misses of code lines in the first-level instruction cache.
    pub l1i: f64,
    /// Misses of data lines in the first-level data cache.
    pub l1d: f64,
    /// Misses of code or data lines in the second-level cache.
    pub l2: f64,
    /// Mispredicted branches.
    pub mispredicted: f64,
}

impl MissesPerCall {
    /// Returns all numbers in display order.
    #[must_use]
    pub const fn numbers(self) -> [f64; 4] {
        [self.l1i, self.l1d, self.l2, self.mispredicted]
    }

    /// Adds `factor` times `more` to each number.
    #[must_use]
    pub fn plus(self, more: Self, factor: f64) -> Self {
        let more = more.numbers();
        let [l1i, l1d, l2, mispredicted] = std::array::from_fn(|index| self.numbers()[index] + factor * more[index]);
        Self { l1i, l1d, l2, mispredicted }
    }

    /// Returns the cost at `prices`, in instructions per call.
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
    /// The BPF program as compiled by the kernel. If the kernel interprets it, the interpreter.
    Program,
    /// The way to the program: trampolines, and the code of ftrace and kprobes.
    Trampoline,
    /// Code that the program calls: helpers and map operations.
    Helpers,
    /// Kernel code around every program: locking and protection against recursion.
    Entry,
}

impl Role {
    /// All roles in display order.
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
