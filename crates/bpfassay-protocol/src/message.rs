// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages from guest to host and back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Operation, ProbeConfiguration,
    calls::CallTimes,
    feature::Feature,
    job::IorEngine,
    names,
    operation::Totals,
    program_set::ProgramEvent,
    source::ProgramSource,
    symbols::Symbols,
    tool::ToolFigures,
    tracer::{Attached, Device, Ended, ProgramStatistics, Refusal, Sample, Task},
};

/// What a guest sends to the host. The messages come in this order; a host may end a guest that sends them in another:
///
/// 1. [`Self::Hello`], once.
/// 2. [`Self::Phase`] with [`Phase::SetUp`], once, without a run.
/// 3. [`Self::Ready`], once.
/// 4. For each run, in the order of the job: [`Self::Phase`] with [`Phase::Attach`], [`Phase::Workload`] and [`Phase::TearDown`], each at
///    most once, in this order, and with the run's id; then [`Self::RunEnded`] with the same id, once. Any of the phases may be missing:
///    a baseline attaches nothing, a refused run has no workload, a run may fail before its first phase, and one whose tool was refused in an
///    earlier run ([`Refusal::run`]) has none. Only `RunEnded` follows
///    `TearDown` within a run. One of several nodes sends [`Self::Barrier`] between these messages, or before the first of a run. For a shell there is [`Phase::Shell`] in place of runs, once, without a run.
/// 5. [`Self::Done`], when every run has ended; or [`Self::Unsound`] between two runs or after the last, with the id of the run that
///    ended last, which had a probe configuration other than the baseline, or a tool.
///
/// [`Self::Log`], [`Self::Symbols`] and [`Self::Source`] may come at any time after `Hello`, and [`Self::Failed`] too, also in place of all other messages. Nothing follows
/// `Done`, `Unsound` and `Failed`. [`Phase::Boot`] is never announced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum GuestMessage {
    /// First message of every guest.
    Hello {
        /// Version of the agent's package.
        agent: String,
    },
    /// A phase begins; the host's deadline for it starts now.
    Phase {
        /// The phase.
        phase: Phase,
        /// The run it belongs to, if one.
        run: Option<String>,
    },
    /// The file system is mounted and the guest can work.
    Ready(Box<GuestFacts>),
    /// A run has ended, measured or not.
    RunEnded {
        /// [`crate::job::RunSpec::id`].
        run: String,
        /// Its outcome.
        outcome: Box<RunOutcome>,
    },
    /// One of several nodes waits at a barrier of a run until the host answers ([`crate::nodes`]).
    Barrier {
        /// [`crate::job::RunSpec::id`].
        run: String,
        /// Which barrier of the run, from 1.
        number: u32,
    },
    /// After `run` the guest is not as it was before it, so no later measurement could be trusted: a mount is
    /// missing, or a program, probe, process or cgroup is left. The guest powers off after this.
    Unsound {
        /// [`crate::job::RunSpec::id`] of the run that ended last.
        run: String,
        /// What differs, one sentence each, bounded in number and length.
        differences: Vec<String>,
    },
    /// The kernel's functions with their addresses, with which the host names the instructions that it counts.
    Symbols(Box<Symbols>),
    /// The source lines of a BPF program, from which the host determines how often each was executed.
    Source(Box<ProgramSource>),
    /// A line for the log.
    Log {
        /// The text.
        text: String,
    },
    /// The guest itself cannot continue; it powers off after this.
    Failed {
        /// What failed, on what, and the error.
        message: String,
    },
    /// All runs are done; the guest powers off after this.
    Done,
}

/// What the host sends to a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HostMessage {
    /// Stop what is running and power off.
    PowerOff,
    /// The answer to [`GuestMessage::Barrier`].
    Barrier {
        /// Whether all nodes are there; `false`: one of them has ended the run without this barrier, so the run is lost.
        all_there: bool,
    },
}

