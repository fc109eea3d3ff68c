// SPDX-License-Identifier: MIT OR Apache-2.0
//! Provides kernels by their names in the catalogue: selects them in the package indexes, downloads
//! and unpacks them.

#![allow(clippy::disallowed_methods, reason = "joins fixed names to a tree of the cache")]

use bpfassay_packages::{
    apt::{Apt, IndexedPackage, Located, Package, PackageOrigin, Root},
    cache::{CachedFile, Tree},
    digest::Digest,
    error::{PackagesError, apt_failure::AptError},
    safe_names::KernelRelease,
    stages::ProgressStep,
    unpack::GROWTH,
};
use bpfassay_protocol::Arch;
use serde::{Deserialize, Serialize};

use super::{
    builds::{HEADERS, KernelBuild, builds},
    unpack_kernel,
};
use crate::{
    catalogue::{Catalogue, CatalogueEntry, KernelSelection},
    error::{Error, Result, catalogue_error::CatalogueError},
    kernel::{BootableKernel, Modules},
    kernel_modules::ModuleLayout,
    manifest,
    testbed_lock::{LockedKernel, build_name},
};

/// Provides kernels by name.
#[derive(Debug)]
pub struct KernelProvider<'a> {
    pub(super) apt: &'a Apt<'a>,
    pub(super) catalogue: &'a Catalogue,
}

/// The build that was selected for a name. The cache stores the choice, so that the name keeps its
/// meaning until a refresh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    suite: String,
    release: KernelRelease,
    version: String,
    packages: Vec<Package>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<Package>,
}

const CHOICES: &str = "kernel";
const TREES: &str = "kernel";
const INDEXES: &str = "kernel-index-3";

impl<'a> KernelProvider<'a> {
    /// Creates a source of kernels from the packages of `apt` and the names of `catalogue`.
    #[must_use]
    pub fn new(apt: &'a Apt<'a>, catalogue: &'a Catalogue) -> Self {
        Self { apt, catalogue }
    }

    /// Returns the kernel `name` of `arch` if it is in the cache. Does not use the network.
    ///
    /// # Errors
    /// [`CatalogueError::UnknownKernel`] if the catalogue lacks the name, [`PackagesError::Io`] or
    /// [`PackagesError::Damaged`] if the cache cannot be read or repaired.
    pub fn cached(&self, arch: Arch, name: &str) -> Result<Option<BootableKernel>> {
        let Some(choice) = self.known(arch, name)? else { return Ok(None) };
        let tree = self.apt.cache().tree(TREES, &choice.tree_key())?;
        tree.map(|tree| choice.kernel(arch, name, &tree)).transpose()
    }

    /// Returns whether the kernel `name` of `arch` is in the cache. Does not use the network, and
    /// does not check the files of the kernel.
    ///
    /// # Errors
    /// [`CatalogueError::UnknownKernel`] if the catalogue lacks the name, [`PackagesError::Io`] if
    /// the cache cannot be read.
    pub(crate) fn is_cached(&self, arch: Arch, name: &str) -> Result<bool> {
        let choice = self.known(arch, name)?;
        Ok(choice.is_some_and(|choice| self.apt.cache().has_tree(TREES, &choice.tree_key())))
    }

    /// Returns the build that `name` means without an index; `None` if only an index tells it.
    fn known(&self, arch: Arch, name: &str) -> Result<Option<Choice>> {
        self.catalogue.find(arch, name)?;
        match self.locked(arch, name) {
            Some(locked) => Ok(Some(Choice::from(locked))),
            None => self.remembered(arch, name),
        }
    }

