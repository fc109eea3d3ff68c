// SPDX-License-Identifier: MIT OR Apache-2.0
//! QEMU of [`crate::testbed_lock`], for guests of all architectures, with firmware and libraries.
//! It is unpacked into the cache and runs from there with its own dynamic loader and libraries. It
//! is therefore the same on every Linux, needs no root privileges, and uses only the host's kernel.

#![allow(
    clippy::disallowed_methods,
    reason = "joins fixed names to a tree of the cache; files of a package are reached by `UntrustedTree`"
)]

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use bpfassay_packages::{
    apt::{Apt, Located, Package, PackageOrigin},
    cache::{Cache, CachedFile, Tree},
    digest::Digest,
    error::PackagesError,
    stages::{ProgressStep, RunningStage, StageKind},
    unpack,
    untrusted_tree::{Links, UntrustedTree},
};
use bpfassay_protocol::Arch;

use crate::{
    error::{Error, Result},
    testbed_lock::{LockedForHost, TestbedLock},
};

/// The Debian suite of this QEMU: the one whose QEMU the recorded results were measured with. Its
/// QEMU is the oldest that this program supports.
pub const SUITE: &str = "bookworm";

/// Architectures of hosts for which the lock has QEMU. Guests can be built only on these.
pub const HOSTS: [Arch; 2] = crate::toolchain::HOSTS;

/// The parts of the packages that QEMU needs: programs, libraries, modules of QEMU, firmware.
const PARTS: &[&str] = &["lib", "usr/lib", "usr/share/qemu", "usr/share/seabios"];
/// Directory of the programs. Programs for other guest architectures take most of the space, and
/// are left out.
const PROGRAMS: &str = "usr/bin";
/// The dynamic loader, in the directory of the programs: QEMU finds its modules relative to the
/// executed file, which is the loader.
const LOADER: &str = "usr/bin/loader";
/// Directories that can contain firmware (`--firmwarepath` of Debian's build).
const FIRMWARE: &[&str] = &["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"];

/// Estimated size of the tree relative to its packages.
pub(crate) const GROWTH: u64 = 5;
/// Change this version when the same packages give another tree than before.
const KEY_VERSION: &str = "qemu tree 1";
const KIND: &str = "qemu";

/// Packages of a QEMU that may be unpacked and started on this host. Empty if QEMU comes from the
/// lock or the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedPackages(Vec<Package>);

impl TrustedPackages {
    /// Trusts `packages` if [`crate::testbed_lock`] names the content of all of them. Returns
    /// `Ok(Err)` with the packages that it does not name.
    ///
    /// # Errors
    /// None in a released program, because a test checks the text of its lock.
    pub fn of_lock(packages: Vec<Package>) -> Result<Result<Self, Vec<Package>>> {
        let locked = locked()?.map(|locked| locked.packages).unwrap_or_default();
        let is_named = |package: &&Package| locked.iter().any(|located| located.package.sha256 == package.sha256);
        let others: Vec<_> = packages.iter().filter(|package| !is_named(package)).cloned().collect();
        Ok(if others.is_empty() { Ok(Self(packages)) } else { Err(others) })
    }

    /// Trusts `packages`, because the user has seen what they are and trusts their maker.
    #[must_use]
    pub fn of_user(packages: Vec<Package>) -> Self {
        Self(packages)
    }
}

/// QEMU in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emulator {
    /// The root directory of all other paths. Nobody may change it.
    pub root: PathBuf,
    /// The packages that it was unpacked from, sorted.
    pub packages: Vec<Package>,
    /// Directories with libraries, relative to the root.
    pub libraries: Vec<PathBuf>,
    /// Directories with firmware, relative to the root.
    pub firmware: Vec<PathBuf>,
}

/// Returns the names of the packages to ask for, sorted: QEMU for each architecture, and firmware.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = Arch::ALL.iter().flat_map(|arch| arch.facts().qemu_packages.split_whitespace()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the lock's QEMU for this host, or `None` if the lock has none.
///
/// # Errors
/// None in a released program, because a test checks the text of its lock.
pub fn locked() -> Result<Option<LockedForHost>> {
    let Ok(host) = std::env::consts::ARCH.parse::<Arch>() else { return Ok(None) };
    Ok(TestbedLock::bundled()?.qemu(host).cloned())
}

/// Selects the packages for hosts of an architecture, with all their dependencies, sorted.
///
/// # Errors
/// The errors of [`Apt::root`], and of apt if it cannot list the packages of the suite.
pub(crate) fn choose(apt: &Apt<'_>, host: Arch) -> Result<Vec<Located>> {
    let root = apt.root(SUITE, &[host])?;
    let mut packages = root.closure(&names())?;
    packages.retain(|located| !UNUSED.contains(&located.package.name.as_str()));
    for located in &mut packages {
        located.snapshot = root.snapshot();
    }
    packages.sort();
    packages.dedup();
    Ok(packages)
}

