// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workloads: what a study runs on the file system under test. They are one program,
//! `bpfassay-ior`, which runs in guests:
//!
//! - [`engine`]: the embedded engine, which does IOR's work if no real IOR is installed.
//! - [`io_paths`]: all other ways of moving data into and out of files.
//! - [`io_paths::neighbour`]: a process that does I/O at the same time as a workload.
//! - [`microbenchmark`]: operations on futexes, TCP and shared memory.
//!
//! Other crates have IOR's options, scripts and summary (`bpfassay-ior`), start workloads and make
//! cgroups and mounts (`bpfassay-guest`), and evaluate results (`bpfassay-report`).

pub mod engine;
pub mod io_paths;
pub mod microbenchmark;
