// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sources of tools, and the choice of an entry by architecture and kernel.

use bpfassay_protocol::{Arch, contents::Contents};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The source of a tool. Lists have at most one entry that fits an architecture and a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Source {
    /// Programs that lie beside the tool file.
    Binary(Vec<Binary>),
    /// Programs of Debian packages.
    Debian(Vec<Debian>),
    /// A program of a Nix package.
    Nix(Nix),
    /// Scripts, each with its interpreter.
    Script(Vec<Script>),
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
            Self::Binary(list) => of_target(list, arch, kernel).is_some(),
            Self::Debian(list) => of_target(list, arch, kernel).is_some(),
            Self::Script(list) => of_target(list, arch, kernel).is_some(),
            Self::Object(list) => of_target(list, arch, kernel).is_some(),
            Self::Nix(nix) => nix.closures.contains(&arch),
            Self::Guest(_) => true,
        }
    }

    /// The Debian packages that it brings along for `arch`, whatever the kernel, each after the
    /// program of it that is started.
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

    /// The bare objects for `arch`, each with its place among all of the file.
    pub fn objects(&self, arch: Arch) -> impl Iterator<Item = (usize, &Object)> {
        of_arch(if let Self::Object(list) = self { list } else { &[] }, arch)
    }

    /// The object for `kernel` on `arch`, if it is a bare one, with its place among all of the
    /// file.
    #[must_use]
    pub fn object(&self, arch: Arch, kernel: &str) -> Option<(usize, &Object)> {
        of_target(if let Self::Object(list) = self { list } else { &[] }, arch, kernel)
    }
}

/// An entry in a list of sources, which is for some architectures and kernels.
pub trait Entry {
    /// The architectures that it is for; empty: all.
    fn archs(&self) -> &[Arch];
    /// The kernels that it is for, as series (`6.12`); empty: all for which no other is.
    fn kernels(&self) -> &[String];
}

/// The entries of `list` for `arch`, each with its place in the list.
pub fn of_arch<T: Entry>(list: &[T], arch: Arch) -> impl Iterator<Item = (usize, &T)> {
    list.iter().enumerate().filter(move |(_, entry)| entry.archs().is_empty() || entry.archs().contains(&arch))
}

/// The entry of `list` for `kernel` on `arch`, with its place in the list: one that names this
/// kernel, else one that names none.
#[must_use]
pub fn of_target<'a, T: Entry>(list: &'a [T], arch: Arch, kernel: &str) -> Option<(usize, &'a T)> {
    let is_named = |entry: &T| entry.kernels().iter().any(|series| is_of_series(kernel, series));
    let named = of_arch(list, arch).find(|(_, entry)| is_named(entry));
    named.or_else(|| of_arch(list, arch).find(|(_, entry)| entry.kernels().is_empty()))
}

/// A program that lies beside the tool file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Binary {
    /// For this architecture.
    pub arch: Arch,
    /// The kernels that this is for, as series (`6.12`); empty: all for which no other is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    /// Its path, relative to the tool file.
    pub path: String,
    /// The directory of the shared libraries and the dynamic linker that it needs, relative to the
    /// tool file; `None` for one that is linked statically.
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
    /// The kernels that this is for, as series (`6.12`); empty: all for which no other is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    /// The package that has it.
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
    /// The architectures for which the package lies beside the tool file ([`Nix::closure`]): seen
    /// when the file is loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub closures: Vec<Arch>,
}

impl Nix {
    /// The directory beside the tool file with the package for `arch`: `nix/store` with all store
    /// paths that it needs, and a link `package` to its own.
    #[must_use]
    pub fn closure(arch: Arch) -> String {
        format!("closure/{arch}")
    }
}

/// A script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The architectures that this is for; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub archs: Vec<Arch>,
    /// The kernels that this is for, as series (`6.12`); empty: all for which no other is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    /// Its path, relative to the tool file.
    pub path: String,
    /// The program that runs it, as an absolute path in the guest. It is given the tool's
    /// arguments, of which `{script}` stands for the script's place in the guest; without one the
    /// script comes last.
    pub interpreter: String,
    /// The package that has the interpreter; `None`: it is in the guest already.
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
    /// Its path, relative to the tool file.
    pub path: String,
    /// Whether it lies in the bundled tracer instead, under its name before `.bpf.o`: that of a
    /// bundled tool file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bundled: bool,
    /// The programs to attach, by the names of their functions, each where its section attaches it;
    /// empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
    /// The contents of its maps and constants before its programs are attached.
    #[serde(default, skip_serializing_if = "Contents::is_empty")]
    pub contents: Contents,
}

macro_rules! entries {
    ($($of:ident),*) => {
        $(impl Entry for $of {
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

impl Entry for Binary {
    fn archs(&self) -> &[Arch] {
        std::slice::from_ref(&self.arch)
    }

    fn kernels(&self) -> &[String] {
        &self.kernels
    }
}

/// Whether `kernel` is `series` or one of its builds: `6.12.107+deb13` is of `6.12`, `6.1` is not.
#[must_use]
pub fn is_of_series(kernel: &str, series: &str) -> bool {
    kernel.strip_prefix(series).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '+', '~']))
}
