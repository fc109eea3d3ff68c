// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default provider: kernels from Debian's packages, with the guest's programs of this project.

mod builds;
mod debian_kernels;
mod listing;
mod unpack_kernel;
mod version;

use bpfassay_packages::apt::Apt;
use bpfassay_protocol::Arch;

pub use self::{
    builds::{KernelBuild, builds},
    debian_kernels::KernelProvider,
    listing::{Cached, SeriesListing},
    version::compare_versions,
};
use super::{BuiltPart, GuestRequest, PartReceiver, Provider, Sources, with_checkout};
use crate::{error::Result, kernel::BootableKernel};

pub(super) struct DebianProvider;

impl Provider for DebianProvider {
    fn name(&self) -> &'static str {
        "debian"
    }

    fn takes(&self, _: &Sources) -> bool {
        true
    }

    fn kernels(&self, request: &GuestRequest<'_>, arch: Arch) -> Result<Vec<String>> {
        let mut names: Vec<String> = Vec::new();
        for listing in KernelProvider::new(request.apt, request.catalogue).list(arch)? {
            if let Some(problem) = &listing.problem {
                tracing::warn!("{problem}");
            }
            for name in listing.names(|build| build.missing.is_none()) {
                // Several series can contain one build.
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        Ok(names)
    }

    fn provide(&self, request: &GuestRequest<'_>, receiver: &PartReceiver<'_>) {
        // Checks names first, so that a misspelt kernel is reported before anything is downloaded.
        for (arch, name) in &request.targets {
            if let Err(error) = request.catalogue.find(*arch, name) {
                let _ = receiver(BuiltPart::failed(request, error.into()));
                return;
            }
        }
        let kernel = |apt: &Apt<'_>, arch, name: &str| {
            let kernels = KernelProvider::new(apt, request.catalogue);
            let kernel = kernels.prepare(arch, name)?;
            let headers = if request.of_kernels.headers { kernels.headers(&kernel)? } else { Vec::new() };
            Ok(BootableKernel { headers, ..kernel })
        };
        with_checkout(request, self.name(), &kernel, receiver);
    }
}
