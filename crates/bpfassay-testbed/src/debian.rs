//! The provider `debian`: kernels from Debian's packages (or the user's own), the guest's programs from this checkout.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use bpfassay_protocol::Arch;

use crate::{
    Result,
    apt::Apt,
    catalogue::Catalogue,
    image,
    kernel::Kernels,
    local,
    manifest::{FORMAT, Manifest, Provider, ProviderName},
    payload,
};

/// What guests are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// Architecture and kernel, by its name in the catalogue or [`local::NAME`].
    pub targets: Vec<(Arch, String)>,
    /// Image and modules of the kernel called [`local::NAME`].
    pub local: Option<(PathBuf, Option<PathBuf>)>,
    /// Directory trees with a real IOR, per architecture.
    pub ior: Vec<(Arch, PathBuf)>,
    /// Whether guests can be used by hand.
    pub shell: bool,
}

/// Makes what is missing of the guests of `request`, and the manifest that describes them.
///
/// # Errors
/// [`crate::Error`]: names that nobody knows, packages that cannot be had, programs that do not build, a full disk.
pub fn provide(apt: &Apt<'_>, catalogue: &Catalogue, request: &Request) -> Result<Manifest> {
    let cache = apt.cache();
    // Names first: a misspelt kernel is told before anything is downloaded or built.
    for (arch, name) in request.targets.iter().filter(|(_, name)| name != local::NAME) {
        catalogue.find(*arch, name)?;
    }
    let kernels = Kernels::new(apt, catalogue);
    let mut prepared = Vec::new();
    for (arch, name) in &request.targets {
        prepared.push(match &request.local {
            Some((image, modules)) if name == local::NAME => {
                local::prepare(cache, image, modules.as_deref(), Some(*arch))?
            }
            _ => kernels.prepare(*arch, name)?,
        });
    }
    let archs: Vec<Arch> = request.targets.iter().map(|(arch, _)| *arch).collect::<BTreeSet<_>>().into_iter().collect();
    let built = payload::prepare(apt, &archs)?;

    let mut shared = BTreeMap::new();
    for (&arch, payload) in &built.programs {
        let mut segments = vec![image::base_segment(cache, payload)?];
        for (_, directory) in request.ior.iter().filter(|(of, _)| *of == arch) {
            segments.push(image::overlay_segment(cache, arch, directory)?);
        }
        if request.shell {
            segments.push(image::shell_segment(apt, arch)?);
        }
        shared.insert(arch, segments);
    }
    Ok(Manifest {
        format: FORMAT,
        provider: Provider { name: ProviderName::Debian, version: env!("CARGO_PKG_VERSION").to_owned() },
        toolchain: built.toolchain,
        targets: prepared.iter().map(|kernel| image::target(cache, kernel, &shared)).collect::<Result<_>>()?,
    })
}
