// SPDX-License-Identifier: MIT OR Apache-2.0
//! Things that a stranger puts in the place of a file or directory.

use std::{
    fs, io,
    os::unix::{fs::symlink, net::UnixListener},
    path::Path,
};

use rustix::fs::{CWD, Mode, mkfifoat};

use super::victims::MARK;

/// A thing in the place of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// A symbolic link to a file of the host.
    LinkToFile,
    /// A symbolic link to a directory of the host.
    LinkToDirectory,
    /// A symbolic link to nothing, in a directory of the host.
    LinkToNothing,
    /// A symbolic link to itself.
    LinkToItself,
    /// A symbolic link to a pipe.
    LinkToPipe,
    /// A symbolic link to the file or directory that was there. It was moved to the host's files.
    MovedAndLinked,
    /// A hard link to a file of the host.
    Name,
    /// A hard link to the file that was there. It was moved to the host's files.
    MovedAndNamed,
    /// A pipe.
    Pipe,
    /// A socket.
    Socket,
    /// An empty directory.
    Directory,
    /// A symbolic link to `/dev/zero`.
    LinkToDevice,
}

impl Plant {
    /// All plants.
    pub const ALL: &[Self] = &[
        Self::LinkToFile,
        Self::LinkToDirectory,
        Self::LinkToNothing,
        Self::LinkToItself,
        Self::LinkToPipe,
        Self::MovedAndLinked,
        Self::Name,
        Self::MovedAndNamed,
        Self::Pipe,
        Self::Socket,
        Self::Directory,
        Self::LinkToDevice,
    ];

    /// Whether the plant is a symbolic link.
    #[must_use]
    pub const fn is_link(self) -> bool {
        matches!(
            self,
            Self::LinkToFile
                | Self::LinkToDirectory
                | Self::LinkToNothing
                | Self::LinkToItself
                | Self::LinkToPipe
                | Self::MovedAndLinked
                | Self::LinkToDevice
        )
    }

    /// Puts the plant at `place`, whose directory exists. `host` is a directory of the host that
    /// contains `file` and `directory`.
    ///
    /// # Errors
    /// The system's error if something cannot be removed, moved or made.
    pub fn put(self, place: &Path, host: &Path) -> io::Result<()> {
        let (file, moved) = (host.join("file"), host.join("moved"));
        let was_there = place.symlink_metadata().is_ok();
        match self {
            Self::MovedAndLinked | Self::MovedAndNamed if was_there => fs::rename(place, &moved)?,
            Self::MovedAndLinked | Self::MovedAndNamed => fs::write(&moved, MARK)?,
            _ if place.is_dir() && !place.is_symlink() => fs::remove_dir_all(place)?,
            _ if was_there => fs::remove_file(place)?,
            _ => {}
        }
        match self {
            Self::LinkToFile => symlink(file, place),
            Self::LinkToDirectory => symlink(host.join("directory"), place),
            Self::LinkToNothing => symlink(host.join("new"), place),
            Self::LinkToItself => symlink(place.file_name().unwrap_or_default(), place),
            Self::LinkToPipe => {
                pipe(&host.join("pipe"))?;
                symlink(host.join("pipe"), place)
            }
            // A directory has no hard links.
            Self::MovedAndNamed if moved.is_dir() => symlink(moved, place),
            Self::MovedAndLinked => symlink(moved, place),
            Self::Name => fs::hard_link(file, place),
            Self::MovedAndNamed => fs::hard_link(moved, place),
            Self::Pipe => pipe(place),
            Self::Socket => UnixListener::bind(place).map(drop),
            Self::Directory => fs::create_dir(place),
            Self::LinkToDevice => symlink("/dev/zero", place),
        }
    }
}

fn pipe(path: &Path) -> io::Result<()> {
    Ok(mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};

    use super::*;
    use crate::stranger::victims::Victims;

    #[test]
    fn each_is_put_in_the_place_of_a_file_of_a_directory_and_of_nothing() {
        for plant in Plant::ALL {
            for kind in ["file", "directory", "nothing"] {
                let folder = tempfile::tempdir().unwrap();
                let (host, place) = (folder.path().join("host"), folder.path().join("place"));
                fs::create_dir(&host).unwrap();
                Victims::make(&host, &["file", "directory/file"], None).unwrap();
                match kind {
                    "file" => fs::write(&place, "own").unwrap(),
                    "directory" => {
                        fs::create_dir(&place).unwrap();
                        fs::write(place.join("own"), "own").unwrap();
                    }
                    _ => {}
                }
                plant.put(&place, &host).unwrap();
                let put = place.symlink_metadata().unwrap();
                assert!(!plant.is_link() || put.is_symlink(), "{plant:?} {kind}");
                match plant {
                    Plant::Name => assert_eq!(put.nlink(), 2),
                    Plant::Pipe => assert!(put.file_type().is_fifo()),
                    Plant::MovedAndLinked if kind == "file" => assert_eq!(fs::read(&place).unwrap(), b"own"),
                    _ => {}
                }
            }
        }
    }
}
