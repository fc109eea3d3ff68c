// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job: what one boot of a guest has to do. It travels in the guest's initramfs at [`crate::JOB_PATH`], so that
//! a guest needs no message before it measures.

use serde::{Deserialize, Serialize};

use crate::{ProbeConfiguration, names, tool::Tool};

/// What a guest does from boot to power-off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// [`crate::PROTOCOL_VERSION`] of the side that wrote it.
    pub protocol: u32,
    /// Kernel modules to insert before anything else needs them, as paths in the initramfs, dependencies first.
    pub modules: Vec<String>,
    /// The file system under test.
    pub file_system: FileSystem,
    /// How long to wait before every run and before every phase that can be held, in milliseconds of the guest's clock, so
    /// that the kernel gets done with what came before (memory that is freed late, write-back). Under the instruction clock
    /// this takes hardly any time of the host.
    #[serde(default)]
    pub settle_ms: u64,
    /// What comes once the guest is ready.
    pub task: Task,
}

/// What a guest does once it is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Task {
    /// Execute these runs in this order, report each, power off.
    Runs {
        /// The runs.
        runs: Vec<RunSpec>,
    },
    /// Give an interactive shell on the console; power off when it ends.
    Shell,
}

/// The file system that the workload uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum FileSystem {
    /// The kernel's NFS server exporting a tmpfs, mounted over the loopback interface.
    Nfs(Nfs),
    /// A tmpfs, without NFS.
    Tmpfs {
        /// Size in MiB.
        size_mib: u32,
    },
}

/// NFS over loopback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Nfs {
    /// Protocol version of the mount.
    pub version: NfsVersion,
    /// Whether LOCALIO may bypass the protocol: `Some` sets it where the kernel has it, `None` leaves the kernel's default.
    pub localio: Option<bool>,
    /// nfsd threads.
    pub threads: u32,
    /// Size of the exported tmpfs in MiB.
    pub size_mib: u32,
}

names! {
    /// An NFS protocol version.
    pub enum NfsVersion: "NFS version" {
        /// NFSv3.
        V3 = "3",
        /// NFSv4.1.
        V41 = "4.1",
        /// NFSv4.2.
        V42 = "4.2",
    }
}

/// One run to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// The host's name for it; comes back with every message about it.
    pub id: String,
    /// The tracer's configuration; the baseline attaches nothing.
    pub probe: ProbeConfiguration,
    /// How often the tracer samples by itself, in milliseconds; `None`: only at barriers.
    pub sampling_interval_ms: Option<u64>,
    /// Whether the kernel keeps run counts and run times of the programs (`kernel.bpf_stats_enabled`): costs two clock
    /// reads per event, hence a pass of its own.
    #[serde(default)]
    pub bpf_stats: bool,
    /// Further options of the tracer, one argument each, after those that the agent gives it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tracer_arguments: Vec<String>,
    /// Another tool that runs meanwhile: in place of the tracer, or beside it as its reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Tool>,
    /// The workload.
    pub workload: Workload,
}

/// A workload to run in its own cgroup on the file system under test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Workload {
    /// IOR.
    Ior {
        /// Which program.
        engine: IorEngine,
        /// MPI ranks.
        ranks: u32,
        /// Options, one argument each, without the program's name, `-o`, and `-O summary…`, which the agent adds.
        options: Vec<String>,
        /// Whether another process, in a cgroup of its own, reads and writes on the same mount meanwhile.
        #[serde(default)]
        neighbour: bool,
    },
    /// A known number of bytes by each way that data can take between a program and a file.
    IoPaths {
        /// Bytes per path, a multiple of 4096.
        size: u64,
    },
    /// What the kernel offers: for the baseline a list of its features; for any other probe configuration a handful of
    /// reads and writes ([`KERNEL_FEATURES_OPTIONS`]) that it has to count.
    KernelFeatures,
    /// A fixed number of operations of one kind, without files.
    Microbenchmark {
        /// The kind.
        microbenchmark: Microbenchmark,
        /// How many operations.
        operations: u64,
        /// Bytes of each: of a message, or of a piece of memory.
        size: u32,
    },
    /// Any program, in a directory on the file system under test. What it writes to standard output becomes the summary.
    Command {
        /// The program and its arguments, in which [`DIRECTORY`] stands for that directory.
        command: Vec<String>,
        /// How long it may take by the guest's clock, in milliseconds; then it is killed with its cgroup.
        deadline_ms: u64,
    },
}

/// Stands for the run's own directory on the file system under test in the arguments of [`Workload::Command`].
pub const DIRECTORY: &str = "{directory}";

/// Most bytes that a program may write to standard output.
pub const MAX_OUTPUT: usize = 1 << 20;

names! {
    /// What a workload without files does.
    pub enum Microbenchmark: "microbenchmark" {
        /// Two threads hand a futex to and fro: an operation is there and back.
        Futex = "futex",
        /// Two threads send a message to and fro over TCP on the loopback interface: an operation is there and back.
        Tcp = "tcp",
        /// A piece of System V shared memory is made, attached, touched, detached and removed, and an anonymous shared mapping
        /// made and removed: that is an operation.
        SharedMemory = "shared-memory",
    }
}

impl Microbenchmark {
    /// Least and most bytes of one operation, and how many it is by default; `None` where an operation has no bytes.
    #[must_use]
    pub const fn sizes(self) -> Option<(u32, u32, u32)> {
        match self {
            Self::Futex => None,
            Self::Tcp => Some((1, 1 << 20, 1024)),
            Self::SharedMemory => Some((1, 64 << 20, 64 << 10)),
        }
    }
}

names! {
    /// Which way a figure of merit is better.
    pub enum Better: "way to be better" {
        /// More of it: operations per second.
        Higher = "higher",
        /// Less of it: seconds.
        Lower = "lower",
    }
}

/// Name of the only phase of [`Workload::Microbenchmark`].
pub const WORK: &str = "work";

/// Summary of [`Workload::Microbenchmark`]: the JSON that it writes at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MicrobenchmarkSummary {
    /// Operations done.
    pub operations: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC` from before the first to after the last.
    pub elapsed_ns: u64,
}

/// What the embedded engine does for [`Workload::KernelFeatures`]: 64 writes and 64 reads of 4 KiB by one rank.
pub const KERNEL_FEATURES_OPTIONS: &[&str] =
    &["-a", "POSIX", "-w", "-r", "-t", "4k", "-b", "256k", "-s", "1", "-i", "1"];

names! {
    /// The program that does IOR's work.
    pub enum IorEngine: "IOR engine" {
        /// The engine of this project.
        Embedded = "embedded",
        /// The real IOR, from the directory tree that the user overlaid on the guest.
        External = "external",
    }
}
