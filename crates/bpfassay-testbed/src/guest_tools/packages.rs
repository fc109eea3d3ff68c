// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Debian packages of tools: the packages of [`crate::testbed_lock`] if it has all of them,
//! else the newest packages of an index.

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_packages::{
    apt::{Apt, Located, Package, PackageOrigin, Root},
    cache::CachedFile,
    error::{PackagesError, apt_failure::AptError},
};
use bpfassay_protocol::Arch;
use bpfassay_tool::bundled;

use super::{SHELL, refuse};
use crate::{error::Result, testbed_lock::TestbedLock};

/// Names of packages, by suite.
type WantedPackages = BTreeMap<String, BTreeSet<String>>;

/// The packages that tools need, with all their dependencies.
pub(super) struct Chosen {
    pub(super) packages: Vec<Package>,
    from: From,
}

enum From {
    Index(Root),
    Lock { suite: String, located: Vec<Located> },
}

impl Chosen {
    /// Selects the packages for `wanted` in guests of `arch`, from the lock if it has all of them,
    /// else from the index. Returns `None` if `wanted` is empty.
    ///
    /// # Errors
    /// The errors of [`Chosen::of_index`], unless the lock has the packages.
    pub(super) fn of(apt: &Apt<'_>, arch: Arch, wanted: &WantedPackages) -> Result<Option<Self>> {
        let Some((suite, names)) = of_one_suite(wanted)? else { return Ok(None) };
        if apt.options().is_locked()
            && let Some(located) = TestbedLock::bundled()?.closure(arch, suite, names.iter().map(String::as_str))
        {
            return Ok(Some(Self::locked(suite, located)));
        }
        Self::of_index(apt, arch, wanted)
    }

    /// Selects the newest packages in the suite's index.
    ///
    /// # Errors
    /// [`Error::Tool`] for packages of two suites, and for a name that the suite lacks, and the
    /// errors of package indexes.
    pub(super) fn of_index(apt: &Apt<'_>, arch: Arch, wanted: &WantedPackages) -> Result<Option<Self>> {
        let Some((suite, names)) = of_one_suite(wanted)? else { return Ok(None) };
        let root = apt.root(suite, &[arch])?;
        let packages = root.closure(&names.iter().collect::<Vec<_>>()).map_err(|error| match error {
            // A name that no package has is an error of the tool file, not of the mirror.
            PackagesError::Apt(AptError::Unsatisfiable { packages, detail, .. })
                if detail.contains("Unable to locate package") =>
            {
                refuse(&packages, format!("it is not in suite {suite}: {detail}"))
            }
            other => other.into(),
        })?;
        let packages = packages.into_iter().map(|located| located.package).collect();
        Ok(Some(Self { packages, from: From::Index(root) }))
    }

    fn locked(suite: &str, located: Vec<Located>) -> Self {
        let packages = located.iter().map(|located| located.package.clone()).collect();
        Self { packages, from: From::Lock { suite: suite.to_owned(), located } }
    }

    /// Returns the package files, from the cache or downloaded.
    ///
    /// # Errors
    /// The errors of [`Apt::fetch`].
    pub(super) fn files(&self, apt: &Apt<'_>) -> Result<Vec<CachedFile>> {
        let origin = match &self.from {
            From::Index(root) => PackageOrigin::Index(root),
            From::Lock { suite, located } => PackageOrigin::Pool { suite, packages: located },
        };
        Ok(apt.fetch_from(origin, &self.packages)?)
    }
}

/// Returns the only suite in `wanted`, and the names.
///
/// # Errors
/// [`Error::Tool`] for packages of two suites.
fn of_one_suite(wanted: &WantedPackages) -> Result<Option<(&str, &BTreeSet<String>)>> {
    let mut suites = wanted.iter();
    let Some((suite, names)) = suites.next() else { return Ok(None) };
    if let Some((other, names)) = suites.next() {
        // The C libraries of two suites would have the same place.
        let tool = names.iter().next().cloned().unwrap_or_default();
        let problem = format!("its packages are from suite {other}, others from {suite}: test them in two runs");
        return Err(refuse(&tool, problem));
    }
    Ok(Some((suite, names)))
}

/// Warns that the packages `wanted` of the lock are no longer available.
pub(super) fn warn_of_dropped(arch: Arch, wanted: &WantedPackages, detail: &str) {
    let names: Vec<&str> = wanted.values().flatten().map(String::as_str).collect();
    tracing::warn!(
        "the mirror no longer has the packages {} of testbed.lock for {arch} ({detail}); others take their place, so the tools may be other \
         versions than on other machines; --archive names a place that has them",
        names.join(", ")
    );
}

/// Lists suite, name and architecture of each package that a bundled tool needs.
///
/// # Errors
/// None in a released program, because tests check the bundled tool files.
pub(crate) fn bundled_packages() -> Result<BTreeSet<(String, String, Arch)>> {
    let mut all = BTreeSet::new();
    for name in bundled::names() {
        let tool = bpfassay_tool::load(name).map_err(|error| refuse(name, error.to_string()))?;
        for &arch in Arch::ALL {
            for (_, from) in tool.file.source.packages(arch) {
                let names = [&from.package].into_iter().chain(&from.with).map(String::as_str).chain([SHELL]);
                all.extend(names.map(|package| (from.suite.clone(), package.to_owned(), arch)));
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use bpfassay_packages::{apt::FetchOptions, cache::Cache};

    use super::*;
    use crate::error::Error;

    /// This must also work without apt.
    #[test]
    fn the_bundled_tools_need_no_index() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("cache")).unwrap();
        let apt = Apt::new(&cache, FetchOptions { offline: true, ..FetchOptions::default() });
        let wanted = bundled_packages().unwrap();
        assert!(wanted.iter().any(|(_, name, arch)| (name.as_str(), *arch) == ("bpftrace", Arch::Riscv64)));
        for (suite, name, arch) in wanted {
            let chosen = Chosen::of(&apt, arch, &BTreeMap::from([(suite, BTreeSet::from([name.clone()]))])).unwrap();
            let chosen = chosen.unwrap();
            assert!(chosen.packages.iter().any(|package| package.name == name.as_str()), "{name} for {arch}");
            assert!(matches!(chosen.files(&apt), Err(Error::Packages(PackagesError::Offline { .. }))));
        }
        let unknown = BTreeMap::from([("trixie".to_owned(), BTreeSet::from(["hello".to_owned()]))]);
        assert!(Chosen::of(&apt, Arch::X86_64, &unknown).is_err());
    }
}
