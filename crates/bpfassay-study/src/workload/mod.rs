// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workloads: what a study runs on the file systems under test.
//!
//! Each kind of workload is one file in this directory. It has the keys of its table in a study
//! file, the cases on a target, what a guest runs for each, and the metrics. One line in `kinds!`
//! registers a kind; no other code in this crate names kinds.

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
    job::{ExtraMount, FileSystem, Nfs, Workload},
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
    metric::{Metric, MetricInput, MetricName, NoMetricName, PhaseReport},
    microbench::MicrobenchSpec,
    mounts::MountsSpec,
};
use crate::Clock;

/// One workload of a study.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadSpec {
    /// Name, unique in the study; part of identifiers.
    pub name: String,
    /// The kind of workload and its settings.
    #[serde(flatten)]
    pub kind: WorkloadKind,
}

/// Declares the kinds of workloads as `Variant(Spec) = [reader for each type in study files]`.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident($spec:ty) = [$($reader:path),+];)+) => {
        /// The kind of a workload (key `type`).
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "type", rename_all = "kebab-case")]
        pub enum WorkloadKind {
            $($(#[$doc])* $kind($spec),)+
        }

        impl WorkloadKind {
            fn kind(&self) -> &dyn WorkloadBehaviour {
                match self {
                    $(Self::$kind(spec) => spec,)+
                }
            }
        }

        /// Values of the key `type`, each with the reader of its table.
        const TYPES: &[&[TypeKey]] = &[$($($reader),+),+];
    };
}

kinds! {
    /// IOR, real or embedded.
    Ior(IorSpec) = [ior::TYPES];
    /// Any program, including fio.
    Command(CommandSpec) = [fio::TYPES, command::TYPES];
    /// Moves a known number of bytes on each path between a program and a file.
    IoPaths(IoPathsSpec) = [io_paths::TYPES];
    /// Tries the kernel's features for eBPF tools.
    KernelFeatures(FeaturesSpec) = [features::TYPES];
    /// Loads and attaches tools, and does nothing else.
    Load(LoadSpec) = [load::TYPES];
    /// Writes and reads a file on each mount.
    Mounts(MountsSpec) = [mounts::TYPES];
    /// A fixed number of operations without files.
    Microbenchmark(MicrobenchSpec) = [microbench::TYPES];
}

