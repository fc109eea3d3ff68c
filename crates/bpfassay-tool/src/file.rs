// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tool as its file describes it.

mod form;
mod source;

use std::collections::BTreeMap;

use bpfassay_protocol::{
    Operation,
    operation::Variant,
    tool::{Ready, Stop, Stream},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    form::{Form, MetricsPage},
    source::{Binary, Debian, DebianPackage, Entry, Nix, Object, Script, Source, is_of_series, of_arch, of_target},
};
use crate::{Pattern, Service};

/// A tool file: read and checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolFile {
    /// Version of the file format.
    pub schema: u32,
    /// Short name; part of identifiers.
    pub name: String,
    /// A description in one line.
    pub description: String,
    /// The source of its program.
    pub source: Source,
    /// Files and directories beside the tool file that lie in guests beside its program, relative
    /// to the tool file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Its arguments, without the program's name. Empty for a bare object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// Environment variables that it is started with, besides the usual ones or in their place.
    /// None for a bare object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Services that it cannot do without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<Service>,
    /// When it counts as ready.
    pub ready: Ready,
    /// How long it may take until it is ready, in milliseconds.
    pub deadline_ms: u64,
    /// How it is asked to end.
    pub stop: Stop,
    /// Its report, and how to read that; `None`: it is not asked for figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
}

impl ToolFile {
    /// The figures that it reports.
    #[must_use]
    pub fn figures(&self) -> &[ReportedFigure] {
        self.report.as_ref().map_or(&[], |report| &report.figures)
    }
}

/// The report of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// How it is read.
    #[serde(flatten)]
    pub form: Form,
    /// How long to wait for its next report before and after the workload, in milliseconds, where
    /// it reports by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
    /// Whether it leaves out what its own processes do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub excludes_itself: bool,
    /// Mount points of what it leaves out, mounts below them included: what happens there, it may
    /// count or not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaves_out: Vec<String>,
    /// Lines of a stream in which it says that it lost events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    /// Its figures.
    pub figures: Vec<ReportedFigure>,
}

/// Lines in which a tool says how many events it lost since the line before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lost {
    /// A pattern of these lines; the group `lost` is the number.
    pub line: Pattern,
    /// The stream that it writes them to.
    pub stream: Stream,
}

impl Lost {
    /// The group of [`Lost::line`] that is the number of events.
    pub const GROUP: &'static str = "lost";
}

/// The meaning of one figure of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportedFigure {
    /// The name that the report has it under: see [`Form`]. Empty for a figure of events that
    /// counts them all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The page or map that has it, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Labels that it must have, with these values.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub labelled: BTreeMap<String, String>,
    /// The operations that it counts, together.
    pub operations: Vec<Operation>,
    /// The variants that it counts of operations that have some; all of an operation of which none
    /// is here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
    /// The unit that it counts of them.
    pub unit: Unit,
    /// One unit of what it prints stands for so many: 1024 for KiB, rounded down by the tool.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub scale: u64,
    /// Whose they are.
    pub whose: Whose,
    /// The label that names the cgroup, mount or process; `None` for the whole system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether it counts only what is done with files of mounted file systems, and no pipes,
    /// sockets and other things that have descriptors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_files: bool,
    /// The types of file system (`nfs4`, `ext4`) that it counts operations on, as
    /// `/proc/self/mountinfo` names them; empty: all, and what is done with things of none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub file_systems: Vec<String>,
    /// Since when.
    pub counting: Counting,
    /// Whether a value that is missing from a line that is otherwise read stands for 0 (`strace -c`
    /// leaves out errors that way).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blank_is_zero: bool,
    /// In what it counts something else than these operations, in a line: then it is shown beside
    /// what happened, and no finding follows from its amounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
}

impl ReportedFigure {
    /// How it is called: by its value, after the page or map that has it where there are several.
    #[must_use]
    pub fn name(&self) -> String {
        let value = if self.value.is_empty() { "events" } else { self.value.as_str() };
        self.part.as_ref().map_or_else(|| value.to_owned(), |part| format!("{part}: {value}"))
    }

    /// Whether it counts no variants of `operation` but some.
    pub(crate) fn distinguishes(&self, operation: Operation) -> bool {
        self.variants.iter().any(|variant| variant.operation() == operation)
    }

    /// Names what it counts: see [`counted`].
    pub(crate) fn counted(&self) -> String {
        counted(&self.operations, &self.variants)
    }
}

/// Operations, and the variants of which no others are counted: `fsync+open by fdatasync`.
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

/// A unit that figures count of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Bytes that the calls moved.
    BytesReturned,
    /// Bytes that the calls were asked to move.
    BytesRequested,
    /// Calls, those that failed included.
    Calls,
    /// Calls that failed.
    Errors,
    /// Calls that did not fail.
    Successes,
}

impl Unit {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::BytesReturned, Self::BytesRequested, Self::Calls, Self::Errors, Self::Successes];

    /// The names in tool files.
    pub const NAMES: &'static [(&'static str, Self)] = &[
        ("bytes-returned", Self::BytesReturned),
        ("bytes-requested", Self::BytesRequested),
        ("calls", Self::Calls),
        ("errors", Self::Errors),
        ("successes", Self::Successes),
    ];

    /// Whether it is a number of events, each of which has a line.
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

/// The subjects whose operations a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    /// Those of the whole system.
    System,
    /// Those of one cgroup, named by its id (v2) or its path below the root of the hierarchy
    /// (`/bpfassay/run`).
    Cgroup,
    /// Those on one mount, named by its path, its mount id, or its device as `major:minor` or as
    /// the kernel's number.
    Mount,
    /// Those of one process or thread, named by its id, by both ids in one number
    /// (`bpf_get_current_pid_tgid`), or by its name (`comm`).
    Process,
}

impl Whose {
    /// The names in tool files; also the labels where a file names none.
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

/// Since when a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Counting {
    /// Since the tool attached, or any other fixed instant before the workload: it must never go
    /// back.
    Cumulative,
    /// Since the last report.
    Interval,
}

impl Counting {
    /// The names in tool files.
    pub const NAMES: &'static [(&'static str, Self)] =
        &[("cumulative", Self::Cumulative), ("interval", Self::Interval)];
}
