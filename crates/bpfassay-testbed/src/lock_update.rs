// SPDX-License-Identifier: MIT OR Apache-2.0
//! Updates a lock with the newest packages that the mirror has, or with named builds.

use std::{
    collections::{BTreeMap, BTreeSet},
    str::FromStr,
};

use bpfassay_packages::apt::{Apt, IndexedPackage, Located, Root, SnapshotTime};
use bpfassay_protocol::Arch;

use crate::{
    busybox,
    catalogue::Catalogue,
    error::{Error, Result},
    guest_tools, locked_qemu,
    provider::debian::KernelProvider,
    testbed_lock::{LockedForGuests, LockedForHost, LockedKernel, TestbedLock},
    toolchain,
};

/// The part of the lock to update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockPart {
    /// The cross toolchains.
    Toolchain,
    /// QEMU.
    Qemu,
    /// The packages of the bundled tools, and busybox.
    Tools,
    /// The missing time stamps of packages, and nothing else.
    Snapshots,
    /// A kernel, on every architecture that has it.
    Kernel {
        /// Name of a series in the catalogue.
        name: String,
        /// Name of the build to lock. The newest is locked if this is absent.
        build: Option<String>,
    },
}

impl FromStr for LockPart {
    type Err = std::convert::Infallible;

    /// Parses `toolchain`, `qemu`, `tools`, `snapshots`, the name of a series (`6.12`), or one with
    /// a build (`6.12=6.12.107`).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.split_once('=') {
            _ if text == "toolchain" => Self::Toolchain,
            _ if text == "qemu" => Self::Qemu,
            _ if text == "tools" => Self::Tools,
            _ if text == "snapshots" => Self::Snapshots,
            Some((name, build)) => Self::Kernel { name: name.to_owned(), build: Some(build.to_owned()) },
            None => Self::Kernel { name: text.to_owned(), build: None },
        })
    }
}

/// The result of updating a lock.
#[derive(Debug)]
pub struct Update {
    /// The lock, with every update that succeeded. Other entries are unchanged.
    pub lock: TestbedLock,
    /// The changes, a line each.
    pub changes: Vec<String>,
    /// The entries that could not be updated, and why.
    pub failed: Vec<(String, Error)>,
    /// Number of packages without a time stamp, because no index in the cache lists them.
    pub without_snapshot: usize,
}

