// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of an installed module tree, `lib/modules/RELEASE`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use super::{MAX_BUILTIN, ModulesError, decompress, modinfo};

/// The modules of a tree by name, with `_` for `-`.
#[derive(Debug, Default)]
pub(super) struct Installed {
    /// Module files that can be read.
    pub(super) files: BTreeMap<String, PathBuf>,
    /// Other entries named like a module, and why each cannot be read.
    pub(super) others: BTreeMap<String, (PathBuf, String)>,
}

impl Installed {
    /// Finds every module file of the tree. `updates` and `extra` have precedence over `kernel`, as
    /// with depmod.
    ///
    /// # Errors
    /// [`ModulesError::Read`] if the tree cannot be read, or has none of these directories.
    pub(super) fn find(tree: &Path) -> Result<Self, ModulesError> {
        let mut all = Self::default();
        let mut found = false;
        for part in ["updates", "extra", "kernel"] {
            let start = tree.join(part);
            if start.is_dir() {
                found = true;
                all.walk(&start)?;
            }
        }
        if !found {
            let source = io::Error::new(io::ErrorKind::NotFound, "no directory `kernel` in it");
            return Err(ModulesError::Read { path: tree.to_owned(), source });
        }
        Ok(all)
    }

    /// Checks that the missing module `name` does not exist in an unreadable form.
    ///
    /// # Errors
    /// [`ModulesError::Form`] if it does.
    pub(super) fn check_form(&self, name: &str) -> Result<(), ModulesError> {
        match self.others.get(name) {
            Some((path, why)) => Err(ModulesError::Form { path: path.clone(), why: why.clone() }),
            None => Ok(()),
        }
    }

    /// Walks directories in the order of their names. Does not follow symbolic links, such as
    /// `build`.
    fn walk(&mut self, directory: &Path) -> Result<(), ModulesError> {
        let read = |source| ModulesError::Read { path: directory.to_owned(), source };
        let mut entries = fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(read)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let kind = entry.file_type().map_err(read)?;
            if kind.is_dir() {
                self.walk(&entry.path())?;
                continue;
            }
            let file = entry.file_name();
            let Some(file) = file.to_str() else { continue };
            match module_name(file) {
                Some(name) if kind.is_file() => drop(self.files.entry(name).or_insert_with(|| entry.path())),
                Some(name) => {
                    let what = if kind.is_symlink() { "a symbolic link" } else { "no regular file" };
                    let why = format!("it is {what}; copy the file itself there");
                    self.others.entry(name).or_insert_with(|| (entry.path(), why));
                }
                None => {
                    let Some((stem, suffix)) = file.rsplit_once('.') else { continue };
                    let Some(name) = module_name(stem).filter(|_| kind.is_file()) else { continue };
                    let read = decompress::SUFFIXES.join(", ");
                    let why = format!("files that end in .{suffix} are not read; unpack it, or compress it as {read}");
                    self.others.entry(name).or_insert_with(|| (entry.path(), why));
                }
            }
        }
        Ok(())
    }
}

/// Turns `nfs-localio.ko.xz` into the kernel's spelling of the name, `nfs_localio`.
fn module_name(file: &str) -> Option<String> {
    let stem = decompress::SUFFIXES.iter().find_map(|suffix| file.strip_suffix(suffix)).unwrap_or(file);
    Some(modinfo::canonical(stem.strip_suffix(".ko")?))
}

/// Returns the names of the modules that are built in.
///
/// # Errors
/// [`ModulesError::NoBuiltin`] if the tree has no `modules.builtin`, [`ModulesError::Read`] if the
/// file cannot be read.
pub(super) fn read_builtin(tree: &Path) -> Result<BTreeSet<String>, ModulesError> {
    let path = tree.join("modules.builtin");
    match bpfassay_input::read(&path, MAX_BUILTIN) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes)
            .lines()
            .filter_map(|line| module_name(line.trim().rsplit('/').next().unwrap_or_default()))
            .collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ModulesError::NoBuiltin { tree: tree.to_owned() }),
        Err(source) => Err(ModulesError::Read { path, source }),
    }
}
