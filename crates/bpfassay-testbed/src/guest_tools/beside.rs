// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files in the directory of a tool file: their checks, and their places in the guest.

use std::path::PathBuf;

use bpfassay_protocol::Arch;
use bpfassay_tool::{
    Supply,
    elf::{interpreter, no_object, no_program},
    guest_request,
};

use super::{MAX_FILE, refuse};
use crate::{
    error::{Error, Result},
    initramfs::{Archive, FileContent, NewcNode, initramfs_tree},
};

/// A file or directory that a tool file names.
pub(super) struct Beside<'a> {
    pub(super) tool: &'a Supply<'a>,
    /// Relative to the tool file.
    pub(super) path: String,
    pub(super) kind: BesideKind,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum BesideKind {
    /// The program at index `place` of the tool file's list.
    Program { place: usize, has_libraries: bool },
    /// A directory of libraries.
    Libraries,
    /// A script, which names its interpreter in the tool file.
    Script,
    /// A file that the tool's program reads or starts.
    File,
    /// An eBPF object, and the programs in it that the tool file names.
    Object { programs: Vec<String> },
}

impl Beside<'_> {
    fn refuse(&self, problem: impl std::fmt::Display) -> Error {
        let path = self.tool.place(&self.path).unwrap_or_else(|_| PathBuf::from(&self.path));
        refuse(&self.tool.name, format!("{} {problem}", path.display()))
    }

    /// Adds the file to `archive` at the path `guest` in guests of architecture `arch`.
    ///
    /// # Errors
    /// - [`Error::Tool`] if a link leads out of the directory of libraries, or guests of `arch`
    ///   cannot start or load the file.
    /// - [`Error::ToolFile`] if the file cannot be read or is too large.
    /// - [`Error::Overlay`] or [`Error::Archive`] if the archive does not accept it.
    pub(super) fn add(&self, arch: Arch, guest: &str, archive: &mut Archive) -> Result<()> {
        if self.kind == BesideKind::Libraries {
            let prefix = format!("{}/", guest.trim_start_matches('/'));
            let mut libraries = Archive::default();
            initramfs_tree::add_directory(&mut libraries, &self.tool.directory(&self.path)?, "")?;
            for (path, node) in libraries.entries() {
                if matches!(node, NewcNode::Symlink { .. }) && initramfs_tree::resolve(&libraries, path).is_none() {
                    return Err(self.refuse(format!("holds the link {path}, which leads out of it")));
                }
                archive.add(&format!("{prefix}{path}"), node.clone())?;
            }
            return Ok(());
        }
        let bytes = self.tool.read(&self.path, MAX_FILE)?;
        match &self.kind {
            BesideKind::Program { place, has_libraries } => {
                if let Some(problem) = no_program(&bytes, arch) {
                    return Err(self.refuse(problem));
                }
                match interpreter(&bytes) {
                    None if *has_libraries => return Err(self.refuse("names no dynamic linker")),
                    Some(path) if *has_libraries => {
                        let name = path.rsplit('/').next().unwrap_or(&path);
                        let libraries = guest_request::libraries(&self.tool.name, *place);
                        let directory = libraries.rsplit('/').next().unwrap_or(&libraries);
                        let target = format!("{directory}/{name}");
                        archive.add(&guest_request::loader(&self.tool.name, *place), NewcNode::Symlink { target })?;
                    }
                    Some(_) => {
                        return Err(self.refuse("is linked with shared libraries: give their directory as `libraries`"));
                    }
                    None => {}
                }
            }
            BesideKind::Object { programs } => {
                if let Some(problem) = no_object(&bytes, programs) {
                    return Err(self.refuse(problem));
                }
            }
            BesideKind::Libraries | BesideKind::Script | BesideKind::File => {}
        }
        let executable = !matches!(self.kind, BesideKind::Object { .. });
        archive.add(guest, NewcNode::File { executable, content: FileContent::Bytes(bytes) })?;
        Ok(())
    }
}
