// SPDX-License-Identifier: MIT OR Apache-2.0
//! A study as it was read and checked.

use std::{fmt, time::Duration};

use bpfassay_protocol::{
    Arch, ProbeConfiguration,
    job::{ExtraMount, FileSystem, Scheduling, UntilSteady},
    message::Phase,
    tool::Tool,
};
use bpfassay_tool::UnderTest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Certainty, Clock, ExpandError, Expectation, FeatureExpectations, Gate, Model, Share, Target, WorkloadSpec,
    digest::digest_and_length, target::check_kernel_name,
};

/// How much longer the deadline of a phase is than that of a tool or program in it, so that the
/// guest can report what was not done.
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
    /// Other tools under test, by their tool files: in runs of their own as well, and once in every
    /// boot beside the bundled tracer, which is their reference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_files: Vec<UnderTest>,
    /// The file systems under test, each once, in the order of the file.
    pub file_systems: Vec<FileSystem>,
    /// More mounts in each guest, in the order in which they are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<ExtraMount>,
    /// The workloads.
    pub workloads: Vec<WorkloadSpec>,
    /// Further options of the bundled tracer, one argument each, for every probe configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tracer_arguments: Vec<String>,
    /// The design of the experiment.
    pub design: Design,
    /// The clock that time is measured with.
    pub clock: Clock,
    /// Whether the study leaves the clock to the host: `instructions`, and in its place `wall`
    /// where KVM works for all of its architectures.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clock_of_host: bool,
    /// The model of caches and branches by which direct costs are priced besides, under the
    /// instruction clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
    /// What stands beside tools as their reference tracer, where that was found out on the machine
    /// that is measured; `None`: what the kernel is not known to refuse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<ProbeConfiguration>,
    /// The size of each guest.
    pub guest: GuestSize,
    /// How long each phase of a guest may take.
    pub deadlines: Deadlines,
    /// Outcomes of attaching that are known beforehand: those of the study file first, then the
    /// ones compiled in. The first that fits counts.
    pub expectations: Vec<Expectation>,
    /// The limits for the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
    /// What is expected of the kernels' features, where the study asks for them: as above, the
    /// study's own first.
    #[serde(default, skip_serializing_if = "FeatureExpectations::is_empty")]
    pub features: FeatureExpectations,
}

impl Study {
    /// Adds a tool under test, and gives guests the time that it may take until it is ready.
    ///
    /// # Errors
    /// A message where the study has a probe configuration or a tool of that name already.
    pub fn test_tool(&mut self, tool: UnderTest) -> Result<(), String> {
        let name = &tool.file.name;
        if self.probes.iter().any(|probe| probe.to_string() == *name) {
            return Err(format!("the study has a probe configuration named `{name}`: give the tool another name"));
        }
        if self.tool_names().any(|other| other == name) {
            return Err(format!("two tools are named `{name}`: give one of them another name"));
        }
        let patience = tool.file.deadline_ms.saturating_add(SPARE_MS);
        self.deadlines.attach_ms = self.deadlines.attach_ms.max(patience);
        let stopping = tool.file.stop.grace_ms.saturating_add(SPARE_MS);
        self.deadlines.tear_down_ms = self.deadlines.tear_down_ms.max(stopping);
        self.tool_files.push(tool);
        Ok(())
    }

    /// The names of the study's tools, and of those under test.
    pub(crate) fn tool_names(&self) -> impl Iterator<Item = &str> {
        let own = self.tools.iter().map(|tool| &tool.name);
        own.chain(self.tool_files.iter().map(|tool| &tool.file.name)).map(String::as_str)
    }

