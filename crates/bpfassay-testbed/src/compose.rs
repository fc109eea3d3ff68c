// SPDX-License-Identifier: MIT OR Apache-2.0
//! Composes guests from kernels and programs of another builder, such as Nix, and packs testbeds.
//!
//! A builder names its kernels and programs in a [`TestbedSpec`]. The guests are assembled like
//! those of every provider. [`pack`] copies everything that a manifest names into one directory.

#![allow(clippy::disallowed_methods, reason = "copies files of a checked manifest to names that are digests")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use bpfassay_packages::{
    apt::{Package, is_plain},
    cache::{Cache, digest_of_directory},
    digest::Digest,
    error::PackagesError,
};
use bpfassay_protocol::Arch;
use serde::{Deserialize, Serialize};

use crate::{
    catalogue::Catalogue,
    error::{
        Error, Result,
        unusable_file::{SPEC_FORMAT, SpecError},
    },
    image,
    kernel::BootableKernel,
    manifest::{Component, MANIFEST, Manifest, Target, is_provider_name},
    payload::Payload,
    provider::{
        PartSender, assemble,
        local::{self, LocalKernel, LocalModules},
    },
};

/// Limit on a spec, in bytes.
const MAX_SPEC: u64 = 16 << 20;

/// The directory below the directory of [`pack`] that has the files, named by digest.
const FILES: &str = "files";

/// The parts to compose guests from. Paths are absolute, or relative to the spec's directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestbedSpec {
    /// Must be `SPEC_FORMAT`.
    pub format: u32,
    /// Who built the kernels and programs: see [`crate::manifest::MadeBy::name`].
    pub provider: String,
    /// Packages or programs that they were built with or from.
    #[serde(default)]
    pub toolchain: Vec<Component>,
    /// The directory with the guest's programs, by architecture.
    pub programs: BTreeMap<Arch, PathBuf>,
    /// A directory tree with a real IOR, by architecture.
    #[serde(default)]
    pub ior: BTreeMap<Arch, PathBuf>,
    /// The kernels of the guests.
    pub targets: Vec<TargetInputs>,
}

/// One kernel of a [`TestbedSpec`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetInputs {
    /// The kernel's architecture.
    pub arch: Arch,
    /// The kernel's name in studies and on the command line.
    pub name: String,
    /// Version of the kernel's source.
    pub version: Option<String>,
    /// The image, as for `--kernel`: bzImage or Image.
    pub image: PathBuf,
    /// An `INSTALL_MOD_PATH`. `None` if everything is built into the kernel.
    pub modules: Option<PathBuf>,
    /// The kernel's `.config`.
    pub config: Option<PathBuf>,
    /// The packages that the kernel was unpacked from. Empty if it was built.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<Package>,
}

impl TestbedSpec {
    /// Reads the spec at `path` and makes its paths absolute.
    ///
    /// # Errors
    /// [`SpecError`] if it cannot be read or used. [`PackagesError::Io`] if there is no current
    /// directory.
    pub fn load(path: &Path) -> Result<Self> {
        let text =
            bpfassay_input::read(path, MAX_SPEC).map_err(|source| SpecError::Read { path: path.to_owned(), source })?;
        let mut spec = Self::parse(path, &text)?;
        let directory = std::path::absolute(path).map_err(Error::io("find", path))?;
        let directory = directory.parent().unwrap_or(Path::new("/"));
        let programs = spec.programs.values_mut().chain(spec.ior.values_mut());
        let kernels = spec.targets.iter_mut().flat_map(|target| {
            [Some(&mut target.image), target.modules.as_mut(), target.config.as_mut()].into_iter().flatten()
        });
        for path in programs.chain(kernels) {
            *path = directory.join(&path);
        }
        Ok(spec)
    }

    /// Parses a spec; `path` names it in messages. [`compose`] finds out whether its files exist.
    ///
    /// # Errors
    /// [`SpecError`] if the text is not a spec, has another format, or contradicts itself.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, SpecError> {
        let form = |source| SpecError::Form { path: path.to_owned(), source };
        let refuse = |problem| SpecError::Content { path: path.to_owned(), problem };
        let spec: Self = serde_json::from_slice(text).map_err(form)?;
        if spec.format != SPEC_FORMAT {
            return Err(refuse(format!("has format {}, this program reads {SPEC_FORMAT}", spec.format)));
        }
        if !is_provider_name(&spec.provider) {
            return Err(refuse(format!("`{}` is no name of a provider", spec.provider.escape_debug())));
        }
        if spec.targets.is_empty() {
            return Err(refuse("names no kernel".to_owned()));
        }
        for (index, target) in spec.targets.iter().enumerate() {
            let (arch, name) = (target.arch, &target.name);
            if name.is_empty() {
                return Err(refuse(format!("a kernel for {arch} has no name")));
            }
            if spec.targets[..index].iter().any(|other| (other.arch, &other.name) == (arch, name)) {
                return Err(refuse(format!("the target {arch} {name} is listed twice")));
            }
            if !spec.programs.contains_key(&arch) {
                return Err(refuse(format!("there are no programs for the target {arch} {name}")));
            }
            for Package { name: package, version, architecture, .. } in &target.packages {
                if ![package.as_str(), version, architecture].into_iter().all(is_plain) {
                    let package = package.escape_debug();
                    return Err(refuse(format!("the target {arch} {name} names `{package}`, which is no package")));
                }
            }
        }
        Ok(spec)
    }

    /// Returns the targets that `catalogue` does not know: kernels added for this testbed.
    #[must_use]
    pub fn unknown_targets<'a>(&'a self, catalogue: &Catalogue) -> Vec<&'a TargetInputs> {
        let known = |target: &TargetInputs| {
            catalogue.nixpkgs(&target.name).is_some() || catalogue.find(target.arch, &target.name).is_ok()
        };
        self.targets.iter().filter(|target| !known(target)).collect()
    }
}

