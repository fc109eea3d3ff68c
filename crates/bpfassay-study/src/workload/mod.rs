// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workloads: what a study runs on the file systems under test.
//!
//! A kind of workload is a file here: the keys of its table in a study file, its cases on a target,
//! what a guest runs for each, and the metrics of its runs. Its line in `kinds!` registers it;
//! nothing else in this crate names kinds.

mod command;
mod features;
mod fio;
mod io_paths;
mod ior;
mod load;
mod metric;
mod microbench;
mod mounts;

use std::collections::BTreeSet;

use bpfassay_input::document::{Field, Reported, Section};
use bpfassay_protocol::{
    Arch, Operation,
    job::{ExtraMount, FileSystem, Nfs, Program, Summary, Workload},
};
use bpfassay_tool::Supply;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use self::ior::check_nodes;
pub use self::{
    command::{CommandSpec, MetricSpec, Printed, ValueLocation},
    features::FeaturesSpec,
    io_paths::IoPathsSpec,
    ior::{EngineChoice, Interface, IorSpec, IorTest},
    load::LoadSpec,
    metric::{Metric, MetricName, NoMetricName, Outcome, PhaseReport},
    microbench::MicrobenchSpec,
    mounts::MountsSpec,
};
use crate::Clock;

/// One workload of a study.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadSpec {
    /// Name, unique in the study; part of identifiers.
    pub name: String,
    /// What it is.
    #[serde(flatten)]
    pub kind: WorkloadKind,
}

/// The kinds of workloads: `Variant(Spec) = [reader for each type that a study file can name]`.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident($spec:ty) = [$($reader:path),+];)+) => {
        /// What a workload is (key `type`).
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "type", rename_all = "kebab-case")]
        pub enum WorkloadKind {
            $($(#[$doc])* $kind($spec),)+
        }

        impl WorkloadKind {
            fn kind(&self) -> &dyn Kind {
                match self {
                    $(Self::$kind(spec) => spec,)+
                }
            }
        }

        /// What a study file can name with `type`, and how its table is read.
        const TYPES: &[&[Type]] = &[$($($reader),+),+];
    };
}

kinds! {
    /// IOR.
    Ior(IorSpec) = [ior::TYPES];
    /// Any program, fio among them.
    Command(CommandSpec) = [fio::TYPES, command::TYPES];
    /// A known number of bytes by each path that data can take between a program and a file.
    IoPaths(IoPathsSpec) = [io_paths::TYPES];
    /// What the kernel offers to eBPF tools.
    KernelFeatures(FeaturesSpec) = [features::TYPES];
    /// Nothing but loading and attaching.
    Load(LoadSpec) = [load::TYPES];
    /// A file on each mount.
    Mounts(MountsSpec) = [mounts::TYPES];
    /// A fixed number of operations without files.
    Microbenchmark(MicrobenchSpec) = [microbench::TYPES];
}