    /// Returns the kernel `name` of `arch`, from the cache or by downloading and unpacking it.
    ///
    /// A name means the build in the catalogue's lock. It means the newest build instead if the
    /// lock has no build, if the mirror no longer has its files, or if
    /// [`bpfassay_packages::apt::FetchOptions::newest`] requests it. That choice then stays until
    /// [`bpfassay_packages::apt::FetchOptions::refresh`].
    ///
    /// # Errors
    /// - [`CatalogueError`] for an unknown name, and for a build that is missing or incomplete.
    /// - [`AptError`] if the mirror fails, [`PackagesError::Offline`] if the network may not be
    ///   used.
    /// - [`Error::KernelLayout`] for packages without an image, [`PackagesError::DiskFull`].
    pub fn prepare(&self, arch: Arch, name: &str) -> Result<BootableKernel> {
        let selection = self.catalogue.find(arch, name)?;
        if let Some(locked) = self.locked(arch, name) {
            let choice = Choice::from(locked);
            match self.unpacked(arch, &choice, Some(locked)) {
                Err(ref error) if let Some(detail) = error.dropped() => tracing::warn!(
                    "kernel {name} for {arch}: the mirror no longer has build {} of testbed.lock ({detail}); another takes its \
                     place, so figures are not those of other machines; --archive names a place that has it",
                    locked.version
                ),
                tree => return choice.kernel(arch, name, &tree?),
            }
        }
        let refresh = self.apt.options().refresh && !self.apt.options().offline;
        if !refresh && let Some(choice) = self.remembered(arch, name)? {
            match self.unpacked(arch, &choice, None) {
                // The mirror may have dropped an old build since. The newest then replaces it.
                Err(Error::Packages(PackagesError::Apt(AptError::Missing { detail, .. }))) => {
                    tracing::warn!("kernel {name} for {arch}, build {}, is gone ({detail})", choice.version);
                }
                other => return choice.kernel(arch, name, &other?),
            }
        }
        let choice = Choice::from(self.choose(&selection, false)?);
        let (choice, tree) = match self.unpacked(arch, &choice, None) {
            Err(Error::Packages(PackagesError::Apt(AptError::Missing { .. } | AptError::MidSync { .. })))
                if !refresh =>
            {
                tracing::info!("the package index of suite {} is behind its mirror; fetching it again", choice.suite);
                let choice = Choice::from(self.choose(&selection, true)?);
                let tree = self.unpacked(arch, &choice, None)?;
                (choice, tree)
            }
            tree => (choice, tree?),
        };
        let kernel = choice.kernel(arch, name, &tree)?;
        self.apt.cache().record(CHOICES, &choice_key(arch, name), &choice)?;
        tracing::debug!("kernel {name} for {arch} is {} ({})", choice.release, choice.version);
        Ok(kernel)
    }

    /// Returns the package files with the headers of `kernel`, which [`KernelProvider::prepare`]
    /// returned, from the cache or by downloading them.
    ///
    /// # Errors
    /// [`CatalogueError::NoHeaders`] if neither the lock nor the index has headers of this build.
    /// Otherwise those of [`Apt::fetch`].
    pub fn headers(&self, kernel: &BootableKernel) -> Result<Vec<CachedFile>> {
        let (arch, name) = (kernel.arch, &*kernel.name);
        let is_same = |choice: &Choice| choice.release == kernel.release && !choice.headers.is_empty();
        let locked = self.locked(arch, name).filter(|locked| is_same(&Choice::from(*locked)));
        if let Some(LockedKernel { suite, headers, .. }) = locked {
            let packages: Vec<_> = headers.iter().map(|located| located.package.clone()).collect();
            return Ok(self.apt.fetch_from(PackageOrigin::Pool { suite, packages: headers }, &packages)?);
        }
        let remembered = self.remembered(arch, name)?.filter(is_same);
        let choice = match remembered {
            Some(choice) => choice,
            None => {
                let mut selection = self.catalogue.find(arch, name)?;
                selection.version = kernel.version.as_deref().map(build_name);
                let release = kernel.release.to_string();
                Some(Choice::from(self.choose(&selection, false)?))
                    .filter(is_same)
                    .ok_or(CatalogueError::NoHeaders { arch, release })?
            }
        };
        Ok(self.apt.fetch(&self.apt.root(&choice.suite, &[arch])?, &choice.headers)?)
    }

