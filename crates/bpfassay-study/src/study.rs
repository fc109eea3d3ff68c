//! A study as it was read and checked.

use std::{fmt, str::FromStr, time::Duration};

use bpfassay_protocol::{
    ProbeConfiguration, UnknownName,
    job::{FileSystem, Microbenchmark},
    message::Phase,
    tool::Tool,
};
use bpfassay_tool::UnderTest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Certainty, CommandSpec, Expectation, FeatureExpectations, Gate, Share, Target};

/// How much longer the deadline of a phase is than that of a tool or program in it, so that the guest can tell what was not done.
const SPARE_MS: u64 = 30_000;

/// A study: checked, with its IOR scripts read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Study {
    /// Version of the file format.
    pub schema: u32,
    /// Short name.
    pub name: String,
    /// What the study is for.
    pub description: String,
    /// The targets, each once, in the order of the file.
    pub targets: Vec<Target>,
    /// The probe configurations, each once, in the order of the file.
    pub probes: Vec<ProbeConfiguration>,
    /// Other tools under test, each in runs of its own beside those of the probe configurations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Other tools under test, by their tool files: in runs of their own as well, and once in every boot beside the bundled
    /// tracer, which is their reference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_files: Vec<UnderTest>,
    /// The file systems under test, each once, in the order of the file.
    pub file_systems: Vec<FileSystem>,
    /// The workloads.
    pub workloads: Vec<WorkloadSpec>,
    /// Further options of the bundled tracer, one word each, for every probe configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tracer_arguments: Vec<String>,
    /// The design of the experiment.
    pub design: Design,
    /// The clock that time is measured with.
    pub clock: Clock,
    /// Whether the study leaves the clock to the host: `instructions`, and in its place `wall` where KVM works for all of its
    /// architectures.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clock_of_host: bool,
    /// The size of each guest.
    pub guest: GuestSize,
    /// How long each phase of a guest may take.
    pub deadlines: Deadlines,
    /// Outcomes of attaching that are known beforehand: those of the study file first, then the ones compiled in. The
    /// first that fits counts.
    pub expectations: Vec<Expectation>,
    /// What is demanded of the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
    /// What is expected of the kernels' features, where the study asks for them: as above, the study's own first.
    #[serde(default, skip_serializing_if = "FeatureExpectations::is_empty")]
    pub features: FeatureExpectations,
}

impl Study {
    /// Puts one more tool under test, and gives guests the time that it may take until it is ready.
    ///
    /// # Errors
    /// What already has its name.
    pub fn test_tool(&mut self, tool: UnderTest) -> Result<(), String> {
        let name = &tool.file.name;
        if self.probes.iter().any(|probe| probe.to_string() == *name) {
            return Err(format!("the study has a probe configuration named `{name}`: give the tool another name"));
        }
        let others = self.tools.iter().map(|tool| &tool.name).chain(self.tool_files.iter().map(|tool| &tool.file.name));
        if others.into_iter().any(|other| other == name) {
            return Err(format!("two tools are named `{name}`: give one of them another name"));
        }
        let patience = tool.file.deadline_ms.saturating_add(SPARE_MS);
        self.deadlines.attach_ms = self.deadlines.attach_ms.max(patience);
        let stopping = tool.file.stop.grace_ms.saturating_add(SPARE_MS);
        self.deadlines.tear_down_ms = self.deadlines.tear_down_ms.max(stopping);
        self.tool_files.push(tool);
        Ok(())
    }

    /// The program that the workload `name` is, if it is one.
    #[must_use]
    pub fn command(&self, name: &str) -> Option<&CommandSpec> {
        let workload = self.workloads.iter().find(|workload| workload.name == name)?;
        match &workload.kind {
            WorkloadKind::Command(command) => Some(command),
            _ => None,
        }
    }

    /// SHA-256, in hexadecimal, of the study as read: comments and layout of the file do not matter, the contents of
    /// IOR scripts do.
    #[must_use]
    pub fn digest(&self) -> String {
        digest(self)
    }
}

