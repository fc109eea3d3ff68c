// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nix packages in guests. The flake's `mkTool` puts them into the directory of a tool file.
//! Programs of a Nix store name their dynamic linker, libraries and interpreters by absolute paths
//! below `/nix/store`. A package and everything that it refers to therefore work if they have these
//! paths.

#![allow(clippy::disallowed_methods, reason = "reads a directory of a tool that the user names")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use bpfassay_packages::digest::Digest;
use bpfassay_protocol::Arch;
use bpfassay_tool::{elf::interpreter, guest_request};

use super::{MAX_FILE, refuse};
use crate::{
    error::{Error, Result},
    initramfs::{Archive, FileContent, NewcNode, initramfs_tree},
    manifest::Component,
};

/// The directory of store paths, in the guest and in the directory of a closure.
const STORE: &str = "nix/store/";

pub(super) struct Closure {
    pub(super) tool: String,
    /// The directory with the link `package` and the closure below `nix/store`.
    pub(super) directory: PathBuf,
    /// The program, relative to the package.
    pub(super) program: String,
}

impl Closure {
    fn refuse(&self, problem: impl std::fmt::Display) -> Error {
        refuse(&self.tool, format!("{} {problem}", self.directory.display()))
    }

    /// Adds the package to `archive`. Returns its store path and the digest of the program.
    ///
    /// # Errors
    /// [`Error::Tool`] if the closure lacks the program or its interpreter or dynamic linker, or if
    /// the program is for another architecture. [`Error::Overlay`] for files that an archive cannot
    /// hold.
    pub(super) fn add(&self, arch: Arch, archive: &mut Archive) -> Result<Component> {
        let link = self.directory.join("package");
        let target = fs::read_link(&link).map_err(Error::io("read", &link))?;
        let Some(package) = target.to_str().filter(|path| path.starts_with(&format!("/{STORE}"))) else {
            return Err(self.refuse("has a link `package` that leads to no path in /nix/store"));
        };
        let store = self.directory.join(STORE.trim_end_matches('/'));
        // Checks the path from the tool file to the store paths. A link in it would lead to other
        // files of this host.
        for part in store.ancestors().take(4) {
            if !part.symlink_metadata().map_err(Error::io("read", part))?.is_dir() {
                return Err(self.refuse(format!("is not taken: {} is no directory", part.display())));
            }
        }
        let mut found = Archive::default();
        initramfs_tree::add_directory(&mut found, &store, STORE)?;
        let program = format!("{package}/{}", self.program);
        let path = self.file(&found, &program)?;
        let bytes = bpfassay_input::open_unlinked(path)
            .and_then(|file| bpfassay_input::read_file(file, MAX_FILE))
            .map_err(Error::io("read", path))?;
        if !bytes.starts_with(b"#!") && initramfs_tree::machine(&bytes) != Some(arch) {
            return Err(self.refuse(format!("has {program}, which is no program for {arch}")));
        }
        if let Some(other) = started_by(&bytes) {
            self.file(&found, &other)?;
        }
        for (path, node) in found.entries() {
            // Another tool may have added the same path: equal names of store paths mean equal
            // contents.
            if archive.get(path).is_none() {
                archive.add(path, node.clone())?;
            }
        }
        archive.add(&guest_request::package(&self.tool), NewcNode::Symlink { target: package.to_owned() })?;
        Ok(Component {
            name: guest_request::package(&self.tool),
            version: package.to_owned(),
            sha256: Digest::of(&bytes),
        })
    }

    /// Returns the file on this host that the guest will start by `path`.
    fn file<'a>(&self, found: &'a Archive, path: &str) -> Result<&'a Path> {
        let real = initramfs_tree::resolve(found, path).and_then(|real| found.get(&real));
        match real {
            Some(NewcNode::File { executable: true, content: FileContent::Host { path, .. } }) => Ok(path),
            _ => Err(self.refuse(format!("holds no program {path}"))),
        }
    }
}

/// Returns the interpreter of a script, or the dynamic linker of a program.
pub(crate) fn started_by(program: &[u8]) -> Option<String> {
    let Some(line) = program.strip_prefix(b"#!") else { return interpreter(program) };
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(line).split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A closure of a script and its interpreter, which is a copy of this test's program.
    fn closure(tool: &str, directory: &Path) -> Closure {
        let store = directory.join(STORE);
        fs::create_dir_all(store.join("1-shell/bin")).unwrap();
        fs::create_dir_all(store.join("2-tool/bin")).unwrap();
        fs::copy(std::env::current_exe().unwrap(), store.join("1-shell/bin/sh")).unwrap();
        script(directory, "#!/nix/store/1-shell/bin/sh -e\nexit 1\n");
        symlink("/nix/store/2-tool", directory.join("package")).unwrap();
        Closure { tool: tool.to_owned(), directory: directory.to_owned(), program: "bin/tool".to_owned() }
    }

    fn script(directory: &Path, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = directory.join(STORE).join("2-tool/bin/tool");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn here() -> Arch {
        initramfs_tree::machine(&fs::read(std::env::current_exe().unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn packages_lie_at_their_places_in_the_store_and_two_tools_may_share_some() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut archive = Archive::default();
        let component = closure("one", one.path()).add(here(), &mut archive).unwrap();
        assert_eq!((component.name.as_str(), component.version.as_str()), ("/tools/one/package", "/nix/store/2-tool"));
        closure("two", two.path()).add(here(), &mut archive).unwrap();
        for link in ["tools/one/package/bin/tool", "tools/two/package/bin/tool"] {
            assert_eq!(initramfs_tree::resolve(&archive, link).as_deref(), Some("nix/store/2-tool/bin/tool"));
        }
        assert!(matches!(archive.get("/nix/store/1-shell/bin/sh"), Some(NewcNode::File { executable: true, .. })));
    }

    #[test]
    fn what_would_not_start_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut of = closure("mine", folder.path());
        let refused = |of: &Closure, arch| of.add(arch, &mut Archive::default()).unwrap_err().to_string();
        script(folder.path(), "#!/bin/sh\n");
        assert!(refused(&of, here()).contains("holds no program /bin/sh"));
        script(folder.path(), "no program");
        assert!(refused(&of, here()).contains("/nix/store/2-tool/bin/tool, which is no program for"));
        of.program = "bin/other".to_owned();
        assert!(refused(&of, here()).contains("holds no program /nix/store/2-tool/bin/other"));
        // The dynamic linker is not in the closure, or the program is for another machine.
        fs::remove_file(folder.path().join("package")).unwrap();
        symlink("/nix/store/1-shell", folder.path().join("package")).unwrap();
        of.program = "bin/sh".to_owned();
        assert!(refused(&of, here()).contains("holds no program /"), "{}", refused(&of, here()));
        let other = Arch::ALL.iter().copied().find(|&arch| arch != here()).unwrap();
        assert!(refused(&of, other).contains("no program for"));
        fs::remove_file(folder.path().join("package")).unwrap();
        symlink("/etc", folder.path().join("package")).unwrap();
        assert!(refused(&of, here()).contains("leads to no path in /nix/store"));
    }

    #[test]
    fn links_on_the_way_to_the_store_are_not_followed() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let of = closure("mine", folder.path());
        fs::rename(folder.path().join("nix"), other.path().join("nix")).unwrap();
        symlink(other.path().join("nix"), folder.path().join("nix")).unwrap();
        let error = of.add(here(), &mut Archive::default()).unwrap_err().to_string();
        assert!(error.contains("nix is no directory"), "{error}");
    }
}