    fn remembered(&self, arch: Arch, name: &str) -> Result<Option<Choice>> {
        Ok(self.apt.cache().recorded(CHOICES, &choice_key(arch, name))?)
    }

    /// Returns the build in the lock for `name`, unless the options ask for another.
    pub(crate) fn locked(&self, arch: Arch, name: &str) -> Option<&'a LockedKernel> {
        self.apt.options().is_locked().then(|| self.catalogue.lock().kernel(arch, name)).flatten()
    }

    fn unpacked(&self, arch: Arch, choice: &Choice, locked: Option<&LockedKernel>) -> Result<Tree> {
        let cache = self.apt.cache();
        let what = format!("kernel {} for {arch}", choice.release);
        let size: u64 = choice.packages.iter().map(|package| package.size).sum();
        cache.make_tree(TREES, &choice.tree_key(), &what, size.saturating_mul(GROWTH), |content| {
            let mut objects = Vec::new();
            for package in &choice.packages {
                objects.extend(cache.object(&package.sha256)?);
            }
            if objects.len() < choice.packages.len() {
                objects = match locked {
                    Some(LockedKernel { suite, packages, .. }) => {
                        self.apt.fetch_from(PackageOrigin::Pool { suite, packages }, &choice.packages)?
                    }
                    None => self.apt.fetch(&self.apt.root(&choice.suite, &[arch])?, &choice.packages)?,
                };
            }
            let stage = self.apt.stage();
            stage.step(ProgressStep::Unpack, objects.len() as u64);
            unpack_kernel::unpack(cache, &objects, &choice.release, &what, content, || stage.one_more())?;
            stage.step(ProgressStep::Store, 0);
            Ok(())
        })
    }

    /// Returns the build that a name means today, with its suite.
    ///
    /// # Errors
    /// The errors of [`Apt::root`]. Errors of apt if it cannot list the packages of a suite.
    /// [`Error::Catalogue`] if no suite has a complete build of that name today.
    pub(crate) fn choose(&self, selection: &KernelSelection<'_>, force: bool) -> Result<(String, KernelBuild)> {
        let mut all = Vec::new();
        for entry in &selection.entries {
            let root = self.apt.root_at(&entry.suite, &[selection.arch], force)?;
            let mut builds = builds(entry, selection.flavour, &self.index(&root, selection.arch)?);
            for located in builds.iter_mut().flat_map(KernelBuild::located_mut) {
                located.snapshot = root.snapshot();
            }
            all.extend(builds.into_iter().map(|build| (entry.suite.as_str(), build)));
            // A series means the newest build of the first suite that has one.
            if selection.version.is_none() && all.iter().any(|(_, build)| build.missing.is_none()) {
                break;
            }
        }
        pick(selection, &all).map_err(Error::from)
    }

    /// Returns the kernel packages in the index of `root`.
    pub(crate) fn index(&self, root: &Root, arch: Arch) -> Result<Vec<IndexedPackage>> {
        let key = Digest::of_parts([root.suite(), arch.name(), &root.state().digest().to_string()]);
        if let Some(packages) = self.apt.cache().recorded(INDEXES, &key)? {
            return Ok(packages);
        }
        let packages = root.packages(arch, |name| {
            ["linux-image-", "linux-binary-", "linux-modules-", "linux-base-", HEADERS]
                .iter()
                .any(|part| name.starts_with(part))
        })?;
        self.apt.cache().record(INDEXES, &key, &packages)?;
        Ok(packages)
    }

    /// Returns the builds of a series in the index of `root`.
    ///
    /// # Errors
    /// Errors of apt if it cannot list the packages of the index, or of the cache if it cannot
    /// record them.
    pub(super) fn builds_in(&self, entry: &CatalogueEntry, arch: Arch, root: &Root) -> Result<Vec<KernelBuild>> {
        let flavour = self.catalogue.flavour(arch).unwrap_or_default();
        Ok(builds(entry, flavour, &self.index(root, arch)?))
    }
}