/// SHA-256 in hexadecimal of the JSON form of `value`.
pub(crate) fn digest<T: Serialize>(value: &T) -> String {
    // These types have string keys only and no failing `Serialize`, so the JSON form always exists; should that ever
    // change, the error text takes its place and all digests are equal, which a test notices.
    let json = serde_json::to_vec(value).unwrap_or_else(|error| error.to_string().into_bytes());
    Sha256::digest(&json).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One workload of a study.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadSpec {
    /// Name, unique in the study; part of identifiers.
    pub name: String,
    /// What it is.
    #[serde(flatten)]
    pub kind: WorkloadKind,
}

/// What a workload is (key `type`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum WorkloadKind {
    /// IOR.
    Ior(IorSpec),
    /// A known number of bytes by each way that data can take between a program and a file.
    IoPaths {
        /// Bytes per path.
        size: u64,
    },
    /// What the kernel offers to eBPF tools.
    KernelFeatures,
    /// A fixed number of operations without files.
    Microbenchmark {
        /// Which.
        microbenchmark: Microbenchmark,
        /// How many.
        operations: u64,
        /// Bytes of each; 0 where it has none.
        size: u32,
    },
    /// Any program, fio among them.
    Command(CommandSpec),
}

impl WorkloadKind {
    /// The names of study files.
    pub const NAMES: &'static [&'static str] =
        &["ior", "fio", "command", "io-paths", "kernel-features", "futex", "tcp", "shared-memory"];
}

/// An IOR script or inline options, and how to run it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IorSpec {
    /// File name of the script, if it came from one.
    pub script: Option<String>,
    /// The tests, in order.
    pub tests: Vec<IorTest>,
    /// MPI ranks.
    pub ranks: u32,
    /// Which program does the work.
    pub engine: EngineChoice,
    /// Only tests with these interfaces are run; empty: all.
    pub interfaces: Vec<Interface>,
    /// Whether another process, in a cgroup of its own, reads and writes on the same mount meanwhile.
    #[serde(default)]
    pub neighbour: bool,
}

/// One IOR test: what stands between two `RUN` lines of a script, with everything inherited written out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IorTest {
    /// Options, one word each, without program name, `-o` and `-O summary…`.
    pub options: Vec<String>,
    /// The interface it uses.
    pub interface: Interface,
    /// Transfer size in bytes.
    pub transfer_size: u64,
}

/// Which program does IOR's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EngineChoice {
    /// The real IOR where the user gave one for the architecture and it has the interface, else the embedded engine.
    Auto,
    /// The embedded engine.
    Embedded,
    /// The real IOR; left out where there is none.
    External,
}

impl EngineChoice {
    /// The names of study files.
    pub const NAMES: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("embedded", Self::Embedded), ("external", Self::External)];
}

/// An IOR interface (`-a`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Interface {
    /// `read` and `write` system calls.
    #[serde(rename = "POSIX")]
    Posix,
    /// Memory-mapped files.
    #[serde(rename = "MMAP")]
    Mmap,
    /// MPI-IO (ROMIO).
    #[serde(rename = "MPIIO")]
    Mpiio,
}

impl Interface {
    /// Every interface.
    pub const ALL: &'static [Self] = &[Self::Posix, Self::Mmap, Self::Mpiio];

    /// IOR's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Posix => "POSIX",
            Self::Mmap => "MMAP",
            Self::Mpiio => "MPIIO",
        }
    }

    /// Whether the embedded engine has it.
    #[must_use]
    pub const fn is_embedded(self) -> bool {
        !matches!(self, Self::Mpiio)
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Interface {
    type Err = UnknownName;

    /// Takes any case, as IOR does.
    fn from_str(word: &str) -> Result<Self, UnknownName> {
        Self::ALL.iter().copied().find(|interface| interface.name().eq_ignore_ascii_case(word)).ok_or_else(|| {
            UnknownName {
                kind: "IOR interface",
                word: word.chars().take(64).collect(),
                known: Self::ALL.iter().map(|interface| interface.name()).collect::<Vec<_>>().join(", "),
            }
        })
    }
}

/// The design of the experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Design {
    /// Boots per target, workload and file system.
    pub replicates: u32,
    /// How often a boot goes through all probe configurations.
    pub rounds: u32,
    /// Runs before the first round of a boot, of the baseline where there is one, that are recorded and go into no figure: what
    /// comes first in a guest finds its caches empty.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warm_up: u32,
    /// Sequential sampling: boots go on until the intervals of all overheads are this narrow, `replicates` at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Share>,
    /// Seed of the order of runs.
    pub seed: u64,
    /// Whether each round has a second baseline run (A/A control).
    pub control: bool,
    /// How often the tracer samples by itself, in milliseconds; `None`: only at barriers.
    pub sampling_interval_ms: Option<u64>,
    /// Whether each boot ends with one more run of each probe configuration for the kernel's own statistics of its
    /// programs, which cost two readings of the clock per event: such runs are compared with no others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bpf_stats: bool,
    /// How sure verdicts are to be.
    #[serde(default)]
    pub certainty: Certainty,
    /// Overheads shown to lie within this, either way, are told to be negligible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<Share>,
}

