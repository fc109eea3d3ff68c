// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between guest and host.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Operation, ProbeConfiguration,
    call_list::CallTimes,
    job::IorEngine,
    kernel_feature::Feature,
    names,
    operation::Totals,
    program_set::ProgramEvent,
    source::ProgramSource,
    symbols::Symbols,
    tool_job::ToolFigures,
    tracer_messages::{Attached, Device, Ended, ProgramStatistics, Refusal, Sample, Task},
};

/// Messages from a guest to the host. The host can end a guest that violates this order:
///
/// 1. [`Self::Hello`], once.
/// 2. [`Self::Phase`] with [`Phase::SetUp`] and without a run, once.
/// 3. [`Self::Ready`], once.
/// 4. For each run of the job, in order: [`Self::Phase`] with [`Phase::Attach`],
///    [`Phase::Workload`] and [`Phase::TearDown`], each at most once, in this order, with the run's
///    id. Then [`Self::RunEnded`] with the same id, once. Only `RunEnded` follows `TearDown` within
///    a run. One of several nodes sends [`Self::Barrier`] between these messages, or before the
///    first of a run. A shell has [`Phase::Shell`] in place of runs, once, without a run.
/// 5. [`Self::Done`], when every run has ended. Or [`Self::Unsound`] between two runs or after the
///    last one, with the id of the run that ended last. That run had a tool or a probe
///    configuration other than the baseline.
///
/// Any phase of a run can be missing. A baseline attaches nothing, and a refused run has no
/// workload. A run can fail before its first phase. A run has no phase if its tool was refused in
/// an earlier run ([`Refusal::run`]).
///
/// [`Self::Log`], [`Self::Symbols`] and [`Self::Source`] can come at any time after `Hello`.
/// [`Self::Failed`] can come at any time, too, even in place of all other messages. Nothing follows
/// `Done`, `Unsound` or `Failed`. [`Phase::Boot`] is never announced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum GuestMessage {
    /// The first message of every guest.
    Hello {
        /// Version of the agent's package.
        agent: String,
    },
    /// A phase begins; the host's deadline for it starts now.
    Phase {
        /// The phase.
        phase: Phase,
        /// The id of the run that the phase belongs to, if any.
        run: Option<String>,
    },
    /// The file system is mounted and the guest can work.
    Ready(Box<GuestFacts>),
    /// A run has ended, whether it was measured or not.
    RunEnded {
        /// [`crate::job::RunSpec::id`].
        run: String,
        /// The outcome of the run.
        outcome: Box<RunOutcome>,
    },
    /// One of several nodes waits at a barrier of a run for the host ([`crate::job_nodes`]).
    Barrier {
        /// [`crate::job::RunSpec::id`].
        run: String,
        /// The number of the barrier in the run, from 1.
        number: u32,
    },
    /// The guest differs from its state before `run`, so later measurements could not be trusted. A
    /// mount is missing, or a program, probe, process or cgroup is left. The guest powers off after
    /// this.
    Unsound {
        /// [`crate::job::RunSpec::id`] of the run that ended last.
        run: String,
        /// A sentence for each difference, bounded in number and length.
        differences: Vec<String>,
    },
    /// The kernel's functions with their addresses. The host uses them to attribute the
    /// instructions that it counts.
    Symbols(Box<Symbols>),
    /// The source lines of a BPF program, from which the host computes how often each ran.
    Source(Box<ProgramSource>),
    /// A line for the log.
    Log {
        /// The text.
        text: String,
    },
    /// The guest itself cannot continue and powers off after this.
    Failed {
        /// The step that failed, its object, and the error.
        message: String,
    },
    /// All runs are done. The guest powers off after this.
    Done,
}

/// Messages from the host to a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HostMessage {
    /// Stop all programs and power off.
    PowerOff,
    /// The answer to [`GuestMessage::Barrier`].
    Barrier {
        /// Whether all nodes are at the barrier. If not, a node has ended the run without this
        /// barrier, and the run is lost.
        all_there: bool,
    },
}

names! {
    /// Phases of a guest. Each has its own deadline.
    pub enum Phase: "phase" {
        /// Power-on to the agent's first message.
        Boot = "boot",
        /// Modules, NFS server and mount.
        SetUp = "set-up",
        /// Loading and attaching the tracer.
        Attach = "attach",
        /// The workload.
        Workload = "workload",
        /// Last readings, detaching and removal of files.
        TearDown = "tear-down",
        /// An interactive shell.
        Shell = "shell",
    }
}