/// Behaviour of a kind of workload.
trait WorkloadBehaviour {
    /// The cases of the workload `name` on a target: the id of each, and what a guest runs for it,
    /// or why it cannot run.
    fn cases(&self, name: &str, on: &OnTarget<'_>) -> Vec<(String, Result<Case, String>)>;

    /// The metrics of a case, in display order; empty if no time is measured.
    fn metrics(&self, case: &CaseNames<'_>, clock: Clock) -> Vec<Metric>;

    /// The values of [`Self::metrics`] from the outcome of a run, or why there is none. Empty if
    /// the summary reports values phase by phase ([`Self::phases`]).
    fn measure(&self, _clock: Clock, _outcome: &MetricInput<'_>) -> Vec<(Metric, Result<f64, String>)> {
        Vec::new()
    }

    /// Returns the report of a run's summary for each timed phase, or why it cannot be read. `None`
    /// if the summary reports no phases.
    fn phases(&self, _summary: &str) -> Option<Result<Vec<PhaseReport>, String>> {
        None
    }

    /// Why the summary reports fewer bytes of `operation` than the case moves; `None` if it does
    /// not.
    fn not_reported(&self, _case: &CaseNames<'_>, _operation: Operation) -> Option<&'static str> {
        None
    }

    /// Bytes that a run moved according to its own report, by operation, or why they cannot be
    /// read. `None` if it reports none.
    fn bytes(&self, _summary: &str) -> Option<Vec<(Operation, Result<u64, String>)>> {
        None
    }

    /// Whether phases move bytes on the file system under test, and count them.
    fn counts_bytes(&self) -> bool {
        false
    }

    /// Number of operations of a run that moves no data, if its whole work is operations.
    fn operations(&self) -> Option<u64> {
        None
    }

    /// Bytes of each call that moves data, if all calls move the same number.
    fn transfer_size(&self, _case: &CaseNames<'_>) -> Option<u64> {
        None
    }

    /// Bytes on each I/O path, if the workload compares paths.
    fn bytes_per_path(&self) -> Option<u64> {
        None
    }

    /// Whether phases are named after the mounts that they use.
    fn has_mounts_as_phases(&self) -> bool {
        false
    }

    /// Whether the baseline run lists the kernel's features.
    fn lists_features(&self) -> bool {
        false
    }

    /// Whether the reports of tools under test are compared with what really happened.
    fn compares_tools(&self) -> bool {
        true
    }

    /// Whether guests look for the capabilities with which tools under test start.
    fn finds_capabilities(&self) -> bool {
        false
    }

    /// Why a run with this output failed: required output cannot be read.
    fn unreadable(&self, _output: &str) -> Option<String> {
        None
    }

    /// The workload's own time limit for a run by the guest's clock, in milliseconds.
    fn deadline_ms(&self) -> Option<u64> {
        None
    }

    /// Files that guests must be supplied with.
    fn supply<'a>(&'a self, _name: &str, _folder: Option<&'a std::path::Path>) -> Option<Supply<'a>> {
        None
    }
}

/// Facts about a target for building cases.
pub(crate) struct OnTarget<'a> {
    pub(crate) arch: Arch,
    /// Interfaces of the real IOR that the user gave for this architecture.
    pub(crate) external_ior: Option<&'a BTreeSet<Interface>>,
    /// The mounts in addition to the file system under test.
    pub(crate) mounts: &'a [ExtraMount],
    /// Number of nodes that run the workload together.
    pub(crate) nodes: u32,
}

/// The work of a guest for one case of a workload.
pub(crate) struct Case {
    /// The workload of the run specification.
    pub(crate) workload: Workload,
    /// IOR's interface, if the case uses exactly one.
    pub(crate) interface: Option<Interface>,
}

impl From<Workload> for Case {
    fn from(workload: Workload) -> Self {
        Self { workload, interface: None }
    }
}

/// Builds a workload of the bundled program with these arguments. It stops at barriers and writes
/// its summary to a file.
fn bundled(arguments: impl IntoIterator<Item = String>) -> Workload {
    Workload { arguments: arguments.into_iter().collect(), control: true, ..Workload::default() }
}

/// The names of a case and its workload.
struct CaseNames<'a> {
    workload: &'a str,
    case: &'a str,
}

impl WorkloadSpec {
    /// IOR's MPI ranks; `None` for other workloads.
    #[must_use]
    pub const fn ranks(&self) -> Option<u32> {
        match &self.kind {
            WorkloadKind::Ior(spec) => Some(spec.ranks),
            _ => None,
        }
    }

    /// The metrics of the case `case`, in display order; empty if no time is measured.
    #[must_use]
    pub fn metrics(&self, case: &str, clock: Clock) -> Vec<Metric> {
        self.kind.kind().metrics(&self.named(case), clock)
    }

    /// The metrics of a run with their values, or why there is none. Empty if the summary reports
    /// values phase by phase.
    #[must_use]
    pub fn measure(&self, clock: Clock, outcome: &MetricInput<'_>) -> Vec<(Metric, Result<f64, String>)> {
        self.kind.kind().measure(clock, outcome)
    }

    /// Returns the report of a run's summary for each timed phase, or why it cannot be read. `None`
    /// if the summary reports no phases.
    #[must_use]
    pub fn phases(&self, summary: &str) -> Option<Result<Vec<PhaseReport>, String>> {
        self.kind.kind().phases(summary)
    }

    /// Why the summary reports fewer bytes of `operation` than `case` moves; `None` if it does not.
    #[must_use]
    pub fn not_reported(&self, case: &str, operation: Operation) -> Option<&'static str> {
        self.kind.kind().not_reported(&self.named(case), operation)
    }

    /// Bytes that a run moved according to its own report, by operation, or why they cannot be
    /// read. `None` if it reports none.
    #[must_use]
    pub fn bytes(&self, summary: &str) -> Option<Vec<(Operation, Result<u64, String>)>> {
        self.kind.kind().bytes(summary)
    }

    /// Whether phases move bytes on the file system under test, and count them.
    #[must_use]
    pub fn counts_bytes(&self) -> bool {
        self.kind.kind().counts_bytes()
    }

    /// Number of operations of a run that moves no data, if its whole work is operations.
    #[must_use]
    pub fn operations(&self) -> Option<u64> {
        self.kind.kind().operations()
    }

    /// Bytes of each call in `case` that moves data, if all calls move the same number.
    #[must_use]
    pub fn transfer_size(&self, case: &str) -> Option<u64> {
        self.kind.kind().transfer_size(&self.named(case))
    }

