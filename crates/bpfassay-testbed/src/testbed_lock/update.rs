// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choosing what a lock holds anew: the newest that the mirror has, or builds that are named.

use std::{collections::BTreeMap, str::FromStr};

use bpfassay_protocol::Arch;

use super::{LockedKernel, LockedToolchain, TestbedLock};
use crate::{
    Error, Result,
    apt::{Apt, Located},
    catalogue::Catalogue,
    provider::debian::Kernels,
    toolchain,
};

/// What is to be chosen anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// The cross toolchains.
    Toolchain,
    /// A kernel, on every architecture that has it.
    Kernel {
        /// Its name in the catalogue: a series.
        name: String,
        /// The name of the build that it shall mean; the newest where there is none.
        build: Option<String>,
    },
}

impl FromStr for Wanted {
    type Err = std::convert::Infallible;

    /// `toolchain`, the name of a series (`6.12`), or one with a build (`6.12=6.12.107`).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.split_once('=') {
            _ if text == "toolchain" => Self::Toolchain,
            Some((name, build)) => Self::Kernel { name: name.to_owned(), build: Some(build.to_owned()) },
            None => Self::Kernel { name: text.to_owned(), build: None },
        })
    }
}

/// The outcome of choosing package files again.
#[derive(Debug)]
pub struct Update {
    /// The lock, with everything that could be chosen; the rest is as it was.
    pub lock: TestbedLock,
    /// What has changed, a line each.
    pub changes: Vec<String>,
    /// What could not be chosen, and why.
    pub failed: Vec<(String, Error)>,
}

/// Chooses `wanted` anew, or everything in `catalogue` where that is empty. Package indexes are fetched and their signatures checked; a suite that the
/// mirror cannot give leaves what the lock has from it.
///
/// # Errors
/// [`crate::catalogue::CatalogueError::UnknownKernel`] for a name that is in no table of the catalogue.
pub fn update(apt: &Apt<'_>, catalogue: &Catalogue, old: &TestbedLock, wanted: &[Wanted]) -> Result<Update> {
    let mut update = Update { lock: old.clone(), changes: Vec::new(), failed: Vec::new() };
    let mut kernels = Vec::new();
    for &arch in Arch::ALL {
        for name in catalogue.names(arch) {
            let is_wanted = |wanted: &Wanted| match wanted {
                Wanted::Kernel { name: of, build } if of == name => Some(build.clone()),
                _ => None,
            };
            match wanted.iter().find_map(is_wanted) {
                Some(build) => kernels.push((arch, name, build)),
                None if wanted.is_empty() => kernels.push((arch, name, None)),
                None => {}
            }
        }
    }
    for wanted in wanted {
        if let Wanted::Kernel { name, .. } = wanted
            && !kernels.iter().any(|(_, known, _)| known == name)
        {
            catalogue.find(Arch::X86_64, name)?;
        }
    }
    for (arch, name, build) in kernels {
        let what = format!("kernel {name} for {arch}");
        match kernel(apt, catalogue, (arch, name), build) {
            Ok(kernel) => {
                update.note(&what, old.series(arch, name).map(|old| &*old.packages), &kernel.packages);
                update.lock.set_kernel(kernel);
            }
            Err(error) => update.failed.push((what, error)),
        }
    }
    update.lock.sort(catalogue);
    if wanted.is_empty() || wanted.contains(&Wanted::Toolchain) {
        for architecture in toolchain::HOSTS {
            let what = format!("the toolchain for {architecture}");
            match toolchain::choose(apt, architecture) {
                Ok(packages) => {
                    update.note(&what, old.toolchain(architecture).map(|old| &*old.packages), &packages);
                    let suite = toolchain::SUITE.to_owned();
                    update.lock.set_toolchain(LockedToolchain { architecture, suite, packages });
                }
                Err(error) => update.failed.push((what, error)),
            }
        }
    }
    Ok(update)
}

