// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seed inputs of targets.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{MAX_INPUT, Target};

/// The root of the workspace.
#[must_use]
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the places with inputs of `target`: its directory in `fuzz/corpus`, if there is one,
/// then those in the table.
#[must_use]
pub fn places(target: &Target) -> Vec<PathBuf> {
    let own = workspace().join("fuzz/corpus").join(target.name);
    own.is_dir().then_some(own).into_iter().chain(target.more.iter().map(|path| workspace().join(path))).collect()
}

/// Reads the inputs of `target` in the order of their paths, each truncated to [`MAX_INPUT`] bytes.
///
/// # Errors
/// An error with the path of the place or file that cannot be read.
pub fn read(target: &Target) -> io::Result<Vec<Vec<u8>>> {
    let mut inputs = Vec::new();
    for place in places(target) {
        let mut files = Vec::new();
        if place.is_dir() {
            for entry in fs::read_dir(&place).map_err(|error| named(&place, &error))? {
                files.push(entry.map_err(|error| named(&place, &error))?.path());
            }
            files.retain(|path| path.is_file());
            files.sort();
        } else {
            files.push(place);
        }
        for path in files {
            let mut input = fs::read(&path).map_err(|error| named(&path, &error))?;
            input.truncate(MAX_INPUT);
            inputs.push(input);
        }
    }
    inputs.extend((target.made)()?);
    Ok(inputs)
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display()))
}
