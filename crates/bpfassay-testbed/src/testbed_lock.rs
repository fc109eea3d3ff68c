// SPDX-License-Identifier: MIT OR Apache-2.0
//! `testbed.lock`: the exact files of Debian packages that testbeds are built from. It gives a
//! kernel's name the same build on every machine, for as long as an archive has the files. No
//! package index is then needed.
//!
//! [`crate::lock_update::update`] writes the lock from indexes whose signatures apt has checked.
//! The program contains it.

use std::{collections::BTreeSet, fmt::Write as _, sync::OnceLock};

use bpfassay_packages::{
    apt::{Located, Package, SnapshotTime, is_path, is_plain},
    digest::Digest,
    safe_names::{KernelRelease, PackageArchitecture, PackageName, PackageVersion},
};
use bpfassay_protocol::Arch;
use serde::{Deserialize, Deserializer};

use crate::error::catalogue_error::CatalogueError;

/// Name and text of the lock that the program contains.
const BUNDLED: (&str, &str) = ("testbed.lock", include_str!("../testbed.lock"));

/// Format version of the lock.
const FORMAT: u32 = 1;

/// The package files that testbeds are built from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TestbedLock {
    /// One entry for each name and architecture, sorted by both.
    pub(crate) kernels: Vec<LockedKernel>,
    /// One entry for each architecture of hosts.
    pub(crate) toolchains: Vec<LockedForHost>,
    /// One entry for each architecture of hosts.
    pub(crate) emulators: Vec<LockedForHost>,
    /// One entry for each suite, name and architecture of guests, sorted by these.
    pub(crate) of_guests: Vec<LockedForGuests>,
}

/// The meaning of a kernel's name on an architecture.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedKernel {
    /// Name in the catalogue.
    pub name: String,
    /// Architecture of the kernel.
    pub architecture: Arch,
    /// The suite that the kernel was chosen from.
    pub suite: String,
    /// Release of the kernel: the output of `uname -r`.
    pub release: KernelRelease,
    /// Version of the kernel packages.
    pub version: String,
    /// The packages that contain the kernel's files.
    #[serde(deserialize_with = "located")]
    pub packages: Vec<Located>,
    /// The packages that contain the kernel's headers. Empty if they were not found when the kernel
    /// was locked.
    #[serde(default, deserialize_with = "located")]
    pub headers: Vec<Located>,
}

/// The packages of programs that run on hosts: the cross toolchain, or QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedForHost {
    /// The host's architecture.
    pub architecture: Arch,
    /// The suite that the packages were chosen from.
    pub suite: String,
    /// The packages, sorted.
    #[serde(deserialize_with = "located")]
    pub packages: Vec<Located>,
}

/// The meaning of a package's name in guests: the package and all its dependencies.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedForGuests {
    /// The suite that the packages were chosen from.
    pub suite: String,
    /// Name of the package.
    pub name: String,
    /// The guest's architecture.
    pub architecture: Arch,
    /// The package and its dependencies, sorted.
    #[serde(deserialize_with = "located")]
    pub packages: Vec<Located>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LockText {
    format: u32,
    #[serde(default)]
    kernel: Vec<LockedKernel>,
    #[serde(default)]
    toolchain: Vec<LockedForHost>,
    #[serde(default)]
    qemu: Vec<LockedForHost>,
    #[serde(default)]
    guest: Vec<LockedForGuests>,
}

/// A package in a line of the lock.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LockLine {
    name: PackageName,
    version: PackageVersion,
    architecture: PackageArchitecture,
    size: u64,
    sha256: Digest,
    path: String,
    snapshot: Option<SnapshotTime>,
}

fn located<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Located>, D::Error> {
    let lines = Vec::<LockLine>::deserialize(deserializer)?;
    let of = |LockLine { name, version, architecture, size, sha256, path, snapshot }| Located {
        package: Package { name, version, architecture, size, sha256 },
        path,
        snapshot,
    };
    Ok(lines.into_iter().map(of).collect())
}

