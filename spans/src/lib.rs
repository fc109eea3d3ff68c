// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay-spans`: calls of MPI-IO as spans of OpenTelemetry, a program of its own for the host.
//!
//! Here: uprobes on the functions of MPI-IO of MPICH and Open MPI, the system calls that read and
//! write within their calls, spans of both, and sending these by OTLP. Not here: counting calls and
//! bytes by cgroup and mount (bpfassay-tracer), which a guest's digest covers and which therefore
//! gets none of the crates that OTLP needs; and any verdict.
//!
//! Each module uses only those below it:
//!
//! - `run`: the life of the program; `cli`: its command line.
//! - `witness`: spans beside what Darshan recorded, which `darshan` reads.
//! - `otlp`: sending; `export`: the queue before it, repetition, counts of what was lost.
//! - `attach`: the eBPF programs in the kernel; `library`: where functions begin.
//! - `assemble`: events become spans; `span`, `bytes`, `event`, `functions`: what these are. All of
//!   it is pure.

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
