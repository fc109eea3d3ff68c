// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests of a testbed that was made before, here or elsewhere: `--manifest FILE`.

use std::path::Path;

use bpfassay_protocol::Arch;

use super::{Part, Provider, Receiver, Request, Sources};
use crate::{
    Result,
    image::role,
    manifest::{Check, Manifest},
};

/// Testbeds that are described by a manifest, which names their maker.
pub(super) struct ManifestFile;

impl Provider for ManifestFile {
    fn name(&self) -> &'static str {
        "manifest"
    }

    fn takes(&self, sources: &Sources) -> bool {
        sources.manifest.is_some()
    }

    fn host_packages(&self) -> &'static [&'static str] {
        &[]
    }

    fn kernels(&self, request: &Request<'_>, arch: Arch) -> Result<Vec<String>> {
        // Its files are checked when they are used.
        let manifest = load(request, Check::Size)?;
        Ok(manifest.targets.into_iter().filter(|target| target.arch == arch).map(|target| target.name).collect())
    }

    fn provide(&self, request: &Request<'_>, receiver: &Receiver<'_>) {
        let made = load(request, Check::Content).map(|manifest| for_request(manifest, request));
        let _ = receiver(Part { targets: request.targets.clone(), made });
    }
}

/// The guests of `manifest` as `request` wants them. `fetch` prepares for `shell`, too: with the segment of the shell, guests would take another number of
/// instructions to boot than those that `run` makes by itself.
pub(super) fn for_request(mut manifest: Manifest, request: &Request<'_>) -> Manifest {
    if !request.shell {
        for target in &mut manifest.targets {
            target.initramfs.retain(|segment| segment.role != role::SHELL);
        }
    }
    manifest
}

fn load(request: &Request<'_>, check: Check) -> Result<Manifest> {
    let path = request.sources.manifest.as_deref().unwrap_or(Path::new(""));
    Manifest::load(path, check)
}
