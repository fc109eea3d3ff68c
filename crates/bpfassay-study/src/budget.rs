// SPDX-License-Identifier: MIT OR Apache-2.0
//! Budgets: limits on what the kernel makes of a tool's programs and maps, and on the time that
//! loading, attaching and detaching take.

use bpfassay_input::document::{Reported, Section};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A figure of a tool's programs and maps that a gate can limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetFigure {
    /// Instructions that the verifier processed, with repetitions, of the tool's program with the
    /// most. The kernel refuses a program above 1,000,000 (`BPF_COMPLEXITY_LIMIT_INSNS` of
    /// include/linux/bpf.h).
    VerifiedInstructions,
    /// Growth of the verified instructions since the next older kernel of the study, of the
    /// program that grew most, in per cent. Growth by [`GROWTH_FLOOR`] instructions or less counts
    /// as none.
    VerifiedGrowthPercent,
    /// States that the verifier remembered, of the tool's program with the most, by its log. Only
    /// the loader of bare objects asks for that log.
    States,
    /// Size of the machine code of all programs of the tool, in bytes.
    JitedBytes,
    /// Memory that the kernel accounts to all maps of the tool, in bytes.
    MapBytes,
    /// Time for creating maps and loading programs, in milliseconds of the guest's clock. Only the
    /// loader of bare objects reports it.
    LoadMs,
    /// Time from the tool's start until it is ready, in milliseconds of the guest's clock.
    AttachMs,
    /// Time from the signal to end until the tool has ended, in milliseconds of the guest's clock.
    DetachMs,
}

/// The largest growth of verified instructions that counts as none: those of small programs vary.
pub const GROWTH_FLOOR: u32 = 2000;

impl BudgetFigure {
    /// All figures, each with its key in study files and its name with the unit.
    pub const ALL: &'static [(&'static str, Self, &'static str)] = &[
        ("verified_instructions", Self::VerifiedInstructions, "instructions verified"),
        (
            "verified_growth_percent",
            Self::VerifiedGrowthPercent,
            "% more instructions verified than on the kernel before",
        ),
        ("states", Self::States, "states of the verifier"),
        ("jited_bytes", Self::JitedBytes, "bytes of machine code"),
        ("map_bytes", Self::MapBytes, "bytes of maps"),
        ("load_ms", Self::LoadMs, "ms for loading"),
        ("attach_ms", Self::AttachMs, "ms until ready"),
        ("detach_ms", Self::DetachMs, "ms until ended"),
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