/// Facts about a guest, sent when it is ready.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GuestFacts {
    /// `uname -r`.
    pub kernel_release: String,
    /// `uname -v`.
    pub kernel_version: String,
    /// `uname -m`.
    pub machine: String,
    /// `/proc/cmdline`.
    pub kernel_command_line: String,
    /// Number of CPUs online.
    pub cpus: u32,
    /// `MemTotal` of `/proc/meminfo`, in KiB.
    pub memory_kib: u64,
    /// Page size in bytes.
    pub page_size: u64,
    /// Whether `/sys/kernel/btf/vmlinux` exists.
    pub btf: bool,
    /// `/proc/sys/net/core/bpf_jit_enable`; `None` if it cannot be read.
    pub jit: Option<u32>,
    /// `/sys/devices/system/cpu/vulnerabilities/*`.
    pub mitigations: BTreeMap<String, String>,
    /// `/sys/devices/system/clocksource/clocksource0/current_clocksource`.
    pub clocksource: Option<String>,
    /// Whether NFS LOCALIO is in use; `None` if this kernel does not have it.
    pub localio: Option<bool>,
    /// The kernel threads with fixed scheduling; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_threads: Option<FixedThreads>,
    /// Values of the settings in `/proc/sys` that the kernel command line sets, by name; `None` if
    /// a setting cannot be read or does not exist. Older guests report none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, Option<String>>,
    /// `/sys/kernel/security/lsm`, if the kernel command line names Linux security modules and the
    /// kernel shows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_modules: Option<String>,
    /// The file system under test, from `/proc/self/mountinfo`.
    pub mount: MountFacts,
    /// Nanoseconds since boot (`CLOCK_BOOTTIME`) at the end of each set-up step, in order.
    pub steps: Vec<(String, u64)>,
}

/// Kernel threads with fixed scheduling ([`crate::job::Scheduling::Fixed`]) in a ready guest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FixedThreads {
    /// Threads of the NFS server.
    pub nfsd: u32,
    /// Kworkers. Later ones are fixed before the next phase.
    pub kworkers: u32,
    /// Softirq threads (`ksoftirqd`). Older guests did not fix them.
    #[serde(default)]
    pub ksoftirqd: u32,
}

/// One mount, from `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MountFacts {
    /// The mount id.
    pub id: u64,
    /// The device of the superblock.
    pub device: Device,
    /// The mount point.
    pub path: String,
    /// File system type (`nfs4`, `nfs`, `tmpfs`).
    pub file_system: String,
    /// Superblock options, comma-separated.
    pub options: String,
}

impl Default for MountFacts {
    fn default() -> Self {
        Self {
            id: 0,
            device: Device { major: 0, minor: 0 },
            path: String::new(),
            file_system: String::new(),
            options: String::new(),
        }
    }
}

/// The outcome of a run inside the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunOutcome {
    /// The run was measured.
    Measured(Box<RunFigures>),
    /// The tracer does not work on this kernel, so the workload was not run.
    Refused(Refusal),
    /// The run failed for another reason.
    Failed {
        /// The step that failed, its object, and the error.
        message: String,
    },
}

/// The raw figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunFigures {
    /// The attached configuration.
    pub probe: ProbeConfiguration,
    /// The program that did IOR's work; `None` for other workloads.
    pub engine: Option<IorEngine>,
    /// The workload's summary: JSON of IOR or `io-paths`, or the whole standard output of any other
    /// program. It is empty for workloads without a summary.
    pub summary: String,
    /// The kernel's features, if the job asked for a list.
    #[serde(default)]
    pub features: Vec<Feature>,
    /// Id of the workload's cgroup (v2).
    pub cgroup: u64,
    /// The file system that the workload used.
    pub mount: MountFacts,
    /// The mounts in the workload's mount namespace, as its first process sees them. It is empty if
    /// the workload was in the guest's namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespace: Vec<MountFacts>,
    /// The timed phases, in order; empty if the engine cannot be stopped in between (a real IOR).
    pub phases: Vec<WorkloadPhase>,
    /// The process that the workload's run had as a bystander; `None` for a workload without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bystander: Option<Box<BystanderFigures>>,
    /// The whole run: readings before the workload started and after it ended, and its bystander.
    pub whole: Interval,
    /// The attached tracer; `None` for the baseline.
    pub tracer: Option<Attached>,
    /// The tracer's report at its end; `None` for the baseline and a tracer that was killed.
    #[serde(default)]
    pub ended: Option<Ended>,
    /// The kernel's statistics of each program of another tool under test, if requested.
    #[serde(default)]
    pub tool_statistics: Vec<ProgramStatistics>,
    /// The observations of another tool under test, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Box<ToolFigures>>,
    /// Periodic samples, in order.
    pub samples: Vec<Sample>,
    /// The end of a warm-up that is repeated until it is steady; `None` for other runs. All other
    /// figures are those of the last repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUp>,
}

impl RunFigures {
    /// Returns the phases of the workload, then those of its bystander.
    pub fn all_phases(&self) -> impl Iterator<Item = &WorkloadPhase> {
        self.phases.iter().chain(self.bystander.iter().flat_map(|bystander| &bystander.phases))
    }

