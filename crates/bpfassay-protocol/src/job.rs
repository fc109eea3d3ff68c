// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job: what one boot of a guest has to do. It is a file in the guest's initramfs, at [`crate::JOB_PATH`], so that
//! a guest needs no message before it measures.

use serde::{Deserialize, Serialize};

use crate::{ProbeConfiguration, names, nodes::Node, tool::Tool};

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
    /// More mounts, which the whole guest has, in the order in which they are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<ExtraMount>,
    /// How long to wait before every run and before every phase that can be held, in milliseconds of the guest's clock, so
    /// that the kernel finishes delayed work of earlier runs (memory that is freed late, write-back). Under the instruction clock
    /// this takes hardly any time of the host.
    #[serde(default)]
    pub settle_ms: u64,
    /// How threads of the kernel are scheduled, and when phases begin.
    pub scheduling: Scheduling,
    /// Whether the host wants the kernel's functions with their addresses.
    #[serde(default)]
    pub symbols: bool,
    /// Which of several nodes the guest is; `None`: it is alone, with a server of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Node>,
    /// What follows once the guest is ready.
    pub task: Task,
}

names! {
    /// How threads of the guest's kernel are scheduled, and when phases begin.
    pub enum Scheduling: "scheduling" {
        /// As the kernel does it; phases begin at any time.
        Kernel = "kernel",
        /// Where a guest has an NFS server: ksoftirqd has the policy `SCHED_FIFO` and the priority 30, kworkers 20, nfsd's threads 10; the workload is not
        /// changed. Every phase begins at a tenth of a second of `CLOCK_MONOTONIC` around which no work of the kernel's own is expected, and takes its memory from the CPU's
        /// own lists of free pages. Statistics of memory are not added up.
        /// This is a stabilised server, not a typical one.
        Fixed = "fixed",
    }
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
    /// Serve the file system under test to other nodes until the host requests power-off.
    Serve,
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
    /// Any file system that is mounted on a machine which measures itself: guests have none such.
    Mounted {
        /// Its type, as mountinfo has it (`ext4`, `lustre`, `fuse.sshfs`).
        file_system: String,
    },
}

/// A mount beside that of the file system under test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExtraMount {
    /// Where: an absolute path. Its directory is made.
    pub path: String,
    /// What.
    pub of: MountOf,
    /// Whether only the mount namespace of the workload has it, which is one of its own then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
}

impl ExtraMount {
    /// Most bytes of [`Self::path`], well below `PATH_MAX`: files below it have names, too.
    pub const MAX_PATH: usize = 1024;
    /// Most of a study.
    pub const MOST: usize = 16;
}

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum MountOf {
    /// A tmpfs of this size in MiB.
    Tmpfs(u32),
    /// The mount at this path once more (`MS_BIND`); `None`: that of the file system under test.
    Bind(Option<String>),
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
    /// How its threads are scheduled, where that is not as the study has it for all: so one study shows two side by side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
}

impl FileSystem {
    /// How threads of the kernel are scheduled beside it, where that is not as the study has it for all.
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
    /// Whether a mount of the type `file_system` with these superblock options, as mountinfo has both, is one of this version.
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
    /// The host's name for it; every message about it has it.
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
    /// Repeats the run until its figures are steady: a warm-up. `None`: once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_steady: Option<UntilSteady>,
    /// The workload.
    pub workload: Workload,
}

/// When a warm-up is over: the last `agreeing` repeats agree within `margin_ppm` in every phase, or `most` have been done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UntilSteady {
    /// Repeats that are not compared: the first ones of a guest.
    pub skipped: u32,
    /// How many repeats have to agree, at least 2.
    pub agreeing: u32,
    /// How much the longest of them may exceed the shortest, in parts per million of the shortest.
    pub margin_ppm: u32,
    /// The most repeats.
    pub most: u32,
}

