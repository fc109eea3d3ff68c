// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tool as its file describes it.

mod form;

use std::collections::BTreeMap;

use bpfassay_protocol::{
    Arch, Operation,
    contents::Contents,
    tool::{Ready, Stop, Stream},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::form::{Form, MetricsPage};
use crate::Pattern;

/// A tool file: read and checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolFile {
    /// Version of the file format.
    pub schema: u32,
    /// Short name; part of identifiers.
    pub name: String,
    /// What it is, in one line.
    pub description: String,
    /// Where it comes from.
    pub source: Source,
    /// Files beside the tool file that lie in guests beside its program, relative to the tool file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Its arguments, without the program's name. Empty for a bare object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// When it counts as ready.
    pub ready: Ready,
    /// How long it may take until it is ready, in milliseconds.
    pub deadline_ms: u64,
    /// How it is asked to end.
    pub stop: Stop,
    /// What it reports and how to read that; `None`: it is not asked for figures.
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

/// Where a tool comes from. Lists have at most one entry that fits an architecture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Source {
    /// Programs that lie beside the tool file.
    Binary(Vec<Binary>),
    /// A program of a Debian package.
    Debian(Vec<Debian>),
    /// A program of a Nix package.
    Nix(Nix),
    /// A script, and its interpreter.
    Script(Script),
    /// A program that guests have anyway, by its absolute path.
    Guest(String),
    /// eBPF objects without a program of their own: loaded, and attached as their sections say.
    Object(Vec<Object>),
}

impl Source {
    /// Whether there is something for `kernel` on `arch`.
    #[must_use]
    pub fn has(&self, arch: Arch, kernel: &str) -> bool {
        match self {
            Self::Binary(_) => self.binary(arch).is_some(),
            Self::Debian(_) => self.debian(arch).is_some(),
            Self::Object(_) => self.object(arch, kernel).is_some(),
            Self::Nix(nix) => nix.closures.contains(&arch),
            Self::Script(_) | Self::Guest(_) => true,
        }
    }

    /// The program for `arch`, if programs lie beside the file.
    #[must_use]
    pub fn binary(&self, arch: Arch) -> Option<&Binary> {
        let Self::Binary(list) = self else { return None };
        list.iter().find(|binary| binary.arch == arch)
    }

    /// The package for `arch`, if it comes from Debian.
    #[must_use]
    pub fn debian(&self, arch: Arch) -> Option<&Debian> {
        let Self::Debian(list) = self else { return None };
        list.iter().find(|debian| debian.archs.is_empty() || debian.archs.contains(&arch))
    }

    /// The Debian packages that it brings along for `arch`, if it does.
    #[must_use]
    pub fn packages(&self, arch: Arch) -> Option<&DebianPackage> {
        match self {
            Self::Debian(_) => self.debian(arch).map(|debian| &debian.from),
            Self::Script(script) => script.debian.as_ref(),
            Self::Binary(_) | Self::Nix(_) | Self::Guest(_) | Self::Object(_) => None,
        }
    }

    /// The bare objects for `arch`, each with its place among all of the file.
    pub fn objects(&self, arch: Arch) -> impl Iterator<Item = (usize, &Object)> {
        let list: &[Object] = if let Self::Object(list) = self { list } else { &[] };
        list.iter().enumerate().filter(move |(_, object)| object.archs.is_empty() || object.archs.contains(&arch))
    }

    /// The object for `kernel` on `arch`, if it is a bare one, with its place among all of the file: one that names this kernel, else one that names
    /// none.
    #[must_use]
    pub fn object(&self, arch: Arch, kernel: &str) -> Option<(usize, &Object)> {
        let is_named = |object: &Object| object.kernels.iter().any(|series| is_of_series(kernel, series));
        let named = self.objects(arch).find(|(_, object)| is_named(object));
        named.or_else(|| self.objects(arch).find(|(_, object)| object.kernels.is_empty()))
    }
}

/// A program that lies beside the tool file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Binary {
    /// For this architecture.
    pub arch: Arch,
    /// Where, relative to the tool file.
    pub path: String,
    /// The directory of the shared libraries and the dynamic linker that it needs, relative to the tool file; `None` for one
    /// that is linked statically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libraries: Option<String>,
}

/// A Debian package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DebianPackage {
    /// Suite (`trixie`).
    pub suite: String,
    /// Package; it comes with what it depends on.
    pub package: String,
    /// Further packages; each comes with what it depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
}

