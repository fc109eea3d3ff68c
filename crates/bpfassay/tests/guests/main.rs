// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that boot guests, in one program. They run if `BPFASSAY_VM_TESTS=required` is set;
//! otherwise they print that they are skipped.

#[path = "../common/mod.rs"]
mod common;

mod action;
mod bisect;
mod blocked_readers;
mod bystander;
mod cases;
mod check;
mod code_coverage;
mod cost;
mod direct;
mod events;
mod exact;
mod findings;
mod mounts;
mod nodes;
mod paths;
mod pitfalls;
mod privileges;
mod processes;
mod programs;
mod qemu;
mod races;
mod recorded;
mod right_tools;
mod runs;
mod shards;
mod sound;
mod steady;
mod store;
mod tools;
mod tracer;
mod trust;
mod wrong_tools;
