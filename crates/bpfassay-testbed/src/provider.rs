// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where guests come from. A provider is one file here and one line in `PROVIDERS`.
//!
//! A provider makes or finds the guests of a [`Request`] and describes them in a [`Manifest`]. What
//! all of them share is `assemble`: from a kernel and the guest's programs to a bootable target.

pub mod debian;
pub mod local;
mod manifest;
mod overlap;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use bpfassay_protocol::Arch;

use self::local::LocalKernel;
use crate::{
    Error, Result,
    apt::Apt,
    cache::Cache,
    catalogue::Catalogue,
    image,
    kernel::Kernel,
    manifest::{Check, Component, FORMAT, MadeBy, Manifest, ProgramAsset, Target},
    payload::{self, Built, Payload, ProgramSources},
    stages::Kind,
    toolchain,
};

/// The providers, in the order in which they are asked whether a request is for them. The last one
/// takes every request.
static PROVIDERS: &[&dyn Provider] = &[&manifest::ManifestFile, &local::Local, &debian::Debian];

/// A source of guests.
pub trait Provider: Sync {
    /// Its name, under which manifests and results record it.
    fn name(&self) -> &'static str;

    /// Whether it makes guests of `sources`.
    fn takes(&self, sources: &Sources) -> bool;

    /// Debian packages that the host needs to make guests, besides QEMU; empty where guests are
    /// made elsewhere.
    fn host_packages(&self) -> &'static [&'static str] {
        toolchain::HOST_PACKAGES
    }

    /// Names of the kernels that it has for `arch`, oldest first: what the patterns of studies
    /// select from.
    ///
    /// # Errors
    /// [`crate::Error`] where a list of kernels cannot be read or fetched.
    fn kernels(&self, request: &Request<'_>, arch: Arch) -> Result<Vec<String>>;

    /// Makes what is missing of the guests for the targets of `request`, and gives them to
    /// `receiver`, each target once. An error is about an unknown name, packages that cannot be
    /// fetched, programs that do not build, or a full disk.
    fn provide(&self, request: &Request<'_>, receiver: &Receiver<'_>);
}