names! {
    /// Phases of a guest, each with its own deadline.
    pub enum Phase: "phase" {
        /// From power-on to the agent's first message.
        Boot = "boot",
        /// Modules, NFS server, mount.
        SetUp = "set-up",
        /// Loading and attaching the tracer.
        Attach = "attach",
        /// The workload.
        Workload = "workload",
        /// Last readings, detaching, removing files.
        TearDown = "tear-down",
        /// An interactive shell.
        Shell = "shell",
    }
}

/// Facts about a guest, sent once it is ready.
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
    /// CPUs online.
    pub cpus: u32,
    /// `MemTotal` of `/proc/meminfo`, in KiB.
    pub memory_kib: u64,
    /// Size of a page in bytes.
    pub page_size: u64,
    /// Whether `/sys/kernel/btf/vmlinux` exists.
    pub btf: bool,
    /// `/proc/sys/net/core/bpf_jit_enable`; `None` where it cannot be read.
    pub jit: Option<u32>,
    /// `/sys/devices/system/cpu/vulnerabilities/*`.
    pub mitigations: BTreeMap<String, String>,
    /// `/sys/devices/system/clocksource/clocksource0/current_clocksource`.
    pub clocksource: Option<String>,
    /// Whether NFS LOCALIO is in use: `None` where this kernel has none.
    pub localio: Option<bool>,
    /// The threads of the kernel whose scheduling was fixed; `None` where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_threads: Option<FixedThreads>,
    /// Values of the settings in `/proc/sys` that the kernel command line sets, by their names
    /// there; `None` where a setting cannot be read, or does not exist. Guests before these were
    /// read have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, Option<String>>,
    /// `/sys/kernel/security/lsm`, where the kernel command line names Linux security modules, and
    /// the kernel shows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_modules: Option<String>,
    /// The file system under test, from `/proc/self/mountinfo`.
    pub mount: MountFacts,
    /// Nanoseconds since boot (`CLOCK_BOOTTIME`) at which each set-up step ended, in order.
    pub steps: Vec<(String, u64)>,
}

/// Threads of the kernel whose scheduling was fixed ([`crate::job::Scheduling::Fixed`]), when the guest was ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FixedThreads {
    /// Threads of the NFS server.
    pub nfsd: u32,
    /// Kworkers. Those that appear later are fixed before the next phase.
    pub kworkers: u32,
    /// Threads that do what interrupts leave over (`ksoftirqd`). Guests before these were fixed do not have it.
    #[serde(default)]
    pub ksoftirqd: u32,
}

/// One mount, from `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MountFacts {
    /// Mount id.
    pub id: u64,
    /// Device of its superblock.
    pub device: Device,
    /// Where it is mounted.
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
    /// Measured.
    Measured(Box<RunFigures>),
    /// The tracer does not work on this kernel; the workload was not run.
    Refused(Refusal),
    /// Another failure.
    Failed {
        /// What failed, on what, and the error.
        message: String,
    },
}

/// The raw figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunFigures {
    /// Which configuration was attached.
    pub probe: ProbeConfiguration,
    /// Which program did IOR's work; `None` for other workloads.
    pub engine: Option<IorEngine>,
    /// The workload's own summary as it wrote it: JSON of IOR or of the workload `io-paths`, all of the standard output of any
    /// other program; empty for workloads that have none.
    pub summary: String,
    /// The kernel's features, if the run was to list them.
    #[serde(default)]
    pub features: Vec<Feature>,
    /// Id of the cgroup (v2) that the workload ran in.
    pub cgroup: u64,
    /// The file system it ran on.
    pub mount: MountFacts,
    /// The mounts of the workload's own mount namespace, as its first process has them; none where it has the namespace of the guest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespace: Vec<MountFacts>,
    /// The timed phases, in order. Empty where the engine cannot be stopped between phases (a real IOR).
    pub phases: Vec<WorkloadPhase>,
    /// The whole run: readings before the workload started and after it ended.
    pub whole: Interval,
    /// The tracer as it attached; `None` for the baseline.
    pub tracer: Option<Attached>,
    /// What the tracer reported at its end; `None` for the baseline and for one that did not end by itself.
    #[serde(default)]
    pub ended: Option<Ended>,
    /// The kernel's statistics of each program of another tool under test, where they were requested.
    #[serde(default)]
    pub tool_statistics: Vec<ProgramStatistics>,
    /// The observations of another tool under test, where one ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Box<ToolFigures>>,
    /// Periodic samples, in order.
    pub samples: Vec<Sample>,
    /// The end of a warm-up that is repeated until it is steady; the other figures are those of its last repeat. `None` for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUp>,
}

