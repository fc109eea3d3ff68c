// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources of tools, and the choice of an entry by architecture and kernel.

use bpfassay_protocol::{Arch, contents::Contents};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The source of a tool. At most one entry of a list matches an architecture and a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Source {
    /// Program files next to the tool file.
    Binary(Vec<Binary>),
    /// Programs in Debian packages.
    Debian(Vec<Debian>),
    /// A program in a Nix package.
    Nix(Nix),
    /// Scripts, each with its interpreter.
    Script(Vec<Script>),
    /// A program that guests always have, by its absolute path.
    Guest(String),
    /// Bare eBPF objects without a program. They are loaded, and attached as their sections say.
    Object(Vec<Object>),
}

impl Source {
    /// Whether the source has something for `kernel` on `arch`.
    #[must_use]
    pub fn has(&self, arch: Arch, kernel: &str) -> bool {
        match self {
            Self::Binary(list) => of_target(list, arch, kernel).is_some(),
            Self::Debian(list) => of_target(list, arch, kernel).is_some(),
            Self::Script(list) => of_target(list, arch, kernel).is_some(),
            Self::Object(list) => of_target(list, arch, kernel).is_some(),
            Self::Nix(nix) => nix.closures.contains(&arch),
            Self::Guest(_) => true,
        }
    }

    /// The Debian packages for `arch` on any kernel, each paired with the program to start.
    #[must_use]
    pub fn packages(&self, arch: Arch) -> Vec<(&str, &DebianPackage)> {
        match self {
            Self::Debian(list) => of_arch(list, arch).map(|(_, debian)| (&*debian.program, &debian.from)).collect(),
            Self::Script(list) => of_arch(list, arch)
                .filter_map(|(_, script)| Some((&*script.interpreter, script.debian.as_ref()?)))
                .collect(),
            Self::Binary(_) | Self::Nix(_) | Self::Guest(_) | Self::Object(_) => Vec::new(),
        }
    }

    /// The bare objects for `arch`, each with its index in the tool file.
    pub fn objects(&self, arch: Arch) -> impl Iterator<Item = (usize, &Object)> {
        of_arch(if let Self::Object(list) = self { list } else { &[] }, arch)
    }

    /// The bare object for `kernel` on `arch`, with its index in the tool file.
    #[must_use]
    pub fn object(&self, arch: Arch, kernel: &str) -> Option<(usize, &Object)> {
        of_target(if let Self::Object(list) = self { list } else { &[] }, arch, kernel)
    }
}

/// A list entry for some architectures and kernels.
pub trait SourceEntry {
    /// Supported architectures; empty for all.
    fn archs(&self) -> &[Arch];
    /// Supported kernels as series (`6.12`). Empty for all kernels without another entry.
    fn kernels(&self) -> &[String];
}

/// The entries of `list` for `arch`, each with its index.
pub fn of_arch<T: SourceEntry>(list: &[T], arch: Arch) -> impl Iterator<Item = (usize, &T)> {
    list.iter().enumerate().filter(move |(_, entry)| entry.archs().is_empty() || entry.archs().contains(&arch))
}

/// The entry of `list` for `kernel` on `arch`, with its index. An entry that names the kernel has
/// precedence over an entry that names none.
#[must_use]
pub fn of_target<'a, T: SourceEntry>(list: &'a [T], arch: Arch, kernel: &str) -> Option<(usize, &'a T)> {
    let is_named = |entry: &T| entry.kernels().iter().any(|series| is_of_series(kernel, series));
    let named = of_arch(list, arch).find(|(_, entry)| is_named(entry));
    named.or_else(|| of_arch(list, arch).find(|(_, entry)| entry.kernels().is_empty()))
}

/// A program file next to the tool file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Binary {
    /// Architecture of the program.
    pub arch: Arch,
    /// Supported kernels as series (`6.12`). Empty for all kernels without another entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    /// Path relative to the tool file.
    pub path: String,
    /// Directory with the required shared libraries and the dynamic linker, relative to the tool
    /// file. `None` for a statically linked program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libraries: Option<String>,
}

/// A Debian package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DebianPackage {
    /// Suite, such as `trixie`.
    pub suite: String,
    /// Package name. Its dependencies are installed, too.
    pub package: String,
    /// Further packages, with their dependencies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
}

/// A program in a Debian package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Debian {
    /// Supported architectures; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub archs: Vec<Arch>,
    /// Supported kernels as series (`6.12`). Empty for all kernels without another entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    /// The package with the program.
    #[serde(flatten)]
    pub from: DebianPackage,
    /// Absolute path of the program.
    pub program: String,
}

/// A program in a Nix package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nix {
    /// Attribute in the package set, such as `bpftrace` or `linuxPackages.bcc`.
    pub attribute: String,
    /// Path of the program in the package, such as `bin/bpftrace`.
    pub program: String,
    /// Architectures with a package next to the tool file ([`Nix::closure`]). Determined when the
    /// file is loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closures: Vec<Arch>,
}

impl Nix {
    /// Directory next to the tool file with the package for `arch`. It has `nix/store` with all
    /// required store paths, and the link `package` to the package's own.
    #[must_use]
    pub fn closure(arch: Arch) -> String {
        format!("closure/{arch}")
    }
}

/// A script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// Supported architectures; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub archs: Vec<Arch>,
    /// Supported kernels as series (`6.12`). Empty for all kernels without another entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    /// Path relative to the tool file.
    pub path: String,
    /// Absolute path of the interpreter in the guest. It gets the tool's arguments, in which
    /// `{script}` stands for the script's path in the guest. If no argument has `{script}`, the
    /// script is the last argument.
    pub interpreter: String,
    /// The package with the interpreter; `None` if the guest already has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debian: Option<DebianPackage>,
}

/// A bare eBPF object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Object {
    /// Supported architectures; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub archs: Vec<Arch>,
    /// Supported kernels as series (`6.12`). Empty for all kernels without another entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    /// Path relative to the tool file.
    pub path: String,
    /// Whether the object is in the bundled tracer, as objects of bundled tool files are. The name
    /// there is the file name without `.bpf.o`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bundled: bool,
    /// Function names of the programs to attach, each as its section says. Empty for all programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
    /// Contents of maps and constants, set before programs are attached.
    #[serde(default, skip_serializing_if = "Contents::is_empty")]
    pub contents: Contents,
}

macro_rules! entries {
    ($($of:ident),*) => {
        $(impl SourceEntry for $of {
            fn archs(&self) -> &[Arch] {
                &self.archs
            }

            fn kernels(&self) -> &[String] {
                &self.kernels
            }
        })*
    };
}

entries!(Debian, Script, Object);

impl SourceEntry for Binary {
    fn archs(&self) -> &[Arch] {
        std::slice::from_ref(&self.arch)
    }

    fn kernels(&self) -> &[String] {
        &self.kernels
    }
}

/// Whether `kernel` is `series` or one of its builds. The series `6.12` includes `6.12.107+deb13`,
/// but not `6.1`.
#[must_use]
pub fn is_of_series(kernel: &str, series: &str) -> bool {
    kernel.strip_prefix(series).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+', '~']))
}