/// Composes the guests of `spec` in the cache. Returns their manifest.
///
/// # Errors
/// - [`Error::LocalKernel`]: an image or modules cannot be used or do not fit together.
/// - [`Error::Modules`]: a module tree is incomplete.
/// - [`Error::Overlay`]: a directory tree has no real IOR, or has files unfit for a guest.
/// - [`PackagesError::Io`], [`PackagesError::DiskFull`]: a file cannot be read, or the cache cannot
///   be written to.
pub fn compose(cache: &Cache, spec: &TestbedSpec) -> Result<Manifest> {
    let mut programs = BTreeMap::new();
    for (&arch, directory) in &spec.programs {
        programs.insert(arch, Payload::from_directory(cache, arch, directory)?);
    }
    let kernel = |made: &TargetInputs| -> Result<BootableKernel> {
        let inputs = LocalKernel {
            image: made.image.clone(),
            modules: made.modules.clone().map(LocalModules::Installed),
            config: made.config.clone(),
            release: None,
            version: None,
            packages: Vec::new(),
        };
        let mut kernel = local::prepare(cache, &inputs, Some(made.arch))?;
        kernel.name.clone_from(&made.name);
        kernel.version.clone_from(&made.version);
        kernel.packages.clone_from(&made.packages);
        // Hash the content, like the Debian provider: a builder's times and paths do not matter.
        if let Some(modules) = &mut kernel.modules {
            modules.key = digest_of_directory(&modules.path)?;
        }
        Ok(kernel)
    };
    let parts = PartSender {
        provider: &spec.provider,
        toolchain: spec.toolchain.clone(),
        assets: Vec::new(),
        targets: spec
            .targets
            .iter()
            .map(|target| image::target(cache, &kernel(target)?, &BTreeSet::new()))
            .collect::<Result<_>>()?,
        programs,
        ior: &spec.ior.iter().map(|(arch, tree)| (*arch, tree.clone())).collect::<Vec<_>>(),
        shell: None,
    };
    assemble(cache, parts)
}

/// Copies every file that `manifest` names into `directory`, and writes the manifest with relative
/// paths there. `directory` must not have a manifest or a directory `files`. The result can be
/// moved, copied to another machine, or added to a Nix store.
///
/// # Errors
/// - [`PackagesError::Io`]: the manifest or `files` exists already, or a file cannot be copied.
/// - [`PackagesError::Mismatch`]: a file has other content than the manifest says.
pub fn pack(manifest: &Manifest, directory: &Path) -> Result<()> {
    let files = directory.join(FILES);
    fs::create_dir_all(directory).map_err(Error::io("create", directory))?;
    // This fails if `files` exists: old files must not become part of the testbed.
    fs::create_dir(&files).map_err(Error::io("create", &files))?;
    let outcome = pack_files(manifest, directory);
    if outcome.is_err() {
        // An incomplete testbed is useless, and takes space on a full disk.
        if let Err(error) = fs::remove_dir_all(&files) {
            tracing::debug!("cannot remove {}: {error}", files.display());
        }
    }
    outcome
}

fn pack_files(manifest: &Manifest, directory: &Path) -> Result<()> {
    let mut packed = manifest.clone();
    for file in packed.targets.iter_mut().flat_map(Target::files_mut) {
        let name = Path::new(FILES).join(file.sha256.to_string());
        let to = directory.join(&name);
        if !to.exists() {
            let source = bpfassay_input::open(&file.path).map_err(Error::io("copy", &file.path))?;
            let copy = || {
                let (mode, mut copy) = (source.metadata()?.permissions(), fs::File::create_new(&to)?);
                io::copy(&mut source.take(file.size.saturating_add(1)), &mut copy)?;
                copy.set_permissions(mode)
            };
            copy().map_err(Error::io("copy", &file.path))?;
            let found = Digest::of_file(&to)?;
            if found != file.sha256 {
                let what = file.path.display().to_string();
                let remedy = "make the testbed again";
                return Err(PackagesError::Mismatch { what, expected: file.sha256, found, remedy }.into());
            }
        }
        file.path = name;
    }
    let path = directory.join(MANIFEST);
    let text = packed.to_json()?;
    let mut file = fs::File::create_new(&path).map_err(Error::io("create", &path))?;
    file.write_all(text.as_bytes()).map_err(|error| {
        let _ = fs::remove_file(&path);
        Error::io("write", &path)(error)
    })
}

#[cfg(test)]
mod tests;
