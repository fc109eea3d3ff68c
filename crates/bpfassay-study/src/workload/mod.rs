// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workloads: what a study runs on the file systems under test.
//!
//! A kind of workload is a file here: the keys of its table in a study file, its cases on a target, what a guest runs for each, and
//! the metrics of its runs. Its line in `kinds!` registers it; nothing else in this crate names kinds.

mod command;
mod features;
mod fio;
mod io_paths;
mod ior;
mod microbench;

use std::collections::BTreeSet;

use arrayvec::ArrayString;
use bpfassay_input::document::{Field, Reported, Section};
use bpfassay_protocol::{
    Arch,
    job::{Better, FileSystem, Nfs, WORK, Workload},
};
use bpfassay_tool::Supply;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    command::{CommandSpec, MetricSpec, Place, Printed},
    features::FeaturesSpec,
    io_paths::IoPathsSpec,
    ior::{EngineChoice, Interface, IorSpec, IorTest},
    microbench::MicrobenchSpec,
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
    /// A known number of bytes by each way that data can take between a program and a file.
    IoPaths(IoPathsSpec) = [io_paths::TYPES];
    /// What the kernel offers to eBPF tools.
    KernelFeatures(FeaturesSpec) = [features::TYPES];
    /// A fixed number of operations without files.
    Microbenchmark(MicrobenchSpec) = [microbench::TYPES];
}

/// What is the same for all workloads of a kind.
trait Kind {
    /// The cases of the workload `name` on a target: the id of each, and what a guest runs for it, or why it cannot be run there.
    fn cases(&self, name: &str, on: &OnTarget<'_>) -> Vec<(String, Result<Case, String>)>;

    /// The metrics that runs of it have, in the order of display; none where no time is measured.
    fn metrics(&self, clock: Clock) -> Vec<Metric>;

    /// The values of [`Self::metrics`] that follow from the outcome of a run, or why there is none; empty where they follow from
    /// more than that, as bandwidths do, which IOR reports by repetition.
    fn measure(&self, _clock: Clock, _outcome: &Outcome<'_>) -> Vec<(Metric, Result<f64, String>)> {
        Vec::new()
    }

    /// Why a run with this output counts as failed: something that it should print cannot be read.
    fn unreadable(&self, _output: &str) -> Option<String> {
        None
    }

    /// How long a run may take by the guest's clock, in milliseconds, where the workload has a limit of its own.
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

/// The name of a metric. Of a fixed size, so that it can be part of small keys.
pub type MetricName = ArrayString<24>;

/// A figure that runs of a workload have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// Name, unique in the workload.
    pub name: MetricName,
    /// Unit: `1/s`.
    pub unit: String,
    /// Which values are better.
    pub better: Better,
}

impl Metric {
    fn new(name: &str, unit: &str, better: Better) -> Self {
        // The names of this crate are shorter than a name may be.
        Self { name: MetricName::from(name).unwrap_or_default(), unit: unit.to_owned(), better }
    }

    /// The metric of the work as a whole.
    fn work(unit: &str, better: Better) -> Self {
        Self::new(WORK, unit, better)
    }
}

/// What came of a run, as far as metrics follow from it.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    /// What the workload printed or wrote as its summary: untrusted.
    pub summary: &'a str,
    /// Nanoseconds from before the workload was started until it had ended; `None` where the clock went back.
    pub elapsed_ns: Option<u64>,
    /// Nanoseconds of these in which the guest had something to do; `None` where that is not known.
    pub busy_ns: Option<u64>,
}

impl WorkloadSpec {
    /// The metrics that runs of it have, in the order of display; none where no time is measured.
    #[must_use]
    pub fn metrics(&self, clock: Clock) -> Vec<Metric> {
        self.kind.kind().metrics(clock)
    }

    /// The metrics of a run with their values, or why there is none; empty where they follow from more than the outcome (IOR).
    #[must_use]
    pub fn measure(&self, clock: Clock, outcome: &Outcome<'_>) -> Vec<(Metric, Result<f64, String>)> {
        self.kind.kind().measure(clock, outcome)
    }

    /// Why a run with this output counts as failed: something that it should print cannot be read.
    #[must_use]
    pub fn unreadable(&self, output: &str) -> Option<String> {
        self.kind.kind().unreadable(output)
    }

    /// What guests must be supplied with for it; `folder`: that of the study file, where there is one.
    #[must_use]
    pub fn supply<'a>(&'a self, folder: Option<&'a std::path::Path>) -> Option<Supply<'a>> {
        self.kind.kind().supply(&self.name, folder)
    }

    pub(crate) fn cases(&self, on: &OnTarget<'_>) -> Vec<(String, Result<Case, String>)> {
        self.kind.kind().cases(&self.name, on)
    }

    pub(crate) fn deadline_ms(&self) -> Option<u64> {
        self.kind.kind().deadline_ms()
    }

    /// Whether time is measured, so that runs before the first round change something.
    pub(crate) fn is_timed(&self, clock: Clock) -> bool {
        !self.metrics(clock).is_empty()
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
}

/// Finds the text of the IOR script that a field names; `None` where there is none.
pub(crate) trait FindScript {
    fn find(&self, field: &Field<'_, '_>, name: &str) -> Result<Option<String>, Reported>;
}

impl Table<'_> {
    /// Reports that files of `bytes` in all do not fit into a file system, if that is so; `what` they are.
    fn must_fit(&self, bytes: u64, what: &str) -> Result<(), String> {
        let sizes = self.file_systems.iter().map(|file_system| {
            let (FileSystem::Nfs(Nfs { size_mib, .. }) | FileSystem::Tmpfs { size_mib }) = file_system;
            *size_mib
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
) -> Result<Vec<WorkloadSpec>, Reported> {
    let types: Vec<(&str, &Type)> = TYPES.iter().copied().flatten().map(|one| (one.name, one)).collect();
    let mut taken: Vec<String> = Vec::new();
    field.each(|element| {
        let section = element.table()?;
        let default = ior::TYPES.first().ok_or_else(|| element.error("no type of workload is known"))?;
        let one = section.or("type", default, |name| name.choice(&types))?;
        let own_name = section.optional("name", Field::short_name);
        let table = Table { type_name: one.name, section: &section, scripts, file_systems };
        let Read { kind, default_name } = (one.read)(&table)?;
        let Some(name) = own_name?.or(default_name) else {
            return Err(section.error("key `name` is missing: nothing else names the workload"));
        };
        if taken.contains(&name) {
            return Err(element.error(format!("a workload `{name}` stands here already: give this one another `name`")));
        }
        taken.push(name.clone());
        Ok(WorkloadSpec { name, kind })
    })
}
