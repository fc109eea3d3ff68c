// SPDX-License-Identifier: MIT OR Apache-2.0
//! Budgets: limits on what the kernel makes of a tool's programs.

use bpfassay_input::document::{Reported, Section};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A figure of a tool's programs that a gate can limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetFigure {
    /// Instructions that the verifier processed, with repetitions, of the tool's program with the
    /// most. The kernel refuses a program above 1,000,000 (`BPF_COMPLEXITY_LIMIT_INSNS` of
    /// include/linux/bpf.h).
    VerifiedInstructions,
    /// Size of the machine code of all programs of the tool, in bytes.
    JitedBytes,
    /// Time from the tool's start until it is ready, in milliseconds of the guest's clock.
    AttachMs,
}

impl BudgetFigure {
    /// All figures, each with its key in study files and its name with the unit.
    pub const ALL: &'static [(&'static str, Self, &'static str)] = &[
        ("verified_instructions", Self::VerifiedInstructions, "instructions verified"),
        ("jited_bytes", Self::JitedBytes, "bytes of machine code"),
        ("attach_ms", Self::AttachMs, "ms until ready"),
    ];

    /// Returns the name with the unit: `bytes of machine code`.
    #[must_use]
    pub fn words(self) -> &'static str {
        Self::ALL.iter().find(|(_, figure, _)| *figure == self).map_or("", |(.., words)| words)
    }
}

/// A limit on one figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The figure.
    pub figure: BudgetFigure,
    /// The largest permitted value, in the unit of the figure.
    pub limit: u64,
}

/// Reads the budgets of a gate: one key for each figure.
///
/// # Errors
/// [`Reported`] if a limit is not a number.
pub(crate) fn read(section: &Section<'_, '_>) -> Result<Vec<Budget>, Reported> {
    let limit = |&(key, figure, _): &(&'static str, BudgetFigure, &'static str)| {
        let limit = section.optional(key, |field| field.number(0..=i64::MAX as u64));
        limit.map(|limit| limit.map(|limit| Budget { figure, limit })).transpose()
    };
    BudgetFigure::ALL.iter().filter_map(limit).collect()
}
