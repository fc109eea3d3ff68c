// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests without guests, in one program: linking one for each file would take longer than to run them.

#[allow(dead_code, reason = "some of it is only for runs of a real IOR")]
#[path = "../common/mod.rs"]
mod common;

mod control;
mod ior_expectations;
mod ior_live;
mod program;
