// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests without guests, in one program: linking one program per file would take longer than
//! running the tests.

#[path = "../common/mod.rs"]
mod common;

mod action;
mod cache;
mod command;
mod exporter;
mod here;
mod input;
mod output;
mod payload;
mod plan;
mod repository;
mod untrusted;