/// What guests are made of, as the user named it. It decides which provider makes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// A testbed that was made before, in one file.
    pub bundle: Option<PathBuf>,
    /// The manifest of a testbed that was made before.
    pub manifest: Option<PathBuf>,
    /// A testbed that was made before, its files checked.
    pub recorded: Option<Manifest>,
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

    /// The manifest of a testbed that was made before: which guests it has; `None` where guests are
    /// made. Files are not hashed.
    ///
    /// # Errors
    /// Those of [`Manifest::load`] and [`crate::bundle::manifest`].
    pub fn made_before(&self) -> Result<Option<Manifest>> {
        match (&self.bundle, &self.manifest) {
            _ if self.recorded.is_some() => Ok(self.recorded.clone()),
            (Some(bundle), _) => crate::bundle::manifest(bundle).map(Some),
            (None, Some(manifest)) => Manifest::load(manifest, Check::Size).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Whether guests were made before.
    #[must_use]
    pub fn are_made(&self) -> bool {
        self.bundle.is_some() || self.manifest.is_some() || self.recorded.is_some()
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

    /// The architectures of its targets.
    fn archs(&self) -> Vec<Arch> {
        self.targets.iter().map(|(arch, _)| *arch).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// The packages of [`Provider::host_packages`] of the provider with that name in a manifest; empty
/// for a builder that is not part of this program.
#[must_use]
pub fn host_packages(name: &str) -> &'static [&'static str] {
    PROVIDERS.iter().find(|provider| provider.name() == name).map_or(&[], |provider| provider.host_packages())
}

/// Guests for some targets of a request, or why there are none.
#[derive(Debug)]
pub struct Part {
    /// The targets.
    pub targets: Vec<(Arch, String)>,
    /// Their guests, which may be more than the request asks for.
    pub made: Result<Manifest>,
}

impl Part {
    /// None of the guests of `request`, because of `error`.
    fn failed(request: &Request<'_>, error: Error) -> Self {
        Self { targets: request.targets.clone(), made: Err(error) }
    }
}

/// Receives the parts of a request, from several threads, as soon as they are made. Nothing more is
/// begun when it asks to stop.
pub type Receiver<'a> = dyn Fn(Part) -> ControlFlow<()> + Sync + 'a;

/// All guests of `request`, from the provider that its sources ask for.
///
/// # Errors
/// The first error of a part.
pub fn whole(request: &Request<'_>) -> Result<Manifest> {
    let parts = Mutex::new((Vec::new(), None));
    request.sources.provider().provide(request, &|part| {
        let mut parts = parts.lock().unwrap_or_else(PoisonError::into_inner);
        match part.made {
            Ok(manifest) => parts.0.push(manifest),
            Err(error) => drop(parts.1.get_or_insert(error)),
        }
        if parts.1.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match parts.into_inner().unwrap_or_else(PoisonError::into_inner) {
        (_, Some(error)) => Err(error),
        (parts, None) => Ok(joined(parts, &request.targets)),
    }
}

/// The testbed that `parts` of one request make, with its guests in the order of `targets`, and
/// those behind them that nobody asked for.
#[must_use]
pub fn joined(parts: Vec<Manifest>, targets: &[(Arch, String)]) -> Manifest {
    let mut all = Manifest {
        format: FORMAT,
        provider: MadeBy { name: String::new(), version: env!("CARGO_PKG_VERSION").to_owned() },
        toolchain: Vec::new(),
        assets: Vec::new(),
        targets: Vec::new(),
    };
    for part in parts {
        (all.format, all.provider) = (part.format, part.provider);
        all.toolchain.extend(part.toolchain);
        all.assets.extend(part.assets);
        all.targets.extend(part.targets);
    }
    // Architectures that were built at different times may have been built with different versions:
    // all are named.
    all.toolchain.sort();
    all.toolchain.dedup();
    all.assets.sort();
    all.assets.dedup();
    let place = |made: &Target| {
        targets.iter().position(|(arch, name)| (*arch, name) == (made.arch, &made.name)).unwrap_or(usize::MAX)
    };
    all.targets.sort_by_key(place);
    all
}

/// What guests are assembled from.
pub(crate) struct Parts<'a> {
    /// Who made the kernels.
    pub(crate) provider: &'a str,
    /// What the programs were built with.
    pub(crate) toolchain: Vec<Component>,
    /// The assets that they were taken from.
    pub(crate) assets: Vec<ProgramAsset>,
    /// Guests that have only a kernel and its modules.
    pub(crate) targets: Vec<Target>,
    pub(crate) programs: BTreeMap<Arch, Payload>,
    /// Directory trees with a real IOR, per architecture.
    pub(crate) ior: &'a [(Arch, PathBuf)],
    /// Where the programs of a shell come from, if guests are to have one.
    pub(crate) shell: Option<&'a Apt<'a>>,
}

/// Assembles the guests of `parts` in the cache, and the manifest that describes them: the same for
/// every provider.
///
/// # Errors
/// [`crate::Error::Overlay`] for a directory tree without a real IOR, or with what a guest cannot hold; [`crate::Error::Io`] and
/// [`crate::Error::DiskFull`] where a segment cannot be stored; those of packages where the shell's busybox cannot be had.
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
    let with_shared = |target: Target| {
        let shared = shared.get(&target.arch).map(Vec::as_slice).unwrap_or_default();
        image::with_shared(target, shared)
    };
    Ok(Manifest {
        format: FORMAT,
        provider: MadeBy { name: parts.provider.to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        toolchain: parts.toolchain,
        assets: parts.assets,
        targets: parts.targets.into_iter().map(with_shared).collect(),
    })
}

/// Makes the guests of `request` with kernels that `kernel` gives and the guest's programs: the
/// host's architecture first, everything that can beside each other.
fn with_checkout(
    request: &Request<'_>,
    provider: &str,
    kernel: &(dyn Fn(&Apt<'_>, Arch, &str) -> Result<Kernel> + Sync),
    receiver: &Receiver<'_>,
) {
    let (apt, cache) = (request.apt, request.apt.cache());
    let mut targets: Vec<&(Arch, String)> = request.targets.iter().collect();
    let host = toolchain::host_arch().ok();
    targets.sort_by_key(|(arch, _)| Some(*arch) != host);
    let mut archs = request.archs();
    archs.sort_by_key(|arch| Some(*arch) != host);
    let work = overlap::Work {
        kernels: targets.iter().map(|(arch, _)| *arch).collect(),
        kernel: |index: usize| {
            let (arch, name) = targets[index];
            apt.during(Kind::Kernel, format!("{arch} {name}"), |apt| image::target(cache, &kernel(apt, *arch, name)?))
        },
        programs: |sink: overlap::Sink<'_, Built>| payload::prepare_each(apt, request.programs, &archs, sink),
    };
    overlap::overlap(overlap::workers(), work, &|indexes, made| {
        let made = made.and_then(|(targets, built)| {
            let arch = built.payload.arch;
            apt.during(Kind::Guests, arch.name(), |apt| {
                let parts = Parts {
                    provider,
                    toolchain: built.toolchain,
                    assets: built.asset.into_iter().collect(),
                    targets: targets.into_values().collect(),
                    programs: [(arch, built.payload)].into(),
                    ior: &request.sources.ior,
                    shell: request.shell.then_some(apt),
                };
                assemble(cache, parts)
            })
        });
        receiver(Part { targets: indexes.into_iter().map(|index| targets[index].clone()).collect(), made })
    });
}
