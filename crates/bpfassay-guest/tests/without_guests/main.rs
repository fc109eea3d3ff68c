// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests without guests, in one program: linking one for each file would take longer than to run them.

#[path = "../common/mod.rs"]
mod common;

mod alone;
mod hostile_user;
mod leaving;
mod warm_up;
