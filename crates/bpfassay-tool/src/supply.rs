// SPDX-License-Identifier: MIT OR Apache-2.0
//! The things that a tool or the program of a workload needs in guests: its source, and the files
//! beside the tool file.

#![allow(
    clippy::disallowed_methods,
    reason = "files beneath a tool's directory are read by descriptors; the path is shown in messages"
)]

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{Service, Source, ToolError};

/// Most entries of the directories that lie beside a program.
const MAX_FILES: usize = 4096;

/// The things that a tool or the program of a workload needs in guests.
#[derive(Debug, Clone)]
pub struct Supply<'a> {
    /// The name of its place in the guest ([`crate::guest::HOME`]), and in messages.
    pub name: String,
    /// The source of the program.
    pub source: &'a Source,
    /// Files and directories that lie beside its program, by their paths relative to the tool file:
    /// see [`Supply::all_files`].
    pub files: &'a [String],
    /// Services that it cannot do without.
    pub needs: &'a [Service],
    /// The directory that relative paths begin at; `None`: there is none.
    pub folder: Option<&'a Path>,
}

impl Supply<'_> {
    /// All of the file of this relative path, which has `limit` bytes at most. A symbolic link may
    /// lead to it, as long as it stays below the directory.
    ///
    /// # Errors
    /// [`ToolError::Alone`] for a tool without a directory, such as a bundled one;
    /// [`ToolError::Part`] where the file cannot be read, leaves the directory or is longer than
    /// `limit`.
    pub fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>, ToolError> {
        let folder = self.folder(path)?;
        bpfassay_input::read_beneath(folder, Path::new(path), limit).map_err(self.unread(folder.join(path)))
    }

    /// The directory of this relative path, without symbolic links in what is given back.
    ///
    /// # Errors
    /// [`ToolError::Alone`] for a tool without a directory, such as a bundled one;
    /// [`ToolError::Part`] where there is no such directory below it.
    pub fn directory(&self, path: &str) -> Result<PathBuf, ToolError> {
        let folder = self.folder(path)?;
        bpfassay_input::directory_beneath(folder, Path::new(path)).map_err(self.unread(folder.join(path)))
    }

    /// All files that lie beside the program, by their paths relative to the tool file, sorted:
    /// those of a directory with its subdirectories.
    ///
    /// # Errors
    /// [`ToolError::Alone`] for a tool without a directory, such as a bundled one;
    /// [`ToolError::Part`] where a directory cannot be read, has a name that is not UTF-8, or holds
    /// more than 4,096 entries.
    pub fn all_files(&self) -> Result<Vec<String>, ToolError> {
        let mut files = Vec::new();
        let mut waiting: Vec<String> = self.files.to_vec();
        let mut entries = 0;
        while let Some(path) = waiting.pop() {
            // A path that is no directory is read as a file, and refused then.
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

    /// The place of the file of this relative path, for messages.
    ///
    /// # Errors
    /// [`ToolError::Alone`] for a tool without a directory, such as a bundled one.
    pub fn place(&self, path: &str) -> Result<PathBuf, ToolError> {
        Ok(self.folder(path)?.join(path))
    }

    /// Why the file or directory at `path` is of no use.
    pub(crate) fn unread(&self, path: PathBuf) -> impl FnOnce(io::Error) -> ToolError {
        let name = self.name.clone();
        move |source| ToolError::Part { name, path, source }
    }

    fn folder(&self, path: &str) -> Result<&Path, ToolError> {
        self.folder.ok_or_else(|| ToolError::Alone { name: self.name.clone(), path: path.to_owned() })
    }
}