/// Updates the `wanted` parts of the lock, or everything in `catalogue` if `wanted` is empty.
/// Fetches package indexes, whose signatures are checked. If the mirror cannot provide a suite, the
/// entries from that suite do not change.
///
/// A package keeps its time stamp. A package without one gets the time stamp of the cached index
/// that lists it, or else `snapshot`.
///
/// # Errors
/// [`crate::error::catalogue_error::CatalogueError::UnknownKernel`] for a name that the catalogue
/// lacks.
pub fn update(
    apt: &Apt<'_>,
    catalogue: &Catalogue,
    old: &TestbedLock,
    wanted: &[LockPart],
    snapshot: Option<SnapshotTime>,
) -> Result<Update> {
    let mut update = Update { lock: old.clone(), changes: Vec::new(), failed: Vec::new(), without_snapshot: 0 };
    let mut kernels = Vec::new();
    for &arch in Arch::ALL {
        for name in catalogue.names(arch) {
            let is_wanted = |wanted: &LockPart| match wanted {
                LockPart::Kernel { name: of, build } if of == name => Some(build.clone()),
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
        if let LockPart::Kernel { name, .. } = wanted
            && !kernels.iter().any(|(_, known, _)| known == name)
        {
            catalogue.find(Arch::X86_64, name)?;
        }
    }
    for (arch, name, build) in kernels {
        let what = format!("kernel {name} for {arch}");
        match kernel(apt, catalogue, (arch, name), build) {
            Ok(mut kernel) => {
                let old_kernel = old.series(arch, name);
                let old = old_kernel.map(|old| &*old.packages);
                keep_snapshots(old.unwrap_or_default(), &mut kernel.packages);
                let old_headers = old_kernel.map(|old| &*old.headers).unwrap_or_default();
                keep_snapshots(old_headers, &mut kernel.headers);
                update.note(&what, old, &kernel.packages);
                update.note(&format!("headers of {what}"), Some(old_headers), &kernel.headers);
                update.lock.set_kernel(kernel);
            }
            Err(error) => update.failed.push((what, error)),
        }
    }
    update.lock.sort(catalogue);
    if wanted.is_empty() || wanted.contains(&LockPart::Toolchain) {
        for architecture in toolchain::HOSTS {
            let what = format!("the toolchain for {architecture}");
            match toolchain::choose(apt, architecture) {
                Ok(mut packages) => {
                    let old = old.toolchain(architecture).map(|old| &*old.packages);
                    keep_snapshots(old.unwrap_or_default(), &mut packages);
                    update.note(&what, old, &packages);
                    let suite = toolchain::SUITE.to_owned();
                    update.lock.set_toolchain(LockedForHost { architecture, suite, packages });
                }
                Err(error) => update.failed.push((what, error)),
            }
        }
    }
    if wanted.is_empty() || wanted.contains(&LockPart::Qemu) {
        for architecture in locked_qemu::HOSTS {
            let what = format!("QEMU for {architecture}");
            match locked_qemu::choose(apt, architecture) {
                Ok(mut packages) => {
                    let old = old.qemu(architecture).map(|old| &*old.packages);
                    keep_snapshots(old.unwrap_or_default(), &mut packages);
                    update.note(&what, old, &packages);
                    let suite = locked_qemu::SUITE.to_owned();
                    update.lock.set_qemu(LockedForHost { architecture, suite, packages });
                }
                Err(error) => update.failed.push((what, error)),
            }
        }
    }
    if wanted.is_empty() || wanted.contains(&LockPart::Tools) {
        update.choose_tools(apt, old)?;
    }
    update.stamp(apt, catalogue, snapshot)?;
    Ok(update)
}

/// Copies the old time stamps to packages that were chosen again.
fn keep_snapshots(old: &[Located], new: &mut [Located]) {
    for located in new {
        let before = old.iter().find(|old| old.package == located.package && old.path == located.path);
        located.snapshot = before.and_then(|old| old.snapshot).or(located.snapshot);
    }
}

fn kernel(
    apt: &Apt<'_>,
    catalogue: &Catalogue,
    (arch, name): (Arch, &str),
    build: Option<String>,
) -> Result<LockedKernel> {
    let mut selection = catalogue.find(arch, name)?;
    selection.version = build;
    let (suite, build) = KernelProvider::new(apt, catalogue).choose(&selection, false)?;
    Ok(LockedKernel {
        name: name.to_owned(),
        architecture: arch,
        suite,
        release: build.release,
        version: build.version,
        packages: build.packages,
        headers: build.headers,
    })
}

impl Update {
    /// Updates the packages of guests. Removes packages that nothing needs any more.
    fn choose_tools(&mut self, apt: &Apt<'_>, old: &TestbedLock) -> Result<()> {
        let mut wanted = guest_tools::bundled_packages()?;
        wanted.extend(Arch::ALL.iter().map(|&arch| (toolchain::SUITE.to_owned(), busybox::PACKAGE.to_owned(), arch)));
        self.lock.of_guests.retain(|of| wanted.contains(&(of.suite.clone(), of.name.clone(), of.architecture)));
        for (suite, name, architecture) in wanted {
            let what = format!("package {name} of {suite} for guests of {architecture}");
            let chosen = apt.root(&suite, &[architecture]).and_then(|root| {
                let mut packages = root.closure(&[&name])?;
                packages.iter_mut().for_each(|located| located.snapshot = root.snapshot());
                packages.sort();
                Ok(packages)
            });
            match chosen {
                Ok(mut packages) => {
                    let old = old.of_guests(architecture, &suite, &name).map(|old| &*old.packages);
                    keep_snapshots(old.unwrap_or_default(), &mut packages);
                    self.note(&what, old, &packages);
                    self.lock.set_of_guests(LockedForGuests { suite, name, architecture, packages });
                }
                Err(error) => self.failed.push((what, error.into())),
            }
        }
        Ok(())
    }

    /// Gives packages without a time stamp that of the cached index that lists them, or else
    /// `given`.
    fn stamp(&mut self, apt: &Apt<'_>, catalogue: &Catalogue, given: Option<SnapshotTime>) -> Result<()> {
        let kernels = KernelProvider::new(apt, catalogue);
        let mut changes = Vec::new();
        for kernel in &mut self.lock.kernels {
            let arch = kernel.architecture;
            let what = format!("kernel {} for {arch}", kernel.name);
            let listed = |root: &Root, _: &BTreeSet<String>| kernels.index(root, arch).map(found);
            for packages in [&mut kernel.packages, &mut kernel.headers] {
                changes.extend(stamp(apt, (&what, &kernel.suite, &[arch]), packages, given, listed)?);
            }
        }
        let toolchains = self.lock.toolchains.iter_mut().map(|locked| {
            (
                format!("the toolchain for {}", locked.architecture),
                toolchain::architectures(locked.architecture),
                locked,
            )
        });
        let emulators = self
            .lock
            .emulators
            .iter_mut()
            .map(|locked| (format!("QEMU for {}", locked.architecture), vec![locked.architecture], locked));
        let of_hosts = toolchains.chain(emulators).map(|(what, all, of)| (what, all, &of.suite, &mut of.packages));
        let of_guests = self.lock.of_guests.iter_mut().map(|of| {
            let what = format!("package {} of {} for guests of {}", of.name, of.suite, of.architecture);
            (what, vec![of.architecture], &of.suite, &mut of.packages)
        });
        for (what, all, suite, packages) in of_hosts.chain(of_guests) {
            let listed = |root: &Root, names: &BTreeSet<String>| {
                let of = |&arch| Ok(root.packages(arch, |name| names.contains(name)).map(found)?);
                all.iter().map(of).collect::<Result<Vec<_>>>().map(|all| all.concat())
            };
            changes.extend(stamp(apt, (&what, suite, &all), packages, given, listed)?);
        }
        self.changes.extend(changes);
        let of_kernels = self.lock.kernels.iter().flat_map(|kernel| kernel.packages.iter().chain(&kernel.headers));
        let of_hosts = self.lock.toolchains.iter().chain(&self.lock.emulators);
        let of_guests = self.lock.of_guests.iter().flat_map(|locked| &locked.packages);
        let all = of_kernels.chain(of_hosts.flat_map(|locked| &locked.packages)).chain(of_guests);
        self.without_snapshot = all.filter(|located| located.snapshot.is_none()).count();
        Ok(())
    }

    /// Records the differences between `old` and `new` in packages and versions.
    fn note(&mut self, what: &str, old: Option<&[Located]>, new: &[Located]) {
        let Some(old) = old else {
            self.changes.push(format!("{what}: new, {} packages", new.len()));
            return;
        };
        let versions = |packages: &[Located]| -> BTreeMap<(String, String), String> {
            let of = |located: &Located| {
                let package = &located.package;
                ((package.name.to_string(), package.architecture.to_string()), package.version.to_string())
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

fn found(indexed: Vec<IndexedPackage>) -> Vec<Located> {
    indexed.into_iter().map(|indexed| indexed.found).collect()
}

/// Gives `packages` without a time stamp that of the suite's cached index, if `listed` finds them
/// in it by their names, or else `given`. Returns a description of the change.
fn stamp(
    apt: &Apt<'_>,
    (what, suite, architectures): (&str, &str, &[Arch]),
    packages: &mut [Located],
    given: Option<SnapshotTime>,
    listed: impl Fn(&Root, &BTreeSet<String>) -> Result<Vec<Located>>,
) -> Result<Option<String>> {
    let without: BTreeSet<String> = packages
        .iter()
        .filter(|located| located.snapshot.is_none())
        .map(|located| located.package.name.to_string())
        .collect();
    if without.is_empty() {
        return Ok(None);
    }
    let root = apt.known_root(suite, architectures)?;
    let known = root.as_ref().map(|root| listed(root, &without)).transpose()?.unwrap_or_default();
    let of_index = root.and_then(|root| root.snapshot());
    let mut count = 0;
    for located in packages.iter_mut().filter(|located| located.snapshot.is_none()) {
        let is_listed = known.iter().any(|known| known.package == located.package && known.path == located.path);
        located.snapshot = if is_listed { of_index.or(given) } else { given };
        count += usize::from(located.snapshot.is_some());
    }
    Ok((count > 0).then(|| format!("{what}: time stamps of {count} packages")))
}

impl TestbedLock {
    /// Returns the kernel of a series.
    fn series(&self, architecture: Arch, name: &str) -> Option<&LockedKernel> {
        self.kernels.iter().find(|kernel| kernel.architecture == architecture && kernel.name == name)
    }

    /// Sorts kernels by architecture and by their order in `catalogue`. Removes kernels that the
    /// catalogue lacks.
    fn sort(&mut self, catalogue: &Catalogue) {
        let place =
            |kernel: &LockedKernel| catalogue.names(kernel.architecture).iter().position(|name| *name == kernel.name);
        self.kernels.retain(|kernel| place(kernel).is_some());
        self.kernels.sort_by_key(|kernel| (kernel.architecture, place(kernel)));
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_packages::{
        apt::{FetchOptions, IndexState, Package, ReleaseFile},
        cache::Cache,
        digest::Digest,
    };

    use super::*;

    fn packages(versions: &[(&str, &str)]) -> Vec<Located> {
        let package = |(name, version): &(&str, &str)| Located {
            package: Package {
                name: name.parse().unwrap(),
                version: version.parse().unwrap(),
                architecture: "amd64".parse().unwrap(),
                size: 1,
                sha256: Digest::of_parts([name, version]),
            },
            path: format!("pool/{name}.deb"),
            snapshot: None,
        };
        versions.iter().map(package).collect()
    }

    #[test]
    fn what_has_changed_is_noted_package_by_package() {
        let mut update =
            Update { lock: TestbedLock::default(), changes: Vec::new(), failed: Vec::new(), without_snapshot: 0 };
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
    fn a_package_that_is_chosen_again_keeps_its_time_stamp() {
        let [first, later] = ["20251101T000000Z", "20251201T000000Z"].map(|time| time.parse().unwrap());
        let (mut old, mut new) =
            (packages(&[("a", "1"), ("b", "1"), ("c", "1")]), packages(&[("a", "1"), ("b", "2"), ("c", "1")]));
        (old[0].snapshot, old[1].snapshot) = (Some(first), Some(first));
        for located in &mut new {
            located.snapshot = Some(later);
        }
        keep_snapshots(&old, &mut new);
        let snapshots: Vec<_> = new.iter().map(|located| located.snapshot.unwrap()).collect();
        assert_eq!(snapshots, [first, later, later]);
    }

    #[test]
    fn what_has_no_time_stamp_gets_that_of_its_index_or_the_one_that_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("cache")).unwrap();
        let apt = Apt::new(&cache, FetchOptions { offline: true, ..FetchOptions::default() });
        let [first, given] = ["20251101T000000Z", "20251201T000000Z"].map(|time| time.parse().unwrap());
        let mut locked = packages(&[("a", "1"), ("b", "1"), ("c", "1")]);
        locked[0].snapshot = Some(first);
        let listed = |_: &Root, _: &BTreeSet<String>| Ok(packages(&[("b", "1"), ("c", "2")]));
        let of = |locked: &mut [Located], given| {
            stamp(&apt, ("x", "trixie", &[Arch::X86_64]), locked, given, listed).unwrap()
        };
        assert_eq!(of(&mut locked, None), None, "no index is in the cache");
        let date = 1_761_955_200;
        let release = ReleaseFile { codename: "trixie".to_owned(), date, valid_until: None };
        let state = IndexState { fetched: date + 3600, release, stale: false, archive: "x".to_owned() };
        let path = cache.root().join("apt/trixie-amd64/state.json");
        cache.write_small(&path, &state).unwrap();
        std::fs::write(path.with_file_name("apt.conf"), "").unwrap();
        assert_eq!(of(&mut locked, Some(given)).as_deref(), Some("x: time stamps of 2 packages"));
        let snapshots: Vec<_> = locked.iter().map(|located| located.snapshot.unwrap().to_string()).collect();
        assert_eq!(snapshots, ["20251101T000000Z", "20251101T010000Z", "20251201T000000Z"]);
    }

    #[test]
    fn what_is_wanted_is_read() {
        let kernel = |name: &str, build: Option<&str>| LockPart::Kernel {
            name: name.to_owned(),
            build: build.map(str::to_owned),
        };
        assert_eq!("toolchain".parse(), Ok(LockPart::Toolchain));
        assert_eq!("qemu".parse(), Ok(LockPart::Qemu));
        assert_eq!("tools".parse(), Ok(LockPart::Tools));
        assert_eq!("snapshots".parse(), Ok(LockPart::Snapshots));
        assert_eq!("6.12".parse(), Ok(kernel("6.12", None)));
        assert_eq!("6.12=6.12.107".parse(), Ok(kernel("6.12", Some("6.12.107"))));
    }
}
