// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks whether this host can build and boot guests, and names the remedy if not.

#![allow(clippy::disallowed_methods, reason = "joins a fixed name to a scratch directory")]

use std::collections::BTreeSet;

use bpfassay_packages::apt::{Apt, NamedBy};
use bpfassay_protocol::{Arch, with_causes};
use bpfassay_testbed::{
    locked_qemu::Emulator,
    payload::{self, Buildable},
    provider::debian::KernelProvider,
    toolchain::HOST_PACKAGES,
};
use bpfassay_vm::{AcceleratorWish, Machine, Qemu, acceleration};

use crate::{
    error::Error,
    this_host::{
        accelerator::KVM_PATIENCE,
        emulator,
        host_packages::missing_packages,
        qemu_source::QemuSource,
        runner_store::{Store, StoreOptions},
    },
};

/// Free disk space for a cold start, in MiB: toolchain root, build of the guest's programs,
/// packages and kernels of `quick`.
const DISK_MIB: u64 = 9 * 1024;
/// Memory that two guests of `quick` need side by side, in MiB.
const MEMORY_MIB: u64 = 2 * (1024 + 320);

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCheck {
    /// The subject of the check, and the finding. The text can quote untrusted input.
    pub what: String,
    /// The finding's consequence for guests.
    pub state: HostState,
    /// A remedy, if something can be better.
    pub remedy: Option<Remedy>,
}

/// The consequence of a finding for guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostState {
    /// Nothing is missing.
    Good,
    /// Guests work, but not as well as they could.
    Note,
    /// Guests cannot be made or booted.
    Bad,
}

/// A remedy for a finding. The program that reports it decides how to apply it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Name a directory for the cache that this user can write to.
    NameCache,
    /// Free this many MiB for a cold start, or name another directory for the cache.
    FreeDisk(u64),
    /// Free some memory, or give guests less.
    FreeMemory,
    /// Install these Debian packages.
    InstallPackages(Vec<String>),
    /// Use a Debian host, or a testbed from elsewhere.
    UseDebian,
    /// Install QEMU for guests of this architecture, or use the one of `testbed.lock`.
    InstallQemu(Arch),
    /// Do nothing: QEMU is fetched with the first study.
    FetchQemu,
    /// Install a Rust toolchain when the sources of the guest's programs change.
    InstallRustLater,
    /// Install a Rust toolchain, name a place that offers the guest's programs, or use a testbed
    /// from elsewhere.
    InstallRust,
    /// Name a checkout or a place that offers the guest's programs, or use a testbed from
    /// elsewhere.
    NameSources,
    /// Name a place that offers the guest's programs, or use a testbed from elsewhere.
    NamePlace,
    /// Fetch the guest's programs from the named place.
    FetchPrograms,
    /// Allow the use of the network once, or fetch a testbed.
    FetchIndexes,
    /// Name a mirror of Debian's archive.
    NameMirror,
    /// Name an archive of snapshots to get locked packages that mirrors have dropped.
    NameArchive,
    /// Try again later, or accept an outdated mirror.
    RetryMirror,
    /// Check the host's apt sources and network, or accept an outdated mirror.
    CheckMirror,
    /// Do nothing: guests run under TCG.
    UseTcg,
    /// Fetch a testbed, which has a kernel to try KVM with, and check again.
    FetchKernel,
    /// Allow this user to use `/dev/kvm`.
    PermitKvm,
    /// Use a host whose KVM boots guests if time is to be measured.
    UseKvmHost,
}

/// Checks packages, memory, cache, guest programs, kernels, QEMU and KVM of this host. All checks
/// are made, even if one fails.
pub async fn examine_host(options: &StoreOptions) -> Vec<HostCheck> {
    let archs: BTreeSet<Arch> = Arch::ALL.iter().copied().collect();
    let mut checks = vec![packages(missing_packages(HOST_PACKAGES, &archs, options.qemu)), memory()];
    let store = Store::open(options);
    match &store {
        Ok(store) => {
            checks.push(disk(store));
            checks.push(programs(store));
            checks.extend([mirror(&store.apt()), archive(&store.apt())]);
            checks.extend(mirrors(store));
        }
        Err(error) => {
            checks.push(bad(with_causes(error), Remedy::NameCache));
        }
    }
    for &arch in &archs {
        checks.push(match &store {
            Ok(store) => qemu(store, arch).await.unwrap_or_else(|error| {
                bad(format!("QEMU for {arch}: {}", with_causes(&error)), Remedy::InstallQemu(arch))
            }),
            Err(_) => note(format!("QEMU for {arch}: not looked for without a cache"), Remedy::NameCache),
        });
    }
    if let Ok(store) = &store {
        checks.push(kvm(store).await.unwrap_or_else(|error| {
            note(format!("KVM: could not be tried: {}", with_causes(&error)), Remedy::FetchKernel)
        }));
    }
    checks
}

