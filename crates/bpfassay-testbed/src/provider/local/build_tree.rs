// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tree that a kernel was built in: its image, release, configuration and modules.

#![allow(clippy::disallowed_methods, reason = "the user of this command names the build tree")]

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use bpfassay_packages::{digest::Digest, safe_names::KernelRelease};
use bpfassay_protocol::Arch;

use super::{Config, LocalKernel, LocalModules, digest_of, identify, read_image};
use crate::{
    error::{Error, Result},
    kernel::Modules,
    kernel_modules::{ModuleLayout, ModulesError, built},
};

const CONFIG: &str = ".config";
/// The kernel's release, as `make` would name it now.
const RELEASE: &str = "include/config/kernel.release";
/// The list of built-in code that could also be a module.
const BUILTIN: &str = "modules.builtin";
/// Names of images in `arch/*/boot`. The first that exists in a directory is used.
const IMAGES: [&str; 3] = ["bzImage", "Image", "Image.gz"];
/// Largest number of directories below `arch` that are searched. Linux has 21.
const MAX_ARCHS: usize = 200;
/// Largest file with a release that is read, in bytes. A kernel's release has at most 64.
const MAX_RELEASE: u64 = 4096;

/// Returns whether `directory` looks like a kernel's build tree, complete or not.
#[must_use]
pub fn is_build_tree(directory: &Path) -> bool {
    directory.join(CONFIG).is_file() || (directory.join("Makefile").is_file() && directory.join("arch").is_dir())
}

/// Finds the kernel that was built in `tree` for one of `archs`, or for any architecture if that is
/// empty. The modules are `modules`, or else the modules of the tree.
///
/// # Errors
/// - [`Error::LocalKernel`] if `tree` is not a build tree, or has images of several architectures.
/// - [`Error::UnusableImage`] for an invalid image, `PackagesError::Io` if a file cannot be read.
/// - [`Error::NotBuilt`] if something is not built, or older than the tree.
pub(super) fn find(tree: &Path, modules: Option<LocalModules>, archs: &[Arch]) -> Result<LocalKernel> {
    let lacks = |problem: String| Error::NotBuilt { tree: tree.to_owned(), problem };
    if !is_build_tree(tree) {
        let problem = "is neither a kernel image nor the tree of a kernel's build: give the directory that `make` wrote .config to (O=)";
        return Err(Error::LocalKernel { path: tree.to_owned(), problem: problem.to_owned() });
    }
    let config = tree.join(CONFIG);
    if !config.is_file() {
        return Err(lacks(
            "has no .config: run `make defconfig` and `make`, or give the directory that O= named".to_owned(),
        ));
    }
    let (image, image_release) = image(tree, archs)?;
    let release = match bpfassay_input::read(&tree.join(RELEASE), MAX_RELEASE) {
        Ok(text) => {
            let text = String::from_utf8_lossy(&text);
            text.trim().parse::<KernelRelease>().map_err(|error| lacks(format!("has another {RELEASE}: {error}")))?
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(lacks(format!("has no {RELEASE}: run `make`")));
        }
        Err(error) => return Err(Error::io("read", tree.join(RELEASE))(error)),
    };
    if let Some(built) = image_release.filter(|built| *built != release) {
        let shown = shown(tree, &image);
        return Err(lacks(format!(
            "is one of {release}, and {shown} is of {built}, from a build before: run `make {}`",
            target(&image)
        )));
    }
    let modules = match modules {
        Some(modules) => Some(modules),
        None => own_modules(tree, &Config::read(&config)?)?,
    };
    let (config, release) = (Some(config), Some(release));
    Ok(LocalKernel { image, modules, config, release, version: None, packages: Vec::new() })
}