/// Dependencies that are needed for installing, and that QEMU does not use at run time.
const UNUSED: &[&str] = &[
    "adduser",
    "debconf",
    "gcc-12-base",
    "iso-codes",
    "libasound2-data",
    "libaudit-common",
    "libcap2-bin",
    "libdrm-common",
    "libpam-modules",
    "libpam-modules-bin",
    "libsemanage-common",
    "passwd",
];

impl Emulator {
    /// Provides QEMU from the cache, or unpacks it there as a stage. The packages of `bundled`,
    /// which are in the cache, replace those of the lock, unless `bundled` is empty.
    ///
    /// # Errors
    /// [`Error::Build`] if the lock has no QEMU for this host. [`PackagesError::Offline`] if the
    /// cache lacks a package of `bundled`. The errors of [`Apt::fetch`] and of the cache. Errors of
    /// unpacking.
    pub fn prepare(apt: &Apt<'_>, TrustedPackages(bundled): &TrustedPackages) -> Result<Self> {
        if !bundled.is_empty() {
            let missing = |package: &&Package| apt.cache().object(&package.sha256).is_ok_and(|found| found.is_none());
            if let Some(missing) = bundled.iter().find(missing) {
                return Err(PackagesError::Offline { what: missing.specification() }.into());
            }
            return Self::made(apt, "of the bundle", "the bundle", bundled.clone(), &[]);
        }
        let Some(locked) = locked()? else {
            let hosts = HOSTS.map(Arch::name).join(", ");
            let what = format!(
                "testbed.lock has QEMU for hosts of {hosts}, not of {}: install QEMU, and take it with --qemu host",
                std::env::consts::ARCH
            );
            return Err(Error::Build { what });
        };
        let packages = locked.packages.iter().map(|located| located.package.clone()).collect();
        Self::made(apt, "of testbed.lock", &locked.suite, packages, &locked.packages)
    }

    /// Returns the cached tree of `packages`, or unpacks it. The packages are in the cache or at
    /// `located`.
    fn made(apt: &Apt<'_>, from: &str, suite: &str, packages: Vec<Package>, located: &[Located]) -> Result<Self> {
        let key = key(&packages);
        let origin = PackageOrigin::Pool { suite, packages: located };
        let tree = match apt.cache().tree(KIND, &key)? {
            Some(tree) => tree,
            None => apt.during(StageKind::Qemu, from, |apt| make(apt, (origin, suite), &packages, &key))?,
        };
        Self::of(tree, packages)
    }

    /// Returns the package files of the lock's QEMU for this host, from the cache or downloaded.
    /// Returns none if the lock has no QEMU for this host.
    ///
    /// # Errors
    /// The errors of [`Apt::fetch`].
    pub fn package_files(apt: &Apt<'_>) -> Result<Vec<(Package, CachedFile)>> {
        let Some(locked) = locked()? else { return Ok(Vec::new()) };
        let packages: Vec<_> = locked.packages.iter().map(|located| located.package.clone()).collect();
        let origin = PackageOrigin::Pool { suite: &locked.suite, packages: &locked.packages };
        let objects = apt.during(StageKind::Qemu, "of testbed.lock", |apt| apt.fetch_from(origin, &packages))?;
        Ok(packages.into_iter().zip(objects).collect())
    }

    /// Returns the lock's QEMU for this host if it is in the cache. Does not use the network.
    ///
    /// # Errors
    /// [`PackagesError::Io`], [`PackagesError::Damaged`] if the cache cannot be read or repaired.
    pub fn cached(cache: &Cache) -> Result<Option<Self>> {
        let Some(locked) = locked()? else { return Ok(None) };
        let packages: Vec<_> = locked.packages.into_iter().map(|located| located.package).collect();
        let tree = cache.tree(KIND, &key(&packages))?;
        tree.map(|tree| Self::of(tree, packages)).transpose()
    }

    /// Returns whether the cache has the QEMU `locked`. Does not check its files.
    pub(crate) fn is_cached(cache: &Cache, locked: &LockedForHost) -> bool {
        let packages: Vec<_> = locked.packages.iter().map(|located| located.package.clone()).collect();
        cache.has_tree(KIND, &key(&packages))
    }

    fn of(tree: Tree, packages: Vec<Package>) -> Result<Self> {
        let lacks = |what: &str| Error::Build {
            what: format!(
                "the packages of QEMU in testbed.lock hold no {what}: report it, and use the host's QEMU with --qemu host"
            ),
        };
        let loader = tree.files.iter().find(|file| is_loader(Path::new(&file.path)));
        let libraries = loader.and_then(|file| Path::new(&file.path).parent()).ok_or_else(|| lacks("loader"))?;
        let triplet = libraries.file_name().unwrap_or_default();
        let libraries = vec![libraries.to_owned(), Path::new("usr/lib").join(triplet)];
        let firmware = FIRMWARE.iter().map(PathBuf::from).filter(|path| tree.path.join(path).is_dir()).collect();
        Ok(Self { root: tree.path, packages, libraries, firmware })
    }

