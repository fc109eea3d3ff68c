// SPDX-License-Identifier: MIT OR Apache-2.0
//! The testbed manifest: every guest that can be booted, and everything that it was built from.
//!
//! Providers write the manifest. Builders outside of this program have it written from their spec
//! ([`crate::compose`]). Results embed it. It names files by path and SHA-256; relative paths are
//! relative to the manifest's directory.

#![allow(clippy::disallowed_methods, reason = "a manifest may name any file of this machine whose digest it has")]

use std::{
    collections::BTreeSet,
    io::Read as _,
    path::{Path, PathBuf},
};

use bpfassay_packages::{apt::Package, digest::Digest, safe_names::KernelRelease};
use bpfassay_protocol::Arch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{
    Error, Result,
    unusable_file::{MANIFEST_FORMAT, ManifestError},
};

/// Format version of the manifest.
pub const FORMAT: u32 = MANIFEST_FORMAT;

/// File name of the manifest in a directory of packed guests, and in a bundle.
pub const MANIFEST: &str = "manifest.json";

/// Largest manifest that is read, in bytes. A manifest of 30 guests has about 200 KB.
pub(crate) const MAX_MANIFEST: u64 = 64 << 20;

/// The description of a testbed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Always [`FORMAT`].
    pub format: u32,
    /// The provider that built the testbed.
    pub provider: MadeBy,
    /// Packages that the provider used for building on the host. Empty if it only copied.
    #[serde(default)]
    pub toolchain: Vec<Component>,
    /// Assets that contained the guest's programs. Empty if all programs were built here or by
    /// another builder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assets: Vec<ProgramAsset>,
    /// The guests, one per target.
    pub targets: Vec<Target>,
}

/// An asset: the guest's programs for one architecture, built elsewhere ([`crate::payload`]).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramAsset {
    /// The architecture that the programs run on.
    pub arch: Arch,
    /// Digest of the sources of the programs, as the asset states it.
    pub source: Digest,
    /// SHA-256 of the asset's archive.
    pub sha256: Digest,
    /// The directory or URL of the asset.
    pub from: String,
}

/// The origin of kernels and guests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MadeBy {
    /// One of [`crate::provider`], or a builder outside of this program, such as `nix`. Lower-case
    /// letters, digits and hyphens.
    #[schemars(regex(pattern = "^[a-z][a-z0-9-]*$"))]
    pub name: String,
    /// Version of the program that wrote the manifest.
    pub version: String,
}

/// One bootable guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The guest's architecture.
    pub arch: Arch,
    /// The kernel's name in studies and on the command line.
    pub name: String,
    /// The kernel.
    pub kernel: Kernel,
    /// The segments of the initramfs, in the order in which they are concatenated. The job follows
    /// them.
    pub initramfs: Vec<Segment>,
}

/// The kernel of a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// Release of the kernel: the output of `uname -r`.
    pub release: KernelRelease,
    /// Version of the package or source that the kernel was built from. Absent if the user gave
    /// only an image.
    pub version: Option<String>,
    /// The image that QEMU boots.
    pub image: File,
    /// The kernel's configuration, if the provider has it.
    pub config: Option<File>,
    /// Digest over the paths and contents of the module tree. Absent if there are no modules.
    pub modules: Option<Digest>,
    /// The packages that the kernel came from.
    #[serde(default)]
    pub packages: Vec<Package>,
}

/// One part of an initramfs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// The segment's purpose: `base`, `modules`, `payload`, …
    pub role: String,
    /// The cpio archive (newc, uncompressed).
    pub archive: File,
    /// The programs, libraries and other files in the archive.
    #[serde(default)]
    pub contents: Vec<Component>,
}

/// A file, by path and content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Relative to the manifest's directory, or absolute.
    pub path: PathBuf,
    /// Length in bytes.
    pub size: u64,
    /// SHA-256 of the content.
    pub sha256: Digest,
}

/// A named part of the testbed: a package, program, library or other file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Component {
    /// Name of the package or library, or path of the file in the guest.
    pub name: String,
    /// Version, in the notation of its source. Empty for a file without a version.
    pub version: String,
    /// SHA-256 of the part's file.
    pub sha256: Digest,
}

/// How [`Manifest::load`] checks the files that a manifest names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The files exist and have the right length.
    Size,
    /// The files also have the right SHA-256.
    Content,
}

impl Manifest {
    /// Reads the manifest at `path`, makes its paths absolute, and checks its content and files.
    ///
    /// # Errors
    /// [`ManifestError`] if the manifest cannot be read, is malformed, or names files that are
    /// missing or changed.
    pub fn load(path: &Path, check: Check) -> Result<Self> {
        let text = bpfassay_input::read(path, MAX_MANIFEST)
            .map_err(|source| ManifestError::Read { path: path.to_owned(), source })?;
        let mut manifest = Self::parse(path, &text)?;
        let directory = std::path::absolute(path).map_err(Error::io("find", path))?;
        let directory = directory.parent().unwrap_or(Path::new("/"));
        for target in &mut manifest.targets {
            for file in target.files_mut() {
                file.path = directory.join(&file.path);
            }
        }
        manifest.check_files(path, check)?;
        Ok(manifest)
    }

