// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests without guests, in one program, because linking one for each file would take longer than
//! running them.

mod command_lines;
mod console;
