// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where guests come from. A provider is one file here and one line in `PROVIDERS`.
//!
//! A provider makes or finds the guests of a [`Request`] and describes them in a [`Manifest`]. What all of them share is
//! `assemble`: from a kernel and the guest's programs to a bootable target.

pub mod debian;
pub mod local;
mod manifest;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use bpfassay_protocol::Arch;

use self::local::LocalKernel;
use crate::{
    Result,
    apt::Apt,
    cache::Cache,
    catalogue::Catalogue,
    image,
    kernel::Kernel,
    manifest::{Component, FORMAT, MadeBy, Manifest, ProgramAsset},
    payload::{self, Payload, ProgramSources},
    toolchain,
};

/// The providers, in the order in which they are asked whether a request is for them. The last one takes every request.
static PROVIDERS: &[&dyn Provider] = &[&manifest::ManifestFile, &local::Local, &debian::Debian];

/// A source of guests.
pub trait Provider: Sync {
    /// Its name, under which manifests and results record it.
    fn name(&self) -> &'static str;

    /// Whether it makes guests of `sources`.
    fn takes(&self, sources: &Sources) -> bool;

    /// Debian packages that the host needs to make guests, besides QEMU; empty where guests are made elsewhere.
    fn host_packages(&self) -> &'static [&'static str] {
        toolchain::HOST_PACKAGES
    }

    /// Names of the kernels that it has for `arch`, oldest first: what the patterns of studies select from.
    ///
    /// # Errors
    /// [`crate::Error`] where a list of kernels cannot be read or fetched.
    fn kernels(&self, request: &Request<'_>, arch: Arch) -> Result<Vec<String>>;

    /// Makes what is missing of the guests for the targets of `request`, and the manifest that describes them. The manifest may hold
    /// further guests.
    ///
    /// # Errors
    /// [`crate::Error`]: unknown names, packages that cannot be fetched, programs that do not build, a full disk.
    fn provide(&self, request: &Request<'_>) -> Result<Manifest>;
}

/// What guests are made of, as the user named it. It decides which provider makes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// The manifest of a testbed that was made before.
    pub manifest: Option<PathBuf>,
    /// The kernel called [`local::NAME`].
    pub local: Option<LocalKernel>,
    /// Directory trees with a real IOR, per architecture.
    pub ior: Vec<(Arch, PathBuf)>,
}

impl Sources {
    /// The provider that makes guests of them.
    #[must_use]
    pub fn provider(&self) -> &'static dyn Provider {
        PROVIDERS.iter().copied().find(|provider| provider.takes(self)).unwrap_or(&debian::Debian)
    }
}

/// Which guests are wanted, and what they are made of.
#[derive(Debug)]
pub struct Request<'a> {
    /// Packages, and the cache.
    pub apt: &'a Apt<'a>,
    /// The kernels that have names.
    pub catalogue: &'a Catalogue,
    /// Architecture and kernel of each guest, by its name in the catalogue or [`local::NAME`].
    pub targets: Vec<(Arch, String)>,
    /// What they are made of.
    pub sources: &'a Sources,
    /// Where the guest's programs may come from.
    pub programs: &'a ProgramSources,
    /// Whether guests can be used by hand.
    pub shell: bool,
}

impl<'a> Request<'a> {
    /// A request for no target yet, and for guests that only measure.
    #[must_use]
    pub fn new(apt: &'a Apt<'a>, catalogue: &'a Catalogue, sources: &'a Sources, programs: &'a ProgramSources) -> Self {
        Self { apt, catalogue, targets: Vec::new(), sources, programs, shell: false }
    }
}

/// The packages of [`Provider::host_packages`] of the provider with that name in a manifest; empty for a builder that is not
/// part of this program.
#[must_use]
pub fn host_packages(name: &str) -> &'static [&'static str] {
    PROVIDERS.iter().find(|provider| provider.name() == name).map_or(&[], |provider| provider.host_packages())
}

/// What guests are assembled from.
pub(crate) struct Parts<'a> {
    /// Who made the kernels.
    pub(crate) provider: &'a str,
    /// What the programs were built with.
    pub(crate) toolchain: Vec<Component>,
    /// The assets that they were taken from.
    pub(crate) assets: Vec<ProgramAsset>,
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) programs: BTreeMap<Arch, Payload>,
    /// Directory trees with a real IOR, per architecture.
    pub(crate) ior: &'a [(Arch, PathBuf)],
    /// Where the programs of a shell come from, if guests are to have one.
    pub(crate) shell: Option<&'a Apt<'a>>,
}

/// Assembles the guests of `parts` in the cache, and the manifest that describes them: the same for every provider.
///
/// # Errors
/// [`crate::Error::Modules`], [`crate::Error::Overlay`], [`crate::Error::Io`], and others of packages and of the cache.
pub(crate) fn assemble(cache: &Cache, parts: Parts<'_>) -> Result<Manifest> {
    let mut shared = BTreeMap::new();
    for (&arch, payload) in &parts.programs {
        let mut segments = vec![image::base_segment(cache, payload)?];
        for (_, directory) in parts.ior.iter().filter(|(of, _)| *of == arch) {
            segments.push(image::overlay_segment(cache, arch, directory)?);
        }
        if let Some(apt) = parts.shell {
            segments.push(image::shell_segment(apt, arch)?);
        }
        shared.insert(arch, segments);
    }
    Ok(Manifest {
        format: FORMAT,
        provider: MadeBy { name: parts.provider.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        toolchain: parts.toolchain,
        assets: parts.assets,
        targets: parts.kernels.iter().map(|kernel| image::target(cache, kernel, &shared)).collect::<Result<_>>()?,
    })
}

/// Assembles `kernels` of `provider` with the guest's programs of this checkout.
///
/// # Errors
/// Those of [`payload::prepare`] and [`assemble`].
fn with_checkout(request: &Request<'_>, provider: &str, kernels: Vec<Kernel>) -> Result<Manifest> {
    let archs: BTreeSet<Arch> = kernels.iter().map(|kernel| kernel.arch).collect();
    let built = payload::prepare(request.apt, request.programs, &archs.into_iter().collect::<Vec<_>>())?;
    let shell = request.shell.then_some(request.apt);
    let parts = Parts {
        provider,
        toolchain: built.toolchain,
        assets: built.assets,
        kernels,
        programs: built.programs,
        ior: &request.sources.ior,
        shell,
    };
    assemble(request.apt.cache(), parts)
}
