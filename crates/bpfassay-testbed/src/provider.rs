// SPDX-License-Identifier: MIT OR Apache-2.0
//! Providers of guests. A provider is one file in this directory and one line in `PROVIDERS`.
//!
//! A provider builds or finds the guests of a [`GuestRequest`] and describes them in a
//! [`Manifest`]. All of them share `assemble`, which builds a bootable target from a kernel and the
//! guest's programs.

pub mod debian;
pub mod local;
mod manifest_provider;
mod overlap;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use bpfassay_packages::{apt::Apt, cache::Cache, stages::StageKind};
use bpfassay_protocol::Arch;
use bpfassay_tool::KernelNeeds;

use self::local::LocalKernel;
use crate::{
    catalogue::Catalogue,
    error::{Error, Result},
    image,
    kernel::BootableKernel,
    manifest::{Check, Component, FORMAT, MadeBy, Manifest, ProgramAsset, Target},
    payload::{self, Built, Payload, ProgramSources},
    toolchain,
};

/// The providers, in the order in which they are asked whether they accept a request. The last
/// provider accepts every request.
static PROVIDERS: &[&dyn Provider] = &[&manifest_provider::ManifestFile, &local::Local, &debian::DebianProvider];

/// A source of guests.
pub trait Provider: Sync {
    /// Returns the provider's name in manifests and results.
    fn name(&self) -> &'static str;

    /// Returns whether this provider builds guests from `sources`.
    fn takes(&self, sources: &Sources) -> bool;

    /// Returns the Debian packages that the host needs to build guests, in addition to QEMU. Empty
    /// if guests are built elsewhere.
    fn host_packages(&self) -> &'static [&'static str] {
        toolchain::HOST_PACKAGES
    }

    /// Returns the names of the kernels for `arch`, oldest first. The patterns of studies select
    /// from them.
    ///
    /// # Errors
    /// [`crate::Error`] if a list of kernels cannot be read or fetched.
    fn kernels(&self, request: &GuestRequest<'_>, arch: Arch) -> Result<Vec<String>>;

    /// Builds the missing guests for the targets of `request`, and passes each target to `receiver`
    /// once. Errors are unknown names, packages that cannot be fetched, programs that do not build,
    /// and a full disk.
    fn provide(&self, request: &GuestRequest<'_>, receiver: &PartReceiver<'_>);
}

/// The user's choice of kernels and files to build guests from. It selects the provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// A finished testbed in one file.
    pub bundle: Option<PathBuf>,
    /// The manifest of a finished testbed.
    pub manifest: Option<PathBuf>,
    /// A finished testbed whose files have been checked.
    pub recorded: Option<Manifest>,
    /// The kernel called [`local::NAME`].
    pub local: Option<LocalKernel>,
    /// Directory trees with a real IOR, per architecture.
    pub ior: Vec<(Arch, PathBuf)>,
}

impl Sources {
    /// Returns the provider that builds guests from these sources.
    #[must_use]
    pub fn provider(&self) -> &'static dyn Provider {
        PROVIDERS.iter().copied().find(|provider| provider.takes(self)).unwrap_or(&debian::DebianProvider)
    }

    /// Returns the manifest of a finished testbed, or `None` if guests have to be built. Does not
    /// hash files.
    ///
    /// # Errors
    /// The errors of [`Manifest::load`] and [`crate::guest_bundle::manifest`].
    pub fn made_before(&self) -> Result<Option<Manifest>> {
        match (&self.bundle, &self.manifest) {
            _ if self.recorded.is_some() => Ok(self.recorded.clone()),
            (Some(bundle), _) => crate::guest_bundle::manifest(bundle).map(Some),
            (None, Some(manifest)) => Manifest::load(manifest, Check::Size).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Returns whether the sources are a finished testbed.
    #[must_use]
    pub fn are_made(&self) -> bool {
        self.bundle.is_some() || self.manifest.is_some() || self.recorded.is_some()
    }
}

/// The guests to build, and what to build them from.
#[derive(Debug)]
pub struct GuestRequest<'a> {
    /// Access to packages and to the cache.
    pub apt: &'a Apt<'a>,
    /// The kernels that have names.
    pub catalogue: &'a Catalogue,
    /// Architecture and kernel of each guest. Kernels have names of the catalogue or
    /// [`local::NAME`].
    pub targets: Vec<(Arch, String)>,
    /// The kernels and files to build the guests from.
    pub sources: &'a Sources,
    /// Sources of the guest's programs.
    pub programs: &'a ProgramSources,
    /// Whether guests also get a shell, for use by hand.
    pub shell: bool,
    /// What tools require of the kernels: modules and headers.
    pub of_kernels: KernelNeeds,
}