impl TestbedLock {
    /// Returns the lock that the program contains, which is parsed once.
    ///
    /// # Errors
    /// None in a released program, because a test checks the text.
    pub fn bundled() -> Result<&'static Self, CatalogueError> {
        static PARSED: OnceLock<Result<TestbedLock, CatalogueError>> = OnceLock::new();
        PARSED.get_or_init(|| Self::parse(BUNDLED.0, BUNDLED.1)).as_ref().map_err(Clone::clone)
    }

    /// Parses TOML text. `origin` names it in messages.
    ///
    /// # Errors
    /// [`CatalogueError::Form`] if the text is not a lock of this format. Names, versions and paths
    /// must follow Debian's policy for packages, and entries must not be repeated.
    pub fn parse(origin: &str, text: &str) -> Result<Self, CatalogueError> {
        let refuse = |problem: String| CatalogueError::Form { origin: origin.to_owned(), problem };
        let text: LockText = toml::from_str(text).map_err(|error| refuse(error.to_string()))?;
        if text.format != FORMAT {
            return Err(refuse(format!("has format {}, this program reads {FORMAT}", text.format)));
        }
        let mut seen = BTreeSet::new();
        for LockedKernel { name, architecture, suite, release, version, packages, headers } in &text.kernel {
            let of = format!("kernel `{name}` for {architecture}");
            if !seen.insert((name, architecture)) {
                return Err(refuse(format!("{of} is there twice")));
            }
            check(packages, &[name, suite, &release.to_string(), version])
                .and_then(|()| if headers.is_empty() { Ok(()) } else { check(headers, &[]) })
                .map_err(|problem| refuse(format!("{of}: {problem}")))?;
        }
        for (what, locked) in [("the toolchain", &text.toolchain), ("QEMU", &text.qemu)] {
            let mut seen = BTreeSet::new();
            for LockedForHost { architecture, suite, packages } in locked {
                let of = format!("{what} for {architecture}");
                if !seen.insert(architecture) {
                    return Err(refuse(format!("{of} is there twice")));
                }
                check(packages, &[suite]).map_err(|problem| refuse(format!("{of}: {problem}")))?;
            }
        }
        let mut seen = BTreeSet::new();
        for LockedForGuests { suite, name, architecture, packages } in &text.guest {
            let of = format!("package `{name}` of `{suite}` for guests of {architecture}");
            if !seen.insert((suite, name, architecture)) {
                return Err(refuse(format!("{of} is there twice")));
            }
            check(packages, &[suite, name]).map_err(|problem| refuse(format!("{of}: {problem}")))?;
        }
        Ok(Self { kernels: text.kernel, toolchains: text.toolchain, emulators: text.qemu, of_guests: text.guest })
    }

    /// Returns the kernel for `name`, which is the name of a series or of the locked build.
    #[must_use]
    pub fn kernel(&self, architecture: Arch, name: &str) -> Option<&LockedKernel> {
        let mut kernels = self.kernels.iter().filter(|kernel| kernel.architecture == architecture);
        kernels.find(|kernel| kernel.name == name || build_name(&kernel.version) == name)
    }

    /// Returns a copy of the lock with `kernels` in place of those with the same names.
    #[must_use]
    pub fn with_kernels(&self, kernels: Vec<LockedKernel>) -> Self {
        let mut lock = self.clone();
        for kernel in kernels {
            lock.set_kernel(kernel);
        }
        lock
    }

    /// Returns all kernels.
    #[must_use]
    pub fn kernels(&self) -> &[LockedKernel] {
        &self.kernels
    }

    /// Returns the packages of the cross toolchain for hosts of `architecture`.
    #[must_use]
    pub fn toolchain(&self, architecture: Arch) -> Option<&LockedForHost> {
        self.toolchains.iter().find(|toolchain| toolchain.architecture == architecture)
    }

    /// Returns the packages of QEMU for hosts of `architecture`, for guests of all architectures.
    #[must_use]
    pub fn qemu(&self, architecture: Arch) -> Option<&LockedForHost> {
        self.emulators.iter().find(|qemu| qemu.architecture == architecture)
    }

    /// Returns the packages that `name` of a suite means in guests of `architecture`.
    #[must_use]
    pub fn of_guests(&self, architecture: Arch, suite: &str, name: &str) -> Option<&LockedForGuests> {
        let of = |locked: &&LockedForGuests| {
            (locked.architecture, &*locked.suite, &*locked.name) == (architecture, suite, name)
        };
        self.of_guests.iter().find(of)
    }

    /// Returns the packages of all `names` of a suite in guests of `architecture`, sorted and
    /// without repetition. Returns `None` if the lock lacks one of the names.
    #[must_use]
    pub fn closure<'a>(
        &self,
        architecture: Arch,
        suite: &str,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Option<Vec<Located>> {
        let mut all = BTreeSet::new();
        for name in names {
            all.extend(self.of_guests(architecture, suite, name)?.packages.iter().cloned());
        }
        Some(all.into_iter().collect())
    }

    /// Returns the entries for packages of guests.
    #[must_use]
    pub fn packages_of_guests(&self) -> &[LockedForGuests] {
        &self.of_guests
    }

    /// Returns the text of the lock.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!(
            "# The package files that testbeds are made of. Written by `bpfassay testbed lock --update`, not by hand.\nformat = {FORMAT}\n"
        );
        // Writing to a string cannot fail. Quoted values were checked to contain no quotes or
        // backslashes.
        for LockedKernel { name, architecture, suite, release, version, packages, headers } in &self.kernels {
            let headers = if headers.is_empty() { String::new() } else { format!("headers = {}\n", lines(headers)) };
            let _ = write!(
                text,
                "\n[[kernel]]\nname = \"{name}\"\narchitecture = \"{architecture}\"\nsuite = \"{suite}\"\n\
                 release = \"{release}\"\nversion = \"{version}\"\npackages = {}\n{headers}",
                lines(packages)
            );
        }
        let of_hosts = |table| move |locked| (table, locked);
        let toolchains = self.toolchains.iter().map(of_hosts("toolchain"));
        for (table, locked) in toolchains.chain(self.emulators.iter().map(of_hosts("qemu"))) {
            let LockedForHost { architecture, suite, packages } = locked;
            let _ = write!(
                text,
                "\n[[{table}]]\narchitecture = \"{architecture}\"\nsuite = \"{suite}\"\npackages = {}\n",
                lines(packages)
            );
        }
        for LockedForGuests { suite, name, architecture, packages } in &self.of_guests {
            let _ = write!(
                text,
                "\n[[guest]]\nsuite = \"{suite}\"\nname = \"{name}\"\narchitecture = \"{architecture}\"\npackages = {}\n",
                lines(packages)
            );
        }
        text
    }

    /// Replaces the entry for the kernel's name.
    pub(crate) fn set_kernel(&mut self, kernel: LockedKernel) {
        self.kernels.retain(|other| (&other.name, other.architecture) != (&kernel.name, kernel.architecture));
        self.kernels.push(kernel);
    }

    pub(crate) fn set_toolchain(&mut self, toolchain: LockedForHost) {
        set(&mut self.toolchains, toolchain);
    }

    pub(crate) fn set_of_guests(&mut self, locked: LockedForGuests) {
        let key = |of: &LockedForGuests| (of.suite.clone(), of.name.clone(), of.architecture);
        self.of_guests.retain(|other| key(other) != key(&locked));
        self.of_guests.push(locked);
        self.of_guests.sort_by_key(key);
    }

    pub(crate) fn set_qemu(&mut self, qemu: LockedForHost) {
        set(&mut self.emulators, qemu);
    }
}