impl RunFigures {
    /// How long each phase took, in nanoseconds of the guest's clock; for a workload without phases, the whole.
    #[must_use]
    pub fn durations_ns(&self) -> Vec<u64> {
        let duration = |interval: &Interval| interval.after.monotonic_ns.saturating_sub(interval.before.monotonic_ns);
        match self.phases.as_slice() {
            [] => vec![duration(&self.whole)],
            phases => phases.iter().map(|phase| duration(&phase.interval)).collect(),
        }
    }
}

/// A warm-up that was repeated until it was steady ([`crate::job::UntilSteady`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WarmUp {
    /// Whether it was steady at its end; `false`: it was repeated as often as it may be.
    pub is_steady: bool,
    /// How long each phase of each repeat took, in nanoseconds of the guest's clock; for a workload without phases, the whole.
    pub durations_ns: Vec<Vec<u64>>,
}

/// Most threads of a workload that are recorded.
pub const MAX_TASKS: usize = 256;

/// One timed phase of the workload, between two barriers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkloadPhase {
    /// IOR's name for it: `write`, `read`, `writecheck`, `readcheck`.
    pub name: String,
    /// Index of the test in the script, from 0.
    pub test: u32,
    /// Repetition within the test, from 0.
    pub repetition: u32,
    /// What the workload moved in this phase: what its own system calls returned, by operation, summed over ranks.
    pub moved: BTreeMap<Operation, Totals>,
    /// The workload's own count of what program sets count, where it counts that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub events: BTreeMap<ProgramEvent, Totals>,
    /// The mount that it worked on, if that is not the file system under test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<MountFacts>,
    /// The threads of the workload when it began; `None`: not recorded, as without a reference
    /// tracer that counts by thread, or of more than [`MAX_TASKS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Vec<Task>>,
    /// The number of the window in which the host may count instructions meanwhile, from 1 in every boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// How long its calls took; `None` where the workload did not time them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<CallTimes>,
    /// What the kernel did meanwhile; `None` in records of versions that did not read that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<PhaseActivity>,
    /// Readings at the barriers before and after.
    #[serde(flatten)]
    pub interval: Interval,
}

/// What the whole kernel did between the barriers of a phase: a diagnosis of the measurement, from counters that are read outside the interval. `None`: the
/// kernel does not count it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PhaseActivity {
    /// RPCs that the NFS client sent for the mount, by procedure (`per-op statistics` of `/proc/self/mountstats`); those that were sent.
    pub rpcs: Option<BTreeMap<String, u64>>,
    /// Pages that were allocated (`pgalloc_*` of `/proc/vmstat`).
    pub page_allocations: Option<u64>,
    /// Context switches (`ctxt` of `/proc/stat`).
    pub context_switches: Option<u64>,
    /// Softirqs that were executed (`softirq` of `/proc/stat`).
    pub softirqs: Option<u64>,
}

/// Readings at two instants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Interval {
    /// At the first.
    pub before: Reading,
    /// At the second.
    pub after: Reading,
}

/// The readings at a barrier, while the workload is stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reading {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// Nanoseconds that the CPUs together were idle since boot, read next to the clock; `None` where the kernel does not report it.
    #[serde(default)]
    pub idle_ns: Option<u64>,
    /// The tracer's counters; `None` for the baseline.
    pub tracer: Option<Sample>,
    /// Byte counters of `/proc/self/mountstats`; `None` where the mount has none (tmpfs).
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