impl<'a> GuestRequest<'a> {
    /// Creates a request without targets, for guests without a shell.
    #[must_use]
    pub fn new(apt: &'a Apt<'a>, catalogue: &'a Catalogue, sources: &'a Sources, programs: &'a ProgramSources) -> Self {
        Self {
            apt,
            catalogue,
            targets: Vec::new(),
            sources,
            programs,
            shell: false,
            of_kernels: KernelNeeds::default(),
        }
    }

    pub(crate) fn archs(&self) -> Vec<Arch> {
        self.targets.iter().map(|(arch, _)| *arch).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Returns [`Provider::host_packages`] of the provider with this name in a manifest. Empty for a
/// builder that is not part of this program.
#[must_use]
pub fn host_packages(name: &str) -> &'static [&'static str] {
    PROVIDERS.iter().find(|provider| provider.name() == name).map_or(&[], |provider| provider.host_packages())
}

/// Guests for some targets of a request, or the error of building them.
#[derive(Debug)]
pub struct BuiltPart {
    /// Architecture and kernel of each guest, as in the request.
    pub targets: Vec<(Arch, String)>,
    /// The guests, which can be more than the request asks for.
    pub made: Result<Manifest>,
}

impl BuiltPart {
    /// Reports `error` for all targets of `request`.
    fn failed(request: &GuestRequest<'_>, error: Error) -> Self {
        Self { targets: request.targets.clone(), made: Err(error) }
    }
}

/// Receives the parts of a request from several threads, as soon as they are built. After it asks
/// to stop, nothing new is started.
pub type PartReceiver<'a> = dyn Fn(BuiltPart) -> ControlFlow<()> + Sync + 'a;

/// Builds all guests of `request` with the provider that its sources select.
///
/// # Errors
/// The first error of a part.
pub fn whole(request: &GuestRequest<'_>) -> Result<Manifest> {
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

/// Joins the `parts` of one request to one testbed. Its guests are in the order of `targets`,
/// followed by guests that the request did not ask for.
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
    // Architectures that were built at different times can have different package versions. All are
    // listed.
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

pub(crate) struct PartSender<'a> {
    /// Name of the provider of the kernels.
    pub(crate) provider: &'a str,
    /// Packages that the programs were built with.
    pub(crate) toolchain: Vec<Component>,
    /// The assets that contained the programs.
    pub(crate) assets: Vec<ProgramAsset>,
    /// Guests that have only a kernel and its modules.
    pub(crate) targets: Vec<Target>,
    pub(crate) programs: BTreeMap<Arch, Payload>,
    /// Directory trees with a real IOR, per architecture.
    pub(crate) ior: &'a [(Arch, PathBuf)],
    /// The source of a shell's programs, if guests are to have a shell.
    pub(crate) shell: Option<&'a Apt<'a>>,
}

/// Assembles the guests of `parts` in the cache, and the manifest that describes them. All
/// providers use it.
///
/// # Errors
/// [`crate::Error::Overlay`] for a directory tree without a real IOR, or with files that a guest
/// cannot hold. `PackagesError::Io` and `PackagesError::DiskFull` if a segment cannot be stored.
/// Errors of packages if the shell's busybox is not available.
pub(crate) fn assemble(cache: &Cache, parts: PartSender<'_>) -> Result<Manifest> {
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

/// Builds the guests of `request` from the kernels that `kernel` returns and the guest's programs.
/// Begins with the host's architecture, and works in parallel.
fn with_checkout(
    request: &GuestRequest<'_>,
    provider: &str,
    kernel: &(dyn Fn(&Apt<'_>, Arch, &str) -> Result<BootableKernel> + Sync),
    receiver: &PartReceiver<'_>,
) {
    let (apt, cache) = (request.apt, request.apt.cache());
    let mut targets: Vec<&(Arch, String)> = request.targets.iter().collect();
    let host = toolchain::host_arch().ok();
    targets.sort_by_key(|(arch, _)| Some(*arch) != host);
    let of_tools: BTreeSet<String> = request.of_kernels.modules.iter().cloned().collect();
    let mut archs = request.archs();
    archs.sort_by_key(|arch| Some(*arch) != host);
    let work = overlap::OverlappingWork {
        kernels: targets.iter().map(|(arch, _)| *arch).collect(),
        kernel: |index: usize| {
            let (arch, name) = targets[index];
            apt.during(StageKind::Kernel, format!("{arch} {name}"), |apt| {
                image::target(cache, &kernel(apt, *arch, name)?, &of_tools)
            })
        },
        programs: |sink: overlap::ProgramSink<'_, Built>| payload::prepare_each(apt, request.programs, &archs, sink),
    };
    overlap::overlap(overlap::workers(), work, &|indexes, made| {
        let made = made.and_then(|(targets, built)| {
            let arch = built.payload.arch;
            apt.during(StageKind::Guests, arch.name(), |apt| {
                let parts = PartSender {
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
        receiver(BuiltPart { targets: indexes.into_iter().map(|index| targets[index].clone()).collect(), made })
    });
}
