// SPDX-License-Identifier: MIT OR Apache-2.0
//! A study that was read and checked.

use std::{fmt, time::Duration};

use bpfassay_protocol::{
    Arch, ProbeConfiguration,
    job::{ExtraMount, FileSystem, Scheduling, UntilSteady},
    message::Phase,
    privileges::CapabilitySearch,
    tool_job::Tool,
};
use bpfassay_tool::UnderTest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Clock, ExpandError, Expectation, FeatureExpectations, Gate, Model, Share, Target, VerdictCertainty, WorkloadSpec,
    study_digest::digest_and_length, target::check_kernel_name,
};

/// Extra time of a phase's deadline beyond the deadline of a tool or program in it. The guest uses
/// it to report what was not done.
const SPARE_MS: u64 = 30_000;

/// A checked study with its IOR scripts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Study {
    /// Version of the file format.
    pub schema: u32,
    /// Name of the study.
    pub name: String,
    /// The purpose of the study.
    pub description: String,
    /// The targets, without duplicates, in the order of the file.
    pub targets: Vec<Target>,
    /// The probe configurations, without duplicates, in the order of the file.
    pub probes: Vec<ProbeConfiguration>,
    /// Other tools under test. Each has its own runs, as the probe configurations have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Other tools under test with a tool file. Each has its own runs, and one run per boot
    /// together with the bundled tracer as reference tracer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_files: Vec<UnderTest>,
    /// The file systems under test, without duplicates, in the order of the file.
    pub file_systems: Vec<FileSystem>,
    /// Additional mounts in each guest, in the order of mounting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<ExtraMount>,
    /// The workloads.
    pub workloads: Vec<WorkloadSpec>,
    /// Further arguments of the bundled tracer, for every probe configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tracer_arguments: Vec<String>,
    /// The design of the experiment.
    pub design: StudyDesign,
    /// The clock that measures time.
    pub clock: Clock,
    /// Whether the host chooses the clock: `wall` if KVM works for all architectures of the study,
    /// else `instructions`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clock_of_host: bool,
    /// The model of caches and branches that prices direct costs, under the instruction clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
    /// The reference tracer, if it was determined on the measured machine. `None` selects one that
    /// the kernel is not known to refuse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<ProbeConfiguration>,
    /// Size and properties of each guest.
    pub guest: GuestSize,
    /// Time limit of each phase of a guest.
    pub deadlines: Deadlines,
    /// Known outcomes of attaching: first those of the study file, then the built-in ones. The
    /// first match counts.
    pub expectations: Vec<Expectation>,
    /// Limits on the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
    /// Expected kernel features, if the study tries them. The study's own come first.
    #[serde(default, skip_serializing_if = "FeatureExpectations::is_empty")]
    pub features: FeatureExpectations,
}

impl Study {
    /// Adds a tool under test, and extends deadlines by the tool's own limits for start and stop.
    ///
    /// # Errors
    /// A message if the study already has a probe configuration or tool with that name.
    pub fn test_tool(&mut self, tool: UnderTest) -> Result<(), String> {
        let name = &tool.file.name;
        if self.probes.iter().any(|probe| probe.to_string() == *name) {
            return Err(format!("the study has a probe configuration named `{name}`: give the tool another name"));
        }
        if self.tool_names().any(|other| other == name) {
            return Err(format!("two tools are named `{name}`: give one of them another name"));
        }
        let finds_capabilities = self.workloads.iter().any(WorkloadSpec::finds_capabilities);
        let starts = match tool.file.privileges.are_all() && !finds_capabilities {
            true => 1,
            false => CapabilitySearch::MAX_STARTS,
        };
        let patience = tool.file.deadline_ms.saturating_mul(starts.into()).saturating_add(SPARE_MS);
        self.deadlines.attach_ms = self.deadlines.attach_ms.max(patience);
        let stopping = tool.file.stop.grace_ms.saturating_add(SPARE_MS);
        self.deadlines.tear_down_ms = self.deadlines.tear_down_ms.max(stopping);
        self.tool_files.push(tool);
        Ok(())
    }

    /// Names of all tools under test.
    pub(crate) fn tool_names(&self) -> impl Iterator<Item = &str> {
        let own = self.tools.iter().map(|tool| &tool.name);
        own.chain(self.tool_files.iter().map(|tool| &tool.file.name)).map(String::as_str)
    }

