// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's static busybox, for the interactive shell of a guest. Guests that measure have none.

use std::path::Path;

use bpfassay_protocol::Arch;

use crate::{
    Error, Result,
    apt::{self, Apt},
    cache::{Digest, Object},
    manifest::Component,
    toolchain,
};

const PACKAGE: &str = "busybox-static";

/// The paths of the program in the package, by Debian release.
const PLACES: [&str; 2] = ["usr/bin/busybox", "bin/busybox"];

/// Kind of cache record: architecture → the program and its package.
const RECORD: &str = "busybox";

/// The program for `arch`, and the package that it comes from: from the cache, or downloaded. What is in the cache
/// stays until a refresh is asked for.
///
/// # Errors
/// [`Error`] of packages and of the cache; [`Error::Build`] if the package does not hold the program.
pub fn prepare(apt: &Apt<'_>, arch: Arch) -> Result<(Object, Component)> {
    let cache = apt.cache();
    let key = Digest::of_parts([toolchain::SUITE, arch.name()]);
    if !apt.options().refresh
        && let Some((digest, component)) = cache.recorded::<(Digest, Component)>(RECORD, &key)?
        && let Some(object) = cache.object(&digest)?
    {
        return Ok((object, component));
    }
    // The same index as the toolchain's: it is there already.
    let root = apt.root(toolchain::SUITE, &toolchain::architectures(toolchain::host_arch()?))?;
    let mut found = root.packages(arch, |name| name == PACKAGE)?;
    let missing = || Error::Build {
        what: format!(
            "Debian's suite {} has no package {PACKAGE} for {arch}: fetch its index again with --refresh",
            toolchain::SUITE
        ),
    };
    let package = found.pop().ok_or_else(missing)?.found.package;
    let scratch = cache.scratch()?;
    for file in apt.fetch(&root, std::slice::from_ref(&package))? {
        apt::unpack(&file.path, scratch.path(), &[], &package.specification())?;
    }
    let program = PLACES.iter().map(|place| scratch.path().join(place)).find(|path: &std::path::PathBuf| is_file(path));
    let program = program.ok_or_else(|| Error::Build {
        what: format!("{} holds no {}: its layout has changed; report it", package.specification(), PLACES[0]),
    })?;
    let component = Component::from(&package);
    let object = cache.add_file(&package.specification(), &program, None)?;
    cache.record(RECORD, &key, &(object.digest, &component))?;
    Ok((object, component))
}

fn is_file(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.is_file())
}
