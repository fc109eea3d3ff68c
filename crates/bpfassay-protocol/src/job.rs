// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job: the work of one boot of a guest. The guest's initramfs has it as a file at
//! [`crate::JOB_PATH`], so a guest needs no message before it measures.

use serde::{Deserialize, Serialize};

use crate::{ProbeConfiguration, job_nodes::Node, names, tool_job::Tool};

/// The work of a guest from boot to power-off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// [`crate::PROTOCOL_VERSION`] of the program that wrote the job.
    pub protocol: u32,
    /// Paths in the initramfs of kernel modules to insert first, dependencies before dependents.
    pub modules: Vec<String>,
    /// The file system under test.
    pub file_system: FileSystem,
    /// Further mounts for the whole guest, in the order in which they are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<ExtraMount>,
    /// How long to wait before every run and every phase that can be held, in milliseconds of the
    /// guest's clock. The kernel finishes delayed work of earlier runs in that time (memory that is
    /// freed late, write-back). Under the instruction clock the wait takes hardly any host time.
    #[serde(default)]
    pub settle_ms: u64,
    /// How kernel threads are scheduled, and when phases begin.
    pub scheduling: Scheduling,
    /// Whether the guest sends the kernel's functions with their addresses.
    #[serde(default)]
    pub symbols: bool,
    /// The period in nanoseconds of timers that interrupt every CPU while a run is measured, so that
    /// CPUs under the instruction clock take short turns; `None` for no such timers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_ns: Option<u64>,
    /// Which of several nodes the guest is; `None` if it is alone and has its own server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Node>,
    /// The work after the guest is ready.
    pub task: Task,
}

impl Job {
    /// Returns a job that does `task` on `file_system`, without modules, further mounts, waiting
    /// and symbols, for a guest that is alone and has the kernel's scheduling.
    #[must_use]
    pub fn new(file_system: FileSystem, task: Task) -> Self {
        Self {
            protocol: crate::PROTOCOL_VERSION,
            modules: Vec::new(),
            file_system,
            mounts: Vec::new(),
            settle_ms: 0,
            scheduling: Scheduling::Kernel,
            symbols: false,
            turn_ns: None,
            node: None,
            task,
        }
    }
}

names! {
    /// How threads of the guest's kernel are scheduled, and when phases begin.
    pub enum Scheduling: "scheduling" {
        /// The kernel's scheduling. Phases begin at any time.
        Kernel = "kernel",
        /// A stabilised server, not a typical one. In a guest with an NFS server, ksoftirqd has the
        /// policy `SCHED_FIFO` and priority 30, kworkers have 20, and nfsd threads have 10. The
        /// workload's scheduling is unchanged. Every phase begins at a tenth of a second of
        /// `CLOCK_MONOTONIC` where no kernel work is expected, and takes memory from the per-CPU
        /// free lists. Memory statistics are not summed up.
        Fixed = "fixed",
    }
}

/// The work of a guest after it is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Task {
    /// Execute these runs in order, report each, and power off.
    Runs {
        /// The runs.
        runs: Vec<RunSpec>,
    },
    /// Offer an interactive shell on the console. Power off when it ends.
    Shell,
    /// Serve the file system under test to other nodes until the host requests power-off.
    Serve,
}

/// The file system that the workload uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum FileSystem {
    /// The kernel's NFS server with an exported tmpfs, mounted over the loopback interface.
    Nfs(Nfs),
    /// A tmpfs, without NFS.
    Tmpfs {
        /// Size in MiB.
        size_mib: u32,
    },
    /// A mounted file system of a machine that measures itself. Guests do not have this.
    Mounted {
        /// The type in mountinfo (`ext4`, `lustre`, `fuse.sshfs`).
        file_system: String,
    },
}

/// A mount in addition to the file system under test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExtraMount {
    /// Absolute path of the mount point. The directory is created.
    pub path: String,
    /// The thing to mount.
    pub of: MountOf,
    /// Whether only the workload has the mount, in a separate mount namespace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
}

impl ExtraMount {
    /// Longest [`Self::path`] in bytes, well below `PATH_MAX` because files below it have names.
    pub const MAX_PATH: usize = 1024;
    /// Largest number of extra mounts of a study.
    pub const MOST: usize = 16;
}

/// The thing to mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum MountOf {
    /// A tmpfs of this size in MiB.
    Tmpfs(u32),
    /// A bind mount (`MS_BIND`) of the mount at this path; `None` is the file system under test.
    Bind(Option<String>),
}

/// NFS over loopback.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Nfs {
    /// Protocol version of the mount.
    pub version: NfsVersion,
    /// Whether LOCALIO can bypass the protocol, if the kernel has it; `None` is the kernel's
    /// default.
    pub localio: Option<bool>,
    /// Number of nfsd threads.
    pub threads: u32,
    /// Size of the exported tmpfs in MiB.
    pub size_mib: u32,
    /// The scheduling of kernel threads for this file system, if it differs from the study's. So
    /// one study can compare two servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
}

