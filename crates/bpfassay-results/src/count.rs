// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions that QEMU's plugin counted.

use std::fmt;

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
    /// Of these the ones of the tool's processes, by where they have code before and after the phases; what the kernel does for them is not in it. `None` for
    /// the baseline, and in results from before it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Figure<u64>>,
    /// Those of the kernel at addresses that no function and no program has, without those that are on a probe's path.
    pub unresolved: u64,
    /// Those on the probe's path, by function, the largest first; empty for the baseline.
    pub direct: Vec<FunctionCount>,
}

/// Instructions of one function on a probe's path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionCount {
    /// The function, `NAME [MODULE]`; of a BPF program its name.
    pub function: String,
    /// What it does there.
    pub role: Role,
    /// Its instructions.
    pub instructions: u64,
}

/// What a function does on a probe's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The BPF program itself, as the kernel compiled it; where the kernel interprets it, the interpreter.
    Program,
    /// What leads to the program: trampolines, and the machinery of ftrace and kprobes.
    Trampoline,
    /// What the program calls: helpers and operations on maps.
    Helpers,
    /// What the kernel does around every program: locking, and bookkeeping against recursion.
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
