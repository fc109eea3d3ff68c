// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories by descriptor: the opened directory is emptied or removed, even if the path refers
//! to another one now.

use std::{
    ffi::{CStr, CString},
    fs::File,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, mkdirat, openat, renameat, unlinkat},
    io::Errno,
};

/// Largest number of rounds of emptying. A directory that another program keeps filling is an
/// error, not an endless loop.
const MAX_ROUNDS: u32 = 100_000;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a directory. Does not follow a link at the end of `path`.
pub(crate) fn open(path: impl AsRef<Path>) -> io::Result<File> {
    Ok(openat(CWD, path.as_ref(), DIRECTORY, Mode::empty())?.into())
}

/// Opens the directory `name` in `parent`. Does not follow a link.
pub(crate) fn open_at(parent: &File, name: &CStr) -> io::Result<File> {
    Ok(openat(parent, name, DIRECTORY, Mode::empty())?.into())
}

/// Creates the directory `name` in `parent`. An existing directory is an error.
pub(crate) fn make_at(parent: &File, name: &CStr, mode: u32) -> io::Result<()> {
    Ok(mkdirat(parent, name, Mode::from_raw_mode(mode))?)
}

/// Returns whether the entry `name` of `parent` is `directory`.
pub(crate) fn is_entry(parent: &File, name: &CStr, directory: &File) -> io::Result<bool> {
    let flags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let there: File = match openat(parent, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(false),
        there => there?.into(),
    };
    let (there, kept) = (there.metadata()?, directory.metadata()?);
    Ok((there.dev(), there.ino()) == (kept.dev(), kept.ino()))
}

/// Removes the empty directory `name` in `parent`.
pub(crate) fn remove_at(parent: &File, name: &CStr) -> io::Result<()> {
    Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

pub(crate) fn is_empty(directory: &File) -> io::Result<bool> {
    Ok(entries(directory)?.next().transpose()?.is_none())
}

/// Returns a name that cannot be predicted.
pub(crate) fn random_name(prefix: &str) -> io::Result<CString> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(CString::new(format!("{prefix}{:032x}", u128::from_ne_bytes(bytes)))?)
}

/// Removes everything in `top`, without following links or leaving the file system of `top`. Two
/// directories are open at a time, at any depth of nesting: directories within a directory are
/// moved up first.
///
/// # Errors
/// An entry cannot be removed: another file system is mounted there, or another program keeps
/// filling it.
pub(crate) fn empty(top: &File) -> io::Result<()> {
    let device = top.metadata()?.dev();
    let mut moved = MovedNames::default();
    for _ in 0..MAX_ROUNDS {
        let mut found = false;
        for entry in entries(top)? {
            let (name, kind) = entry?;
            found = true;
            match remove_file(top, &name, kind)? {
                Removed::Yes => {}
                Removed::IsDirectory => remove_directory(top, &name, device, &mut moved)?,
            }
        }
        if !found {
            return Ok(());
        }
    }
    Err(still_filled())
}

/// Names for directories that are moved up.
#[derive(Default)]
struct MovedNames {
    stem: Option<String>,
    count: u64,
}

impl MovedNames {
    fn next(&mut self) -> io::Result<CString> {
        if self.stem.is_none() {
            self.stem = Some(random_name("gone-")?.to_string_lossy().into_owned());
        }
        self.count += 1;
        Ok(CString::new(format!("{}-{}", self.stem.as_deref().unwrap_or_default(), self.count))?)
    }
}

/// The outcome of removing an entry that can be a file.
enum Removed {
    Yes,
    IsDirectory,
}

fn remove_file(parent: &File, name: &CStr, kind: FileType) -> io::Result<Removed> {
    if kind == FileType::Directory {
        return Ok(Removed::IsDirectory);
    }
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(Removed::Yes),
        Err(Errno::ISDIR) => Ok(Removed::IsDirectory),
        Err(error) => Err(error.into()),
    }
}

