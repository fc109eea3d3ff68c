// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cross toolchain: a root directory with compilers, linkers and static libraries for the three
//! architectures, built from Debian packages, and a way to run programs in it.
//!
//! The packages are unpacked, not installed, and nothing in them is run. The same root therefore
//! results with and without root privileges, in a third of the time and half of the space. Packages
//! for other architectures (static libraries, Rust's standard library) come without their
//! dependencies, because nothing of them is executed here.
//!
//! The host needs no compiler for the guests. [`HOST_PACKAGES`] lists what it does need.

pub mod toolchain_sandbox;

use std::{
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use bpfassay_packages::{
    apt::{Apt, First, Located, Package, PackageOrigin},
    cache::CachedFile,
    digest::Digest,
    stages::{ProgressStep, RunningStage, StageKind, yield_from_now},
    unpack,
    untrusted_tree::UntrustedTree,
};
use bpfassay_protocol::Arch;
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    manifest::Component,
    testbed_lock::{LockedForHost, TestbedLock},
};

pub use toolchain_sandbox::{Sandbox, SandboxMount};

/// The Debian suite of the toolchain: the oldest whose Rust and clang are new enough.
pub const SUITE: &str = "forky";

/// Architectures of hosts that the toolchain runs on. Debian's cross compilers for the other
/// architectures do not run on riscv64.
pub const HOSTS: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

/// Debian packages that the host needs to prepare guests, in addition to QEMU.
pub const HOST_PACKAGES: &[&str] = &["apt", "debian-archive-keyring", "dpkg", "mount", "util-linux"];

/// Packages that run on the host, in addition to the compilers for each architecture ([`native`]).
/// Their dependencies are included.
const NATIVE: &[&str] = &[
    "base-files",
    "binutils",
    "cargo",
    "clang-22",
    "coreutils",
    "dash",
    "findutils",
    "gcc",
    "grep",
    "libc6-dev",
    "libelf-dev",
    "libstd-rust-dev",
    "libstd-rust-dev-bpf",
    "libzstd-dev",
    "llvm-22",
    "make",
    "mawk",
    "pkgconf",
    "rustc",
    "sed",
    "zlib1g-dev",
];

/// Packages for every other architecture, without their dependencies.
pub(crate) const FOREIGN: &[&str] = &["libc6-dev", "libelf-dev", "libstd-rust-dev", "libzstd-dev", "zlib1g-dev"];

/// Names that `update-alternatives` provides when packages are installed, and that builds use.
const ALTERNATIVES: &[(&str, &str)] = &[("awk", "mawk"), ("cc", "gcc"), ("clang", "clang-22")];

/// Directories that serve as mount points while a program runs in the root.
pub const MOUNT_POINTS: &[&str] = &["src", "vendor", "target", "proc", "dev", "tmp"];

/// Directories that are not unpacked, because no build needs them.
const LEFT_OUT: &[&str] =
    &["./usr/share/doc", "./usr/share/info", "./usr/share/locale", "./usr/share/man", "./usr/share/lintian"];

/// Approximate size of the root, in bytes.
pub(crate) const SIZE: u64 = 2_100_000_000;

/// Change this version when the same packages give another root than before.
const KEY_VERSION: &str = "1";

/// Kind of cache tree, and of the record of the current toolchain.
const KIND: &str = "toolchain";

/// A toolchain root in the cache.
#[derive(Debug, Clone)]
pub struct Toolchain {
    /// The root directory. Nobody may change it.
    pub root: PathBuf,
    /// Digest of everything that the root was built from.
    pub key: Digest,
    /// The packages in the root, sorted.
    pub packages: Vec<Package>,
}

/// The cache's record of the current toolchain.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedToolchain {
    key: Digest,
    packages: Vec<Package>,
}

impl Toolchain {
    /// Provides the toolchain, from the cache or by building it from the packages that
    /// [`crate::testbed_lock`] has for this host.
    ///
    /// The newest packages are used instead if the lock has none for this host, if the mirror no
    /// longer has the locked files, or if [`bpfassay_packages::apt::FetchOptions::newest`] asks for
    /// it. The cache then keeps the result until a refresh is requested.
    ///
    /// # Errors
    /// [`Error`] of packages and of the cache, `PackagesError::Command` if a package cannot be
    /// unpacked.
    pub fn prepare(apt: &Apt<'_>) -> Result<Self> {
        Self::prepare_or_tell(apt, None)
    }