fn kernel(
    apt: &Apt<'_>,
    catalogue: &Catalogue,
    (arch, name): (Arch, &str),
    build: Option<String>,
) -> Result<LockedKernel> {
    let mut selection = catalogue.find(arch, name)?;
    selection.version = build;
    let (suite, build) = Kernels::new(apt, catalogue).choose(&selection, false)?;
    Ok(LockedKernel {
        name: name.to_owned(),
        architecture: arch,
        suite,
        release: build.release,
        version: build.version,
        packages: build.packages,
    })
}

impl Update {
    /// Notes how `new` differs from `old`, in packages and their versions.
    fn note(&mut self, what: &str, old: Option<&[Located]>, new: &[Located]) {
        let Some(old) = old else {
            self.changes.push(format!("{what}: new, {} packages", new.len()));
            return;
        };
        let versions = |packages: &[Located]| -> BTreeMap<(String, String), String> {
            let of = |located: &Located| {
                let package = &located.package;
                ((package.name.clone(), package.architecture.clone()), package.version.clone())
            };
            packages.iter().map(of).collect()
        };
        let (before, after) = (versions(old), versions(new));
        for ((name, architecture), version) in &after {
            let change = match before.get(&(name.clone(), architecture.clone())) {
                Some(old) if old == version => continue,
                Some(old) => format!("{old} → {version}"),
                None => format!("new, {version}"),
            };
            self.changes.push(format!("{what}: {name} {architecture}: {change}"));
        }
        for ((name, architecture), version) in before.iter().filter(|(key, _)| !after.contains_key(key)) {
            self.changes.push(format!("{what}: {name} {architecture}: {version}, gone"));
        }
    }
}

impl TestbedLock {
    /// What the name of a series means.
    fn series(&self, architecture: Arch, name: &str) -> Option<&LockedKernel> {
        self.kernels.iter().find(|kernel| kernel.architecture == architecture && kernel.name == name)
    }

    /// Sorts kernels as `catalogue` has them, architecture by architecture; without those that it does not have.
    fn sort(&mut self, catalogue: &Catalogue) {
        let place =
            |kernel: &LockedKernel| catalogue.names(kernel.architecture).iter().position(|name| *name == kernel.name);
        self.kernels.retain(|kernel| place(kernel).is_some());
        self.kernels.sort_by_key(|kernel| (kernel.architecture, place(kernel)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{apt::Package, cache::Digest};

    fn packages(versions: &[(&str, &str)]) -> Vec<Located> {
        let package = |(name, version): &(&str, &str)| Located {
            package: Package {
                name: (*name).to_owned(),
                version: (*version).to_owned(),
                architecture: "amd64".to_owned(),
                size: 1,
                sha256: Digest::of_parts([name, version]),
            },
            path: format!("pool/{name}.deb"),
        };
        versions.iter().map(package).collect()
    }

    #[test]
    fn what_has_changed_is_noted_package_by_package() {
        let mut update = Update { lock: TestbedLock::default(), changes: Vec::new(), failed: Vec::new() };
        let (old, new) =
            (packages(&[("a", "1"), ("b", "1"), ("c", "1")]), packages(&[("b", "2"), ("c", "1"), ("d", "1")]));
        update.note("x", Some(&old), &new);
        assert_eq!(update.changes, ["x: b amd64: 1 → 2", "x: d amd64: new, 1", "x: a amd64: 1, gone"]);
        update.changes.clear();
        update.note("x", Some(&old), &old);
        assert!(update.changes.is_empty());
        update.note("x", None, &new);
        assert_eq!(update.changes, ["x: new, 3 packages"]);
    }

    #[test]
    fn what_is_wanted_is_read() {
        let kernel =
            |name: &str, build: Option<&str>| Wanted::Kernel { name: name.to_owned(), build: build.map(str::to_owned) };
        assert_eq!("toolchain".parse(), Ok(Wanted::Toolchain));
        assert_eq!("6.12".parse(), Ok(kernel("6.12", None)));
        assert_eq!("6.12=6.12.107".parse(), Ok(kernel("6.12", Some("6.12.107"))));
    }
}
