// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel that is unpacked and ready to boot, whichever provider it comes from.

use std::path::PathBuf;

use bpfassay_protocol::Arch;

use crate::{apt::Package, cache::Digest, manifest, modules::Layout, names::KernelRelease};

/// A kernel that can be booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Its architecture.
    pub arch: Arch,
    /// Its name in studies and on the command line.
    pub name: String,
    /// What `uname -r` prints.
    pub release: KernelRelease,
    /// Version of its packages; none where only an image was given.
    pub version: Option<String>,
    /// The image that QEMU boots.
    pub image: manifest::File,
    /// Its configuration (`CONFIG_…`), where known.
    pub config: Option<manifest::File>,
    /// Its modules; none where it has none.
    pub modules: Option<Modules>,
    /// The packages that it came from.
    pub packages: Vec<Package>,
}

/// The module tree of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Modules {
    /// Where it is.
    pub path: PathBuf,
    /// What it looks like.
    pub layout: Layout,
    /// Changes whenever the tree does: a key for what is made from it.
    pub key: Digest,
}

impl Kernel {
    /// Its description in the manifest.
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
