// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel that is unpacked and ready to boot, from any provider.

use std::path::PathBuf;

use bpfassay_packages::{apt::Package, cache::CachedFile, digest::Digest, safe_names::KernelRelease};
use bpfassay_protocol::Arch;

use crate::{kernel_modules::ModuleLayout, manifest};

/// A kernel that can be booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootableKernel {
    /// The architecture of the kernel.
    pub arch: Arch,
    /// The name in studies and on the command line.
    pub name: String,
    /// The release, as `uname -r` prints it.
    pub release: KernelRelease,
    /// Version of the packages. `None` if only an image was given.
    pub version: Option<String>,
    /// The image that QEMU boots.
    pub image: manifest::File,
    /// The configuration (`CONFIG_…`). `None` if not known.
    pub config: Option<manifest::File>,
    /// The module tree. `None` if the kernel has no modules.
    pub modules: Option<Modules>,
    /// The packages that the kernel comes from.
    pub packages: Vec<Package>,
    /// The package files with the headers. Empty if no tool needs headers.
    pub headers: Vec<CachedFile>,
}

/// The module tree of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modules {
    /// The path of the tree.
    pub path: PathBuf,
    /// The arrangement of files in the tree.
    pub layout: ModuleLayout,
    /// Changes whenever the tree does: a key for what is made from it.
    pub key: Digest,
}

impl BootableKernel {
    /// Returns the kernel's description for the manifest.
    #[must_use]
    pub fn to_manifest(&self) -> manifest::Kernel {
        manifest::Kernel {
            release: self.release.clone(),
            version: self.version.clone(),
            image: self.image.clone(),
            config: self.config.clone(),
            modules: self.modules.as_ref().map(|modules| modules.key),
            packages: self.packages.clone(),
        }
    }
}
