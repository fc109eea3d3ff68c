// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files beside a tool file: what they must be, and where they are put.

use std::path::PathBuf;

use bpfassay_protocol::Arch;
use bpfassay_tool::{
    Supply,
    elf::{interpreter, no_object, no_program},
    guest,
};

use super::{MAX_FILE, refuse};
use crate::{
    Error, Result,
    initramfs::{Archive, Content, Node, tree},
};

/// Something beside a tool file.
pub(super) struct Beside<'a> {
    pub(super) tool: &'a Supply<'a>,
    /// Relative to the tool file.
    pub(super) path: String,
    pub(super) kind: Kind,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A program that has this place among those of the tool file, with libraries or without.
    Program { place: usize, has_libraries: bool },
    /// A directory of libraries.
    Libraries,
    /// A script.
    Script,
    /// A file that its program reads or starts.
    File,
    /// An eBPF object, and the programs of it that are named.
    Object { programs: Vec<String> },
}

impl Beside<'_> {
    fn refuse(&self, problem: impl std::fmt::Display) -> Error {
        let path = self.tool.place(&self.path).unwrap_or_else(|_| PathBuf::from(&self.path));
        refuse(&self.tool.name, format!("{} {problem}", path.display()))
    }

    /// Adds it to `archive` as the path `guest` of guests of architecture `arch`.
    ///
    /// # Errors
    /// [`Error::Tool`] where a link leads out of the directory of libraries, or the file is nothing that guests of `arch` can start or
    /// load; [`Error::ToolFile`] where it cannot be read or is too large; [`Error::Overlay`] or
    /// [`Error::Archive`] where the archive does not take it.
    pub(super) fn add(&self, arch: Arch, guest: &str, archive: &mut Archive) -> Result<()> {
        if self.kind == Kind::Libraries {
            let prefix = format!("{}/", guest.trim_start_matches('/'));
            let mut libraries = Archive::default();
            tree::add_directory(&mut libraries, &self.tool.directory(&self.path)?, "")?;
            for (path, node) in libraries.entries() {
                if matches!(node, Node::Symlink { .. }) && tree::resolve(&libraries, path).is_none() {
                    return Err(self.refuse(format!("holds the link {path}, which leads out of it")));
                }
                archive.add(&format!("{prefix}{path}"), node.clone())?;
            }
            return Ok(());
        }
        let bytes = self.tool.read(&self.path, MAX_FILE)?;
        match &self.kind {
            Kind::Program { place, has_libraries } => {
                if let Some(problem) = no_program(&bytes, arch) {
                    return Err(self.refuse(problem));
                }
                match interpreter(&bytes) {
                    None if *has_libraries => return Err(self.refuse("names no dynamic linker")),
                    Some(path) if *has_libraries => {
                        let name = path.rsplit('/').next().unwrap_or(&path);
                        let libraries = guest::libraries(&self.tool.name, *place);
                        let directory = libraries.rsplit('/').next().unwrap_or(&libraries);
                        let target = format!("{directory}/{name}");
                        archive.add(&guest::loader(&self.tool.name, *place), Node::Symlink { target })?;
                    }
                    Some(_) => {
                        return Err(self.refuse("is linked with shared libraries: give their directory as `libraries`"));
                    }
                    None => {}
                }
            }
            Kind::Object { programs } => {
                if let Some(problem) = no_object(&bytes, programs) {
                    return Err(self.refuse(problem));
                }
            }
            Kind::Libraries | Kind::Script | Kind::File => {}
        }
        let executable = !matches!(self.kind, Kind::Object { .. });
        archive.add(guest, Node::File { executable, content: Content::Bytes(bytes) })?;
        Ok(())
    }
}