    /// Parses the text of a manifest. `path` names it in messages.
    ///
    /// # Errors
    /// [`ManifestError`] if the text is not a manifest, has another format version, or contradicts
    /// itself.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, ManifestError> {
        let form = |source| ManifestError::Form { path: path.to_owned(), source };
        let value: serde_json::Value = serde_json::from_slice(text).map_err(form)?;
        if let Some(found) = value.get("format").and_then(serde_json::Value::as_u64)
            && found != u64::from(FORMAT)
        {
            return Err(ManifestError::Format { path: path.to_owned(), found });
        }
        let manifest: Self = serde_json::from_value(value).map_err(form)?;
        if !is_provider_name(&manifest.provider.name) {
            let problem = format!("`{}` is no name of a provider", manifest.provider.name.escape_debug());
            return Err(ManifestError::Content { path: path.to_owned(), problem });
        }
        let mut seen = BTreeSet::new();
        for target in &manifest.targets {
            let problem = if !seen.insert((target.arch, target.name.as_str())) {
                format!("the target {} {} is listed twice", target.arch, target.name)
            } else if target.name.is_empty() {
                format!("a target of {} has no name", target.arch)
            } else if target.files().any(|file| file.size == 0) {
                format!("the target {} {} has a file of 0 bytes", target.arch, target.name)
            } else if target.initramfs.is_empty() {
                format!("the target {} {} has no initramfs", target.arch, target.name)
            } else {
                continue;
            };
            return Err(ManifestError::Content { path: path.to_owned(), problem });
        }
        Ok(manifest)
    }

    /// Returns the manifest as JSON text, as it is stored and embedded.
    pub fn to_json(&self) -> Result<String, ManifestError> {
        serde_json::to_string_pretty(self)
            .map(|text| text + "\n")
            .map_err(|source| ManifestError::Form { path: PathBuf::new(), source })
    }

    /// Returns the JSON schema of manifests.
    #[must_use]
    pub fn schema() -> schemars::Schema {
        schemars::schema_for!(Self)
    }

    /// Returns the guest of `arch` with the kernel `name`.
    #[must_use]
    pub fn target(&self, arch: Arch, name: &str) -> Option<&Target> {
        self.targets.iter().find(|target| target.arch == arch && target.name == name)
    }

    /// Checks the files that the manifest names. `path` names the manifest in messages.
    ///
    /// # Errors
    /// [`ManifestError::File`] if a file is missing or changed, `PackagesError::Io` if a file
    /// cannot be read to its end.
    pub fn check_files(&self, path: &Path, check: Check) -> Result<()> {
        for file in self.targets.iter().flat_map(Target::files) {
            if let Some(problem) = file.problem(check)? {
                let file = file.path.clone();
                return Err(ManifestError::File { manifest: path.to_owned(), file, problem }.into());
            }
        }
        Ok(())
    }
}

/// Whether `name` can name a provider in manifests.
pub(crate) fn is_provider_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.len() <= 32 && name.chars().all(plain)
}

impl Target {
    /// Returns every file that the target names.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        [&self.kernel.image]
            .into_iter()
            .chain(&self.kernel.config)
            .chain(self.initramfs.iter().map(|part| &part.archive))
    }

    /// Returns every file that the target names, mutably.
    pub fn files_mut(&mut self) -> impl Iterator<Item = &mut File> {
        [&mut self.kernel.image]
            .into_iter()
            .chain(&mut self.kernel.config)
            .chain(self.initramfs.iter_mut().map(|part| &mut part.archive))
    }
}

impl File {
    fn problem(&self, check: Check) -> Result<Option<String>> {
        let file = match bpfassay_input::open(&self.path) {
            Ok(file) => file,
            Err(error) => return Ok(Some(format!("cannot be read ({error})"))),
        };
        let found = file.metadata().map_err(Error::io("read", &self.path))?.len();
        if found != self.size {
            return Ok(Some(format!("has {found} bytes, not {}", self.size)));
        }
        if check == Check::Content {
            // Files below /proc and /sys can have more bytes than their size. Some never end.
            let found = Digest::of_reader(file.take(self.size + 1)).map_err(Error::io("read", &self.path))?;
            if found != self.sha256 {
                return Ok(Some(format!("has SHA-256 {found}, not {}", self.sha256)));
            }
        }
        Ok(None)
    }
}

impl From<&bpfassay_packages::cache::CachedFile> for File {
    fn from(object: &bpfassay_packages::cache::CachedFile) -> Self {
        Self { path: object.path.clone(), size: object.size, sha256: object.digest }
    }
}

impl From<&Package> for Component {
    fn from(package: &Package) -> Self {
        Self { name: package.name.to_string(), version: package.version.to_string(), sha256: package.sha256 }
    }
}

#[cfg(test)]
mod tests;