/// What is the same for all workloads of a kind.
trait Kind {
    /// The cases of the workload `name` on a target: the id of each, and what a guest runs for it,
    /// or why it cannot be run there.
    fn cases(&self, name: &str, on: &OnTarget<'_>) -> Vec<(String, Result<Case, String>)>;

    /// The metrics that runs of a case have, in the order of display; none where no time is
    /// measured.
    fn metrics(&self, case: &Named<'_>, clock: Clock) -> Vec<Metric>;

    /// The values of [`Self::metrics`] that follow from the outcome of a run, or why there is none;
    /// empty where the summary reports them phase by phase ([`Self::phases`]).
    fn measure(&self, _clock: Clock, _outcome: &Outcome<'_>) -> Vec<(Metric, Result<f64, String>)> {
        Vec::new()
    }

    /// What the summary of a run reports of each timed phase, or why it cannot be read; `None`
    /// where it reports no phases.
    fn phases(&self, _summary: &str) -> Option<Result<Vec<PhaseReport>, String>> {
        None
    }

    /// Why the summary reports fewer bytes of `operation` than the case moves, where it does.
    fn not_reported(&self, _case: &Named<'_>, _operation: Operation) -> Option<&'static str> {
        None
    }

    /// The bytes that a run moved by its own report, by operation, or why they cannot be read;
    /// `None` where it reports none.
    fn bytes(&self, _summary: &str) -> Option<Vec<(Operation, Result<u64, String>)>> {
        None
    }

    /// Whether its phases move bytes on the file system under test, and count them.
    fn counts_bytes(&self) -> bool {
        false
    }

    /// Bytes of each call that moves data, where all have as many.
    fn transfer_size(&self, _case: &Named<'_>) -> Option<u64> {
        None
    }

    /// Bytes that go by each I/O path, where it compares those.
    fn bytes_per_path(&self) -> Option<u64> {
        None
    }

    /// Whether its phases are named after the mounts that they work on.
    fn has_mounts_as_phases(&self) -> bool {
        false
    }

    /// Whether its baseline lists the features of the kernel.
    fn lists_features(&self) -> bool {
        false
    }

    /// Whether what tools under test report is compared with what really happened.
    fn compares_tools(&self) -> bool {
        true
    }

    /// Why a run with this output counts as failed: something that it should print cannot be read.
    fn unreadable(&self, _output: &str) -> Option<String> {
        None
    }

    /// How long a run may take by the guest's clock, in milliseconds, where the workload has a
    /// limit of its own.
    fn deadline_ms(&self) -> Option<u64> {
        None
    }

    /// What guests must be supplied with.
    fn supply<'a>(&'a self, _name: &str, _folder: Option<&'a std::path::Path>) -> Option<Supply<'a>> {
        None
    }
}

/// What is known of a target when cases are made for it.
pub(crate) struct OnTarget<'a> {
    /// Its architecture.
    pub(crate) arch: Arch,
    /// The interfaces of the real IOR that the user gave for it.
    pub(crate) external_ior: Option<&'a BTreeSet<Interface>>,
    /// The mounts beside the file system under test.
    pub(crate) mounts: &'a [ExtraMount],
    /// The nodes that run it together.
    pub(crate) nodes: u32,
}

/// What a guest runs in one case of a workload.
pub(crate) struct Case {
    /// For the run specification.
    pub(crate) workload: Workload,
    /// IOR's interface.
    pub(crate) interface: Option<Interface>,
}

impl From<Workload> for Case {
    fn from(workload: Workload) -> Self {
        Self { workload, interface: None }
    }
}

/// What a guest runs: its program for workloads with these arguments, held at barriers, with a file
/// for its summary.
fn bundled(arguments: impl IntoIterator<Item = String>) -> Workload {
    Workload {
        program: Program::Bundled,
        arguments: arguments.into_iter().collect(),
        summary: Summary::File,
        control: true,
        deadline_ms: None,
        neighbour: false,
        mounts: Vec::new(),
        features: false,
        engine: None,
        script: None,
    }
}

/// A case by its names.
struct Named<'a> {
    /// The workload.
    workload: &'a str,
    /// The case.
    case: &'a str,
}

impl WorkloadSpec {
    /// The MPI ranks of IOR; `None` for other workloads.
    #[must_use]
    pub const fn ranks(&self) -> Option<u32> {
        match &self.kind {
            WorkloadKind::Ior(spec) => Some(spec.ranks),
            _ => None,
        }
    }

    /// The metrics that runs of its case `case` have, in the order of display; none where no time
    /// is measured.
    #[must_use]
    pub fn metrics(&self, case: &str, clock: Clock) -> Vec<Metric> {
        self.kind.kind().metrics(&self.named(case), clock)
    }

    /// The metrics of a run with their values, or why there is none; empty where the summary
    /// reports them phase by phase.
    #[must_use]
    pub fn measure(&self, clock: Clock, outcome: &Outcome<'_>) -> Vec<(Metric, Result<f64, String>)> {
        self.kind.kind().measure(clock, outcome)
    }

    /// What the summary of a run reports of each timed phase, or why it cannot be read; `None`
    /// where it reports no phases.
    #[must_use]
    pub fn phases(&self, summary: &str) -> Option<Result<Vec<PhaseReport>, String>> {
        self.kind.kind().phases(summary)
    }

    /// Why the summary reports fewer bytes of `operation` than the case `case` moves, where it
    /// does.
    #[must_use]
    pub fn not_reported(&self, case: &str, operation: Operation) -> Option<&'static str> {
        self.kind.kind().not_reported(&self.named(case), operation)
    }

    /// The bytes that a run moved by its own report, by operation, or why they cannot be read;
    /// `None` where it reports none.
    #[must_use]
    pub fn bytes(&self, summary: &str) -> Option<Vec<(Operation, Result<u64, String>)>> {
        self.kind.kind().bytes(summary)
    }

    /// Whether its phases move bytes on the file system under test, and count them.
    #[must_use]
    pub fn counts_bytes(&self) -> bool {
        self.kind.kind().counts_bytes()
    }

    /// Bytes of each call that moves data in its case `case`, where all have as many.
    #[must_use]
    pub fn transfer_size(&self, case: &str) -> Option<u64> {
        self.kind.kind().transfer_size(&self.named(case))
    }

    /// Bytes that go by each I/O path, where it compares those.
    #[must_use]
    pub fn bytes_per_path(&self) -> Option<u64> {
        self.kind.kind().bytes_per_path()
    }

