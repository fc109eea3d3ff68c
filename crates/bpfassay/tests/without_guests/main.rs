// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests without guests, in one program: linking one for each file would take longer than to run
//! them.

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