/// Whether `number` need not be written: studies from before it was there have the same digest.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Design {
    /// The fewest boots that sequential sampling can end with (`Sampling::FEWEST` of bpfassay-stats).
    pub const FEWEST_UNTIL: u32 = 3;
    /// The most boots where `--until` is given, and neither it nor the study allows [`Self::FEWEST_UNTIL`].
    pub const MOST_UNTIL: u32 = 20;
}

/// The clock that time is measured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// Ordinary time.
    Wall,
    /// The guest's own instructions, 1 ns each: the same on every machine, only under TCG. Counts instructions, not
    /// cycles: cache misses and traps are not priced.
    Instructions,
}

impl Clock {
    /// The names of study files.
    pub const NAMES: &'static [(&'static str, Self)] = &[("wall", Self::Wall), ("instructions", Self::Instructions)];

    /// The name of study files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Instructions => "instructions",
        }
    }
}

impl FromStr for Clock {
    type Err = UnknownName;

    fn from_str(word: &str) -> Result<Self, UnknownName> {
        Self::NAMES.iter().find(|(name, _)| *name == word).map(|(_, clock)| *clock).ok_or_else(|| UnknownName {
            kind: "clock",
            word: word.chars().take(64).collect(),
            known: Self::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        })
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The size of each guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestSize {
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Words added to the kernel command line (`mitigations=off`).
    pub kernel_parameters: Vec<String>,
    /// Which addresses vary with the replicate.
    #[serde(default)]
    pub addresses: Addresses,
}

/// Which addresses vary with the replicate, so that a figure is not the accident of one layout. Under the instruction clock
/// they follow from the replicate's seed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Addresses {
    /// None.
    Fixed,
    /// Those of processes, from run to run, and the offset of the kernel's stack, from system call to system call.
    #[default]
    Processes,
    /// Those of the kernel, too (KASLR). x86_64 guests boot past the code that would move the kernel: theirs stays.
    All,
}

impl Addresses {
    /// The names of study files.
    pub const NAMES: &'static [(&'static str, Self)] =
        &[("fixed", Self::Fixed), ("processes", Self::Processes), ("all", Self::All)];
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fixed => "fixed",
            Self::Processes => "processes",
            Self::All => "all",
        })
    }
}

/// How long each phase of a guest may take, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deadlines {
    /// From power-on to the agent's first message.
    pub boot_ms: u64,
    /// Modules, NFS server, mount.
    pub set_up_ms: u64,
    /// Loading and attaching the tracer.
    pub attach_ms: u64,
    /// The workload, per run.
    pub workload_ms: u64,
    /// Last readings, detaching, removing files.
    pub tear_down_ms: u64,
}

impl Deadlines {
    /// Gives guests the time to tell of programs that pass their own deadlines.
    pub(crate) fn allow_for(&mut self, workloads: &[WorkloadSpec]) {
        for workload in workloads {
            if let WorkloadKind::Command(command) = &workload.kind {
                self.workload_ms = self.workload_ms.max(command.deadline_ms.saturating_add(SPARE_MS));
            }
        }
    }

    /// The deadline of `phase`; `None` for an interactive shell, which has none.
    #[must_use]
    pub const fn of(&self, phase: Phase) -> Option<Duration> {
        Some(Duration::from_millis(match phase {
            Phase::Boot => self.boot_ms,
            Phase::SetUp => self.set_up_ms,
            Phase::Attach => self.attach_ms,
            Phase::Workload => self.workload_ms,
            Phase::TearDown => self.tear_down_ms,
            Phase::Shell => return None,
        }))
    }
}

impl Default for Deadlines {
    /// Generous for TCG on a loaded machine: a deadline ends a hang, it does not judge speed.
    fn default() -> Self {
        Self { boot_ms: 60_000, set_up_ms: 60_000, attach_ms: 60_000, workload_ms: 300_000, tear_down_ms: 60_000 }
    }
}
