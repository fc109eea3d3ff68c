// SPDX-License-Identifier: MIT OR Apache-2.0
//! The finished results that several trials start from.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::PoisonError,
};

use super::{room::Room, workshop::Workshop};
use crate::{chaos_study::ChaosError, trial::CommandEnd};

impl Workshop {
    /// Returns a results directory of the whole study, made once. Callers copy it.
    ///
    /// # Errors
    /// If the study without a stranger cannot be run or has violations.
    pub fn finished(&self) -> Result<PathBuf, ChaosError> {
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = &*finished {
            return Ok(path.clone());
        }
        let mut room = Room::new(self, None)?;
        let args = room.environment.begin(1);
        room.run(&args, &[])?;
        room.check("without a stranger", &[CommandEnd::Code(0)])?;
        let path = self.home.path().join("finished");
        copy(&room.environment.output(), &path)?;
        let result = room.into_result();
        if !result.violations.is_empty() {
            let text = format!(
                "the study without a stranger went wrong: {}\n{}",
                result.violations.join("; "),
                result.printed
            );
            return Err(ChaosError::Io(io::Error::other(text)));
        }
        Ok(finished.insert(path).clone())
    }
}

/// Copies the directory `from` to `to`, recursively.
///
/// # Errors
/// The system's error if something cannot be read or made.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&source, &target)?;
        } else {
            fs::copy(&source, &target)?;
        }
    }
    Ok(())
}
