// SPDX-License-Identifier: MIT OR Apache-2.0
//! What guests are made with: the cache, the kernel catalogue, and the way to packages.

use std::path::{Path, PathBuf};

use bpfassay_testbed::{
    apt::{Apt, Options, Package},
    bundle,
    cache::Cache,
    catalogue::Catalogue,
    payload::ProgramSources,
    qemu::{TrustedPackages, is_for_this_host},
    stages::Stages,
};

use crate::{Error, QemuSource};

/// Largest catalogue of a user's that is read, in bytes; ours has about 10,000.
const MAX_CATALOGUE: u64 = 1 << 20;

/// Where the cache is, how packages may be fetched, and where the guest's programs may come from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreOptions {
    /// The directory of the cache; `None`: the user's own ([`Cache::locate`]).
    pub cache: Option<PathBuf>,
    /// A catalogue of the user's, which comes beside ours.
    pub catalogue: Option<PathBuf>,
    /// How packages may be fetched.
    pub packages: Options,
    /// Where the guest's programs may come from.
    pub programs: ProgramSources,
    /// Where QEMU comes from; `None`: from the host, or else from the lock.
    pub qemu: Option<QemuSource>,
    /// The packages of the QEMU of a bundle, which takes the place of the lock's; none where there
    /// is no bundle, or no QEMU in it.
    pub bundled_qemu: TrustedPackages,
}

impl StoreOptions {
    /// The kernels that have names: ours, and those of the user's catalogue.
    ///
    /// # Errors
    /// [`Error::OwnCatalogue`] for a catalogue of the user's that cannot be read or understood; [`Error::Catalogue`] never, unless the catalogue that is compiled
    /// in is wrong.
    pub fn kernels(&self) -> Result<Catalogue, Error> {
        let catalogue = Catalogue::bundled().map_err(Error::Catalogue)?;
        let Some(path) = &self.catalogue else { return Ok(catalogue) };
        let failed =
            |source: bpfassay_testbed::Error| Error::OwnCatalogue { path: path.clone(), source: Box::new(source) };
        let text = bpfassay_input::read_text(path, MAX_CATALOGUE)
            .map_err(|source| failed(bpfassay_testbed::Error::io("read", path)(source)))?;
        catalogue.with(&path.display().to_string(), &text).map_err(|error| failed(error.into()))
    }

    /// The same, with the QEMU of the bundle in the file `bundle`, if it has one for this host, and
    /// another was not asked for. A bundle may come from anybody, and QEMU runs on this host: where
    /// the lock does not name all of its packages, `agree` gets the others, and its error is
    /// returned unless the user trusts them.
    ///
    /// # Errors
    /// [`Error::Testbed`] for a file that is no bundle; that of `agree`.
    pub fn with_bundle<E: From<Error>>(
        mut self,
        bundle: &Path,
        agree: impl FnOnce(&[Package]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let found = bundle::qemu(bundle).map_err(Error::from)?;
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
    /// The kernels that have names.
    pub catalogue: Catalogue,
    /// Where the guest's programs may come from.
    pub programs: ProgramSources,
    /// What takes time is reported to them.
    pub stages: Stages,
    /// Where QEMU comes from; `None`: from the host, or else from the lock.
    pub qemu: Option<QemuSource>,
    /// The packages of the QEMU of a bundle.
    pub bundled_qemu: TrustedPackages,
    packages: Options,
}

impl Store {
    /// Opens the cache, and makes it where it does not exist.
    ///
    /// # Errors
    /// [`Error::OwnCatalogue`] for a catalogue of the user's that cannot be read or understood; [`Error::Cache`] if the directory cannot be made or written to; [`Error::Testbed`] if it is something else than a cache, or if no
    /// directory is known; [`Error::Catalogue`] never, unless the catalogue that is compiled in is
    /// wrong.
    pub fn open(options: &StoreOptions) -> Result<Self, Error> {
        let catalogue = options.kernels()?;
        let root = Cache::locate(options.cache.as_deref())?;
        let cache = Cache::open(&root).map_err(|error| match error {
            error @ bpfassay_testbed::Error::NotACache { .. } => error.into(),
            source => Error::Cache { path: root.clone(), source: Box::new(source) },
        })?;
        let (stages, programs, packages) = (Stages::default(), options.programs.clone(), options.packages.clone());
        let (qemu, bundled_qemu) = (options.qemu, options.bundled_qemu.clone());
        Ok(Self { cache, catalogue, stages, programs, packages, qemu, bundled_qemu })
    }

    /// The same, with what takes time reported to `stages`.
    #[must_use]
    pub fn with_stages(self, stages: Stages) -> Self {
        Self { stages, ..self }
    }

    /// Debian's packages.
    #[must_use]
    pub fn apt(&self) -> Apt<'_> {
        Apt::new(&self.cache, self.packages.clone()).with_stages(self.stages.clone())
    }
}
