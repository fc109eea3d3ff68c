// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contents of a tool file.

mod form;
mod tool_source;

use std::collections::BTreeMap;

use bpfassay_protocol::{
    Operation,
    operation::Variant,
    privileges::Privileges,
    tool_job::{Ready, Stop, Stream},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    form::{MetricsPage, ReportForm},
    tool_source::{
        Binary, Debian, DebianPackage, Nix, Object, Script, Source, SourceEntry, is_of_series, of_arch, of_target,
    },
};
use crate::{pattern::ToolPattern, service::MissingService};

/// A tool file that was read and checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolFile {
    /// Version of the file format.
    pub schema: u32,
    /// Short name, used in ids.
    pub name: String,
    /// One line that describes the tool.
    pub description: String,
    /// Source of the tool's program.
    pub source: Source,
    /// Files and directories that guests get in addition to the program, relative to the tool file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Arguments without the program name. Empty for a bare object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// Environment variables in addition to the usual ones, or replacing them. Empty for a bare
    /// object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// The user and the capabilities with which the tool is started.
    #[serde(default, skip_serializing_if = "Privileges::are_all")]
    pub privileges: Privileges,
    /// Services that the tool requires.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<MissingService>,
    /// What the tool requires of the kernel besides the kernel's own image.
    #[serde(default, skip_serializing_if = "KernelNeeds::is_empty")]
    pub kernel: KernelNeeds,
    /// When the tool counts as ready.
    pub ready: Ready,
    /// Time limit until the tool is ready, in milliseconds.
    pub deadline_ms: u64,
    /// How the tool is asked to end.
    pub stop: Stop,
    /// The report of the tool and how to read it. `None` if the tool reports no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
}

/// What a tool requires of the kernel of its guest, in addition to the image and to the modules that
/// every guest has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelNeeds {
    /// Names of modules, with `_` for `-`. Guests insert them, with all that they depend on, before
    /// the tool is started. A kernel that lacks a module is measured without it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// Whether the tool compiles in the guest and needs the headers of the kernel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub headers: bool,
}

impl KernelNeeds {
    /// Whether the tool requires nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty() && !self.headers
    }
}

impl ToolFile {
    /// The figures that the tool reports.
    #[must_use]
    pub fn figures(&self) -> &[ReportedFigure] {
        self.report.as_ref().map_or(&[], |report| &report.figures)
    }
}

/// The report of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Form of the report.
    #[serde(flatten)]
    pub form: ReportForm,
    /// For a tool that prints reports: how long to wait for the next report before and after the
    /// workload, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
    /// Whether the tool ignores its own processes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub excludes_itself: bool,
    /// Mount points that the tool leaves out, including mounts below them. Operations on them are
    /// optional in the tool's counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaves_out: Vec<String>,
    /// Lines in which the tool reports lost events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    /// The reported figures.
    pub figures: Vec<ReportedFigure>,
}

/// Lines in which a tool says how many events it lost since the previous line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lost {
    /// Pattern of these lines. The group `lost` has the number.
    pub line: ToolPattern,
    /// The stream of these lines.
    pub stream: Stream,
}

impl Lost {
    /// The group of [`Lost::line`] with the number of events.
    pub const GROUP: &'static str = "lost";
}

/// The meaning of one reported figure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportedFigure {
    /// Name of the figure in the report; see [`ReportForm`]. Empty for a figure that counts all
    /// events.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The page or map with the figure, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Required labels and their values.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub labelled: BTreeMap<String, String>,
    /// The operations that the figure counts together.
    pub operations: Vec<Operation>,
    /// The counted variants. An operation without a variant in this list is counted whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
    /// The unit of the count.
    pub unit: CountedUnit,
    /// Units per printed unit: 1024 for KiB. The tool rounds down.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub scale: u64,
    /// The kind of subject that the figure is broken down by.
    pub whose: Whose,
    /// The label that names the cgroup, mount or process; `None` for the whole system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether the figure counts only operations on files of mounted file systems, and not on
    /// pipes, sockets and other things with descriptors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_files: bool,
    /// The file system types whose operations count (`nfs4`, `ext4`), named as in
    /// `/proc/self/mountinfo`. Empty for all, including operations outside any file system.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub file_systems: Vec<String>,
    /// The start of the count.
    pub counting: Counting,
    /// Whether a value missing from an otherwise readable line means 0 (`strace -c` omits errors in
    /// this way).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blank_is_zero: bool,
    /// One line that says how the figure differs from these operations. Such a figure is shown
    /// together with the truth, but its amounts give no finding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
}