/// A program of a Debian package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Debian {
    /// The architectures that this is for; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub archs: Vec<Arch>,
    /// Where it comes from.
    #[serde(flatten)]
    pub from: DebianPackage,
    /// The program, as an absolute path.
    pub program: String,
}

/// A program of a Nix package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nix {
    /// Attribute of the package set (`bpftrace`, `linuxPackages.bcc`).
    pub attribute: String,
    /// The program, relative to the package (`bin/bpftrace`).
    pub program: String,
    /// The architectures for which the package lies beside the tool file ([`Nix::closure`]): seen when the file is loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closures: Vec<Arch>,
}

impl Nix {
    /// The directory beside the tool file with the package for `arch`: `nix/store` with all store paths that it needs, and a
    /// link `package` to its own.
    #[must_use]
    pub fn closure(arch: Arch) -> String {
        format!("closure/{arch}")
    }
}

/// A script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Where it lies, relative to the tool file.
    pub path: String,
    /// The program that runs it, as an absolute path in the guest. It is given the tool's arguments, of which `{script}`
    /// stands for the script's place in the guest; without one the script comes last.
    pub interpreter: String,
    /// What the interpreter comes from; `None`: it is in the guest already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debian: Option<DebianPackage>,
}

/// A bare eBPF object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Object {
    /// The architectures that this is for; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub archs: Vec<Arch>,
    /// The kernels that this is for, as series (`6.12`); empty: all for which no other is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    /// Where it lies, relative to the tool file.
    pub path: String,
    /// Whether it lies in the bundled tracer instead, under its name before `.bpf.o`: that of a bundled tool file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bundled: bool,
    /// The programs to attach, by the names of their functions, each where its section attaches it; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
    /// What its maps and constants hold before its programs are attached.
    #[serde(default, skip_serializing_if = "Contents::is_empty")]
    pub contents: Contents,
}

/// What a tool reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// How it is read.
    #[serde(flatten)]
    pub form: Form,
    /// How long to wait for its next report before and after the workload, in milliseconds, where it reports by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
    /// Whether it leaves out what its own processes do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub excludes_itself: bool,
    /// Mount points of what it leaves out, mounts below them included: what happens there, it may count or not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leaves_out: Vec<String>,
    /// Where it says that it lost events, in lines of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    /// What its figures are.
    pub figures: Vec<ReportedFigure>,
}

/// Lines in which a tool says how many events it lost since the line before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lost {
    /// What they look like; the group `lost` is the number.
    pub line: Pattern,
    /// Where it writes them.
    pub stream: Stream,
}

impl Lost {
    /// The group of [`Lost::line`] that is the number of events.
    pub const GROUP: &'static str = "lost";
}

/// Whether `kernel` is `series` or one of its builds: `6.12.107+deb13` is of `6.12`, `6.1` is not.
#[must_use]
pub fn is_of_series(kernel: &str, series: &str) -> bool {
    kernel.strip_prefix(series).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+', '~']))
}

/// What one figure of a tool means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportedFigure {
    /// Where the report has it: see [`Form`]. Empty for a figure of events that counts them all.
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
    /// What it counts of them.
    pub unit: Unit,
    /// One unit of what it prints stands for so many: 1024 for KiB, rounded down by the tool.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub scale: u64,
    /// Whose they are.
    pub whose: Whose,
    /// The label that names the cgroup, mount or process; `None` for the whole system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether it counts only what is done with files of mounted file systems, and no pipes, sockets and other things that
    /// have descriptors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_files: bool,
    /// Since when.
    pub counting: Counting,
    /// Whether a value that is missing from a line that is otherwise read stands for 0 (`strace -c` leaves out errors that way).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub blank_is_zero: bool,
    /// In what it counts something else than these operations, in a line: then it is shown beside what happened, and no finding follows from its
    /// amounts.
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
}

const fn one() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_one(scale: &u64) -> bool {
    *scale == 1
}

/// What a figure counts of operations.
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

/// Whose operations a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    /// Those of the whole system.
    System,
    /// Those of one cgroup, named by its id (v2) or its path below the root of the hierarchy (`/bpfassay/run`).
    Cgroup,
    /// Those on one mount, named by its path, its mount id, or its device as `major:minor` or as the kernel's number.
    Mount,
    /// Those of one process, named by its id or its name (`comm`).
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
    /// Since the tool attached, or any other fixed instant before the workload: it must never go back.
    Cumulative,
    /// Since the last report.
    Interval,
}

impl Counting {
    /// The names in tool files.
    pub const NAMES: &'static [(&'static str, Self)] =
        &[("cumulative", Self::Cumulative), ("interval", Self::Interval)];
}
