// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay-tracer`: the bundled tracer, a program of its own.
//!
//! Here: attaching one probe configuration, counting calls, bytes and errors per (cgroup, mount,
//! operation), writing the counters as lines of JSON ([`bpfassay_protocol::tracer`]) on command or
//! at an interval, and serving them to Prometheus. `bpfassay-tracer object` loads an object of the
//! user in place of these. Not here: what runs meanwhile, what a count is compared with, and any
//! verdict.
//!
//! Each module uses only those below it:
//!
//! - `cli`: the command line and the exit status.
//! - `service`: the life of a tracer while its programs count: commands, samples, the metrics
//!   endpoint.
//! - `counters`: reading what the programs count, and what was lost.
//! - `loader`: loading and attaching, by libbpf or by aya; `plan` is what the two have in common.
//! - `diagnostics`: pitfalls, before and after counting.
//! - `features`: what the kernel offers, by trial.
//! - `kernel`: facts of the running kernel, each read in one place.
//!
//! Exit status: 0 after the end of standard input or SIGINT/SIGTERM, 2 for invalid arguments, 3
//! when the kernel refuses the probe configuration (after a `refused` line), 1 for everything else.

mod cli;
mod counters;
mod diagnostics;
#[cfg(test)]
mod elf_strip;
mod features;
#[doc(hidden)]
pub mod fuzz;
mod kernel;
mod loader;
mod service;

pub use cli::main;