fn remove_directory(top: &File, name: &CStr, device: u64, moved: &mut MovedNames) -> io::Result<()> {
    let directory: File = match openat(top, name, DIRECTORY, Mode::empty()) {
        // The entry was removed, or replaced by something else. The next round of its parent
        // handles that.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        directory => directory?.into(),
    };
    if directory.metadata()?.dev() != device {
        return Err(io::Error::other(format!("another file system is mounted at {}", name.to_string_lossy())));
    }
    for _ in 0..MAX_ROUNDS {
        for entry in entries(&directory)? {
            let (inner, kind) = entry?;
            match remove_file(&directory, &inner, kind)? {
                Removed::Yes => {}
                Removed::IsDirectory => match renameat(&directory, &inner, top, moved.next()?) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(error.into()),
                },
            }
        }
        match unlinkat(top, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(still_filled())
}

/// Returns the entries of `directory`, except `.` and `..`.
fn entries(directory: &File) -> io::Result<impl Iterator<Item = io::Result<(CString, FileType)>>> {
    let entries = Dir::read_from(directory)?;
    let entry = |entry: rustix::io::Result<rustix::fs::DirEntry>| match entry {
        Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => None,
        Ok(entry) => Some(Ok((entry.file_name().to_owned(), entry.file_type()))),
        Err(error) => Some(Err(error.into())),
    };
    Ok(entries.filter_map(entry))
}

fn still_filled() -> io::Error {
    io::Error::other("another program keeps making files in it")
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_directory_is_emptied_however_deep_and_links_are_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (top, kept) = (directory.path().join("top"), directory.path().join("kept"));
        fs::create_dir_all(top.join("a/b/c/d")).unwrap();
        fs::write(top.join("a/b/file"), "x").unwrap();
        fs::write(top.join("file"), "x").unwrap();
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("precious"), "x").unwrap();
        symlink(&kept, top.join("link")).unwrap();
        symlink(&kept, top.join("a/b/link")).unwrap();
        // This is deeper than the number of descriptors that can be open at a time.
        let mut deep = open(&top).unwrap();
        for _ in 0..2000 {
            make_at(&deep, c"deep", 0o700).unwrap();
            deep = open_at(&deep, c"deep").unwrap();
        }
        let opened = open(&top).unwrap();
        assert!(!is_empty(&opened).unwrap());
        empty(&opened).unwrap();
        assert!(is_empty(&opened).unwrap());
        assert!(kept.join("precious").exists());
    }

    #[test]
    fn a_link_is_no_directory() {
        let directory = tempfile::tempdir().unwrap();
        symlink("/tmp", directory.path().join("link")).unwrap();
        assert!(open(directory.path().join("link")).is_err());
        assert!(open_at(&open(directory.path()).unwrap(), c"link").is_err());
        let parent = open(directory.path()).unwrap();
        assert!(make_at(&parent, c"link", 0o700).is_err());
    }

    #[test]
    fn an_entry_that_was_exchanged_is_another() {
        let directory = tempfile::tempdir().unwrap();
        let parent = open(directory.path()).unwrap();
        make_at(&parent, c"one", 0o700).unwrap();
        let one = open_at(&parent, c"one").unwrap();
        assert!(is_entry(&parent, c"one", &one).unwrap());
        fs::rename(directory.path().join("one"), directory.path().join("two")).unwrap();
        assert!(!is_entry(&parent, c"one", &one).unwrap());
        symlink("two", directory.path().join("one")).unwrap();
        assert!(!is_entry(&parent, c"one", &one).unwrap());
        assert!(is_entry(&parent, c"two", &one).unwrap());
    }

    #[test]
    fn random_names_are_long_and_differ() {
        let (one, two) = (random_name("x-").unwrap(), random_name("x-").unwrap());
        assert_eq!(one.to_bytes().len(), 34);
        assert_ne!(one, two);
    }
}