impl ReportedFigure {
    /// Name of the figure: its value, after the page or map if there are several.
    #[must_use]
    pub fn name(&self) -> String {
        let value = if self.value.is_empty() { "events" } else { self.value.as_str() };
        self.part.as_ref().map_or_else(|| value.to_owned(), |part| format!("{part}: {value}"))
    }

    /// Whether the figure counts only some variants of `operation`.
    pub(crate) fn distinguishes(&self, operation: Operation) -> bool {
        self.variants.iter().any(|variant| variant.operation() == operation)
    }

    /// Describes what the figure counts; see [`counted`].
    pub(crate) fn counted(&self) -> String {
        counted(&self.operations, &self.variants)
    }
}

/// Describes operations and the variants they are limited to: `fsync+open by fdatasync`.
pub(crate) fn counted(operations: &[Operation], variants: &[Variant]) -> String {
    let operations = operations.iter().map(|operation| operation.name()).collect::<Vec<_>>().join("+");
    let variants: Vec<&str> = variants.iter().map(|variant| variant.name()).collect();
    if variants.is_empty() { operations } else { format!("{operations} by {}", variants.join("+")) }
}

const fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_one(scale: &u64) -> bool {
    *scale == 1
}

/// The property of operations that a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Unit", rename_all = "kebab-case")]
pub enum CountedUnit {
    /// Bytes that the calls moved.
    BytesReturned,
    /// Bytes that the calls requested.
    BytesRequested,
    /// Calls, including failed ones.
    Calls,
    /// Failed calls.
    Errors,
    /// Calls that succeeded.
    Successes,
}

impl CountedUnit {
    /// All units.
    pub const ALL: [Self; 5] = [Self::BytesReturned, Self::BytesRequested, Self::Calls, Self::Errors, Self::Successes];

    /// The names in tool files.
    pub const NAMES: &'static [(&'static str, Self)] = &[
        ("bytes-returned", Self::BytesReturned),
        ("bytes-requested", Self::BytesRequested),
        ("calls", Self::Calls),
        ("errors", Self::Errors),
        ("successes", Self::Successes),
    ];

    /// Whether the unit is a number of events, so that each event can have a line.
    pub(crate) const fn is_of_lines(self) -> bool {
        matches!(self, Self::Calls | Self::Successes)
    }

    /// The name in tool files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BytesReturned => "bytes-returned",
            Self::BytesRequested => "bytes-requested",
            Self::Calls => "calls",
            Self::Errors => "errors",
            Self::Successes => "successes",
        }
    }
}

/// The kind of subject that a figure is broken down by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    /// The whole system.
    System,
    /// A cgroup, named by its id (v2) or by its path below the root of the hierarchy
    /// (`/bpfassay/run`).
    Cgroup,
    /// A mount, named by path, by mount id, or by device (`major:minor` or the kernel's number).
    Mount,
    /// A process or thread, named by its id, by both ids in one number
    /// (`bpf_get_current_pid_tgid`), or by its name (`comm`).
    Process,
}

impl Whose {
    /// The names in tool files. They are also the default labels.
    pub const NAMES: &'static [(&'static str, Self)] =
        &[("system", Self::System), ("cgroup", Self::Cgroup), ("mount", Self::Mount), ("process", Self::Process)];

    /// The name in tool files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Cgroup => "cgroup",
            Self::Mount => "mount",
            Self::Process => "process",
        }
    }
}

/// The start of a figure's count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Counting {
    /// Counts from attaching, or from another fixed instant before the workload. The value must
    /// never decrease.
    Cumulative,
    /// Counts from the last report.
    Interval,
}

impl Counting {
    /// The names in tool files.
    pub const NAMES: &'static [(&'static str, Self)] =
        &[("cumulative", Self::Cumulative), ("interval", Self::Interval)];
}