/// Selects one of the builds, which are sorted oldest first within each suite.
fn pick(selection: &KernelSelection<'_>, all: &[(&str, KernelBuild)]) -> Result<(String, KernelBuild), CatalogueError> {
    let wanted = |build: &KernelBuild| selection.version.as_ref().is_none_or(|version| *version == build.name());
    let complete = all.iter().rev().find(|(_, build)| wanted(build) && build.missing.is_none());
    if let Some((suite, build)) = complete {
        return Ok(((*suite).to_owned(), build.clone()));
    }
    let (name, arch) = (selection.name.clone(), selection.arch);
    for (suite, build) in all.iter().rev() {
        if let (true, Some(missing)) = (wanted(build), build.missing.clone()) {
            let (suite, release) = ((*suite).to_owned(), build.release.to_string());
            return Err(CatalogueError::Incomplete { name, arch, release, suite, missing });
        }
    }
    let mut suites: Vec<_> = selection.entries.iter().map(|entry| entry.suite.as_str()).collect();
    suites.dedup();
    let mut builds: Vec<_> = all.iter().map(|(_, build)| build.name()).collect();
    builds.dedup();
    Err(CatalogueError::NoBuild { name, arch, suites: suites.join(" or "), builds })
}

impl From<(String, KernelBuild)> for Choice {
    fn from((suite, build): (String, KernelBuild)) -> Self {
        let packages = |located: Vec<Located>| located.into_iter().map(|located| located.package).collect();
        let (packages, headers) = (packages(build.packages), packages(build.headers));
        Self { suite, release: build.release, version: build.version, packages, headers }
    }
}

impl From<&LockedKernel> for Choice {
    fn from(locked: &LockedKernel) -> Self {
        let packages = |located: &[Located]| located.iter().map(|located| located.package.clone()).collect();
        Self {
            suite: locked.suite.clone(),
            release: locked.release.clone(),
            version: locked.version.clone(),
            packages: packages(&locked.packages),
            headers: packages(&locked.headers),
        }
    }
}

fn choice_key(arch: Arch, name: &str) -> Digest {
    Digest::of_parts([arch.name(), name])
}

impl Choice {
    fn tree_key(&self) -> Digest {
        let packages = self.packages.iter().map(|package| package.sha256.to_string());
        Digest::of_parts([unpack_kernel::LAYOUT.to_owned(), self.release.to_string()].into_iter().chain(packages))
    }

    fn kernel(&self, arch: Arch, name: &str, tree: &Tree) -> Result<BootableKernel> {
        let file = |name: &str| -> Result<Option<manifest::File>> {
            let Some(file) = tree.file(name) else { return Ok(None) };
            let path = tree.path.join(name);
            let size = std::fs::metadata(&path).map_err(Error::io("read", &path))?.len();
            Ok(Some(manifest::File { path, size, sha256: file.digest }))
        };
        let layout =
            |missing: &str| Error::KernelLayout { what: self.release.to_string(), missing: missing.to_owned() };
        Ok(BootableKernel {
            arch,
            name: name.to_owned(),
            release: self.release.clone(),
            version: Some(self.version.clone()),
            image: file(unpack_kernel::IMAGE)?.ok_or_else(|| layout(unpack_kernel::IMAGE))?,
            config: file(unpack_kernel::CONFIG)?,
            modules: Some(Modules {
                path: tree.path.join(unpack_kernel::MODULES),
                layout: ModuleLayout::Installed,
                key: tree.digest_below(unpack_kernel::MODULES),
            }),
            packages: self.packages.clone(),
            headers: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests;