    /// The tool under test called `name`.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&UnderTest> {
        self.tool_files.iter().find(|tool| tool.file.name == name)
    }

    /// The workload of a case. If a workload has several cases, their names extend the workload's
    /// name.
    #[must_use]
    pub fn workload(&self, case: &str) -> Option<&WorkloadSpec> {
        let is_of = |workload: &&WorkloadSpec| {
            case.strip_prefix(&workload.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        self.workloads.iter().filter(is_of).max_by_key(|workload| workload.name.len())
    }

    /// Replaces each pattern among the targets by its matching builds. `builds` returns the builds
    /// of an architecture, in order.
    ///
    /// # Errors
    /// Errors of `builds`, [`ExpandError::NoBuild`] if a pattern matches none,
    /// [`ExpandError::KernelName`] if a build's name is invalid.
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
            // The names can come from an untrusted testbed manifest.
            let wrong = found.iter().find_map(|found| check_kernel_name(&found.kernel).err());
            if let Some(problem) = wrong.filter(|_| target.is_pattern()) {
                return Err(ExpandError::KernelName { pattern: target.to_string(), problem }.into());
            }
            // A build can be named itself and also match a pattern.
            found.retain(|target| !targets.contains(target));
            targets.append(&mut found);
        }
        self.targets = targets;
        Ok(())
    }

    /// Adds targets for `kernels` that this study lacks, on its architectures for which `is_known`
    /// returns true. `archs` limits the architectures, unless it is empty. Unknown kernels are not
    /// added. Narrowing the study to one of them is an error.
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

    /// Prices direct costs with `model`. If the host chooses the study's clock, this selects the
    /// instruction clock.
    ///
    /// # Errors
    /// [`ExpandError::NothingToPrice`] if no instructions are counted: under the wall clock, or if
    /// tools are only loaded.
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

    /// How kernel threads are scheduled and when phases begin. The default is `fixed` under the
    /// instruction clock, where waiting for the start of a phase costs hardly anything. It is
    /// `kernel` under the wall clock.
    #[must_use]
    pub fn scheduling(&self) -> Scheduling {
        self.guest.scheduling.unwrap_or(match self.clock {
            Clock::Instructions => Scheduling::Fixed,
            Clock::Wall => Scheduling::Kernel,
        })
    }

    /// Bound within which an overhead is negligible. The default is 0.02 % under the instruction
    /// clock, which a few boots can show. The wall clock has no default.
    #[must_use]
    pub fn margin(&self) -> Option<Share> {
        self.design.margin.or(match self.clock {
            Clock::Instructions => Some(Share::from_ppm(200)),
            Clock::Wall => None,
        })
    }

    /// SHA-256, in hexadecimal, of the study as read. Comments and layout of the file do not
    /// matter, the contents of IOR scripts do.
    #[must_use]
    pub fn digest(&self) -> String {
        digest_and_length(self).0
    }
}

/// The design of the experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Design")]
pub struct StudyDesign {
    /// Boots per target, workload and file system.
    pub replicates: u32,
    /// Rounds per boot. A round runs every probe configuration once.
    pub rounds: u32,
    /// Runs before the first round of a boot. They are recorded but part of no figure, because the
    /// first runs in a guest find its caches empty.
    #[serde(default, skip_serializing_if = "WarmUp::is_none")]
    pub warm_up: WarmUp,
    /// Sequential sampling: adds boots until the intervals of all overheads are this narrow, up to
    /// `replicates`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Share>,
    /// Seed for the order of runs.
    pub seed: u64,
    /// Whether each round has a second baseline run (A/A control).
    pub control: bool,
    /// Sampling interval of the tracer in milliseconds. `None` reads counters only at barriers.
    pub sampling_interval_ms: Option<u64>,
    /// Whether each boot ends with one run of each probe configuration and tool for the kernel's
    /// program statistics. The statistics cost two clock reads per event, so these runs are
    /// compared with no others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bpf_stats: bool,
    /// Error rate of verdicts.
    #[serde(default)]
    pub certainty: VerdictCertainty,
    /// Overheads shown to lie within this bound, in either direction, are reported as negligible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<Share>,
}

impl StudyDesign {
    /// Largest number of rounds per boot.
    pub const MOST_ROUNDS: u32 = 1000;

    /// Returns the seed of a replicate. Replicates are counted from 1, and each has its own seed.
    #[must_use]
    pub fn seed_of(&self, replicate: u32) -> u64 {
        self.seed.wrapping_add(replicate.into())
    }
}

/// The warm-up of a boot before its first round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum WarmUp {
    /// This many runs of the baseline.
    Runs(u32),
    /// A named rule.
    Rule(WarmUpRule),
}

/// A rule for the warm-up, other than a number of baseline runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WarmUpRule {
    /// One run of the baseline, repeated as [`WarmUp::STEADY`] says.
    Steady,
    /// One run of each probe configuration, the baseline first.
    Probes,
}

impl WarmUpRule {
    /// The names in study files.
    pub const NAMES: &'static [(&'static str, Self)] = &[("steady", Self::Steady), ("probes", Self::Probes)];
}

impl Default for WarmUp {
    fn default() -> Self {
        Self::Runs(0)
    }
}

