// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay-spans`, a program for the host: turns calls of MPI-IO into spans of OpenTelemetry.
//!
//! It attaches uprobes to the MPI-IO functions of MPICH and Open MPI, traces the system calls that
//! read and write within their calls, and sends spans of both by OTLP. It gives no verdict.
//! bpfassay-tracer counts calls and bytes by cgroup and mount. A guest's digest covers that
//! program, so it uses none of the crates that OTLP needs.
//!
//! Each module uses only those below it:
//!
//! - `run`: the life of the program; `cli`: its command line.
//! - `witness`: compares spans with Darshan's record, which `darshan` reads.
//! - `otlp`: sending; `export`: the queue, repetition, counts of losses.
//! - `attach`: the eBPF programs in the kernel; `library`: the addresses of functions.
//! - `assemble`: turns events into spans; `span`, `bytes`, `event`, `functions`: the data for it.
//!   All of these are pure.

#![forbid(unsafe_code)]

mod aged;
pub mod assemble;
mod attach;
pub mod bytes;
mod cli;
mod darshan;
pub mod event;
pub mod export;
pub mod functions;
#[doc(hidden)]
pub mod fuzz;
mod library;
pub mod otlp;
mod process;
mod run;
pub mod span;
mod witness;

pub use run::main;