    /// Whether its phases are named after the mounts that they work on.
    #[must_use]
    pub fn has_mounts_as_phases(&self) -> bool {
        self.kind.kind().has_mounts_as_phases()
    }

    /// Why a run with this output counts as failed: something that it should print cannot be read.
    #[must_use]
    pub fn unreadable(&self, output: &str) -> Option<String> {
        self.kind.kind().unreadable(output)
    }

    /// What guests must be supplied with for it; `folder`: that of the study file, where there is
    /// one.
    #[must_use]
    pub fn supply<'a>(&'a self, folder: Option<&'a std::path::Path>) -> Option<Supply<'a>> {
        self.kind.kind().supply(&self.name, folder)
    }

    /// Whether its baseline lists the features of the kernel.
    pub(crate) fn lists_features(&self) -> bool {
        self.kind.kind().lists_features()
    }

    /// Whether what tools under test report is compared with what really happened; otherwise they
    /// are loaded and attached, and that is all.
    #[must_use]
    pub fn compares_tools(&self) -> bool {
        self.kind.kind().compares_tools()
    }

    pub(crate) fn cases(&self, on: &OnTarget<'_>) -> Vec<(String, Result<Case, String>)> {
        self.kind.kind().cases(&self.name, on)
    }

    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        self.kind.kind().deadline_ms()
    }

    /// Whether time is measured in its case `case`, so that runs before the first round change
    /// something.
    pub(crate) fn is_timed(&self, case: &str, clock: Clock) -> bool {
        !self.metrics(case, clock).is_empty()
    }

    fn named<'a>(&'a self, case: &'a str) -> Named<'a> {
        Named { workload: &self.name, case }
    }
}

/// A workload as a study file names it.
struct Type {
    /// The value of the key `type`.
    name: &'static str,
    /// Reads its table.
    read: fn(&Table<'_>) -> Result<Read, Reported>,
}

/// What is read of a table.
struct Read {
    kind: WorkloadKind,
    /// The workload's name where the study gives it none.
    default_name: Option<String>,
}

/// The table of a workload, and what it is checked against.
struct Table<'a> {
    /// The value of the key `type`.
    type_name: &'static str,
    section: &'a Section<'a, 'a>,
    scripts: &'a dyn FindScript,
    file_systems: &'a [FileSystem],
    mounts: &'a [ExtraMount],
}

/// Finds the text of the IOR script that a field names; `None` where there is none.
pub(crate) trait FindScript {
    fn find(&self, field: &Field<'_, '_>, name: &str) -> Result<Option<String>, Reported>;
}

impl Table<'_> {
    /// Reports that files of `bytes` in all do not fit into a file system, if that is so; `what`
    /// they are.
    fn must_fit(&self, bytes: u64, what: &str) -> Result<(), String> {
        let sizes = self.file_systems.iter().filter_map(|file_system| match file_system {
            FileSystem::Nfs(Nfs { size_mib, .. }) | FileSystem::Tmpfs { size_mib } => Some(*size_mib),
            // Studies name none.
            FileSystem::Mounted { .. } => None,
        });
        match sizes.min().filter(|&size_mib| bytes > u64::from(size_mib) << 20) {
            None => Ok(()),
            Some(size_mib) => {
                Err(format!("{what} do not fit into a file system of {size_mib} MiB (`file_systems`, `size_mib`)"))
            }
        }
    }
}

/// Reads the workloads of a study.
///
/// # Errors
/// Where something in them is wrong, which the document then has.
pub(crate) fn read(
    field: &Field<'_, '_>,
    scripts: &dyn FindScript,
    file_systems: &[FileSystem],
    mounts: &[ExtraMount],
) -> Result<Vec<WorkloadSpec>, Reported> {
    let types: Vec<(&str, &Type)> = TYPES.iter().copied().flatten().map(|one| (one.name, one)).collect();
    let mut taken: Vec<String> = Vec::new();
    field.each(|element| {
        let section = element.table()?;
        let default = ior::TYPES.first().ok_or_else(|| element.error("no type of workload is known"))?;
        let one = section.or("type", default, |name| name.choice(&types))?;
        let own_name = section.optional("name", Field::short_name);
        let table = Table { type_name: one.name, section: &section, scripts, file_systems, mounts };
        let Read { kind, default_name } = (one.read)(&table)?;
        let Some(name) = own_name?.or(default_name) else {
            return Err(section.error("key `name` is missing: nothing else names the workload"));
        };
        if taken.contains(&name) {
            return Err(element.error(format!("a workload `{name}` exists already: give this one another `name`")));
        }
        taken.push(name.clone());
        Ok(WorkloadSpec { name, kind })
    })
}
