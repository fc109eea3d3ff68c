// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of the host that a stranger aims at: records their state and finds changes.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, chown},
    },
    path::{Path, PathBuf},
};

/// A mark in every file of a host and nowhere else. It shows that a file of the host was read.
pub const MARK: &str = "a line of this machine alone";

/// The state of a path. Access times and link counts are left out because they can change.
#[derive(Debug, PartialEq, Eq)]
struct PathState {
    inode: u64,
    mode: u32,
    owner: u32,
    modified: (i64, i64),
    content: Vec<u8>,
}

/// Directories of a host with files in them.
#[derive(Debug)]
pub struct Victims {
    roots: Vec<PathBuf>,
    before: BTreeMap<PathBuf, PathState>,
}

impl Victims {
    /// Creates `files` below `root` for `user`. Each contains [`MARK`].
    ///
    /// # Errors
    /// The system's error if a file cannot be created.
    pub fn make(root: &Path, files: &[&str], user: Option<u32>) -> io::Result<()> {
        for name in files {
            let path = root.join(name);
            let mut directories: Vec<&Path> = path.ancestors().skip(1).take_while(|path| *path != root).collect();
            directories.reverse();
            for directory in directories {
                if !directory.is_dir() {
                    fs::create_dir(directory)?;
                    give(directory, user)?;
                }
            }
            fs::write(&path, format!("{MARK}: {name}\n"))?;
            give(&path, user)?;
        }
        Ok(())
    }

    /// Records everything below `roots`.
    ///
    /// # Errors
    /// The system's error if something cannot be read.
    pub fn now(roots: Vec<PathBuf>) -> io::Result<Self> {
        let mut before = BTreeMap::new();
        for root in &roots {
            look(root, &mut before)?;
        }
        Ok(Self { roots, before })
    }

    /// Returns a sentence for each difference between now and then.
    #[must_use]
    pub fn changed(&self) -> Vec<String> {
        let mut now = BTreeMap::new();
        for root in &self.roots {
            if let Err(error) = look(root, &mut now) {
                return vec![format!("the host: {} cannot be read any more: {error}", root.display())];
            }
        }
        let gone = self.before.keys().filter(|path| !now.contains_key(*path));
        let mut wrong: Vec<_> = gone.map(|path| format!("the host: {} is gone", path.display())).collect();
        for (path, seen) in &now {
            match self.before.get(path) {
                None => wrong.push(format!("the host: {} was made", path.display())),
                Some(before) if before != seen => wrong.push(format!("the host: {} was changed", path.display())),
                Some(_) => {}
            }
        }
        wrong
    }

    /// Returns the regular files below `place` that contain [`MARK`]. Links are not followed. A
    /// hard link to a file of the host does not count.
    #[must_use]
    pub fn copies(&self, place: &Path) -> Vec<PathBuf> {
        let Ok(metadata) = place.symlink_metadata() else { return Vec::new() };
        if metadata.is_dir() {
            let entries = fs::read_dir(place).into_iter().flatten().flatten();
            return entries.flat_map(|entry| self.copies(&entry.path())).collect();
        }
        let is_known = || self.before.values().any(|seen| seen.inode == metadata.ino());
        let is_holder = metadata.is_file() && !is_known() && fs::read(place).is_ok_and(|bytes| holds_mark(&bytes));
        if is_holder { vec![place.to_owned()] } else { Vec::new() }
    }
}

/// Whether `bytes` contain [`MARK`].
fn holds_mark(bytes: &[u8]) -> bool {
    let (first, rest) = MARK.as_bytes().split_at(1);
    let places = bytes.iter().enumerate().filter(|(_, byte)| **byte == first[0]);
    places.map(|(at, _)| &bytes[at + 1..]).any(|after| after.starts_with(rest))
}

/// Gives `path` to `user` without following links.
///
/// # Errors
/// The system's error.
pub fn give(path: &Path, user: Option<u32>) -> io::Result<()> {
    match user {
        Some(_) if path.is_symlink() => std::os::unix::fs::lchown(path, user, user),
        Some(_) => chown(path, user, user),
        None => Ok(()),
    }
}

fn look(path: &Path, found: &mut BTreeMap<PathBuf, PathState>) -> io::Result<()> {
    let metadata = path.symlink_metadata()?;
    let kind = metadata.file_type();
    let mut content = Vec::new();
    if kind.is_dir() {
        for entry in fs::read_dir(path)? {
            look(&entry?.path(), found)?;
        }
    } else if kind.is_symlink() {
        content = fs::read_link(path)?.as_os_str().as_bytes().to_vec();
    } else if kind.is_file() {
        content = fs::read(path)?;
    }
    let seen = PathState {
        inode: metadata.ino(),
        mode: metadata.mode(),
        owner: metadata.uid(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        content,
    };
    found.insert(path.to_owned(), seen);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn every_change_of_a_victim_is_found() {
        type Change = (&'static str, fn(&Path));
        let changes: [Change; 7] = [
            ("a/one was changed", |root| fs::write(root.join("a/one"), "other").unwrap()),
            ("a/one is gone", |root| fs::rename(root.join("a/one"), root.join("b/one")).unwrap()),
            ("a/one is gone", |root| fs::remove_file(root.join("a/one")).unwrap()),
            ("b/planted was made", |root| symlink("x", root.join("b/planted")).unwrap()),
            ("b was changed", |root| fs::set_permissions(root.join("b"), PermissionsExt::from_mode(0o700)).unwrap()),
            // The new file has the same bytes.
            ("a/one was changed", |root| {
                fs::copy(root.join("a/one"), root.join("a/new")).unwrap();
                fs::rename(root.join("a/new"), root.join("a/one")).unwrap();
            }),
            ("a is gone", |root| fs::remove_dir_all(root.join("a")).unwrap()),
        ];
        for (expected, change) in changes {
            let folder = tempfile::tempdir().unwrap();
            Victims::make(folder.path(), &["a/one", "b/two"], None).unwrap();
            let victims = Victims::now(vec![folder.path().to_owned()]).unwrap();
            assert_eq!(victims.changed(), Vec::<String>::new());
            change(folder.path());
            let found = victims.changed().join("\n");
            assert!(found.contains(expected), "{expected}: {found}");
        }
    }

    #[test]
    fn bytes_of_the_host_are_found_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        Victims::make(&folder.path().join("host"), &["file"], None).unwrap_err();
        fs::create_dir(folder.path().join("host")).unwrap();
        Victims::make(&folder.path().join("host"), &["file"], None).unwrap();
        let victims = Victims::now(vec![folder.path().join("host")]).unwrap();
        let cache = folder.path().join("cache");
        fs::create_dir_all(cache.join("objects")).unwrap();
        symlink(folder.path().join("host/file"), cache.join("objects/link")).unwrap();
        fs::hard_link(folder.path().join("host/file"), cache.join("objects/name")).unwrap();
        assert_eq!(victims.copies(&cache), Vec::<PathBuf>::new());
        fs::copy(folder.path().join("host/file"), cache.join("objects/x")).unwrap();
        assert_eq!(victims.copies(&cache), [cache.join("objects/x")]);
    }
}
