// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the QEMU that boots guests: the one on the host's `PATH`, or the one of `testbed.lock`,
//! which is in the cache and the same on every host.

use std::{
    sync::{Arc, Once},
    thread,
};

use bpfassay_packages::{apt::Package, stages::yield_from_now};
use bpfassay_protocol::Arch;
use bpfassay_results::{
    Provenance,
    provenance::{Artefact, QemuFacts},
};
use bpfassay_testbed::locked_qemu::{self, Emulator};
use bpfassay_vm::{OwnRoot, Qemu};

use crate::{
    error::Error,
    this_host::{qemu_source::QemuSource, runner_store::Store},
};

/// A QEMU. The package is known if it comes from the lock.
#[derive(Debug, Clone)]
pub(crate) struct FoundQemu {
    pub(crate) qemu: Qemu,
    pub(crate) package: Option<Package>,
}

/// Finds the QEMU for guests of `arch` that `store` asks for. The QEMU of the lock is made in the
/// cache if necessary.
///
/// # Errors
/// [`Error::Vm`] if the host has no QEMU or it does not start. [`Error::Testbed`] if the QEMU of
/// the lock cannot be had.
pub(crate) async fn find(store: &Store, arch: Arch) -> Result<FoundQemu, Error> {
    static REPORTED: Once = Once::new();
    match QemuSource::resolved(store.qemu, arch)? {
        QemuSource::Host => {
            let found = Qemu::find(arch, None).await?;
            if let (None, Some(version)) =
                (store.qemu, locked_version(arch)?.filter(|locked| !is_of(&found.version_text, locked)))
            {
                REPORTED.call_once(|| {
                    tracing::info!(
                        "QEMU is this host's, {}; testbed.lock has {version}: figures of other versions can differ, and --qemu lock takes \
                         the same everywhere",
                        found.version_text
                    );
                });
            }
            Ok(FoundQemu { qemu: found, package: None })
        }
        QemuSource::Lock => {
            if store.qemu.is_none() {
                REPORTED.call_once(|| {
                    tracing::info!("this host has no QEMU for {arch}; that of testbed.lock is used (--qemu lock)");
                });
            }
            of_lock(&Emulator::prepare(&store.apt(), &store.bundled_qemu)?, arch).await
        }
    }
}

/// Creates the lock's QEMU in the cache if guests of one of `archs` will boot with it, so that the
/// first guest does not wait for it. The work is done on a thread that yields the CPU. Errors are
/// left to [`find`], which tries again and reports them.
pub(crate) fn prepare_ahead(store: &Arc<Store>, archs: impl IntoIterator<Item = Arch>) {
    let is_of_lock = |arch| matches!(QemuSource::resolved(store.qemu, arch), Ok(QemuSource::Lock));
    if !archs.into_iter().any(is_of_lock) {
        return;
    }
    let store = Arc::clone(store);
    thread::spawn(move || {
        yield_from_now();
        let _ = Emulator::prepare(&store.apt(), &store.bundled_qemu);
    });
}

/// Returns the QEMU for guests of `arch` in `emulator`.
///
/// # Errors
/// [`Error::Vm`] if it does not start.
pub(crate) async fn of_lock(emulator: &Emulator, arch: Arch) -> Result<FoundQemu, Error> {
    let own_root = OwnRoot {
        directory: emulator.root.clone(),
        loader: emulator.loader().to_owned(),
        libraries: emulator.libraries.clone(),
        firmware: emulator.firmware.clone(),
        program: emulator.program(arch),
    };
    let package = emulator.package(arch).cloned();
    Ok(FoundQemu { qemu: Qemu::in_root(arch, own_root).await?, package })
}

/// Returns the version of the lock's package with QEMU for `arch`.
fn locked_version(arch: Arch) -> Result<Option<String>, Error> {
    let Some(locked) = locked_qemu::locked()? else { return Ok(None) };
    let packages: Vec<_> = locked.packages.into_iter().map(|located| located.package).collect();
    Ok(locked_qemu::package(&packages, arch).map(|package| package.version.to_string()))
}

/// Returns whether a QEMU says that it comes from this version of the Debian package.
fn is_of(version_text: &str, version: &str) -> bool {
    version_text.contains(&format!("(Debian {version})"))
}

/// Returns whether everything in `recorded` was measured with the current lock's QEMU: with its
/// packages, or with the host's QEMU of the same version.
///
/// # Errors
/// [`Error::Testbed`] if the compiled-in lock is invalid.
pub(crate) fn is_of_lock(recorded: &Provenance) -> Result<bool, Error> {
    let Some(locked) = locked_qemu::locked()? else { return Ok(false) };
    let packages: Vec<_> = locked.packages.into_iter().map(|located| located.package).collect();
    let is_locked = |(arch, facts): (&Arch, &QemuFacts)| {
        locked_qemu::package(&packages, *arch).is_some_and(|package| match &facts.package {
            Some(recorded) => *recorded == artefact(package),
            None => is_of(&facts.program.version, &package.version),
        })
    };
    Ok(!recorded.qemu.is_empty() && recorded.qemu.iter().all(is_locked))
}

/// Describes a package in the form of results.
pub(crate) fn artefact(package: &Package) -> Artefact {
    Artefact {
        name: package.name.to_string(),
        version: package.version.to_string(),
        sha256: Some(package.sha256.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_names_a_version_for_every_architecture() {
        if locked_qemu::locked().unwrap().is_none() {
            println!("skipped: testbed.lock has no QEMU for this host");
            return;
        }
        for &arch in Arch::ALL {
            assert!(locked_version(arch).unwrap().unwrap().contains("7.2"), "{arch}");
        }
    }
}