impl UntilSteady {
    /// Whether repeats that took `durations` in their phases, in nanoseconds, are enough; `Some(true)`: because they are steady.
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

/// A workload to run in its own cgroup on the file system under test. The guest has no code for kinds of workloads: all that
/// differs between them is here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The program.
    pub program: Program,
    /// Its arguments, in which [`DIRECTORY`] stands for the run's own directory on the file system under test, [`SUMMARY`] for
    /// the file of its summary where it writes one, [`SCRIPT`] for the file that holds [`Self::script`], and
    /// [`crate::nodes::NODE`] for the node among several.
    pub arguments: Vec<String>,
    /// The IOR script that it reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<Script>,
    /// Where its summary comes from.
    pub summary: Summary,
    /// Whether it announces its phases and waits at their barriers ([`crate::control`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub control: bool,
    /// How long it may take by the guest's clock, in milliseconds; then it is killed with its cgroup. `None`: the host ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Whether another process, in a cgroup of its own, does I/O on the same mount meanwhile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub neighbour: bool,
    /// Mounts of a mount namespace of its own, in the order in which they are made; none: it has the namespace of the guest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<ExtraMount>,
    /// Whether the baseline's run lists the features of the kernel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub features: bool,
    /// Which program does IOR's work, where the workload is IOR. The guest only copies it into the figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<IorEngine>,
}

/// An IOR script of several tests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// File name, for messages.
    pub name: String,
    /// The text. The agent writes it to a file before the workload starts.
    pub text: String,
}

/// What a workload runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Program {
    /// The program for workloads that every guest has: the embedded IOR engine, I/O paths and microbenchmarks.
    Bundled,
    /// The real IOR, from the directory tree that the user overlaid on the guest. Several ranks are launched by `mpiexec`.
    ExternalIor {
        /// MPI ranks.
        ranks: u32,
    },
    /// Any other program.
    Path {
        /// Its path in the guest.
        path: String,
    },
}

/// Where a workload's summary comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Summary {
    /// It writes the file for which [`SUMMARY`] stands in its arguments.
    File,
    /// It is everything that the program writes to standard output, at most [`MAX_OUTPUT`] bytes.
    Output,
}

/// In the arguments of a [`Workload`], the placeholder of the run's own directory on the file system under test.
pub const DIRECTORY: &str = "{directory}";

/// In the arguments of a [`Workload`], the placeholder of the file that it writes its summary to ([`Summary::File`]).
pub const SUMMARY: &str = "{summary}";

/// In the arguments of a [`Workload`], the placeholder of the file that holds its [`Script`].
pub const SCRIPT: &str = "{script}";

/// Most bytes that a program may write to standard output.
pub const MAX_OUTPUT: usize = 1 << 20;

names! {
    /// The microbenchmarks.
    pub enum Microbenchmark: "microbenchmark" {
        /// Two threads wake each other in turn through a futex: an operation is one wake-up in each direction.
        Futex = "futex",
        /// Two threads send a message in turn over TCP on the loopback interface: an operation is one message in each direction.
        Tcp = "tcp",
        /// A System V shared memory segment is created, attached, touched, detached and removed, and an anonymous shared mapping
        /// created and removed: that is an operation.
        SharedMemory = "shared-memory",
    }
}

impl Microbenchmark {
    /// Smallest, largest and default number of bytes of one operation; `None` where an operation has no bytes.
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
    /// Which values of a metric are better.
    pub enum Better: "way to be better" {
        /// Larger values: operations per second.
        Higher = "higher",
        /// Smaller values: seconds.
        Lower = "lower",
    }
}

/// Name of the only phase of a microbenchmark.
pub const WORK: &str = "work";

/// Summary of a microbenchmark: the JSON that it writes at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MicrobenchmarkSummary {
    /// Operations done.
    pub operations: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC` from before the first to after the last.
    pub elapsed_ns: u64,
}

names! {
    /// The program that does IOR's work.
    pub enum IorEngine: "IOR engine" {
        /// The engine of this project.
        Embedded = "embedded",
        /// The real IOR, from the directory tree that the user overlaid on the guest.
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
        // The first is not compared, whatever it agrees with.
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
        // Repeats with other phases do not agree.
        assert_eq!(RULE.ends(&[vec![1], vec![1, 2], vec![1]]), None);
    }
}
