// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels from Debian's packages, with the guest's programs of this checkout. The default.

mod builds;
mod kernels;
mod listing;
mod unpack;
mod version;

use bpfassay_protocol::Arch;

pub use self::{
    builds::{Build, builds},
    kernels::Kernels,
    listing::{Cached, Listing},
    version::compare_versions,
};
use super::{Provider, Request, Sources, with_checkout};
use crate::{Result, manifest::Manifest};

/// Debian's packages.
pub(super) struct Debian;

impl Provider for Debian {
    fn name(&self) -> &'static str {
        "debian"
    }

    fn takes(&self, _: &Sources) -> bool {
        true
    }

    fn kernels(&self, request: &Request<'_>, arch: Arch) -> Result<Vec<String>> {
        let mut names: Vec<String> = Vec::new();
        for listing in Kernels::new(request.apt, request.catalogue).list(arch)? {
            if let Some(problem) = &listing.problem {
                tracing::warn!("{problem}");
            }
            for name in listing.names(|build| build.missing.is_none()) {
                // Several series may hold one build.
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        Ok(names)
    }

    fn provide(&self, request: &Request<'_>) -> Result<Manifest> {
        // Names first: a misspelt kernel is reported before anything is downloaded or built.
        for (arch, name) in &request.targets {
            request.catalogue.find(*arch, name)?;
        }
        let kernels = Kernels::new(request.apt, request.catalogue);
        let prepared = request.targets.iter().map(|(arch, name)| kernels.prepare(*arch, name));
        with_checkout(request, self.name(), prepared.collect::<Result<_>>()?)
    }
}