/// Returns the name of the build whose packages have `version`.
pub(crate) fn build_name(version: &str) -> String {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    version.rsplit_once('-').map_or(version, |(upstream, _)| upstream).replace('~', "-")
}

/// Replaces the entry of `all` for the same architecture.
fn set(all: &mut Vec<LockedForHost>, locked: LockedForHost) {
    all.retain(|other| other.architecture != locked.architecture);
    all.push(locked);
    all.sort_by_key(|locked| locked.architecture);
}

/// Checks a lock's entry, because its texts become parts of paths, of arguments for apt, and of
/// URIs.
fn check(packages: &[Located], others: &[&String]) -> Result<(), String> {
    if let Some(other) = others.iter().find(|text| !is_plain(text)) {
        return Err(format!("`{other}` is no name or version"));
    }
    if packages.is_empty() {
        return Err("packages is empty".to_owned());
    }
    let mut seen = BTreeSet::new();
    for Located { package, path, .. } in packages {
        let Package { name, version, architecture, size, .. } = package;
        let of = |problem: &str| Err(format!("package `{name}`: {problem}"));
        if ![name.as_str(), version, architecture].into_iter().all(is_plain) {
            return of("its name, version or architecture is none");
        }
        if !(path.starts_with("pool/") && is_path(path)) {
            return of(&format!("`{path}` is no path in an archive's pool"));
        }
        if *size == 0 {
            return of("it has no bytes");
        }
        if !seen.insert(package) {
            return of("it is there twice");
        }
    }
    Ok(())
}

fn lines(packages: &[Located]) -> String {
    let mut text = "[\n".to_owned();
    for Located { package: Package { name, version, architecture, size, sha256 }, path, snapshot } in packages {
        let snapshot = snapshot.map(|time| format!(", snapshot = \"{time}\"")).unwrap_or_default();
        let _ = writeln!(
            text,
            "  {{ name = \"{name}\", version = \"{version}\", architecture = \"{architecture}\", size = {size}, \
             sha256 = \"{sha256}\", path = \"{path}\"{snapshot} }},"
        );
    }
    text + "]"
}

#[cfg(test)]
mod tests;
