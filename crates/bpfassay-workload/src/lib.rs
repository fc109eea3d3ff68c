//! Workloads: what a study runs on the file system under test.
//!
//! Here: IOR's options, script files and JSON summary as types ([`ior`]), and the embedded engine that does IOR's work
//! where no real IOR is at hand ([`engine`], the program `bpfassay-ior`), every other way of moving data into and out of
//! files ([`io_paths`]), a process that does I/O beside a workload ([`io_paths::neighbour`]), and operations on futexes, TCP and
//! shared memory ([`microbenchmark`]); the same program has them all.
//! Not here: starting workloads, cgroups, mounts (the guest's agent), and what results mean (report and stats).

pub mod engine;
pub mod io_paths;
pub mod ior;
pub mod microbenchmark;