impl WarmUp {
    /// The rule `steady`: repeat until the last two repeats agree within 0.1 % in every phase, ten
    /// times at most. The first repeat of a boot does not count.
    pub const STEADY: UntilSteady = UntilSteady { skipped: 1, agreeing: 2, margin_ppm: 1000, most: 10 };

    /// Whether serialization can skip the value. This keeps the digests of studies from before
    /// warm-ups existed.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    const fn is_none(&self) -> bool {
        matches!(self, Self::Runs(0))
    }

    /// Number of warm-up runs of a boot with `probes` configurations.
    #[must_use]
    pub fn runs(self, probes: usize) -> usize {
        match self {
            Self::Runs(runs) => runs as usize,
            Self::Rule(WarmUpRule::Steady) => 1,
            Self::Rule(WarmUpRule::Probes) => probes,
        }
    }

    /// The rule for repeating, if there is one.
    pub(crate) const fn until_steady(self) -> Option<UntilSteady> {
        match self {
            Self::Runs(_) | Self::Rule(WarmUpRule::Probes) => None,
            Self::Rule(WarmUpRule::Steady) => Some(Self::STEADY),
        }
    }
}

impl StudyDesign {
    /// Smallest number of boots that sequential sampling can end with (`Sampling::FEWEST` in
    /// bpfassay-stats).
    pub const FEWEST_UNTIL: u32 = 3;
    /// Largest number of boots with `--until`, if neither `--replicates` nor the study allows
    /// [`Self::FEWEST_UNTIL`].
    pub const MOST_UNTIL: u32 = 20;
}

/// Size and properties of each guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestSize {
    /// Virtual CPUs.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Additional kernel parameters, such as `mitigations=off`.
    pub kernel_parameters: Vec<String>,
    /// Which addresses vary between replicates.
    #[serde(default)]
    pub addresses: Addresses,
    /// How kernel threads are scheduled and when phases begin. `None` if the study leaves it to the
    /// clock; plans always have a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<Scheduling>,
    /// Whether timers interrupt every CPU at an interval of some 20 µs that depends on the seed, so
    /// that CPUs under the instruction clock take short turns, and races between them show.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub short_turns: bool,
    /// Number of guests that run the workload together. More than one use an NFS export of an
    /// additional guest, the server. A single guest has its own server.
    #[serde(default = "GuestSize::alone", skip_serializing_if = "GuestSize::is_alone")]
    pub nodes: u32,
}

impl Default for GuestSize {
    fn default() -> Self {
        Self {
            cpus: 1,
            memory_mib: 1024,
            kernel_parameters: Vec::new(),
            addresses: Addresses::default(),
            scheduling: None,
            short_turns: false,
            nodes: Self::alone(),
        }
    }
}

impl GuestSize {
    const fn alone() -> u32 {
        1
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    const fn is_alone(nodes: &u32) -> bool {
        *nodes == 1
    }

    /// Number of guests per boot, including the server of several nodes.
    #[must_use]
    pub const fn guests(&self) -> u32 {
        if self.nodes == 1 { 1 } else { self.nodes + 1 }
    }
}

/// Which addresses vary between replicates, so that no figure depends on a single layout. Under the
/// instruction clock, the replicate's seed determines them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Addresses {
    /// No addresses.
    Fixed,
    /// Addresses of processes vary between runs. The offset of the kernel stack varies between
    /// system calls.
    #[default]
    Processes,
    /// Kernel addresses vary, too (KASLR). They stay fixed in x86_64 guests, whose boot skips the
    /// code that would move the kernel.
    All,
}

impl Addresses {
    /// The names in study files.
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

/// Time limits of a guest's phases, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deadlines {
    /// Time from power-on to the agent's first message.
    pub boot_ms: u64,
    /// Loading modules, starting the NFS server, mounting.
    pub set_up_ms: u64,
    /// Loading and attaching the tracer.
    pub attach_ms: u64,
    /// The workload of one run.
    pub workload_ms: u64,
    /// Last readings, detaching, and removing files.
    pub tear_down_ms: u64,
}

impl Deadlines {
    /// Extends deadlines, so that guests can report programs that exceed their own deadlines.
    pub(crate) fn allow_for(&mut self, workloads: &[WorkloadSpec]) {
        for deadline_ms in workloads.iter().filter_map(WorkloadSpec::deadline_ms) {
            self.workload_ms = self.workload_ms.max(deadline_ms.saturating_add(SPARE_MS));
        }
    }

    /// The deadline of `phase`; `None` for an interactive shell.
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
    /// Generous for TCG on a loaded machine: a deadline ends a hang, and does not limit slow hosts.
    fn default() -> Self {
        Self { boot_ms: 60_000, set_up_ms: 60_000, attach_ms: 60_000, workload_ms: 300_000, tear_down_ms: 60_000 }
    }
}