impl FileSystem {
    /// Returns the scheduling for this file system, if it differs from the study's.
    #[must_use]
    pub const fn scheduling(&self) -> Option<Scheduling> {
        match self {
            Self::Nfs(nfs) => nfs.scheduling,
            Self::Tmpfs { .. } | Self::Mounted { .. } => None,
        }
    }
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

impl NfsVersion {
    /// Whether a mount of the type `file_system` with superblock options `options`, both from
    /// mountinfo, has this version.
    #[must_use]
    pub fn is_mounted(self, file_system: &str, options: &str) -> bool {
        let wanted = format!("vers={self}");
        matches!(file_system, "nfs" | "nfs4") && options.split(',').any(|option| option == wanted)
    }
}

/// One run to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// The host's id of the run. Every message about the run has it.
    pub id: String,
    /// The probe configuration. The baseline attaches nothing.
    pub probe: ProbeConfiguration,
    /// How often the tracer samples between barriers, in milliseconds; `None` is only at barriers.
    pub sampling_interval_ms: Option<u64>,
    /// Whether the kernel keeps run counts and run times of programs (`kernel.bpf_stats_enabled`).
    /// It costs two clock readings per event, so it has a separate pass.
    #[serde(default)]
    pub bpf_stats: bool,
    /// Further arguments of the tracer, after the agent's arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tracer_arguments: Vec<String>,
    /// Another tool that runs in place of the tracer, or with the tracer as its reference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Tool>,
    /// Repeats a warm-up until its figures are steady; `None` is one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_steady: Option<UntilSteady>,
    /// The workload.
    pub workload: Workload,
}

/// The end of a warm-up: the last `agreeing` repeats agree within `margin_ppm` in every phase, or
/// `most` repeats have been done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UntilSteady {
    /// Number of first repeats of a guest that are not compared.
    pub skipped: u32,
    /// Number of repeats that must agree, at least 2.
    pub agreeing: u32,
    /// How much the longest can exceed the shortest, in parts per million of the shortest.
    pub margin_ppm: u32,
    /// Maximum number of repeats.
    pub most: u32,
}

impl UntilSteady {
    /// Whether repeats whose phases took `durations`, in nanoseconds, are enough: `Some(true)` if
    /// they are steady, `Some(false)` if there are as many as allowed.
    #[must_use]
    pub fn ends(&self, durations: &[Vec<u64>]) -> Option<bool> {
        let looked_at = durations.get(self.skipped as usize..).unwrap_or_default();
        let last = looked_at.len().checked_sub(self.agreeing.max(2) as usize).and_then(|at| looked_at.get(at..));
        let is_steady = last.and_then(|last| Some((last, last.first()?))).is_some_and(|(last, first)| {
            (0..first.len()).all(|phase| {
                let of_phase = || last.iter().map(|repeat| repeat.get(phase).copied());
                let (shortest, longest) = (of_phase().min().flatten(), of_phase().max().flatten());
                shortest.zip(longest).is_some_and(|(shortest, longest)| {
                    let excess = u128::from(longest.saturating_sub(shortest)) * 1_000_000;
                    excess <= u128::from(shortest) * u128::from(self.margin_ppm)
                })
            })
        });
        match is_steady {
            true => Some(true),
            false => (durations.len() >= self.most as usize).then_some(false),
        }
    }
}

/// A workload that runs in its own cgroup on the file system under test. The guest has no code for
/// kinds of workloads; all differences between them are here. The default is the bundled program,
/// which writes its summary to a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The program.
    pub program: Program,
    /// The arguments of the program, with placeholders:
    ///
    /// - [`DIRECTORY`] is the run's directory on the file system under test.
    /// - [`SUMMARY`] is the file for the summary, if the workload writes one.
    /// - [`SCRIPT`] is the file that contains [`Self::script`].
    /// - [`crate::job_nodes::NODE`] is the node among several.
    pub arguments: Vec<String>,
    /// The IOR script for the workload to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Script>,
    /// The source of the summary.
    pub summary: SummarySource,
    /// Whether the workload announces phases and waits at their barriers ([`crate::control`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub control: bool,
    /// How long the workload can take by the guest's clock, in milliseconds, before it is killed
    /// with its cgroup. `None` leaves that to the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Whether another process in a separate cgroup does I/O on the same mount in the meantime.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub neighbour: bool,
    /// A second program that works after the workload, on another file system and in another
    /// cgroup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bystander: Option<Bystander>,
    /// Mounts in the workload's mount namespace, in the order in which they are made. Without
    /// mounts, the workload is in the guest's namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<ExtraMount>,
    /// Whether the baseline's run lists the kernel's features.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub features: bool,
    /// Whether the agent looks for the capabilities with which the tool of the run starts, before
    /// the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub capabilities: bool,
    /// The program that does IOR's work, if any. The guest only copies it into the figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<IorEngine>,
}

