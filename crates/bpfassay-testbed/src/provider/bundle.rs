// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests of a testbed that was made before, in one file: `--bundle FILE`.

use std::path::Path;

use bpfassay_protocol::Arch;

use super::{Part, Provider, Receiver, Request, Sources, manifest::for_request};
use crate::{Result, bundle};

/// Testbeds in one file, whose manifest names their maker.
pub(super) struct Bundle;

impl Provider for Bundle {
    fn name(&self) -> &'static str {
        "bundle"
    }

    fn takes(&self, sources: &Sources) -> bool {
        sources.bundle.is_some()
    }

    fn host_packages(&self) -> &'static [&'static str] {
        &[]
    }

    fn kernels(&self, request: &Request<'_>, arch: Arch) -> Result<Vec<String>> {
        let manifest = bundle::manifest(path(request.sources))?;
        Ok(manifest.targets.into_iter().filter(|target| target.arch == arch).map(|target| target.name).collect())
    }

    fn provide(&self, request: &Request<'_>, receiver: &Receiver<'_>) {
        let made = bundle::unpack(request.apt.cache(), path(request.sources));
        let made = made.map(|manifest| for_request(manifest, request));
        let _ = receiver(Part { targets: request.targets.clone(), made });
    }
}

fn path(sources: &Sources) -> &Path {
    sources.bundle.as_deref().unwrap_or(Path::new(""))
}
