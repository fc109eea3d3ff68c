// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels in packages of distributions: `--kernel image.deb,modules.deb`, `--kernel
//! kernel-core.rpm`, `--kernel DIRECTORY-OF-PACKAGES`.
//!
//! The packages are unpacked into the cache, once. Packages are not installed, and nothing in them
//! is run. The kernel's files are found by their places, which are the same in all distributions:
//! `boot/` in older packages, `lib/modules/RELEASE` in the others.

#![allow(
    clippy::disallowed_methods,
    reason = "joins fixed names and a `KernelRelease`; files are reached by `UntrustedTree`"
)]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use bpfassay_packages::{
    apt::Package,
    cache::Cache,
    digest::Digest,
    safe_names::KernelRelease,
    unpack::{self, About, GROWTH, is_package},
    untrusted_tree::{Links, UntrustedTree},
};

use super::{Config, LocalKernel, LocalModules};
use crate::error::{Error, Result};

const KIND: &str = "kernel-packages";
/// Change this version when the same packages give another tree than before.
const KEY_VERSION: &str = "kernel of packages 2";
/// Largest number of entries of a directory of packages that are looked at.
const MOST_FILES: usize = 4096;
/// Largest number of packages of one kernel. Vendors split a kernel into about ten.
const MOST_PACKAGES: usize = 64;
/// Largest list of packages that is read back from the cache, in bytes.
const MAX_LIST: u64 = 1 << 20;

/// Names of kernel images in `boot`, before `-RELEASE`. The first that exists counts, because the
/// others are then the same kernel for a debugger.
const IMAGES: [&str; 3] = ["vmlinuz", "Image", "vmlinux"];
/// Names of kernel images in `lib/modules/RELEASE`.
const IMAGES_OF_MODULES: [&str; 4] = ["vmlinuz", "vmlinuz.unsigned", "Image", "Image.gz"];
/// Names of the kernel's files in the cached tree.
const IMAGE: &str = "vmlinuz";
const CONFIG: &str = "config";
const SYMBOLS: &str = "System.map";
const MODULES: &str = "lib/modules";
const PACKAGES: &str = "packages.json";

/// Lists the package files in `directory`, sorted. Returns nothing if it has none, or is not a
/// directory.
///
/// # Errors
/// `PackagesError::Io` if the directory cannot be read, [`Error::LocalKernel`] if it has more
/// packages than one kernel can have.
pub fn packages_in(directory: &Path) -> Result<Vec<PathBuf>> {
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(Error::io("read", directory))?.take(MOST_FILES) {
        let path = entry.map_err(Error::io("read", directory))?.path();
        let is_named = path.extension().is_some_and(|extension| extension == "deb" || extension == "rpm");
        if is_named && is_package(&path) {
            found.push(path);
        }
    }
    if found.len() > MOST_PACKAGES {
        let problem = format!("holds more than {MOST_PACKAGES} packages: put those of one kernel into a directory");
        return Err(Error::LocalKernel { path: directory.to_owned(), problem });
    }
    found.sort();
    Ok(found)
}

/// Unpacks the kernel in `packages`, of which there is at least one, into the cache, unless the
/// cache has it. The modules are `modules`, or else the modules of the packages.
///
/// # Errors
/// - `PackagesError::Package` if a file is not a package.
/// - [`Error::LocalKernel`] for packages without an image, of several kernels, or without modules
///   that guests need.
/// - `PackagesError::DiskFull` or `PackagesError::Io` if the cache cannot store the kernel.
pub(super) fn find(cache: &Cache, packages: &[PathBuf], modules: Option<LocalModules>) -> Result<LocalKernel> {
    let shown = packages.first().cloned().unwrap_or_default();
    let hold = if packages.len() == 1 { "holds" } else { "and the packages given with it hold" };
    let refuse = |problem: String| Error::LocalKernel { path: shown.clone(), problem: format!("{hold} {problem}") };
    if packages.len() > MOST_PACKAGES {
        return Err(refuse(format!("more than a kernel, as {MOST_PACKAGES} packages do: give those of one kernel")));
    }
    let (mut parts, mut size) = (vec![KEY_VERSION.to_owned()], 0_u64);
    for package in packages {
        // An invalid package is reported before it is hashed.
        unpack::about(package)?;
        parts.push(cache.digest_of(package)?.to_string());
        size = size.saturating_add(fs::metadata(package).map_err(Error::io("read", package))?.len());
    }
    let what = format!("the kernel in {}", shown.display());
    let needed = size.saturating_mul(GROWTH);
    let tree = cache.make_tree(KIND, &Digest::of_parts(parts), &what, needed, |content| {
        tracing::info!("unpacking {what}, package files: {}", packages.len());
        let scratch = cache.scratch()?;
        // Packages from before and after the merge of /lib with /usr/lib unpack into one place.
        let usr = scratch.path().join("usr/lib");
        fs::create_dir_all(&usr).map_err(Error::io("create", &usr))?;
        let tree = UntrustedTree::open(scratch.path())?;
        tree.link("usr/lib", "lib")?;
        let mut found = Vec::new();
        for package in packages {
            let About { name, version, architecture } =
                unpack::unpack(package, &tree, &["./usr/share/doc", "./usr/src", "./usr/lib/debug"], &what)?;
            let size = fs::metadata(package).map_err(Error::io("read", package))?.len();
            found.push(Package { name, version, architecture, size, sha256: cache.digest_of(package)? });
        }
        arrange(&tree, content, &refuse)?;
        cache.write_small(&content.join(PACKAGES), &found).map_err(Error::from)
    })?;
    let list = tree.path.join(PACKAGES);
    let text = bpfassay_input::read(&list, MAX_LIST).map_err(Error::io("read", &list))?;
    let found: Vec<Package> = serde_json::from_slice(&text).map_err(|error| Error::io("read", &list)(error.into()))?;
    let release = release_of(&tree.path)?;
    let config = Some(tree.path.join(CONFIG)).filter(|path| path.is_file());
    let has_modules = release.is_some();
    let modules = match (modules, has_modules) {
        (Some(modules), _) => Some(modules),
        (None, true) => Some(LocalModules::Installed(tree.path.clone())),
        (None, false) => {
            let needed = config.as_deref().map(Config::read).transpose()?;
            if let Some(option) = needed.iter().flat_map(Config::modules_of_guests).next() {
                return Err(refuse(format!(
                    "no modules, and guests need some ({option}=m): give the package of the modules, too \
                     (linux-modules-… of Ubuntu, kernel-modules-core-… or kernel-modules-… of Fedora and RHEL)"
                )));
            }
            None
        }
    };
    if config.is_none() {
        tracing::warn!(
            "{what}: the packages hold no configuration, so that what the kernel lacks is not known before it boots"
        );
    }
    let version = found.first().map(|package| package.version.to_string());
    Ok(LocalKernel { image: tree.path.join(IMAGE), modules, config, release, version, packages: found })
}

