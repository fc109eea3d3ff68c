// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay-tracer`: the bundled tracer, a separate program.
//!
//! It attaches one probe configuration, and counts calls, bytes and errors per (cgroup, mount,
//! operation). It writes the counters as lines of JSON ([`bpfassay_protocol::tracer_messages`]) on
//! command or at an interval, and serves them to Prometheus. `bpfassay-tracer object` loads a
//! user's object instead. Other crates have the workload, comparisons of the counts, and verdicts.
//!
//! Each module uses only those below it:
//!
//! - `cli`: the command line and the exit status.
//! - `service`: the life of a tracer while its programs count: commands, samples, the metrics
//!   endpoint.
//! - `counters`: reads what the programs count, and what was lost.
//! - `loader`: loads and attaches programs, by libbpf or by aya. `plan` is the common part.
//! - `diagnostics`: pitfalls, before and after counting.
//! - `features`: the kernel's features, by trial.
//! - `kernel`: facts of the running kernel, each read in one place.
//!
//! Exit status: 0 after the end of standard input or SIGINT/SIGTERM, 2 for invalid arguments, 1 for
//! other errors. It is 3 if the kernel refuses the probe configuration (after a `refused` line).

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
