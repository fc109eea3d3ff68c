// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that boot guests, in one program. They run if `BPFASSAY_VM_TESTS=required` is set, and
//! else print that they are skipped.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests, to which clippy does not extend what it allows in tests"
)]

#[path = "../common/mod.rs"]
mod common;

mod ends;
mod host;
