// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs of trials, and the bundle that several trials start from.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use bpfassay_testbed::Arch;

use super::hostile_bundle::BundleContent;
use crate::{
    chaos_study::{ArtificialTestbed, ChaosError, StudyShape, TrialClock, TrialStudy},
    fake_qemu,
};

/// The shape of the study for trials with strangers' files.
const SHAPE: StudyShape = StudyShape { clock: TrialClock::Instructions, rounds: 2, replicates: 2 };

/// The programs that trials need.
#[derive(Debug)]
pub struct Workshop {
    /// The command.
    pub bpfassay: PathBuf,
    /// A copy of the command that any user can execute.
    open: OnceLock<PathBuf>,
    /// The real QEMU.
    pub qemu: PathBuf,
    /// A copy of this program that any user can execute.
    pub stand_in: PathBuf,
    pub(super) home: tempfile::TempDir,
    study: Arc<TrialStudy>,
    pub(super) finished: Mutex<Option<PathBuf>>,
    bundle: Mutex<Option<BundleContent>>,
}

impl Workshop {
    /// Copies this program, and finds the QEMU that the command would use.
    ///
    /// # Errors
    /// If neither `PATH` nor `testbed.lock` provides a QEMU, or this program cannot be copied.
    pub fn new(bpfassay: PathBuf) -> Result<Self, ChaosError> {
        let home = tempfile::Builder::new().prefix("chaos-program-").tempdir()?;
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755))?;
        let stand_in = home.path().join("chaos");
        fs::copy(std::env::current_exe()?, &stand_in)?;
        fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755))?;
        let qemu = fake_qemu::program(Arch::X86_64, home.path())?;
        let study = Arc::new(TrialStudy::new(SHAPE)?);
        let (finished, bundle) = (Mutex::default(), Mutex::default());
        Ok(Self { bpfassay, open: OnceLock::new(), qemu, stand_in, home, study, finished, bundle })
    }

    /// The study of trials with strangers' files.
    #[must_use]
    pub fn study(&self) -> &TrialStudy {
        &self.study
    }

    /// Returns the command for `user`. Another user may not reach the original, and gets a copy.
    ///
    /// # Errors
    /// The system's error if the command cannot be copied.
    pub(super) fn program(&self, user: Option<u32>) -> io::Result<&Path> {
        if user.is_none() {
            return Ok(&self.bpfassay);
        }
        if self.open.get().is_none() {
            let copy = tempfile::Builder::new().prefix("bpfassay-").tempfile_in(self.home.path())?;
            let (_, path) = copy.keep().map_err(|error| error.error)?;
            fs::copy(&self.bpfassay, &path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            // If another thread has made a copy in the meantime, that copy serves as well.
            let _ = self.open.set(path);
        }
        Ok(self.open.get().unwrap_or(&self.bpfassay))
    }

    /// Returns the content of a sound bundle of the study's guests, made once.
    ///
    /// # Errors
    /// If the bundle cannot be made or read.
    pub fn bundle(&self) -> Result<BundleContent, ChaosError> {
        let mut bundle = self.bundle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(content) = &*bundle {
            return Ok(content.clone());
        }
        let directory = self.home.path().join("testbed");
        fs::create_dir_all(&directory)?;
        let testbed = ArtificialTestbed::make(&directory)?;
        let content = BundleContent::of(&testbed.manifest)?;
        Ok(bundle.insert(content).clone())
    }
}
