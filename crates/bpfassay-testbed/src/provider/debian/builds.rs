// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the builds of a series in a package index.

use bpfassay_packages::{
    apt::{IndexedPackage, Located, Package},
    safe_names::KernelRelease,
};

use super::compare_versions;
use crate::{catalogue::CatalogueEntry, testbed_lock::build_name};

/// Prefix of the names of packages with headers.
pub(super) const HEADERS: &str = "linux-headers-";

/// One build of a kernel in a suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelBuild {
    /// Release of the kernel: the output of `uname -r`.
    pub release: KernelRelease,
    /// Version of the kernel packages.
    pub version: String,
    /// The packages that contain the kernel's files, and their places in the archive.
    pub packages: Vec<Located>,
    /// The packages that contain the kernel's headers. Empty if the index lacks them.
    pub headers: Vec<Located>,
    /// A package that the index lacks although the build needs it. The build is then unusable.
    pub missing: Option<String>,
}

impl KernelBuild {
    /// Returns the name on the command line: the upstream version (`6.12.107`, `7.3-rc7`).
    #[must_use]
    pub fn name(&self) -> String {
        build_name(&self.version)
    }

    /// Returns all packages of the build.
    pub(super) fn located_mut(&mut self) -> impl Iterator<Item = &mut Located> {
        self.packages.iter_mut().chain(&mut self.headers)
    }
}

/// Returns the builds of `entry` among the packages of its suite, oldest first.
#[must_use]
pub fn builds(entry: &CatalogueEntry, flavour: &str, index: &[IndexedPackage]) -> Vec<KernelBuild> {
    let Some((before, after)) = entry.packages.first().and_then(|name| name.split_once('@')) else { return Vec::new() };
    let mut builds: Vec<_> = index
        .iter()
        .filter_map(|indexed| {
            let package = &indexed.found.package;
            let release = package.name.strip_prefix(before)?.strip_suffix(after)?;
            let release: KernelRelease = release.parse().ok()?;
            entry.release.matches(&release, flavour).then(|| build(entry, &release, &package.version, index))
        })
        .collect();
    builds.sort_by(|a, b| compare_versions(&a.version, &b.version).then_with(|| a.release.cmp(&b.release)));
    builds
}

/// Collects the packages of one release at one version: those that the entry names, and their
/// dependencies that have the release in their names.
fn build(entry: &CatalogueEntry, release: &KernelRelease, version: &str, index: &[IndexedPackage]) -> KernelBuild {
    let suffix = format!("-{release}");
    let mut names: Vec<String> = entry.packages.iter().map(|name| name.replace('@', release)).collect();
    let mut packages = Vec::new();
    let mut missing = None;
    let mut next = 0;
    while let Some(name) = names.get(next).cloned() {
        next += 1;
        let indexed = index.iter().find(|indexed| {
            let package = &indexed.found.package;
            package.name == name.as_str() && package.version == version
        });
        let Some(indexed) = indexed else {
            // Backports drop linux-base of old builds. Builds up to 6.18 have its files in
            // linux-image. If no package has them, unpacking reports it.
            if !name.starts_with("linux-base-") {
                missing.get_or_insert(name);
            }
            continue;
        };
        packages.push(indexed.found.clone());
        for name in &indexed.depends {
            if name.starts_with("linux-") && name.ends_with(&suffix) && !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    packages.sort();
    let headers = headers(release, version, index);
    KernelBuild { release: release.clone(), version: version.to_owned(), packages, headers, missing }
}

/// Collects the packages with the headers of one release: the package for the flavour, and the one
/// for all flavours, which the first depends on.
fn headers(release: &KernelRelease, version: &str, index: &[IndexedPackage]) -> Vec<Located> {
    let find = |name: &str| {
        let is_found = |package: &Package| package.name == name && package.version == version;
        index.iter().find(|indexed| is_found(&indexed.found.package))
    };
    let Some(of_flavour) = find(&format!("{HEADERS}{release}")) else { return Vec::new() };
    let others = of_flavour.depends.iter().filter(|name| name.starts_with(HEADERS)).filter_map(|name| find(name));
    let mut all: Vec<_> = others.chain([of_flavour]).map(|indexed| indexed.found.clone()).collect();
    all.sort();
    all
}
