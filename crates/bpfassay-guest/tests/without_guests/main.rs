// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests without guests, in one program: linking one program per file would take longer than
//! running them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests, to which clippy does not extend what it allows in tests"
)]

#[path = "../common/mod.rs"]
mod common;

mod alone;
mod hostile_user;
mod leaving;
mod warm_up;
