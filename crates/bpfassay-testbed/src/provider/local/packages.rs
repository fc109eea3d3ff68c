// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels in packages of distributions: `--kernel image.deb,modules.deb`, `--kernel kernel-core.rpm`, `--kernel DIRECTORY-OF-PACKAGES`.
//!
//! The packages are unpacked into the cache, once. Nothing of them is installed or run. What belongs to the kernel is found by its place, which is the same in all
//! distributions: `boot/` for older packages, `lib/modules/RELEASE` for the others.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use super::{Config, LocalKernel, LocalModules};
use crate::{
    Error, Result,
    apt::Package,
    cache::{Cache, Digest},
    unpack::{self, About, GROWTH, is_package},
};

/// Kind of cache tree.
const KIND: &str = "kernel-packages";
/// To be changed whenever another tree is made of the same packages.
const KEY_VERSION: &str = "kernel of packages 1";
/// Files that are looked at in a directory of packages, at most.
const MOST_FILES: usize = 4096;
/// Packages that a kernel may be in, at most; vendors split it into about ten.
const MOST_PACKAGES: usize = 64;
/// Largest list of packages that is read back from the cache, in bytes.
const MAX_LIST: u64 = 1 << 20;

/// What kernels are called in `boot`, before `-RELEASE`. Where one of them is there, the others are the same for a debugger.
const IMAGES: [&str; 3] = ["vmlinuz", "Image", "vmlinux"];
/// The same in `lib/modules/RELEASE`.
const IMAGES_OF_MODULES: [&str; 4] = ["vmlinuz", "vmlinuz.unsigned", "Image", "Image.gz"];
/// What is with the image, by the names that it has in the tree here.
const IMAGE: &str = "vmlinuz";
const CONFIG: &str = "config";
const SYMBOLS: &str = "System.map";
const MODULES: &str = "lib/modules";
const PACKAGES: &str = "packages.json";

/// The package files in `directory`, sorted; empty where it has none, or is no directory.
///
/// # Errors
/// [`Error::Io`] where it cannot be read; [`Error::LocalKernel`] where it has more than a kernel can be in.
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

/// The kernel in `packages`, of which at least one is given; with `modules`, or those of the packages. It is unpacked into the cache, unless it is there.
///
/// # Errors
/// [`Error::Package`] for a file that is no package; [`Error::LocalKernel`] for packages without an image, of several kernels, or without the modules that
/// guests need of them; [`Error::DiskFull`], [`Error::Io`] where the cache cannot take it.
pub(super) fn find(cache: &Cache, packages: &[PathBuf], modules: Option<LocalModules>) -> Result<LocalKernel> {
    let shown = packages.first().cloned().unwrap_or_default();
    let hold = if packages.len() == 1 { "holds" } else { "and the packages given with it hold" };
    let refuse = |problem: String| Error::LocalKernel { path: shown.clone(), problem: format!("{hold} {problem}") };
    if packages.len() > MOST_PACKAGES {
        return Err(refuse(format!("more than a kernel, as {MOST_PACKAGES} packages do: give those of one kernel")));
    }
    let (mut parts, mut size) = (vec![KEY_VERSION.to_owned()], 0_u64);
    for package in packages {
        // Named before it is hashed.
        unpack::about(package)?;
        parts.push(cache.digest_of(package)?.to_string());
        size = size.saturating_add(fs::metadata(package).map_err(Error::io("read", package))?.len());
    }
    let what = format!("the kernel in {}", shown.display());
    let needed = size.saturating_mul(GROWTH);
    let tree = cache.make_tree(KIND, &Digest::of_parts(parts), &what, needed, |content| {
        tracing::info!("unpacking {what}, package files: {}", packages.len());
        let scratch = cache.scratch()?;
        let root = scratch.path();
        // Packages from before and after the merge of /lib with /usr/lib come to lie in one place.
        let usr = root.join("usr/lib");
        fs::create_dir_all(&usr).map_err(Error::io("create", &usr))?;
        symlink("usr/lib", root.join("lib")).map_err(Error::io("create", root.join("lib")))?;
        let mut found = Vec::new();
        for package in packages {
            let About { name, version, architecture } =
                unpack::unpack(package, root, &["./usr/share/doc", "./usr/src", "./usr/lib/debug"], &what)?;
            let size = fs::metadata(package).map_err(Error::io("read", package))?.len();
            found.push(Package { name, version, architecture, size, sha256: cache.digest_of(package)? });
        }
        arrange(root, content, &refuse)?;
        cache.write_small(&content.join(PACKAGES), &found)
    })?;
    let list = tree.path.join(PACKAGES);
    let text = bpfassay_input::read(&list, MAX_LIST).map_err(Error::io("read", &list))?;
    let found: Vec<Package> = serde_json::from_slice(&text).map_err(|error| Error::io("read", &list)(error.into()))?;
    let release = release_of(&tree.path)?;
    let config = Some(tree.path.join(CONFIG)).filter(|path| path.is_file());
    let has_modules = release.as_ref().is_some_and(|release| tree.path.join(MODULES).join(release).is_dir());
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
    let version = found.first().map(|package| package.version.clone());
    Ok(LocalKernel { image: tree.path.join(IMAGE), modules, config, release, version, packages: found })
}

