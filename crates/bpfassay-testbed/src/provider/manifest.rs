// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests of a testbed that was made before, here or elsewhere: `--manifest FILE`, or in one file, `--bundle FILE`.

use std::path::Path;

use bpfassay_protocol::Arch;

use super::{Part, Provider, Receiver, Request, Sources};
use crate::{
    Result, bundle,
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
        sources.are_made()
    }

    fn host_packages(&self) -> &'static [&'static str] {
        &[]
    }

    fn kernels(&self, request: &Request<'_>, arch: Arch) -> Result<Vec<String>> {
        // Its files are checked when they are used.
        let targets = request.sources.made_before()?.map(|manifest| manifest.targets).unwrap_or_default();
        Ok(targets.into_iter().filter(|target| target.arch == arch).map(|target| target.name).collect())
    }

    fn provide(&self, request: &Request<'_>, receiver: &Receiver<'_>) {
        let Sources { bundle, manifest, recorded, .. } = request.sources;
        let made = match (recorded, bundle) {
            (Some(recorded), _) => Ok(recorded.clone()),
            (None, Some(bundle)) => bundle::unpack(request.apt.cache(), bundle),
            (None, None) => Manifest::load(manifest.as_deref().unwrap_or(Path::new("")), Check::Content),
        };
        let made = made.map(|mut manifest| {
            if !request.shell {
                // `fetch` prepares for `shell`, too. With the segment of the shell, guests would take another number of instructions
                // to boot than those that `run` makes by itself.
                for target in &mut manifest.targets {
                    target.initramfs.retain(|segment| segment.role != role::SHELL);
                }
            }
            manifest
        });
        let _ = receiver(Part { targets: request.targets.clone(), made });
    }
}