/// A process that the tools under test are not meant to trace. It runs after the workload,
/// while tool and tracer are still attached. It has a cgroup of its own, and a tmpfs of its own as
/// its file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Bystander {
    /// The program and its arguments, in which [`DIRECTORY`] is on the tmpfs.
    pub workload: Box<Workload>,
    /// Size of its tmpfs in MiB.
    pub size_mib: u32,
}

/// An IOR script of several tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The file name, for messages.
    pub name: String,
    /// The text. The agent writes it to a file before the workload starts.
    pub text: String,
}

/// The program of a workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Program {
    /// The bundled program of every guest: embedded IOR engine, I/O paths and microbenchmarks.
    #[default]
    Bundled,
    /// The real IOR from the user's overlay. `mpiexec` launches several ranks.
    ExternalIor {
        /// Number of MPI ranks.
        ranks: u32,
    },
    /// Any other program.
    Path {
        /// The program's path in the guest.
        path: String,
    },
}

/// The source of a workload's summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SummarySource {
    /// A file that the workload writes. [`SUMMARY`] represents it in the arguments.
    #[default]
    File,
    /// Everything that the program writes to standard output, at most [`MAX_OUTPUT`] bytes.
    Output,
}

/// Placeholder in a [`Workload`]'s arguments: the run's directory on the file system under test.
pub const DIRECTORY: &str = "{directory}";

/// Placeholder in a [`Workload`]'s arguments: the file for its summary ([`SummarySource::File`]).
pub const SUMMARY: &str = "{summary}";

/// The placeholder in a [`Workload`]'s arguments for the file that contains its [`Script`].
pub const SCRIPT: &str = "{script}";

/// Largest number of bytes that a program can write to standard output.
pub const MAX_OUTPUT: usize = 1 << 20;

names! {
    /// The microbenchmarks.
    pub enum Microbenchmark: "microbenchmark" {
        /// Two threads wake each other through a futex. An operation is a wake-up in each
        /// direction.
        Futex = "futex",
        /// Two threads exchange messages over TCP on the loopback interface. An operation is one
        /// message in each direction.
        Tcp = "tcp",
        /// An operation creates, attaches, touches, detaches and removes a System V shared memory
        /// segment, and creates and removes an anonymous shared mapping.
        SharedMemory = "shared-memory",
    }
}

impl Microbenchmark {
    /// Returns the smallest, largest and default number of bytes of one operation; `None` if an
    /// operation has no bytes.
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
    /// Whether larger or smaller values of a metric are better.
    pub enum Better: "way to be better" {
        /// Larger values are better, such as operations per second.
        Higher = "higher",
        /// Smaller values are better, such as seconds.
        Lower = "lower",
    }
}

/// Name of the only phase of a microbenchmark.
pub const WORK: &str = "work";

/// Summary of a microbenchmark, which it writes as JSON at the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MicrobenchmarkSummary {
    /// Number of completed operations.
    pub operations: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC` from before the first operation to after the last.
    pub elapsed_ns: u64,
}

names! {
    /// The program that does IOR's work.
    pub enum IorEngine: "IOR engine" {
        /// The engine of this project.
        Embedded = "embedded",
        /// The real IOR from the user's overlay.
        External = "external",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: UntilSteady = UntilSteady { skipped: 1, agreeing: 2, margin_ppm: 100, most: 5 };

    #[test]
    fn a_warm_up_ends_when_the_last_repeats_agree_in_every_phase() {
        let ends = |durations: &[[u64; 2]]| RULE.ends(&durations.iter().map(|of| of.to_vec()).collect::<Vec<_>>());
        assert_eq!(ends(&[]), None);
        // The first repeat is not compared, whatever it agrees with.
        assert_eq!(ends(&[[1_000_000, 7]; 2]), None);
        assert_eq!(ends(&[[9, 9], [1_000_000, 7], [1_000_100, 7]]), Some(true));
        assert_eq!(ends(&[[9, 9], [1_000_100, 7], [1_000_000, 7]]), Some(true));
        assert_eq!(ends(&[[9, 9], [1_000_000, 7], [1_000_101, 7]]), None);
        assert_eq!(ends(&[[9, 9], [1_000_000, 7], [1_000_000, 8]]), None, "both phases");
        assert_eq!(ends(&[[9, 9], [1_000_000, 8], [1_000_000, 7], [1_000_000, 7]]), Some(true), "the last");
    }

    #[test]
    fn a_warm_up_that_is_never_steady_ends_all_the_same() {
        let durations: Vec<Vec<u64>> = (1..=5).map(|at| vec![at * 1000]).collect();
        assert_eq!(RULE.ends(&durations[..4]), None);
        assert_eq!(RULE.ends(&durations), Some(false));
        // Repeats with different numbers of phases do not agree.
        assert_eq!(RULE.ends(&[vec![1], vec![1, 2], vec![1]]), None);
    }
}