/// The release of the kernel in a tree of ours, where it has modules.
fn release_of(tree: &Path) -> Result<Option<String>> {
    let names = names(&tree.join(MODULES))?;
    Ok(names.into_iter().next())
}

/// Moves the kernel's files from the packages' places in `root` to ours in `content`; `refuse` makes the error of a problem of the packages.
fn arrange(root: &Path, content: &Path, refuse: &dyn Fn(String) -> Error) -> Result<()> {
    let modules = root.join("usr").join(MODULES);
    let (release, image) = image(root, &modules).and_then(|found| found.map_err(refuse))?;
    let own = modules.join(&release);
    let boot = |name: &str| root.join("boot").join(format!("{name}-{release}"));
    let place = |from: &Path, to: &str| -> Result<()> {
        let to = content.join(to);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
        }
        fs::rename(from, to).map_err(Error::io("move", from))
    };
    place(&image, IMAGE)?;
    for name in [CONFIG, SYMBOLS] {
        if let Some(from) = [boot(name), own.join(name)].into_iter().find(|path| is_file(path)) {
            place(&from, name)?;
        }
    }
    if !own.join("kernel").is_dir() {
        return Ok(());
    }
    if !is_file(&own.join("modules.builtin")) {
        return Err(refuse(format!(
            "modules of {release} and no modules.builtin: give the package that has it, too \
             (linux-modules-… of Ubuntu, kernel-core-… or kernel-modules-core-… of Fedora and RHEL)"
        )));
    }
    for name in ["build", "source"] {
        // Links to where the kernel's sources would be installed.
        let path = own.join(name);
        if path.is_symlink() {
            fs::remove_file(&path).map_err(Error::io("remove", path))?;
        }
    }
    place(&own, &format!("{MODULES}/{release}"))
}

/// The release of the only kernel in `root`, and its image; `Ok(Err)`: what is wrong with the packages.
fn image(root: &Path, modules: &Path) -> Result<Result<(String, PathBuf), String>> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    for prefix in IMAGES {
        for name in names(&root.join("boot"))? {
            let release = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-')).map(str::to_owned);
            let path = root.join("boot").join(&name);
            found
                .extend(release.filter(|release| is_release(release) && is_file(&path)).map(|release| (release, path)));
        }
        if !found.is_empty() {
            break;
        }
    }
    for release in names(modules)?.into_iter().filter(|release| is_release(release)) {
        let image = IMAGES_OF_MODULES.iter().map(|name| modules.join(&release).join(name)).find(|path| is_file(path));
        found.extend(image.map(|image| (release, image)));
    }
    let releases: BTreeSet<_> = found.iter().map(|(release, _)| release.clone()).collect();
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

/// Whether a text can be what `uname -r` prints: it becomes a part of paths.
fn is_release(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '~' | '_'))
        && ![".gz", ".xz", ".hmac", ".sig"].iter().any(|ending| text.ends_with(ending))
}

/// A regular file, and no link to one: links of packages lead to where these would be installed.
fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file())
}

/// The names in a directory, sorted; none where it does not exist. Those that are not UTF-8 are left out.
fn names(directory: &Path) -> Result<Vec<String>> {
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(Error::io("read", directory))? {
        let name = entry.map_err(Error::io("read", directory))?.file_name();
        names.extend(name.into_string().ok());
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests;
