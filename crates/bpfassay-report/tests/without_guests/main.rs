// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests without guests, in one program: linking one program per file would take longer than
//! running the tests.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests, to which clippy does not extend what it allows in tests"
)]

#[path = "../common/mod.rs"]
mod common;

mod browser;
mod bystander;
mod calls;
mod capabilities;
mod ci;
mod code_coverage;
mod commands;
mod compare;
mod costs;
mod coverage;
mod derived;
mod direct;
mod extreme;
mod formats;
mod gates;
mod head;
mod hostile;
mod integrity;
mod journal;
mod kernel_features;
mod loads;
mod no_all_clear;
mod no_speed_up;
mod nodes;
mod priced;
mod programs;
mod published;
mod reading;
mod renderers;
mod sampling;
mod schema;
mod screen;
mod scripts;
mod shards;
mod streamed;
mod tables;
mod trend;
mod unmeasured;
