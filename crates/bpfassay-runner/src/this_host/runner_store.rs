// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resources for making guests: the cache, the kernel catalogue, and access to packages.

use std::path::{Path, PathBuf};

use bpfassay_packages::{
    apt::{Apt, FetchOptions, Package},
    cache::Cache,
    error::PackagesError,
    stages::Stages,
};
use bpfassay_testbed::{
    catalogue::Catalogue,
    guest_bundle,
    locked_qemu::{TrustedPackages, is_for_this_host},
    payload::ProgramSources,
};

use crate::{error::Error, this_host::qemu_source::QemuSource};

/// Largest catalogue of a user that is read, in bytes. The bundled catalogue has about 10,000.
const MAX_CATALOGUE: u64 = 1 << 20;

/// Locations of the cache and the guest's programs, and how packages can be fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreOptions {
    /// The directory of the cache; `None` for the user's default ([`Cache::locate`]).
    pub cache: Option<PathBuf>,
    /// A catalogue of the user, in addition to the bundled one.
    pub catalogue: Option<PathBuf>,
    /// How packages can be fetched.
    pub packages: FetchOptions,
    /// Sources of the guest's programs.
    pub programs: ProgramSources,
    /// Source of QEMU; `None` for the host, or else the lock.
    pub qemu: Option<QemuSource>,
    /// Packages of a bundle's QEMU, which replace the lock's packages of QEMU. Empty without a
    /// bundle, or if the bundle has no QEMU.
    pub bundled_qemu: TrustedPackages,
}

impl StoreOptions {
    /// Returns all named kernels: the bundled ones, and those of the user's catalogue.
    ///
    /// # Errors
    /// [`Error::OwnCatalogue`] if the user's catalogue cannot be read or is invalid,
    /// [`Error::Catalogue`] if the compiled-in catalogue is.
    pub fn kernels(&self) -> Result<Catalogue, Error> {
        let catalogue = Catalogue::bundled().map_err(Error::Catalogue)?;
        let Some(path) = &self.catalogue else { return Ok(catalogue) };
        let failed =
            |source: bpfassay_testbed::Error| Error::OwnCatalogue { path: path.clone(), source: Box::new(source) };
        let text = bpfassay_input::read_text(path, MAX_CATALOGUE)
            .map_err(|source| failed(bpfassay_testbed::Error::io("read", path)(source)))?;
        catalogue.with(&path.display().to_string(), &text).map_err(|error| failed(error.into()))
    }

    /// Uses the QEMU in the file `bundle`, if it suits this host and no other was requested.
    ///
    /// A bundle can come from anybody, and its QEMU runs on this host. If the lock does not name
    /// all of its packages, `agree` gets the others, and returns an error unless the user trusts
    /// them.
    ///
    /// # Errors
    /// [`Error::Testbed`] if the file is not a bundle, and the error of `agree`.
    pub fn with_bundle<E: From<Error>>(
        mut self,
        bundle: &Path,
        agree: impl FnOnce(&[Package]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let found = guest_bundle::qemu(bundle).map_err(Error::from)?;
        if !found.is_empty() && !is_for_this_host(&found) {
            tracing::info!("the bundle has QEMU for hosts of another architecture only");
        } else if !found.is_empty() && self.qemu != Some(QemuSource::Host) {
            self.bundled_qemu = match TrustedPackages::of_lock(found.clone()).map_err(Error::from)? {
                Ok(trusted) => trusted,
                Err(others) => {
                    agree(&others)?;
                    TrustedPackages::of_user(found)
                }
            };
            self.qemu = Some(QemuSource::Lock);
        }
        Ok(self)
    }
}

/// The cache and the kernel catalogue.
#[derive(Debug)]
pub struct Store {
    /// The cache.
    pub cache: Cache,
    /// All named kernels.
    pub catalogue: Catalogue,
    /// Sources of the guest's programs.
    pub programs: ProgramSources,
    /// Receives reports about work that takes time.
    pub stages: Stages,
    /// Source of QEMU; `None` for the host, or else the lock.
    pub qemu: Option<QemuSource>,
    /// Packages of a bundle's QEMU.
    pub bundled_qemu: TrustedPackages,
    packages: FetchOptions,
}

impl Store {
    /// Opens the cache, or makes it if it does not exist.
    ///
    /// # Errors
    /// - [`Error::OwnCatalogue`] and [`Error::Catalogue`] as in [`StoreOptions::kernels`].
    /// - [`Error::Cache`] if the directory cannot be created or written to.
    /// - [`Error::Testbed`] if the directory is not a cache, or if no directory is known.
    pub fn open(options: &StoreOptions) -> Result<Self, Error> {
        let catalogue = options.kernels()?;
        let root = Cache::locate(options.cache.as_deref())?;
        let cache = Cache::open(&root).map_err(|error| match error {
            error @ PackagesError::NotACache { .. } => error.into(),
            source => Error::Cache { path: root.clone(), source: Box::new(source) },
        })?;
        let (stages, programs, packages) = (Stages::default(), options.programs.clone(), options.packages.clone());
        let (qemu, bundled_qemu) = (options.qemu, options.bundled_qemu.clone());
        Ok(Self { cache, catalogue, stages, programs, packages, qemu, bundled_qemu })
    }

    /// Reports work that takes time to `stages`.
    #[must_use]
    pub fn with_stages(self, stages: Stages) -> Self {
        Self { stages, ..self }
    }

    /// Returns access to Debian's packages.
    #[must_use]
    pub fn apt(&self) -> Apt<'_> {
        Apt::new(&self.cache, self.packages.clone()).with_stages(self.stages.clone())
    }
}