fn good(what: impl Into<String>) -> HostCheck {
    HostCheck { what: what.into(), state: HostState::Good, remedy: None }
}

fn note(what: impl Into<String>, remedy: Remedy) -> HostCheck {
    HostCheck { what: what.into(), state: HostState::Note, remedy: Some(remedy) }
}

fn bad(what: impl Into<String>, remedy: Remedy) -> HostCheck {
    HostCheck { what: what.into(), state: HostState::Bad, remedy: Some(remedy) }
}

fn packages(missing: Result<Vec<String>, Error>) -> HostCheck {
    match missing {
        Ok(missing) if missing.is_empty() => good("host packages: all installed"),
        Ok(missing) => bad(format!("host packages: missing {}", missing.join(", ")), Remedy::InstallPackages(missing)),
        Err(error) => bad(format!("host packages: {}", with_causes(&error)), Remedy::UseDebian),
    }
}

fn memory() -> HostCheck {
    let host = crate::this_host::run_provenance::host();
    let facts = host.facts(1);
    let available = host.room.available_mib;
    let memory = format!("memory: {available} MiB available; {} CPUs ({})", facts.cpus, facts.cpu_model);
    if available >= MEMORY_MIB { good(memory) } else { note(memory, Remedy::FreeMemory) }
}

fn disk(store: &Store) -> HostCheck {
    let root = store.cache.root().display();
    match store.cache.free_space() {
        Ok(free) if free >> 20 >= DISK_MIB => good(format!("disk: {} MiB free for the cache in {root}", free >> 20)),
        Ok(free) => note(format!("disk: {} MiB free for the cache in {root}", free >> 20), Remedy::FreeDisk(DISK_MIB)),
        Err(error) => bad(format!("disk: {}", with_causes(&error)), Remedy::NameCache),
    }
}

/// Checks whether the guest's programs are in the cache or can be built, which needs the sources
/// and cargo for fetching crates.
fn programs(store: &Store) -> HostCheck {
    let is_cached = payload::is_cached(&store.cache, &store.programs, Arch::ALL);
    let (Some(sources), Ok(is_cached)) = (store.programs.buildable(), &is_cached) else {
        return match is_cached {
            Ok(true) => good("guest programs: in the cache"),
            Ok(false) if !store.programs.from.is_empty() => {
                let from = store.programs.from.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                note(
                    format!("guest programs: no sources to build them from; those of {from} are used"),
                    Remedy::FetchPrograms,
                )
            }
            Ok(false) => bad(
                "guest programs: not in the cache, and there are no sources to build them from",
                Remedy::NameSources,
            ),
            Err(error) => bad(format!("guest programs: {}", with_causes(&error)), Remedy::NamePlace),
        };
    };
    let sources = match sources {
        Buildable::Checkout(directory) => format!("sources in {}", directory.display()),
        Buildable::CompiledIn => "sources compiled into this program".to_owned(),
    };
    match bpfassay_child::command("cargo", &[bpfassay_child::CARGO]).arg("--version").output() {
        Ok(output) if output.status.success() => {
            good(format!("guest programs: {sources}, {}", String::from_utf8_lossy(&output.stdout).trim()))
        }
        _ if *is_cached => note("guest programs: in the cache; cargo cannot be run", Remedy::InstallRustLater),
        _ => bad("guest programs: not in the cache, and cargo cannot be run to build them", Remedy::InstallRust),
    }
}

/// Checks the mirror of Debian.
fn mirror(apt: &Apt<'_>) -> HostCheck {
    match apt.mirror() {
        Ok(Some(mirror)) => good(format!("mirror of Debian: {}", mirror.name())),
        Ok(None) => note("mirror of Debian: none is known, this host has no apt that names one", Remedy::NameMirror),
        Err(error) => note(format!("mirror of Debian: {}", with_causes(&error)), Remedy::NameMirror),
    }
}

