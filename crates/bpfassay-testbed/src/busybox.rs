// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's static busybox, for the interactive shell of a guest. Measuring guests do not have it.

use bpfassay_packages::{
    apt::{Apt, Package, PackageOrigin},
    cache::CachedFile,
    digest::Digest,
    unpack,
    untrusted_tree::UntrustedTree,
};
use bpfassay_protocol::Arch;

use crate::{
    error::{Error, Result},
    manifest::Component,
    testbed_lock::TestbedLock,
    toolchain,
};

pub(crate) const PACKAGE: &str = "busybox-static";

/// Paths of the program in the package, by Debian release.
const PLACES: [&str; 2] = ["usr/bin/busybox", "bin/busybox"];

/// Kind of the cache record that maps an architecture to the program and its package.
const RECORD: &str = "busybox";

/// Returns busybox for `arch` and the package that it comes from. Takes it from the cache, or
/// downloads the package of [`crate::testbed_lock`].
///
/// If the lock has none, the mirror has dropped it, or another one was requested, the newest is
/// used. It stays in the cache until a refresh.
///
/// # Errors
/// [`Error`] of packages and of the cache. [`Error::Build`] if the package lacks the program.
pub fn prepare(apt: &Apt<'_>, arch: Arch) -> Result<(CachedFile, Component)> {
    let cache = apt.cache();
    if apt.options().is_locked()
        && let Some(located) = TestbedLock::bundled()?.closure(arch, toolchain::SUITE, [PACKAGE])
        && let Some(package) = located.iter().map(|located| &located.package).find(|package| package.name == PACKAGE)
    {
        let key = Digest::of_parts([toolchain::SUITE, arch.name(), &package.sha256.to_string()]);
        if let Some((digest, component)) = cache.recorded::<(Digest, Component)>(RECORD, &key)?
            && let Some(object) = cache.object(&digest)?
        {
            return Ok((object, component));
        }
        match taken(apt, PackageOrigin::Pool { suite: toolchain::SUITE, packages: &located }, package, &key) {
            Err(ref error) if let Some(detail) = error.dropped() => tracing::warn!(
                "the mirror no longer has busybox of testbed.lock for {arch} ({detail}); another takes its place in the shell"
            ),
            taken => return taken,
        }
    }
    let key = Digest::of_parts([toolchain::SUITE, arch.name()]);
    if !apt.options().refresh
        && let Some((digest, component)) = cache.recorded::<(Digest, Component)>(RECORD, &key)?
        && let Some(object) = cache.object(&digest)?
    {
        return Ok((object, component));
    }
    // This index was already fetched for the toolchain.
    let root = apt.root(toolchain::SUITE, &toolchain::architectures(toolchain::host_arch()?))?;
    let mut found = root.packages(arch, |name| name == PACKAGE)?;
    let missing = || Error::Build {
        what: format!(
            "Debian's suite {} has no package {PACKAGE} for {arch}: fetch its index again with --refresh",
            toolchain::SUITE
        ),
    };
    let package = found.pop().ok_or_else(missing)?.found.package;
    taken(apt, PackageOrigin::Index(&root), &package, &key)
}

/// Extracts the program of `package`, and records it under `key`.
fn taken(apt: &Apt<'_>, origin: PackageOrigin<'_>, package: &Package, key: &Digest) -> Result<(CachedFile, Component)> {
    let cache = apt.cache();
    let scratch = cache.scratch()?;
    let tree = UntrustedTree::open(scratch.path())?;
    for file in apt.fetch_from(origin, std::slice::from_ref(package))? {
        unpack::unpack(&file.path, &tree, &[], &package.specification())?;
    }
    let program = PLACES.iter().find(|place| tree.is_file(place));
    let program = program.ok_or_else(|| Error::Build {
        what: format!("{} holds no {}: its layout has changed; report it", package.specification(), PLACES[0]),
    })?;
    let component = Component::from(package);
    let file = tree.open_file(program)?;
    let size = file.metadata().map_err(Error::io("read", program))?.len();
    let object =
        cache.add_from(&package.specification(), file, (None, size), |error| Error::io("read", program)(error))?;
    cache.record(RECORD, key, &(object.digest, &component))?;
    Ok((object, component))
}