    /// The workload that a cell's case is of: one of several tests gives its cases names that go on
    /// after its own.
    #[must_use]
    pub fn workload(&self, case: &str) -> Option<&WorkloadSpec> {
        let is_of = |workload: &&WorkloadSpec| {
            case.strip_prefix(&workload.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        self.workloads.iter().filter(is_of).max_by_key(|workload| workload.name.len())
    }

    /// Puts in place of each pattern among the targets the builds that it stands for, of those that
    /// `builds` returns for an architecture, in their order.
    ///
    /// # Errors
    /// What `builds` returns; [`ExpandError::NoBuild`] where a pattern stands for none.
    pub fn resolve_patterns<E: From<ExpandError>>(
        &mut self,
        builds: impl Fn(Arch) -> Result<Vec<String>, E>,
    ) -> Result<(), E> {
        let mut targets: Vec<Target> = Vec::new();
        for target in &self.targets {
            let mut found = match target.is_pattern() {
                false => vec![target.clone()],
                true => builds(target.arch)?
                    .into_iter()
                    .filter(|name| target.stands_for(name))
                    .map(|kernel| Target { arch: target.arch, kernel })
                    .collect(),
            };
            if found.is_empty() {
                return Err(ExpandError::NoBuild { pattern: target.to_string() }.into());
            }
            // A testbed manifest, which is untrusted, names its kernels.
            let wrong = found.iter().find_map(|found| check_kernel_name(&found.kernel).err());
            if let Some(problem) = wrong.filter(|_| target.is_pattern()) {
                return Err(ExpandError::KernelName { pattern: target.to_string(), problem }.into());
            }
            // A build may be named and be one of a series, too.
            found.retain(|target| !targets.contains(target));
            targets.append(&mut found);
        }
        self.targets = targets;
        Ok(())
    }

    /// Adds targets for those of `kernels` that this study has not, on each of its architectures,
    /// or of `archs` where there are any, for which `is_known` knows them. What nobody knows is not
    /// added, and is refused where the study is narrowed to it.
    pub fn add_kernels(&mut self, kernels: &[String], archs: &[Arch], is_known: impl Fn(Arch, &str) -> bool) {
        let mut own: Vec<Arch> = Vec::new();
        for target in &self.targets {
            if !own.contains(&target.arch) && (archs.is_empty() || archs.contains(&target.arch)) {
                own.push(target.arch);
            }
        }
        for kernel in kernels {
            if check_kernel_name(kernel).is_err() || self.targets.iter().any(|target| target.kernel == *kernel) {
                continue;
            }
            let known = own.iter().filter(|&&arch| is_known(arch, kernel));
            let added: Vec<_> = known.map(|&arch| Target { arch, kernel: kernel.clone() }).collect();
            self.targets.extend(added);
        }
    }

    /// Prices direct costs by `model`. A study that leaves its clock to the host is under the
    /// instruction clock then.
    ///
    /// # Errors
    /// [`ExpandError::NothingToPrice`] where no instructions are counted: under the wall clock, or where tools are only loaded.
    pub fn use_model(&mut self, model: Model) -> Result<(), ExpandError> {
        if self.clock_of_host {
            (self.clock, self.clock_of_host) = (Clock::Instructions, false);
        }
        if !self.counts_instructions() {
            return Err(ExpandError::NothingToPrice { study: self.name.clone(), model: model.name });
        }
        self.model = Some(model);
        Ok(())
    }

    /// How threads of the guest's kernel are scheduled, and when phases begin: as the study asks
    /// for it, else `fixed` under the instruction clock, for which waiting for the beginning of a
    /// phase costs hardly anything, and `kernel` under the wall clock.
    #[must_use]
    pub fn scheduling(&self) -> Scheduling {
        self.guest.scheduling.unwrap_or(match self.clock {
            Clock::Instructions => Scheduling::Fixed,
            Clock::Wall => Scheduling::Kernel,
        })
    }

    /// Within what an overhead is negligible: as the study has it, else 0.02 % under the
    /// instruction clock, which overheads over a few boots can show, and nothing under the wall
    /// clock.
    #[must_use]
    pub fn margin(&self) -> Option<Share> {
        self.design.margin.or(match self.clock {
            Clock::Instructions => Some(Share::from_ppm(200)),
            Clock::Wall => None,
        })
    }

    /// SHA-256, in hexadecimal, of the study as read: comments and layout of the file do not
    /// matter, the contents of IOR scripts do.
    #[must_use]
    pub fn digest(&self) -> String {
        digest_and_length(self).0
    }
}

/// The design of the experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Design {
    /// Boots per target, workload and file system.
    pub replicates: u32,
    /// How often a boot goes through all probe configurations.
    pub rounds: u32,
    /// Runs before the first round of a boot that are recorded and go into no figure: what comes
    /// first in a guest finds its caches empty.
    #[serde(default, skip_serializing_if = "WarmUp::is_none")]
    pub warm_up: WarmUp,
    /// Sequential sampling: boots are added until the intervals of all overheads are this narrow,
    /// `replicates` at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Share>,
    /// Seed of the order of runs.
    pub seed: u64,
    /// Whether each round has a second baseline run (A/A control).
    pub control: bool,
    /// How often the tracer samples by itself, in milliseconds; `None`: only at barriers.
    pub sampling_interval_ms: Option<u64>,
    /// Whether each boot ends with one more run of each probe configuration for the kernel's own
    /// statistics of its programs, which cost two readings of the clock per event: such runs are
    /// compared with no others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bpf_stats: bool,
    /// The error rate of verdicts.
    #[serde(default)]
    pub certainty: Certainty,
    /// Overheads shown to lie within this, either way, are reported as negligible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<Share>,
}

impl Design {
    /// The most rounds of a boot.
    pub const MOST_ROUNDS: u32 = 1000;
}

/// How a boot warms up before its first round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum WarmUp {
    /// By so many runs of the baseline.
    Runs(u32),
    /// By a rule.
    Rule(WarmUpRule),
}