    /// Provides the toolchain like [`Toolchain::prepare`], and announces the part for this host
    /// early.
    ///
    /// # Errors
    /// The errors of [`Toolchain::prepare`].
    pub(crate) fn prepare_for(apt: &Apt<'_>, early: &EarlyCaller<'_>) -> Result<Self> {
        Self::prepare_or_tell(apt, Some(early))
    }

    fn prepare_or_tell(apt: &Apt<'_>, early: Option<&EarlyCaller<'_>>) -> Result<Self> {
        let cache = apt.cache();
        let host = host_arch()?;
        if let Some(locked) = Self::locked(apt)? {
            let packages: Vec<_> = locked.packages.iter().map(|located| located.package.clone()).collect();
            let key = key(&packages);
            if let Some(tree) = cache.tree(KIND, &key)? {
                return Ok(Self { root: tree.path, key, packages });
            }
            let origin = PackageOrigin::Pool { suite: &locked.suite, packages: &locked.packages };
            match apt.during(StageKind::Toolchain, "", |apt| make(apt, apt.first(), origin, (packages, host), early)) {
                Err(ref error) if let Some(detail) = error.dropped() => tracing::warn!(
                    "the mirror no longer has the cross toolchain of testbed.lock ({detail}); the newest takes its place, so programs may \
                     differ from those of other machines; --archive names a place that has it"
                ),
                made => return made,
            }
        }
        let current = Digest::of_parts([KEY_VERSION, SUITE, host.name(), &native().join(" "), &FOREIGN.join(" ")]);
        if !apt.options().refresh
            && let Some(RecordedToolchain { key, packages }) = cache.recorded(KIND, &current)?
            && let Some(tree) = cache.tree(KIND, &key)?
        {
            return Ok(Self { root: tree.path, key, packages });
        }
        apt.during(StageKind::Toolchain, "", |apt| {
            // Downloaded first, because programs take longest and need the toolchain. Kernels are
            // unpacked while programs are compiled.
            let first = apt.first();
            let packages = choose(apt, host)?.into_iter().map(|located| located.package).collect();
            let root = apt.root(SUITE, &architectures(host))?;
            let made = make(apt, first, PackageOrigin::Index(&root), (packages, host), early)?;
            cache.record(KIND, &current, &RecordedToolchain { key: made.key, packages: made.packages.clone() })?;
            Ok(made)
        })
    }