    /// Returns the duration of each phase in nanoseconds of the guest's clock. For a workload
    /// without phases, it is the duration of the run.
    #[must_use]
    pub fn durations_ns(&self) -> Vec<u64> {
        let duration = |interval: &Interval| interval.after.monotonic_ns.saturating_sub(interval.before.monotonic_ns);
        match self.phases.as_slice() {
            [] => vec![duration(&self.whole)],
            phases => phases.iter().map(|phase| duration(&phase.interval)).collect(),
        }
    }
}

/// The raw figures of a bystander ([`crate::job::Bystander`]).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BystanderFigures {
    /// Id of its cgroup (v2).
    pub cgroup: u64,
    /// The mounts in its mount namespace, as it sees them. Its tmpfs is the last one.
    pub namespace: Vec<MountFacts>,
    /// Its timed phases, in order: `bystander-write`, `bystander-read`.
    pub phases: Vec<WorkloadPhase>,
}

/// A warm-up that was repeated until it was steady ([`crate::job::UntilSteady`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WarmUp {
    /// Whether it was steady at its end. If not, the limit of repeats was reached.
    pub is_steady: bool,
    /// The duration of each phase of each repeat in nanoseconds of the guest's clock. For a
    /// workload without phases, it is the duration of the repeat.
    pub durations_ns: Vec<Vec<u64>>,
}

/// Largest number of threads of a workload that are recorded.
pub const MAX_TASKS: usize = 256;

/// The start of the name of each phase of a bystander.
pub const BYSTANDER_PREFIX: &str = "bystander-";

/// One timed phase of the workload, between two barriers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "schema"), derive(Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkloadPhase {
    /// IOR's name of the phase: `write`, `read`, `writecheck`, `readcheck`. The name of a
    /// bystander's phase begins with [`BYSTANDER_PREFIX`].
    pub name: String,
    /// Index of the test in the script, from 0.
    pub test: u32,
    /// Repetition within the test, from 0.
    pub repetition: u32,
    /// The results of the workload's system calls in this phase, by operation, summed over ranks.
    pub moved: BTreeMap<Operation, Totals>,
    /// The workload's count of the events of program sets, if it counts them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub events: BTreeMap<ProgramEvent, Totals>,
    /// The mount that the phase used, if that is not the file system under test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<MountFacts>,
    /// The workload's threads at the beginning of the phase; `None` if they were not recorded. They
    /// are recorded for a reference tracer that counts by thread, up to [`MAX_TASKS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<Task>>,
    /// The number of the counting window of the host's plugin for this phase, from 1 in every boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Times of the phase's calls; `None` if the workload did not measure them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallTimes>,
    /// Activity of the kernel in this phase; `None` in records of versions that did not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<PhaseActivity>,
    /// Readings at the barriers before and after the phase.
    #[serde(flatten)]
    pub interval: Interval,
}

/// Activity of the whole kernel between the barriers of a phase, to diagnose the measurement. The
/// counters are read outside the interval. `None` means that the kernel does not count something.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseActivity {
    /// RPCs that the NFS client sent for the mount, by procedure, without zeros (`per-op
    /// statistics` of `/proc/self/mountstats`).
    pub rpcs: Option<BTreeMap<String, u64>>,
    /// Page allocations (`pgalloc_*` of `/proc/vmstat`).
    pub page_allocations: Option<u64>,
    /// Context switches (`ctxt` of `/proc/stat`).
    pub context_switches: Option<u64>,
    /// Softirqs (`softirq` of `/proc/stat`).
    pub softirqs: Option<u64>,
}

/// Readings at two instants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interval {
    /// The first reading.
    pub before: Reading,
    /// The second reading.
    pub after: Reading,
}

/// Readings at a barrier, while the workload is stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reading {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// Idle time of all CPUs together since boot in nanoseconds, read next to the clock; `None` if
    /// the kernel does not report it.
    #[serde(default)]
    pub idle_ns: Option<u64>,
    /// The tracer's counters; `None` for the baseline.
    pub tracer: Option<Sample>,
    /// Byte counters of `/proc/self/mountstats`; `None` if the mount has none (tmpfs).
    pub mountstats: Option<MountStats>,
}

/// The `bytes:` line of an NFS mount in `/proc/self/mountstats` (fs/nfs/iostat.h).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MountStats {
    /// Bytes that applications read through the page cache.
    pub normal_read: u64,
    /// Bytes that applications wrote through the page cache.
    pub normal_written: u64,
    /// Bytes that applications read with O_DIRECT.
    pub direct_read: u64,
    /// Bytes that applications wrote with O_DIRECT.
    pub direct_written: u64,
    /// Bytes that the client read from the server.
    pub server_read: u64,
    /// Bytes that the client wrote to the server.
    pub server_written: u64,
}
