// SPDX-License-Identifier: MIT OR Apache-2.0
//! The needs of a tool, or of the program of a workload, in guests: a source and additional files.

#![allow(
    clippy::disallowed_methods,
    reason = "files beneath a tool's directory are read by descriptors; the path is shown in messages"
)]

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    error::ToolError,
    file::{KernelNeeds, Source},
    service::MissingService,
};

/// Limit for entries of directories in `files`.
const MAX_FILES: usize = 4096;

/// The needs of a tool, or of the program of a workload, in guests.
#[derive(Debug, Clone)]
pub struct Supply<'a> {
    /// Name of its directory in the guest (in [`crate::guest_request::HOME`]), also used in
    /// messages.
    pub name: String,
    /// Source of the program.
    pub source: &'a Source,
    /// Additional files and directories, as paths relative to the tool file; see
    /// [`Supply::all_files`].
    pub files: &'a [String],
    /// Required services.
    pub needs: &'a [MissingService],
    /// What it requires of the kernel.
    pub kernel: KernelNeeds,
    /// The directory that relative paths refer to, if there is one.
    pub folder: Option<&'a Path>,
}

impl Supply<'_> {
    /// Reads a whole file by its relative path, `limit` bytes at most. Symbolic links are allowed
    /// if they stay below the directory.
    ///
    /// # Errors
    /// [`ToolError::Alone`] for a tool without a directory, such as a bundled one;
    /// [`ToolError::Part`] if the file cannot be read, is outside the directory, or exceeds
    /// `limit`.
    pub fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, ToolError> {
        let folder = self.folder(path)?;
        bpfassay_input::read_beneath(folder, Path::new(path), limit).map_err(self.unread(folder.join(path)))
    }

    /// Returns the directory with this relative path, with symbolic links resolved.
    ///
    /// # Errors
    /// [`ToolError::Alone`] for a tool without a directory, such as a bundled one;
    /// [`ToolError::Part`] if there is no such directory below the tool's directory.
    pub fn directory(&self, path: &str) -> Result<PathBuf, ToolError> {
        let folder = self.folder(path)?;
        bpfassay_input::directory_beneath(folder, Path::new(path)).map_err(self.unread(folder.join(path)))
    }

    /// Lists all additional files as sorted paths relative to the tool file. Directories are listed
    /// recursively.
    ///
    /// # Errors
    /// - [`ToolError::Alone`]: the tool has no directory, such as a bundled one.
    /// - [`ToolError::Part`]: a directory cannot be read, has a name that is not UTF-8, or has more
    ///   than 4,096 entries.
    pub fn all_files(&self) -> Result<Vec<String>, ToolError> {
        let mut files = Vec::new();
        let mut waiting: Vec<String> = self.files.to_vec();
        let mut entries = 0;
        while let Some(path) = waiting.pop() {
            // Reading a path that is neither a directory nor a file fails later.
            let Ok(directory) = self.directory(&path) else {
                files.push(path);
                continue;
            };
            let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
            for entry in fs::read_dir(&directory).map_err(self.unread(directory.clone()))? {
                let name = entry.map_err(self.unread(directory.clone()))?.file_name();
                let name = name.into_string().map_err(|name| {
                    self.unread(directory.join(name))(invalid("its name is not UTF-8: rename it".to_owned()))
                })?;
                entries += 1;
                if entries > MAX_FILES {
                    let more = format!("the directories of `files` hold more than {MAX_FILES} entries");
                    return Err(self.unread(directory)(invalid(more)));
                }
                waiting.push(format!("{path}/{name}"));
            }
        }
        files.sort();
        Ok(files)
    }

    /// Path of the file with this relative path, for messages.
    ///
    /// # Errors
    /// [`ToolError::Alone`] for a tool without a directory, such as a bundled one.
    pub fn place(&self, path: &str) -> Result<PathBuf, ToolError> {
        Ok(self.folder(path)?.join(path))
    }

    /// Creates the error for an unusable file or directory at `path`.
    pub(crate) fn unread(&self, path: PathBuf) -> impl FnOnce(io::Error) -> ToolError {
        let name = self.name.clone();
        move |source| ToolError::Part { name, path, source }
    }

    fn folder(&self, path: &str) -> Result<&Path, ToolError> {
        self.folder.ok_or_else(|| ToolError::Alone { name: self.name.clone(), path: path.to_owned() })
    }
}