/// Checks the archive of packages that mirrors have dropped.
fn archive(apt: &Apt<'_>) -> HostCheck {
    match apt.archive() {
        Some((archive, NamedBy::Default)) => good(format!("archive of snapshots: {archive} (compiled in)")),
        Some((archive, _)) => good(format!("archive of snapshots: {archive} (--archive or bpfassay.toml)")),
        None => note("archive of snapshots: none is named for what mirrors have dropped", Remedy::NameArchive),
    }
}

fn mirrors(store: &Store) -> Vec<HostCheck> {
    let apt = store.apt();
    let kernels = KernelProvider::new(&apt, &store.catalogue);
    Arch::ALL
        .iter()
        .map(|&arch| match kernels.list(arch) {
            Ok(listings) => {
                if let Some(problem) = listings.iter().find_map(|listing| listing.problem.as_deref()) {
                    return note(format!("kernels for {arch}: some cannot be had now: {problem}"), Remedy::RetryMirror);
                }
                if listings.iter().all(|listing| listing.builds.is_none()) {
                    let cached = listings.iter().filter(|listing| !listing.cached.is_empty()).count();
                    return note(
                        format!("kernels for {arch}: no package lists in the cache; {cached} kernels in it"),
                        Remedy::FetchIndexes,
                    );
                }
                let available = listings.iter().filter(|list| list.builds.as_ref().is_some_and(|all| !all.is_empty()));
                let cached = listings.iter().filter(|listing| !listing.cached.is_empty()).count();
                good(format!(
                    "kernels for {arch}: {} of {} series available from Debian, {cached} in the cache",
                    available.count(),
                    listings.len()
                ))
            }
            Err(error) => bad(format!("kernels for {arch}: {}", with_causes(&error)), Remedy::CheckMirror),
        })
        .collect()
}

/// Returns the QEMU that would be used, without fetching anything; `None` if it is the QEMU of
/// `testbed.lock` and not in the cache.
///
/// # Errors
/// The errors of [`emulator::find`].
async fn found_qemu(store: &Store, arch: Arch) -> Result<Option<Qemu>, Error> {
    match QemuSource::resolved(store.qemu, arch)? {
        QemuSource::Host => Ok(Some(Qemu::find(arch, None).await?)),
        QemuSource::Lock => match Emulator::cached(&store.cache)? {
            Some(emulator) => Ok(Some(emulator::of_lock(&emulator, arch).await?.qemu)),
            None => Ok(None),
        },
    }
}

async fn qemu(store: &Store, arch: Arch) -> Result<HostCheck, Error> {
    Ok(match found_qemu(store, arch).await? {
        Some(qemu) => {
            let of = if qemu.own_root.is_some() { "of testbed.lock, " } else { "" };
            good(format!("QEMU for {arch}: {} ({of}{})", qemu.version_text, qemu.program.display()))
        }
        None => {
            note(format!("QEMU for {arch}: that of testbed.lock, which is not in the cache yet"), Remedy::FetchQemu)
        }
    })
}

/// Tries KVM with a kernel from the cache, because only booting shows whether KVM works.
async fn kvm(store: &Store) -> Result<HostCheck, Error> {
    let Some(&arch) = Arch::ALL.iter().find(|arch| arch.name() == std::env::consts::ARCH) else {
        return Ok(note("KVM: no guests of this host's architecture", Remedy::UseTcg));
    };
    let apt = store.apt();
    let kernels = KernelProvider::new(&apt, &store.catalogue);
    let mut cached = None;
    for name in store.catalogue.names(arch) {
        cached = kernels.cached(arch, name)?.or(cached);
    }
    let (Some(kernel), Ok(Some(qemu))) = (cached, found_qemu(store, arch).await) else {
        return Ok(note(format!("KVM: not tried, no {arch} kernel in the cache or no QEMU"), Remedy::FetchKernel));
    };
    let scratch = store.cache.scratch()?;
    let machine = Machine::new(arch, kernel.image.path);
    let log = scratch.path().join("console.log");
    let choice = acceleration::choose(&qemu, &machine, AcceleratorWish::Auto, &log, KVM_PATIENCE).await?;
    Ok(match choice.accelerator {
        bpfassay_vm::Accelerator::Kvm => good(format!("KVM: works; {}", choice.reason)),
        bpfassay_vm::Accelerator::Tcg => {
            let is_forbidden = choice.reason.contains("Permission denied");
            let remedy = if is_forbidden { Remedy::PermitKvm } else { Remedy::UseKvmHost };
            note(format!("KVM: does not work; {}", choice.reason), remedy)
        }
    })
}
