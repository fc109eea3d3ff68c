// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay doctor`: is this host fit, and if not, what to do.

use std::{collections::BTreeSet, fmt::Write};

use bpfassay_protocol::{Arch, with_causes};
use bpfassay_results::plain;
use bpfassay_runner::{Error, KVM_PATIENCE, Store, missing_packages};
use bpfassay_testbed::{payload, provider::debian::Kernels, toolchain::HOST_PACKAGES};
use bpfassay_vm::{AcceleratorWish, Machine, Qemu, accelerator};

use crate::{
    cli,
    exit::{INFRASTRUCTURE, Outcome, SUCCESS},
    host,
    progress::Display,
    selection::store_options,
};

/// Free disk that a cold start takes, in MiB: toolchain root, payload build, packages and kernels of `quick`.
const DISK_MIB: u64 = 9 * 1024;
/// Memory below which two guests of `quick` do not run side by side, in MiB.
const MEMORY_MIB: u64 = 2 * (1024 + 320);

/// One line of the report.
struct Finding {
    what: String,
    state: State,
    remedy: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    /// It works, though not as well as it could.
    Note,
    Bad,
}

pub(crate) async fn doctor(arguments: cli::Doctor, global: &cli::Global) -> Outcome {
    let archs: BTreeSet<Arch> = Arch::ALL.iter().copied().collect();
    if arguments.install {
        let stages = Display::begin(cli::MessageFormat::Human).stages();
        host::install(&missing_packages(HOST_PACKAGES, &archs)?, host::answers_yes(global.yes), &stages)?;
    }
    let mut findings = vec![packages(missing_packages(HOST_PACKAGES, &archs)), memory()];
    // Every finding counts: what cannot be looked at is one, and does not end the report.
    let store = Store::open(&store_options(global));
    match &store {
        Ok(store) => {
            findings.push(disk(store));
            findings.push(programs(store));
            findings.extend(mirrors(store));
        }
        Err(error) => {
            findings.push(bad(with_causes(error), "name a directory that you may write to with --cache"));
        }
    }
    for &arch in &archs {
        findings.push(qemu(arch).await);
    }
    if let Ok(store) = &store {
        findings.push(kvm(store).await.unwrap_or_else(|error| {
            let what = format!("KVM: could not be tried: {}", with_causes(&error));
            note(what, "guests run under TCG; bpfassay fetch, then doctor again")
        }));
    }

    let mut text = String::new();
    for finding in &findings {
        let sign = match finding.state {
            State::Good => "ok  ",
            State::Note => "note",
            State::Bad => "BAD ",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{sign} {}", plain::line(&finding.what));
        if let Some(remedy) = &finding.remedy {
            let _ = writeln!(text, "       remedy: {}", plain::line(remedy));
        }
    }
    super::print(&text)?;
    Ok(if findings.iter().any(|finding| finding.state == State::Bad) { INFRASTRUCTURE } else { SUCCESS })
}

fn good(what: impl Into<String>) -> Finding {
    Finding { what: what.into(), state: State::Good, remedy: None }
}

fn note(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { what: what.into(), state: State::Note, remedy: Some(remedy.into()) }
}

fn bad(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { what: what.into(), state: State::Bad, remedy: Some(remedy.into()) }
}

fn packages(missing: Result<Vec<String>, Error>) -> Finding {
    match missing {
        Ok(missing) if missing.is_empty() => good("host packages: all installed"),
        Ok(missing) => bad(
            format!("host packages: missing {}", missing.join(", ")),
            format!("bpfassay doctor --install, or as root: {}", host::install_command(&missing)),
        ),
        Err(error) => bad(
            format!("host packages: {}", with_causes(&error)),
            "guests are made from Debian's packages: use a Debian host, or --manifest FILE",
        ),
    }
}

fn memory() -> Finding {
    let host = bpfassay_runner::provenance::host();
    let facts = host.facts(1);
    let available = host.room.available_mib;
    let memory = format!("memory: {available} MiB available; {} CPUs ({})", facts.cpus, facts.cpu_model);
    if available >= MEMORY_MIB {
        good(memory)
    } else {
        note(memory, "guests run one at a time; free some memory, or lower guest.memory_mib in the study")
    }
}

fn disk(store: &Store) -> Finding {
    let root = store.cache.root().display();
    match store.cache.free_space() {
        Ok(free) if free >> 20 >= DISK_MIB => good(format!("disk: {} MiB free for the cache in {root}", free >> 20)),
        Ok(free) => note(
            format!("disk: {} MiB free for the cache in {root}", free >> 20),
            format!("a cold start takes about {DISK_MIB} MiB; make room, or name another directory with --cache"),
        ),
        Err(error) => bad(format!("disk: {}", with_causes(&error)), "name another directory with --cache"),
    }
}

/// Whether the guest's programs are there, or can be built: cargo for fetching crates, and the sources.
fn programs(store: &Store) -> Finding {
    let is_cached = payload::is_cached(&store.cache, &store.programs, Arch::ALL);
    let (Some(directory), Ok(is_cached)) = (payload::checkout(), &is_cached) else {
        return match is_cached {
            Ok(true) => good("guest programs: in the cache"),
            Ok(false) if !store.programs.from.is_empty() => {
                note("guest programs: no sources to build them from; those of --from are used", "bpfassay fetch")
            }
            Ok(false) => bad(
                "guest programs: not in the cache, and there are no sources to build them from",
                "name a place that offers them with --from, a checkout in BPFASSAY_SOURCE, or use --manifest FILE",
            ),
            Err(error) => bad(
                format!("guest programs: {}", with_causes(&error)),
                "name a place that offers them with --from, or use --manifest FILE",
            ),
        };
    };
    match std::process::Command::new("cargo").arg("--version").output() {
        Ok(output) if output.status.success() => good(format!(
            "guest programs: sources in {}, {}",
            directory.display(),
            String::from_utf8_lossy(&output.stdout).trim()
        )),
        _ if *is_cached => note(
            "guest programs: in the cache; cargo cannot be run",
            "none for now; to build them again when their sources change, install a Rust toolchain",
        ),
        _ => bad(
            "guest programs: not in the cache, and cargo cannot be run to build them",
            "install a Rust toolchain, name a place that offers them with --from, or use --manifest FILE",
        ),
    }
}

fn mirrors(store: &Store) -> Vec<Finding> {
    let apt = store.apt();
    let kernels = Kernels::new(&apt, &store.catalogue);
    Arch::ALL
        .iter()
        .map(|&arch| match kernels.list(arch) {
            Ok(listings) => {
                if let Some(problem) = listings.iter().find_map(|listing| listing.problem.as_deref()) {
                    return note(
                        format!("kernels for {arch}: some cannot be had now: {problem}"),
                        "try again later; --accept-stale takes a mirror that is behind",
                    );
                }
                if listings.iter().all(|listing| listing.builds.is_none()) {
                    let cached = listings.iter().filter(|listing| !listing.cached.is_empty()).count();
                    return note(
                        format!("kernels for {arch}: no package lists in the cache; {cached} kernels in it"),
                        "leave out --offline once, or run bpfassay fetch",
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
            Err(error) => bad(
                format!("kernels for {arch}: {}", with_causes(&error)),
                "check the host's apt sources and network; --accept-stale takes a mirror that is behind",
            ),
        })
        .collect()
}

async fn qemu(arch: Arch) -> Finding {
    match Qemu::find(arch, None).await {
        Ok(qemu) => good(format!("QEMU for {arch}: {} ({})", qemu.version_text, qemu.program.display())),
        Err(error) => {
            bad(format!("QEMU for {arch}: {error}"), format!("apt-get install {}", arch.facts().qemu_packages))
        }
    }
}

/// KVM is tried with a kernel of the cache: booting is the only way to know.
async fn kvm(store: &Store) -> Result<Finding, Error> {
    let Some(&arch) = Arch::ALL.iter().find(|arch| arch.name() == std::env::consts::ARCH) else {
        return Ok(note("KVM: no guests of this host's architecture", "none: guests run under TCG"));
    };
    let apt = store.apt();
    let kernels = Kernels::new(&apt, &store.catalogue);
    let mut cached = None;
    for name in store.catalogue.names(arch) {
        cached = kernels.cached(arch, name)?.or(cached);
    }
    let (Some(kernel), Ok(qemu)) = (cached, Qemu::find(arch, None).await) else {
        return Ok(note(
            format!("KVM: not tried, no {arch} kernel in the cache or no QEMU"),
            "bpfassay fetch, then doctor again",
        ));
    };
    let scratch = store.cache.scratch()?;
    let machine = Machine::new(arch, kernel.image.path);
    let log = scratch.path().join("console.log");
    let choice = accelerator::choose(&qemu, &machine, AcceleratorWish::Auto, &log, KVM_PATIENCE).await?;
    Ok(match choice.accelerator {
        bpfassay_vm::Accelerator::Kvm => good(format!("KVM: works; {}", choice.reason)),
        bpfassay_vm::Accelerator::Tcg if choice.reason.contains("Permission denied") => note(
            format!("KVM: does not work; {}", choice.reason),
            "where /dev/kvm is to be used, let this user: as root, adduser USER kvm, then log in again",
        ),
        bpfassay_vm::Accelerator::Tcg => note(
            format!("KVM: does not work; {}", choice.reason),
            "guests run under TCG, where wall-clock figures are functional only; for timing use a host whose KVM boots",
        ),
    })
}
