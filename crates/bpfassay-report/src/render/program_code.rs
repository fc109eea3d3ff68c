// SPDX-License-Identifier: MIT OR Apache-2.0
//! The columns for loaded programs in tables: how the verifier and the JIT compiler treated each
//! program.

use bpfassay_protocol::tool_job::ProgramCode;

pub(super) const COLUMNS: [&str; 5] = ["verified", "states", "peak", "xlated", "JITed [B]"];

/// The figures of the columns, in the same order.
pub(super) const FIGURES: [fn(&ProgramCode) -> Option<u32>; 5] = [
    |code| code.verified,
    |code| code.log.map(|log| log.total_states),
    |code| code.log.map(|log| log.peak_states),
    |code| Some(code.instructions),
    |code| Some(code.jited_bytes),
];

/// How to read the columns.
pub(super) const LEGEND: &str = "verified: instructions that the verifier processed, each as often as it did (kernels since 5.16 report it, and the loader of bare objects); \
    states, peak: those that it remembered, in total and at once, by its log, which only the loader of bare objects asks for: of other tools they are not measured; \
    xlated: instructions after its rewriting; JITed: bytes of machine code, 0 where the kernel interprets the program.";

/// The text for a program that was not loaded, or for a figure that nothing reports.
pub(super) const NONE: &str = "-";

pub(super) fn shown<T: ToString>(figure: Option<T>) -> String {
    figure.map_or_else(|| NONE.to_owned(), |figure| figure.to_string())
}

/// Formats microseconds as milliseconds with three digits.
pub(super) fn milliseconds(microseconds: u64) -> String {
    format!("{}.{:03}", microseconds / 1000, microseconds % 1000)
}
