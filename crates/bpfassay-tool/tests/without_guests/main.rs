// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests without guests in a single binary: linking one per file would take longer than the tests.

mod documented;
mod files;
mod wrong_tools;
