// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workloads: what a study runs on the file system under test, as the one program `bpfassay-ior`.
//!
//! Here: the embedded engine that does IOR's work where no real IOR is installed ([`engine`]),
//! every other way of moving data into and out of files ([`io_paths`]), a process that does I/O
//! beside a workload ([`io_paths::neighbour`]), and operations on futexes, TCP and shared memory
//! ([`microbenchmark`]). All of it runs in guests. Not here: IOR's options, scripts and summary
//! (`bpfassay-ior`), starting workloads, cgroups and mounts (`bpfassay-guest`), and what results
//! mean (`bpfassay-report`).

pub mod engine;
pub mod io_paths;
pub mod microbenchmark;