/// Finds the image in `tree` for one of `archs`, and its release if the image contains it.
fn image(tree: &Path, archs: &[Arch]) -> Result<(PathBuf, Option<KernelRelease>)> {
    // The build for x86_64 also puts a link to its image into arch/x86_64.
    let mut found = BTreeMap::new();
    let mut others = Vec::new();
    for path in candidates(tree)? {
        let kind = identify(&read_image(&path)?).map_err(|problem| Error::UnusableImage {
            path: path.clone(),
            problem: format!("{problem}; or build it again"),
        })?;
        if archs.is_empty() || archs.contains(&kind.arch) {
            found.insert(fs::canonicalize(&path).map_err(Error::io("find", &path))?, (path, kind));
        } else {
            others.push(kind.arch.name());
        }
    }
    let lacks = |problem: String| Err(Error::NotBuilt { tree: tree.to_owned(), problem });
    let wanted = || archs.iter().map(|arch| arch.name()).collect::<Vec<_>>().join(" or ");
    if let (true, Some(other)) = (found.is_empty(), others.first()) {
        let problem = format!("is the build of a kernel for {other}, not for {}", wanted());
        return Err(Error::LocalKernel { path: tree.to_owned(), problem });
    }
    let mut found = found.into_values();
    match (found.next(), found.next()) {
        (None, _) => lacks(
            "has no kernel image (arch/*/boot/bzImage, Image or Image.gz): run `make bzImage` on x86, or `make Image`"
                .to_owned(),
        ),
        (Some((path, kind)), None) => Ok((path, kind.release)),
        (Some((_, one)), Some((_, other))) => {
            let problem = format!("has images for {} and for {}: choose one with --arch", one.arch, other.arch);
            Err(Error::LocalKernel { path: tree.to_owned(), problem })
        }
    }
}

/// Lists the images in `tree`, one per directory `arch/*/boot`, sorted.
fn candidates(tree: &Path) -> Result<Vec<PathBuf>> {
    let parent = tree.join("arch");
    let entries = match fs::read_dir(&parent) {
        Ok(entries) => entries.take(MAX_ARCHS),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("read", parent)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let boot = entry.map_err(Error::io("read", &parent))?.path().join("boot");
        found.extend(IMAGES.iter().map(|name| boot.join(name)).find(|path| path.is_file()));
    }
    found.sort();
    Ok(found)
}

/// Finds the modules of the tree. Returns `None` if its kernel has none.
fn own_modules(tree: &Path, config: &Config) -> Result<Option<LocalModules>> {
    let lacks = |problem: String| Err(Error::NotBuilt { tree: tree.to_owned(), problem });
    if let (false, Some(option)) = (tree.join(built::ORDER).is_file(), config.modules_of_guests().next()) {
        return lacks(format!("has no {}, and guests need modules ({option}=m): run `make modules`", built::ORDER));
    }
    match (tree.join(BUILTIN).is_file(), config.is_set("CONFIG_MODULES")) {
        (true, _) => Ok(Some(LocalModules::Built(tree.to_owned()))),
        // The built-in code is unknown then. The guest reports what is missing.
        (false, false) => Ok(None),
        (false, true) => lacks(format!("has no {BUILTIN}: run `make`")),
    }
}

/// Returns the modules of a build tree, with a key over those that `modules.order` names.
///
/// # Errors
/// [`Error::Modules`] if `modules.order` or a module cannot be read, or if it names a file outside
/// of the tree. `PackagesError::Io` if the path of `tree` cannot be resolved.
pub(super) fn modules(tree: &Path) -> Result<Modules> {
    let path = fs::canonicalize(tree).map_err(Error::io("find", tree))?;
    let named = built::modules(&path)?.into_values().map(|module| path.join(module));
    let mut files = Vec::new();
    for file in named.chain([BUILTIN, built::ORDER].map(|name| path.join(name))) {
        match fs::metadata(&file) {
            Ok(metadata) => files.push((file, metadata)),
            // A missing file is reported when a guest needs it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(ModulesError::Read { path: file, source }.into()),
        }
    }
    let key = Digest::of_parts(["build tree".to_owned(), digest_of(&files).to_string()]);
    Ok(Modules { path, layout: ModuleLayout::Built, key })
}

/// Returns the make target that builds `image`.
fn target(image: &Path) -> String {
    image.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn shown(tree: &Path, image: &Path) -> String {
    image.strip_prefix(tree).unwrap_or(image).display().to_string()
}

#[cfg(test)]
mod tests;