    /// Returns the QEMU program for guests of an architecture, relative to the root.
    #[must_use]
    pub fn program(&self, arch: Arch) -> PathBuf {
        program(arch)
    }

    /// Returns the dynamic loader, relative to the root.
    #[must_use]
    pub fn loader(&self) -> &'static Path {
        Path::new(LOADER)
    }

    /// Returns the package with the QEMU program for guests of an architecture.
    #[must_use]
    pub fn package(&self, arch: Arch) -> Option<&Package> {
        package(&self.packages, arch)
    }
}

/// Returns the QEMU program for guests of an architecture, relative to the root.
fn program(arch: Arch) -> PathBuf {
    Path::new(PROGRAMS).join(format!("qemu-system-{arch}"))
}

/// Returns whether `packages` are of a QEMU for this host.
#[must_use]
pub fn is_for_this_host(packages: &[Package]) -> bool {
    let host = std::env::consts::ARCH.parse::<Arch>();
    packages.iter().any(|package| host.as_ref().is_ok_and(|arch| package.architecture == arch.facts().debian_name))
}

/// Returns the package that has the QEMU program for guests of an architecture.
#[must_use]
pub fn package(packages: &[Package], arch: Arch) -> Option<&Package> {
    packages.iter().find(|package| is_package(package, arch))
}

/// Returns whether a package has the QEMU program for guests of an architecture.
#[must_use]
pub fn is_package(package: &Package, arch: Arch) -> bool {
    arch.facts().qemu_packages.split_whitespace().next() == Some(package.name.as_str())
}

fn key(packages: &[Package]) -> Digest {
    let digests = packages.iter().map(|package| package.sha256.to_string());
    Digest::of_parts([KEY_VERSION.to_owned()].into_iter().chain(digests))
}

fn make(apt: &Apt<'_>, (origin, of): (PackageOrigin<'_>, &str), packages: &[Package], key: &Digest) -> Result<Tree> {
    let what = format!("QEMU ({} packages of {of})", packages.len());
    let size: u64 = packages.iter().map(|package| package.size).sum();
    apt.cache().make_tree(KIND, key, &what, size.saturating_mul(GROWTH), |content| {
        let objects = apt.fetch_from(origin, packages)?;
        let files: Vec<_> = objects.into_iter().map(|object| object.path).collect();
        let scratch = apt.cache().scratch()?;
        fill(&files, scratch.path(), content, apt.stage())
    })
}

/// Unpacks `packages` into `scratch`, and moves the parts that QEMU needs into `content`.
fn fill(packages: &[PathBuf], scratch: &Path, content: &Path, stage: &RunningStage) -> Result<()> {
    stage.step(ProgressStep::Unpack, packages.len() as u64);
    let tree = UntrustedTree::open(scratch)?;
    for package in packages {
        unpack::unpack(package, &tree, &["./usr/share/doc", "./usr/share/man", "./usr/share/locale"], "QEMU")?;
        stage.one_more();
    }
    stage.step(ProgressStep::Store, 0);
    for part in PARTS.iter().filter(|part| tree.is_directory(part)) {
        // Links stay, because the loader finds libraries by the names of links.
        tree.take_directory(part, &content.join(part), Links::Kept)?;
    }
    for program in Arch::ALL.iter().map(|&arch| program(arch)).filter(|program| tree.is_file(program)) {
        tree.take_file(&program, &content.join(&program))?;
    }
    let taken = UntrustedTree::open(content)?;
    for directory in taken.names("lib")?.into_iter().filter(|name| taken.is_directory(Path::new("lib").join(name))) {
        for name in taken.names(Path::new("lib").join(&directory))? {
            let place = Path::new("lib").join(&directory).join(name);
            if is_loader(&place) && taken.is_file(&place) {
                return copy(&taken, &place, &content.join(LOADER));
            }
        }
    }
    Ok(())
}

/// Copies the program at `from` in `tree` to `to`, whose directory exists.
fn copy(tree: &UntrustedTree, from: &Path, to: &Path) -> Result<()> {
    let mut source = tree.open_file(from)?;
    let options = || fs::File::options().write(true).create_new(true).mode(0o755).open(to);
    let copied = options().and_then(|mut file| io::copy(&mut source, &mut file));
    copied.map(drop).map_err(Error::io("create", to))
}

/// Recognises glibc's dynamic loader in its package: `lib/TRIPLET/ld-linux-….so.…`.
fn is_loader(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    name.starts_with("ld-linux-") && name.contains(".so.")
}

#[cfg(test)]
mod tests;