    /// Bytes on each I/O path, if the workload compares paths.
    #[must_use]
    pub fn bytes_per_path(&self) -> Option<u64> {
        self.kind.kind().bytes_per_path()
    }

    /// Whether phases are named after the mounts that they use.
    #[must_use]
    pub fn has_mounts_as_phases(&self) -> bool {
        self.kind.kind().has_mounts_as_phases()
    }

    /// Why a run with this output failed: required output cannot be read.
    #[must_use]
    pub fn unreadable(&self, output: &str) -> Option<String> {
        self.kind.kind().unreadable(output)
    }

    /// Files that guests must be supplied with. `folder` is the directory of the study file, if
    /// there is one.
    #[must_use]
    pub fn supply<'a>(&'a self, folder: Option<&'a std::path::Path>) -> Option<Supply<'a>> {
        self.kind.kind().supply(&self.name, folder)
    }

    /// Whether the baseline run lists the kernel's features.
    pub(crate) fn lists_features(&self) -> bool {
        self.kind.kind().lists_features()
    }

    /// Whether the reports of tools under test are compared with what really happened. Otherwise
    /// tools are only loaded and attached.
    #[must_use]
    pub fn compares_tools(&self) -> bool {
        self.kind.kind().compares_tools()
    }

    /// Whether guests look for the capabilities with which tools under test start.
    pub(crate) fn finds_capabilities(&self) -> bool {
        self.kind.kind().finds_capabilities()
    }

    pub(crate) fn cases(&self, on: &OnTarget<'_>) -> Vec<(String, Result<Case, String>)> {
        self.kind.kind().cases(&self.name, on)
    }

    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        self.kind.kind().deadline_ms()
    }

    /// Whether `case` measures time, so that a warm-up makes a difference.
    pub(crate) fn is_timed(&self, case: &str, clock: Clock) -> bool {
        !self.metrics(case, clock).is_empty()
    }

    fn named<'a>(&'a self, case: &'a str) -> CaseNames<'a> {
        CaseNames { workload: &self.name, case }
    }
}

/// A value of the key `type` in study files.
struct TypeKey {
    /// Value of the key `type`.
    name: &'static str,
    /// Reads the workload's table.
    read: fn(&WorkloadTable<'_>) -> Result<ReadTable, Reported>,
}

/// The result of reading a table.
struct ReadTable {
    kind: WorkloadKind,
    /// The workload's default name.
    default_name: Option<String>,
}

/// A workload's table, and the context for its checks.
struct WorkloadTable<'a> {
    /// Value of the key `type`.
    type_name: &'static str,
    section: &'a Section<'a, 'a>,
    scripts: &'a dyn ScriptFinder,
    file_systems: &'a [FileSystem],
    mounts: &'a [ExtraMount],
}

/// Finds the text of the IOR script that a field names; `None` if there is none.
pub(crate) trait ScriptFinder {
    fn find(&self, field: &Field<'_, '_>, name: &str) -> Result<Option<String>, Reported>;
}

impl WorkloadTable<'_> {
    /// Returns an error if files of `bytes` in total do not fit into a file system. `what` names
    /// the files.
    fn must_fit(&self, bytes: u64, what: &str) -> Result<(), String> {
        let sizes = self.file_systems.iter().filter_map(|file_system| match file_system {
            FileSystem::Nfs(Nfs { size_mib, .. }) | FileSystem::Tmpfs { size_mib } => Some(*size_mib),
            // Studies cannot name these.
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
/// Fails if a workload is invalid. The complaint is in the document.
pub(crate) fn read(
    field: &Field<'_, '_>,
    scripts: &dyn ScriptFinder,
    file_systems: &[FileSystem],
    mounts: &[ExtraMount],
) -> Result<Vec<WorkloadSpec>, Reported> {
    let types: Vec<(&str, &TypeKey)> = TYPES.iter().copied().flatten().map(|one| (one.name, one)).collect();
    let mut taken: Vec<String> = Vec::new();
    field.each(|element| {
        let section = element.table()?;
        let default = ior::TYPES.first().ok_or_else(|| element.error("no type of workload is known"))?;
        let one = section.or("type", default, |name| name.choice(&types))?;
        let own_name = section.optional("name", Field::short_name);
        let table = WorkloadTable { type_name: one.name, section: &section, scripts, file_systems, mounts };
        let ReadTable { kind, default_name } = (one.read)(&table)?;
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