    /// Returns the toolchain of the lock for this host; `None` if the lock has none, or if the
    /// options request other packages.
    ///
    /// # Errors
    /// [`Error::Build`] on a host that the toolchain does not run on.
    pub(crate) fn locked(apt: &Apt<'_>) -> Result<Option<&'static LockedForHost>> {
        let host = host_arch()?;
        Ok(if apt.options().is_locked() { TestbedLock::bundled()?.toolchain(host) } else { None })
    }

    /// Returns whether the cache has the toolchain `locked`. Does not check its files.
    pub(crate) fn is_cached(apt: &Apt<'_>, locked: &LockedForHost) -> bool {
        let packages: Vec<_> = locked.packages.iter().map(|located| located.package.clone()).collect();
        apt.cache().has_tree(KIND, &key(&packages))
    }

    /// Returns the packages for the manifest.
    #[must_use]
    pub fn components(&self) -> Vec<Component> {
        self.packages.iter().map(Component::from).collect()
    }
}

fn key(packages: &[Package]) -> Digest {
    let digests = packages.iter().map(|package| package.sha256.to_string());
    Digest::of_parts([KEY_VERSION.to_owned()].into_iter().chain(digests))
}

/// Builds the toolchain from `packages`, before all other downloads.
fn make(
    apt: &Apt<'_>,
    first: First<'_>,
    origin: PackageOrigin<'_>,
    (packages, host): (Vec<Package>, Arch),
    early: Option<&EarlyCaller<'_>>,
) -> Result<Toolchain> {
    let key = key(&packages);
    let what = format!("the cross toolchain ({} packages of {SUITE})", packages.len());
    let tree = apt.cache().make_tree(KIND, &key, &what, SIZE, |directory| {
        let tell = || {
            if let Some(early) = early {
                (early.tell)(Toolchain { root: directory.to_owned(), key, packages: packages.clone() });
            }
        };
        let filling = Filling { packages: &packages, host, tell: &tell, yields: early.is_some() };
        filling.fill(directory, apt.stage(), |arrived| {
            let place = |package: &&Package| (package.name != BASE, is_for_another(package, host));
            let mut ordered: Vec<&Package> = packages.iter().collect();
            ordered.sort_by_key(place);
            let fetched = apt.fetch_first(&first, origin, &ordered, arrived);
            drop(first);
            Ok(fetched?)
        })?;
        if let Some(early) = early {
            (early.until)();
        }
        apt.stage().step(ProgressStep::Store, 0);
        Ok::<_, Error>(())
    })?;
    Ok(Toolchain { root: tree.path, key, packages })
}

/// Returns the packages that run on the host, sorted.
pub(crate) fn native() -> Vec<&'static str> {
    let mut names: Vec<&str> =
        NATIVE.iter().copied().chain(Arch::ALL.iter().map(|arch| arch.facts().gcc_package)).collect();
    names.sort_unstable();
    names
}

/// Selects the packages of the toolchain, sorted, each once.
///
/// # Errors
/// The errors of [`Apt::root`], and of apt if it cannot list the packages of the suite.
/// [`Error::Build`] if Debian lacks a needed package for an architecture.
pub(crate) fn choose(apt: &Apt<'_>, host: Arch) -> Result<Vec<Located>> {
    let root = apt.root(SUITE, &architectures(host))?;
    let mut packages = root.closure(&native())?;
    for &arch in Arch::ALL.iter().filter(|&&arch| arch != host) {
        let found: Vec<Located> =
            root.packages(arch, |name| FOREIGN.contains(&name))?.into_iter().map(|indexed| indexed.found).collect();
        if let Some(missing) = FOREIGN.iter().find(|name| !found.iter().any(|located| located.package.name == **name)) {
            let what = format!(
                "Debian's suite {SUITE} has no package {missing} for {arch} today, and the cross toolchain needs it: \
                 try again later with --refresh"
            );
            return Err(Error::Build { what });
        }
        packages.extend(found);
    }
    for located in &mut packages {
        located.snapshot = root.snapshot();
    }
    packages.sort();
    packages.dedup();
    Ok(packages)
}

/// Returns all architectures, the host's first.
pub(crate) fn architectures(host: Arch) -> Vec<Arch> {
    let mut all = vec![host];
    all.extend(Arch::ALL.iter().copied().filter(|&arch| arch != host));
    all
}

/// Returns the host's architecture.
///
/// # Errors
/// [`Error::Build`] on an architecture that Debian's toolchain does not support as host.
pub fn host_arch() -> Result<Arch> {
    let found = std::env::consts::ARCH.parse().ok().filter(|arch| HOSTS.contains(arch));
    found.ok_or_else(|| Error::Build {
        what: format!(
            "guests can be built on {}, not on {}: pass a testbed made elsewhere with --manifest",
            HOSTS.map(Arch::name).join(", "),
            std::env::consts::ARCH
        ),
    })
}

/// The package with the links (`/lib` → `usr/lib`) through which other packages are unpacked.
const BASE: &str = "base-files";

/// A caller that builds programs for this host before the toolchain is complete.
pub(crate) struct EarlyCaller<'a> {
    /// Called with the toolchain when it can build programs for this host. The remaining work then
    /// yields the CPU.
    pub(crate) tell: &'a (dyn Fn(Toolchain) + Sync),
    /// Returns when these programs are built. The root is moved only after that.
    pub(crate) until: &'a (dyn Fn() + Sync),
}

