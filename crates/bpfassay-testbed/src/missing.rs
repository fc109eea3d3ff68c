// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of guests that the cache lacks, known before anything is downloaded or built.

use bpfassay_packages::{apt::Located, cache::Cache};
use bpfassay_protocol::Arch;

use crate::{
    error::Result,
    locked_qemu::{self, Emulator},
    payload,
    provider::{GuestRequest, debian::KernelProvider, local},
    toolchain::{self, Toolchain},
};

/// The parts of guests that the cache lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MissingParts {
    /// Architecture and name of each kernel.
    pub kernels: Vec<(Arch, String)>,
    /// The architectures whose guest programs have to be built, or fetched from a place that offers
    /// them.
    pub programs: Vec<Arch>,
    /// Whether the cross toolchain has to be made.
    pub toolchain: bool,
    /// Whether the QEMU of the lock has to be unpacked.
    pub qemu: bool,
    /// Bytes of the packages to download; `None` if [`crate::testbed_lock`] does not name all of
    /// them.
    pub download: Option<u64>,
    /// Estimated bytes that the cache grows by; `None` with `download`.
    pub disk: Option<u64>,
}

/// Estimated size of a kernel's tree and of its segments of guests, relative to its packages:
/// measured for the kernels of the study `quick`.
const KERNEL_GROWTH: u64 = 3;
/// Estimated size of the guest programs of one architecture and of the files that their build
/// leaves, in bytes.
const PROGRAMS_SIZE: u64 = 30_000_000;

impl MissingParts {
    /// Finds what the cache lacks for `request`, and for QEMU of the lock if `qemu` is set.
    /// Uses no network, and ignores packages of tools.
    ///
    /// # Errors
    /// [`crate::Error`] for an unknown kernel, for a checkout that cannot be read, and if the cache
    /// cannot be read.
    pub fn of(request: &GuestRequest<'_>, qemu: bool) -> Result<Self> {
        let mut missing = Self { download: Some(0), disk: Some(0), ..Self::default() };
        let cache = request.apt.cache();
        if qemu {
            let locked = locked_qemu::locked()?;
            missing.qemu = !locked.as_ref().is_some_and(|locked| Emulator::is_cached(cache, locked));
            if missing.qemu {
                let packages = locked.as_ref().map(|locked| &*locked.packages);
                missing.add(cache, packages, |size| size.saturating_mul(locked_qemu::GROWTH) / 2)?;
            }
        }
        if request.sources.are_made() {
            return Ok(missing);
        }
        let provider = KernelProvider::new(request.apt, request.catalogue);
        for (arch, name) in request.targets.iter().filter(|(_, name)| name != local::NAME) {
            if !provider.is_cached(*arch, name)? {
                missing.kernels.push((*arch, name.clone()));
                let packages = provider.locked(*arch, name).map(|locked| &*locked.packages);
                missing.add(cache, packages, |size| size.saturating_mul(KERNEL_GROWTH))?;
            }
        }
        missing.programs = payload::missing(cache, request.programs, &request.archs())?;
        missing.disk = missing.disk.map(|disk| disk + PROGRAMS_SIZE.saturating_mul(missing.programs.len() as u64));
        if !missing.programs.is_empty() {
            let locked = Toolchain::locked(request.apt)?;
            missing.toolchain = !locked.is_some_and(|locked| Toolchain::is_cached(request.apt, locked));
            if missing.toolchain {
                missing.add(cache, locked.map(|locked| &*locked.packages), |_| toolchain::SIZE)?;
            }
        }
        Ok(missing)
    }

    /// Adds the sizes of those `packages` that the cache lacks, and the size of the tree that
    /// `made` computes from the size of all packages. `None` stands for unknown packages.
    fn add(&mut self, cache: &Cache, packages: Option<&[Located]>, made: impl Fn(u64) -> u64) -> Result<()> {
        let Some(packages) = packages else {
            (self.download, self.disk) = (None, None);
            return Ok(());
        };
        let (mut all, mut absent) = (0_u64, 0_u64);
        for Located { package, .. } in packages {
            all = all.saturating_add(package.size);
            if cache.object(&package.sha256)?.is_none() {
                absent = absent.saturating_add(package.size);
            }
        }
        self.download = self.download.map(|download| download.saturating_add(absent));
        self.disk = self.disk.map(|disk| disk.saturating_add(absent).saturating_add(made(all)));
        Ok(())
    }

    /// Whether the cache has everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty() && self.programs.is_empty() && !self.toolchain && !self.qemu
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_packages::apt::{Apt, FetchOptions};

    use super::*;
    use crate::{catalogue::Catalogue, payload::ProgramSources, provider::Sources, testbed_lock::TestbedLock};

    fn missing(targets: &[(Arch, &str)], qemu: bool) -> MissingParts {
        missing_with(FetchOptions::default(), targets, qemu)
    }

    fn missing_with(options: FetchOptions, targets: &[(Arch, &str)], qemu: bool) -> MissingParts {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("cache")).unwrap();
        let (apt, catalogue) = (Apt::new(&cache, options), Catalogue::bundled().unwrap());
        let (sources, programs) = (Sources::default(), ProgramSources::default());
        let targets = targets.iter().map(|(arch, name)| (*arch, (*name).to_owned())).collect();
        let request = GuestRequest { targets, ..GuestRequest::new(&apt, &catalogue, &sources, &programs) };
        MissingParts::of(&request, qemu).unwrap()
    }

    #[test]
    fn an_empty_cache_lacks_what_the_lock_names() {
        let lock = TestbedLock::bundled().unwrap();
        let size = |arch, name| -> u64 {
            let kernel =
                lock.kernels().iter().find(|kernel| kernel.architecture == arch && kernel.name == name).unwrap();
            kernel.packages.iter().map(|located| located.package.size).sum()
        };
        let host = toolchain::host_arch().unwrap();
        let of = |packages: &[Located]| -> u64 { packages.iter().map(|located| located.package.size).sum() };
        let tools = of(&lock.toolchain(host).unwrap().packages);
        let one = missing(&[(Arch::Aarch64, "6.12")], false);
        assert_eq!((one.programs, one.toolchain, one.qemu), (vec![Arch::Aarch64], true, false));
        assert_eq!(one.download, Some(size(Arch::Aarch64, "6.12") + tools));
        let two = missing(&[(Arch::Aarch64, "6.12"), (Arch::X86_64, "6.1")], true);
        let kernels = size(Arch::Aarch64, "6.12") + size(Arch::X86_64, "6.1");
        assert_eq!(two.download, Some(kernels + tools + of(&lock.qemu(host).unwrap().packages)));
        assert!(two.disk > two.download && two.qemu && two.kernels.len() == 2, "{two:?}");
    }

    #[test]
    fn the_newest_packages_have_no_known_size() {
        let newest = FetchOptions { newest: true, ..FetchOptions::default() };
        let missing = missing_with(newest, &[(Arch::X86_64, "6.12")], false);
        assert_eq!((missing.download, missing.disk), (None, None), "{missing:?}");
        assert!(missing.toolchain && missing.kernels.len() == 1, "{missing:?}");
    }
}
