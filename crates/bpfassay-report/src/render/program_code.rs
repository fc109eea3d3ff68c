// SPDX-License-Identifier: MIT OR Apache-2.0
//! The columns that tables of loaded programs have: what the verifier and the compiler made of each.

use bpfassay_protocol::tool::ProgramCode;

/// The heads of the columns.
pub(super) const COLUMNS: [&str; 3] = ["verified", "xlated", "JITed [B]"];

/// What is in them, in the same order.
pub(super) const FIGURES: [fn(&ProgramCode) -> Option<u32>; 3] =
    [|code| code.verified, |code| Some(code.instructions), |code| Some(code.jited_bytes)];

/// Where there is nothing to show: the program was not loaded, or the kernel does not report it.
pub(super) const NONE: &str = "-";

/// A figure as a cell.
pub(super) fn shown(figure: Option<u32>) -> String {
    figure.map_or_else(|| NONE.to_owned(), |figure| figure.to_string())
}
