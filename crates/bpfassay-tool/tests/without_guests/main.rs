// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests without guests, in one program: linking one for each file would take longer than to run
//! them.

mod documented;
mod files;
mod wrong_tools;
