// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gets the guests that a run was measured with, if they still exist, by making them again, or from
//! a bundle. Also writes such bundles.

use std::path::{Path, PathBuf};

use bpfassay_packages::{apt::Package, cache::CachedFile};
use bpfassay_results::{JournalContents, Provenance, provenance::TargetArtefacts};
use bpfassay_study::{Plan, Target};
use bpfassay_testbed::{guest_bundle, locked_qemu::Emulator, manifest::Manifest, provider};

use crate::{
    error::Error,
    planned_targets::keep_planned,
    sessions::{
        plan_testbed::{ShellUse, Testbed},
        study_selection::StudySelection,
        work::check_ids,
    },
    this_host::{emulator, run_provenance, runner_store::Store},
};

/// A run that was measured before.
pub(crate) struct MeasuredRun<'a> {
    /// The results directory.
    pub(crate) directory: &'a Path,
    /// The provenance of the run.
    pub(crate) recorded: &'a Provenance,
}

impl MeasuredRun<'_> {
    /// Returns the run's guests for `plan`, a part of its plan, if they still exist.
    ///
    /// # Errors
    /// The errors of [`Testbed::recorded`].
    pub(crate) fn testbed(&self, plan: &Plan) -> Result<Option<Testbed>, Error> {
        Testbed::recorded(self.recorded, self.directory, plan)
    }

    /// Makes the same guests again.
    ///
    /// # Errors
    /// The errors of [`Testbed::provide`], and [`Error::OtherGuests`] if the new guests differ.
    pub(crate) fn made_again(&self, plan: &Plan, store: &Store) -> Result<Testbed, Error> {
        self.compared(Testbed::provide(store, &StudySelection::default(), plan, ShellUse::Without)?, plan)
    }

    /// Unpacks the run's guests from a bundle.
    ///
    /// # Errors
    /// [`Error::Testbed`] if the file is not a bundle, [`Error::NoGuest`] if it lacks a target,
    /// [`Error::OtherGuests`] if its guests differ.
    pub(crate) fn testbed_of_bundle(&self, plan: &Plan, store: &Store, bundle: &Path) -> Result<Testbed, Error> {
        self.compared(Testbed::of_manifest(guest_bundle::unpack(&store.cache, bundle)?, plan)?, plan)
    }

    /// Returns `testbed` if it has the recorded artefacts.
    fn compared(&self, testbed: Testbed, plan: &Plan) -> Result<Testbed, Error> {
        let now = run_provenance::targets(&testbed.manifest, plan);
        let is_planned = |target: &Target| plan.targets().iter().any(|planned| **planned == *target);
        let then: Vec<_> = self.recorded.targets.iter().filter(|made| is_planned(&made.target)).collect();
        // An interrupted run may have had only a part of its guests.
        let was_there = |made: &&TargetArtefacts| then.iter().any(|before| before.target == made.target);
        if now.iter().filter(was_there).collect::<Vec<_>>() == then { Ok(testbed) } else { Err(Error::OtherGuests) }
    }
}

/// Writes a bundle of the guests that a run was measured with.
#[derive(Debug)]
pub struct Bundling {
    directory: PathBuf,
    contents: JournalContents,
}

impl Bundling {
    /// Reads the run in the results directory `directory`.
    ///
    /// # Errors
    /// [`Error::Journal`] and [`Error::BlockId`] if the journal cannot be used,
    /// [`Error::NothingToBundle`] for a run without guests.
    pub fn new(directory: &Path) -> Result<Self, Error> {
        let contents = JournalContents::read(directory)?;
        if contents.header.provenance.is_without_guests() {
            return Err(Error::NothingToBundle(directory.to_owned()));
        }
        check_ids(&contents.header.plan)?;
        Ok(Self { directory: directory.to_owned(), contents })
    }

    /// The plan of the run.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.contents.header.plan
    }

    /// The provenance of the run.
    #[must_use]
    pub fn provenance(&self) -> &Provenance {
        &self.contents.header.provenance
    }

    /// Returns the Debian packages, except QEMU, that this host needs to make the guests again.
    #[must_use]
    pub fn host_packages(&self) -> &'static [&'static str] {
        host_packages(self.provenance())
    }

    /// Returns the guests if they still exist.
    ///
    /// # Errors
    /// The errors of [`Testbed::recorded`].
    pub fn testbed(&self) -> Result<Option<Testbed>, Error> {
        self.run().testbed(self.plan())
    }

    /// Makes the same guests again.
    ///
    /// # Errors
    /// The errors of [`Testbed::provide`], and [`Error::OtherGuests`] if the new guests differ.
    pub fn made_again(&self, store: &Store) -> Result<Testbed, Error> {
        self.run().made_again(self.plan(), store)
    }

    /// Returns the package files of the run's QEMU from the cache or a download. The list is empty
    /// if `testbed.lock` does not have this QEMU.
    ///
    /// # Errors
    /// [`Error::Testbed`] if the files cannot be had.
    pub fn qemu(&self, store: &Store) -> Result<Vec<(Package, CachedFile)>, Error> {
        if emulator::is_of_lock(self.provenance())? {
            Ok(Emulator::package_files(&store.apt())?)
        } else {
            Ok(Vec::new())
        }
    }

    /// Writes the guests of `testbed` that the run needs, and the packages `qemu`, to the new file
    /// `path`. Returns the guests' manifest, and the size of the file in bytes.
    ///
    /// # Errors
    /// [`Error::Testbed`] if a file of the testbed is missing or changed, or writing fails.
    pub fn write(
        &self,
        testbed: Testbed,
        qemu: &[(Package, CachedFile)],
        path: &Path,
    ) -> Result<(Manifest, u64), Error> {
        let mut manifest = testbed.manifest;
        keep_planned(&mut manifest, self.plan());
        let size = guest_bundle::write(&manifest, qemu, path)?;
        Ok((manifest, size))
    }

    fn run(&self) -> MeasuredRun<'_> {
        MeasuredRun { directory: &self.directory, recorded: self.provenance() }
    }
}

/// Returns the Debian packages, except QEMU, for making the testbed of `recorded` again.
pub(crate) fn host_packages(recorded: &Provenance) -> &'static [&'static str] {
    provider::host_packages(recorded.manifest["provider"]["name"].as_str().unwrap_or_default())
}