/// What a boot warms up with, other than a number of baseline runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WarmUpRule {
    /// One run of the baseline that is repeated by [`WarmUp::STEADY`].
    Steady,
    /// One run of each probe configuration, the baseline first.
    Probes,
}

impl WarmUpRule {
    /// The names of study files.
    pub const NAMES: &'static [(&'static str, Self)] = &[("steady", Self::Steady), ("probes", Self::Probes)];
}

impl Default for WarmUp {
    fn default() -> Self {
        Self::Runs(0)
    }
}

impl WarmUp {
    /// The rule `steady`: without the first run of a boot, the last two repeats agree within 0.1 %
    /// in every phase; ten at most.
    pub const STEADY: UntilSteady = UntilSteady { skipped: 1, agreeing: 2, margin_ppm: 1000, most: 10 };

    /// Whether it need not be written: studies from before it was there have the same digest.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    const fn is_none(&self) -> bool {
        matches!(self, Self::Runs(0))
    }

    /// How many runs a boot has for it, with so many `probes`.
    #[must_use]
    pub fn runs(self, probes: usize) -> usize {
        match self {
            Self::Runs(runs) => runs as usize,
            Self::Rule(WarmUpRule::Steady) => 1,
            Self::Rule(WarmUpRule::Probes) => probes,
        }
    }

    /// The rule, where there is one.
    pub(crate) const fn until_steady(self) -> Option<UntilSteady> {
        match self {
            Self::Runs(_) | Self::Rule(WarmUpRule::Probes) => None,
            Self::Rule(WarmUpRule::Steady) => Some(Self::STEADY),
        }
    }
}

impl Design {
    /// The fewest boots that sequential sampling can end with (`Sampling::FEWEST` of
    /// bpfassay-stats).
    pub const FEWEST_UNTIL: u32 = 3;
    /// The most boots where `--until` is given, and neither it nor the study allows
    /// [`Self::FEWEST_UNTIL`].
    pub const MOST_UNTIL: u32 = 20;
}

/// The size of each guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestSize {
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Parameters added to the kernel command line (`mitigations=off`).
    pub kernel_parameters: Vec<String>,
    /// Which addresses vary with the replicate.
    #[serde(default)]
    pub addresses: Addresses,
    /// How threads of the kernel are scheduled, and when phases begin. Plans have it; `None` in a
    /// study that leaves it to the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
    /// Guests that run the workload together, on the export of one more, the server; 1: a guest
    /// with a server of its own.
    #[serde(default = "GuestSize::alone", skip_serializing_if = "GuestSize::is_alone")]
    pub nodes: u32,
}

impl GuestSize {
    const fn alone() -> u32 {
        1
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    const fn is_alone(nodes: &u32) -> bool {
        *nodes == 1
    }

    /// Guests of one boot: with several nodes, one more is the server.
    #[must_use]
    pub const fn guests(&self) -> u32 {
        if self.nodes == 1 { 1 } else { self.nodes + 1 }
    }
}

/// Which addresses vary with the replicate, so that no figure depends on a single layout. Under the
/// instruction clock they follow from the replicate's seed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Addresses {
    /// None.
    Fixed,
    /// Those of processes, from run to run, and the offset of the kernel's stack, from system call
    /// to system call.
    #[default]
    Processes,
    /// Those of the kernel, too (KASLR). x86_64 guests boot past the code that would move the
    /// kernel: theirs stays.
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
    /// Gives guests the time to report programs that exceed their own deadlines.
    pub(crate) fn allow_for(&mut self, workloads: &[WorkloadSpec]) {
        for deadline_ms in workloads.iter().filter_map(WorkloadSpec::deadline_ms) {
            self.workload_ms = self.workload_ms.max(deadline_ms.saturating_add(SPARE_MS));
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
    /// Generous for TCG on a loaded machine: a deadline ends a hang, it does not limit slow hosts.
    fn default() -> Self {
        Self { boot_ms: 60_000, set_up_ms: 60_000, attach_ms: 60_000, workload_ms: 300_000, tear_down_ms: 60_000 }
    }
}