/// Returns the release of the kernel in `tree`, a tree of the cache, if it has modules.
fn release_of(tree: &Path) -> Result<Option<KernelRelease>> {
    let tree = UntrustedTree::open(tree)?;
    let names = tree.names(MODULES)?.into_iter().filter(|name| tree.is_directory(Path::new(MODULES).join(name)));
    Ok(names.filter_map(|name| name.parse().ok()).next())
}

/// Moves the kernel's files from the packages' layout in `tree` to our layout in `content`.
/// `refuse` turns a problem of the packages into an error.
fn arrange(tree: &UntrustedTree, content: &Path, refuse: &dyn Fn(String) -> Error) -> Result<()> {
    let (release, image) = image(tree)?.map_err(refuse)?;
    let own = Path::new(MODULES).join(release.as_str());
    let boot = |name: &str| PathBuf::from(format!("boot/{name}-{release}"));
    tree.take_file(image, &content.join(IMAGE))?;
    for name in [CONFIG, SYMBOLS] {
        if let Some(from) = [boot(name), own.join(name)].into_iter().find(|place| tree.is_file(place)) {
            tree.take_file(from, &content.join(name))?;
        }
    }
    if !tree.is_directory(own.join("kernel")) {
        return Ok(());
    }
    if !tree.is_file(own.join("modules.builtin")) {
        return Err(refuse(format!(
            "modules of {release} and no modules.builtin: give the package that has it, too \
             (linux-modules-… of Ubuntu, kernel-core-… or kernel-modules-core-… of Fedora and RHEL)"
        )));
    }
    // Links in the modules' directory point to where the kernel's sources would be installed.
    Ok(tree.take_directory(&own, &content.join(&own), Links::Removed)?)
}

/// Returns the release and image of the only kernel in `tree`, or `Ok(Err)` with a problem of the
/// packages.
fn image(tree: &UntrustedTree) -> Result<Result<(KernelRelease, PathBuf), String>> {
    let mut found: Vec<(KernelRelease, PathBuf)> = Vec::new();
    for prefix in IMAGES {
        for name in tree.names("boot")? {
            let release = name.strip_prefix(prefix).and_then(|rest| release(rest.strip_prefix('-')?));
            let place = Path::new("boot").join(&name);
            found.extend(release.filter(|_| tree.is_file(&place)).map(|release| (release, place)));
        }
        if !found.is_empty() {
            break;
        }
    }
    for release in tree.names(MODULES)?.iter().filter_map(|name| release(name)) {
        let own = Path::new(MODULES).join(release.as_str());
        let image = IMAGES_OF_MODULES.iter().map(|name| own.join(name)).find(|place| tree.is_file(place));
        found.extend(image.map(|image| (release, image)));
    }
    let releases: BTreeSet<_> = found.iter().map(|(release, _)| release.as_str()).collect();
    if releases.len() > 1 {
        let releases: Vec<_> = releases.into_iter().collect();
        return Ok(Err(format!("kernels of {}: give the packages of one", releases.join(", "))));
    }
    Ok(found.into_iter().next().ok_or_else(|| {
        "no kernel image (boot/vmlinuz-RELEASE, lib/modules/RELEASE/vmlinuz): give the package that has it, too \
         (linux-image-… of Debian and Ubuntu, kernel-core-… of Fedora and RHEL, kernel-default-… of SUSE)"
            .to_owned()
    }))
}

/// Parses a part of a file name as a release.
fn release(text: &str) -> Option<KernelRelease> {
    let is_other = [".gz", ".xz", ".hmac", ".sig"].iter().any(|ending| text.ends_with(ending));
    let is_release = text.starts_with(|c: char| c.is_ascii_digit()) && !is_other;
    text.parse().ok().filter(|_| is_release)
}

#[cfg(test)]
mod tests;
