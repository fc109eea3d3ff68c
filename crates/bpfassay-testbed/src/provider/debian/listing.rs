// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data of the command `list kernels`: known, cached and available kernels.

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_packages::{apt::Root, error::PackagesError, safe_names::KernelRelease};
use bpfassay_protocol::Arch;

use super::{KernelBuild, compare_versions, debian_kernels::KernelProvider};
use crate::error::{Error, Result};

/// One series of kernels on one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesListing {
    /// Name of the series.
    pub name: String,
    /// Architecture of the kernels.
    pub arch: Arch,
    /// The suites that contain the series, first choice first.
    pub suites: Vec<String>,
    /// The builds in these suites, oldest first within each. Absent if a package index has not been
    /// fetched yet or cannot be fetched.
    pub builds: Option<Vec<(String, KernelBuild)>>,
    /// Why a package index cannot be fetched, and what to do about it.
    pub problem: Option<String>,
    /// Kernel release of the build in the lock, if the lock has one.
    pub locked: Option<KernelRelease>,
    /// Cached kernels: the build that the name means now, and builds fetched by their own names.
    pub cached: Vec<Cached>,
}

/// A kernel in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    /// The name by which it was fetched.
    pub name: String,
    /// Release of the kernel: the output of `uname -r`.
    pub release: KernelRelease,
    /// Version of the kernel packages.
    pub version: Option<String>,
}

impl SeriesListing {
    /// Returns the build that the series' name means, with its suite: the newest complete build of
    /// the first suite that has one.
    #[must_use]
    pub fn current(&self) -> Option<&(String, KernelBuild)> {
        let builds = self.builds.as_deref()?;
        self.suites
            .iter()
            .find_map(|suite| builds.iter().rev().find(|(found, build)| found == suite && build.missing.is_none()))
    }

    /// Returns the names of the builds that `keep` selects, oldest first. Each occurs once, even if
    /// several suites contain the build.
    pub fn names(&self, keep: impl Fn(&KernelBuild) -> bool) -> Vec<String> {
        let builds = self.builds.iter().flatten().map(|(_, build)| build);
        let mut builds: Vec<_> = builds.filter(|build| keep(build)).collect();
        builds.sort_by(|a, b| compare_versions(&a.version, &b.version));
        let mut names: Vec<_> = builds.into_iter().map(KernelBuild::name).collect();
        names.dedup();
        names
    }
}

impl KernelProvider<'_> {
    /// Lists everything known for `arch`. Fetches package indexes that are missing or old, unless
    /// the network may not be used. Reports a suite that its mirror lacks in
    /// [`SeriesListing::problem`].
    ///
    /// # Errors
    /// [`PackagesError::Command`] if an index cannot be read, [`PackagesError::DiskFull`] if there
    /// is no space for an index, [`PackagesError::Io`] if the cache cannot be read.
    pub fn list(&self, arch: Arch) -> Result<Vec<SeriesListing>> {
        let mut suites = BTreeMap::new();
        let mut listings = Vec::new();
        for name in self.catalogue.names(arch) {
            let selection = self.catalogue.find(arch, name)?;
            let mut listing = SeriesListing {
                name: name.to_owned(),
                arch,
                suites: selection.entries.iter().map(|entry| entry.suite.clone()).collect(),
                builds: Some(Vec::new()),
                problem: None,
                locked: self.locked(arch, name).map(|locked| locked.release.clone()),
                cached: Vec::new(),
            };
            listing.suites.dedup();
            for entry in &selection.entries {
                if !suites.contains_key(&entry.suite) {
                    suites.insert(entry.suite.clone(), self.suite(&entry.suite, arch)?);
                }
                match suites.get(&entry.suite) {
                    Some(Suite::Here(root)) => {
                        let found = self.builds_in(entry, arch, root)?;
                        let found = found.into_iter().map(|build| (entry.suite.clone(), build));
                        listing.builds.iter_mut().for_each(|builds| builds.extend(found.clone()));
                    }
                    Some(Suite::Failed(problem)) => {
                        listing.builds = None;
                        listing.problem.get_or_insert_with(|| problem.clone());
                    }
                    Some(Suite::Unknown) | None => listing.builds = None,
                }
            }
            listing.cached = self.cached_of(arch, name, listing.builds.as_deref().unwrap_or_default())?;
            listings.push(listing);
        }
        Ok(listings)
    }

    fn suite(&self, suite: &str, arch: Arch) -> Result<Suite> {
        if self.apt.options().offline && self.apt.known_state(suite, &[arch]).is_none() {
            return Ok(Suite::Unknown);
        }
        match self.apt.root(suite, &[arch]) {
            Ok(root) => Ok(Suite::Here(root)),
            Err(error @ (PackagesError::Apt(_) | PackagesError::Offline { .. })) => {
                Ok(Suite::Failed(error.to_string()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the cached kernels of a series: by the name of the series, and by those of its
    /// builds.
    fn cached_of(&self, arch: Arch, series: &str, builds: &[(String, KernelBuild)]) -> Result<Vec<Cached>> {
        let mut names = vec![series.to_owned()];
        names.extend(builds.iter().map(|(_, build)| build.name()));
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        let mut cached = Vec::new();
        for name in names {
            match self.cached(arch, &name) {
                Ok(Some(kernel)) => cached.push(Cached { name, release: kernel.release, version: kernel.version }),
                // A name that the command line does not accept (7.3-rc7) cannot have been fetched.
                Ok(None) | Err(Error::Catalogue(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(cached)
    }
}

/// The package index of a suite.
enum Suite {
    Here(Root),
    /// The index has not been fetched.
    Unknown,
    Failed(String),
}