/// Returns whether a package is only for programs of another architecture than `host`.
fn is_for_another(package: &Package, host: Arch) -> bool {
    let is_of = |arch: &Arch| {
        let facts = arch.facts();
        let is_named = |part: &str| package.name.contains(part);
        package.architecture == facts.debian_name
            || is_named(&arch.gnu_triplet().replace('_', "-"))
            || is_named(&format!("-{}-cross", facts.debian_name))
    };
    Arch::ALL.iter().filter(|&&arch| arch != host).any(is_of)
}

/// Unpacks the packages of a toolchain, and announces the part for the host.
struct Filling<'a> {
    packages: &'a [Package],
    host: Arch,
    /// Called when everything for `host` is unpacked.
    tell: &'a (dyn Fn() + Sync),
    /// Whether the remaining work yields the CPU.
    yields: bool,
}

impl Filling<'_> {
    /// Unpacks packages into `root` on all CPUs while `fetch` gets others. [`BASE`] comes first.
    fn fill(
        &self,
        root: &Path,
        stage: &RunningStage,
        fetch: impl FnOnce(&mut dyn FnMut(&Package, CachedFile)) -> Result<()>,
    ) -> Result<()> {
        let unpacked = AtomicUsize::new(0);
        let is_for_another = |package: &Package| is_for_another(package, self.host);
        let waited_for = AtomicUsize::new(self.packages.iter().filter(|package| !is_for_another(package)).count());
        let (is_fetched, is_stopped) = (AtomicBool::new(false), AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel::<(PathBuf, bool)>();
        let receiver = Mutex::new(receiver);
        let tree = UntrustedTree::open(root)?;
        let unpack = |(file, is_for_another): (PathBuf, bool)| -> Result<()> {
            if is_for_another && self.yields {
                yield_from_now();
            }
            let done = unpack::unpack(&file, &tree, LEFT_OUT, "the cross toolchain").map(drop);
            if done.is_err() {
                is_stopped.store(true, Ordering::Relaxed);
            }
            let unpacked = unpacked.fetch_add(1, Ordering::Relaxed) + 1;
            if is_fetched.load(Ordering::Relaxed) {
                stage.at(unpacked as u64);
            }
            done?;
            if !is_for_another && waited_for.fetch_sub(1, Ordering::AcqRel) == 1 {
                furnish(&tree)?;
                (self.tell)();
            }
            Ok(())
        };
        let work = || -> Result<()> {
            loop {
                let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
                match next {
                    Ok(file) if !is_stopped.load(Ordering::Relaxed) => unpack(file)?,
                    _ => return Ok(()),
                }
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> =
                (0..thread::available_parallelism().map_or(1, usize::from)).map(|_| scope.spawn(work)).collect();
            // Packages that wait for [`BASE`].
            let mut held = Some(Vec::new());
            let mut based = Ok(());
            let fetched = fetch(&mut |package, object| {
                let file = (object.path, is_for_another(package));
                match &mut held {
                    Some(waiting) if package.name != BASE => waiting.push(file),
                    Some(waiting) => {
                        based = unpack(file);
                        for file in std::mem::take(waiting) {
                            let _ = sender.send(file);
                        }
                        held = None;
                    }
                    None => drop(sender.send(file)),
                }
            });
            for file in held.into_iter().flatten() {
                let _ = sender.send(file);
            }
            drop(sender);
            stage.step(ProgressStep::Unpack, self.packages.len() as u64);
            is_fetched.store(true, Ordering::Relaxed);
            stage.at(unpacked.load(Ordering::Relaxed) as u64);
            if self.yields {
                // This thread later stores the tree.
                yield_from_now();
            }
            let ended = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
            let ended = ended.collect::<Result<()>>();
            fetched.and(based).and(ended)
        })
    }
}

/// Adds files that no package contains, after all packages for this host are unpacked.
fn furnish(tree: &UntrustedTree) -> Result<()> {
    for (name, target) in ALTERNATIVES {
        tree.link(target, &format!("usr/bin/{name}"))?;
    }
    MOUNT_POINTS.iter().try_for_each(|name| Ok(tree.make_directory(name)?))
}

#[cfg(test)]
mod tests;
