// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes initial RAM file systems for the kernel: uncompressed cpio archives (`newc`).
//!
//! The bytes depend only on the content: entries are sorted by path, owned by root, dated 1970, and
//! numbered in order. The length of an archive is a multiple of 512, so that archives can be
//! concatenated. The kernel unpacks one after the other, and a later file replaces an earlier one.

pub(crate) mod cpio_entries;
pub mod find;
pub mod initramfs_tree;

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

/// Limit on a path or link target, in bytes without the terminating zero (`PATH_MAX` − 1).
pub const MAX_PATH: usize = 4095;

/// Limit on a file, in bytes. Sizes are eight hexadecimal digits.
pub const MAX_FILE: u64 = u32::MAX as u64;

const BLOCK: u64 = 512;
const HEADER: u64 = 110;
const TRAILER: &str = "TRAILER!!!";

/// Why an archive cannot be created or written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A path cannot name an entry.
    #[error("`{}` cannot be a path in an initramfs: {reason}", path.escape_debug())]
    Path {
        /// The refused path, or a symbolic link's target.
        path: String,
        /// The problem of the path.
        reason: &'static str,
    },
    /// Two different entries at one path, or an entry below something that is not a directory.
    #[error("`{path}` is in the initramfs already as something else")]
    Conflict {
        /// The path in the archive.
        path: String,
    },
    /// A file is too large for the format.
    #[error("`{path}` has {size} bytes, more than the {MAX_FILE} that an initramfs can hold in one file")]
    TooLarge {
        /// The path in the archive.
        path: String,
        /// Size in bytes.
        size: u64,
    },
    /// A file on the host cannot be read.
    #[error("cannot read {} for the initramfs: check that it exists and may be read", path.display())]
    Read {
        /// Path on the host.
        path: PathBuf,
        /// The error of reading it.
        #[source]
        source: io::Error,
    },
    /// A file on the host changed its size between being added and being written.
    #[error("{} changed while it was copied into the initramfs: it had {expected} bytes, then {found}; run it again", path.display())]
    Changed {
        /// Path on the host.
        path: PathBuf,
        /// Size when it was added, in bytes.
        expected: u64,
        /// Bytes that were found while copying.
        found: u64,
    },
    /// A file that should be an archive is not an archive.
    #[error("{} is no initramfs segment of this project, or damaged: remove it and make it again", path.display())]
    Malformed {
        /// Path on the host.
        path: PathBuf,
        /// The position and the problem.
        #[source]
        source: io::Error,
    },
    /// The archive cannot be written.
    #[error("cannot write the initramfs; is the disk full?")]
    Write(#[source] io::Error),
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileContent {
    /// Bytes in memory.
    Bytes(Vec<u8>),
    /// A file on the host, which is read when the archive is written.
    Host {
        /// The path without symbolic links. A link that appears later is not followed.
        path: PathBuf,
        /// The size in bytes when the file was added.
        size: u64,
    },
}

impl FileContent {
    /// Uses the content of the file at `path`, read when the archive is written.
    ///
    /// # Errors
    /// [`ArchiveError::Read`] if there is no such regular file.
    pub fn of_file(path: impl Into<PathBuf>) -> Result<Self, ArchiveError> {
        let path = path.into();
        let found =
            path.canonicalize().and_then(|path| Ok((bpfassay_input::open_unlinked(&path)?.metadata()?.len(), path)));
        match found {
            Ok((size, path)) => Ok(Self::Host { path, size }),
            Err(source) => Err(ArchiveError::Read { path, source }),
        }
    }

    fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Host { size, .. } => *size,
        }
    }
}

impl From<Vec<u8>> for FileContent {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

/// One entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewcNode {
    /// A directory, mode 0755, or 1777 if `shared`.
    Directory {
        /// Whether everybody can write into it, as into `/tmp`.
        shared: bool,
    },
    /// A regular file, mode 0644, or 0755 if `executable`.
    File {
        /// Whether it is executable.
        executable: bool,
        /// The bytes, or where they are.
        content: FileContent,
    },
    /// A symbolic link.
    Symlink {
        /// The path that it points to.
        target: String,
    },
    /// A character device, mode 0600.
    CharacterDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
}

impl NewcNode {
    fn mode(&self) -> u32 {
        match self {
            Self::Directory { shared: false } => 0o040_755,
            Self::Directory { shared: true } => 0o041_777,
            Self::File { executable: false, .. } => 0o100_644,
            Self::File { executable: true, .. } => 0o100_755,
            Self::Symlink { .. } => 0o120_777,
            Self::CharacterDevice { .. } => 0o020_600,
        }
    }
}

/// A set of entries to be written as one archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Archive {
    /// The entries by path without the leading slash. Every parent is present as a directory.
    entries: BTreeMap<String, NewcNode>,
}

impl Archive {
    /// Adds `node` at `path`, which can begin with one slash. Missing parents are added as
    /// directories. Adding an equal entry again changes nothing.
    ///
    /// # Errors
    /// - [`ArchiveError::Path`]: the path is empty, too long, not normal (`.`, `..`, `//`), or has
    ///   a zero byte.
    /// - [`ArchiveError::Conflict`]: another entry is in the way.
    /// - [`ArchiveError::TooLarge`]
    pub fn add(&mut self, path: &str, node: NewcNode) -> Result<(), ArchiveError> {
        let path = normal(path)?;
        if let NewcNode::Symlink { target } = &node
            && let Err(reason) = text_fits(target)
        {
            return Err(ArchiveError::Path { path: target.clone(), reason });
        }
        if let NewcNode::File { content, .. } = &node
            && content.size() > MAX_FILE
        {
            return Err(ArchiveError::TooLarge { path: path.to_owned(), size: content.size() });
        }
        for (at, _) in path.match_indices('/') {
            let parent = &path[..at];
            match self.entries.get(parent) {
                Some(NewcNode::Directory { .. }) => {}
                Some(_) => return Err(ArchiveError::Conflict { path: parent.to_owned() }),
                None => {
                    self.entries.insert(parent.to_owned(), NewcNode::Directory { shared: false });
                }
            }
        }
        match self.entries.get(path) {
            Some(present) if *present != node => Err(ArchiveError::Conflict { path: path.to_owned() }),
            Some(_) => Ok(()),
            None => {
                self.entries.insert(path.to_owned(), node);
                Ok(())
            }
        }
    }

    /// Returns the entries in the order of the archive. Paths have no leading slash.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&str, &NewcNode)> {
        self.entries.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// Returns the entry at `path`, with or without the leading slash.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&NewcNode> {
        self.entries.get(path.strip_prefix('/').unwrap_or(path))
    }

    /// Returns how many bytes [`Archive::write_to`] writes.
    #[must_use]
    pub fn size(&self) -> u64 {
        let entry = |name: &str, body: u64| {
            let header = (HEADER + name.len() as u64 + 1).next_multiple_of(4);
            header + body.next_multiple_of(4)
        };
        let entries: u64 = self
            .entries
            .iter()
            .map(|(path, node)| match node {
                NewcNode::File { content, .. } => entry(path, content.size()),
                NewcNode::Symlink { target } => entry(path, target.len() as u64),
                NewcNode::Directory { .. } | NewcNode::CharacterDevice { .. } => entry(path, 0),
            })
            .sum();
        (entries + entry(TRAILER, 0)).next_multiple_of(BLOCK)
    }

    /// Writes the archive with trailer and padding. Returns its length in bytes, a multiple of 512.
    ///
    /// # Errors
    /// [`ArchiveError::Read`] and [`ArchiveError::Changed`] for files on the host.
    /// [`ArchiveError::Write`] otherwise.
    pub fn write_to(&self, writer: impl Write) -> Result<u64, ArchiveError> {
        let mut writer = CountingWriter { writer, written: 0 };
        for (inode, (path, node)) in (1u32..).zip(&self.entries) {
            let (links, size, device) = match node {
                NewcNode::Directory { .. } => (2, 0, (0, 0)),
                // `Archive::add` has checked that sizes fit.
                NewcNode::File { content, .. } => (1, content.size() as u32, (0, 0)),
                NewcNode::Symlink { target } => (1, target.len() as u32, (0, 0)),
                NewcNode::CharacterDevice { major, minor } => (1, 0, (*major, *minor)),
            };
            writer.header(NewcHeader { inode, mode: node.mode(), links, size, device }, path)?;
            match node {
                NewcNode::File { content: FileContent::Bytes(bytes), .. } => writer.put(bytes)?,
                NewcNode::File { content: FileContent::Host { path, size }, .. } => writer.copy(path, *size)?,
                NewcNode::Symlink { target } => writer.put(target.as_bytes())?,
                NewcNode::Directory { .. } | NewcNode::CharacterDevice { .. } => {}
            }
            writer.pad(4)?;
        }
        writer.header(NewcHeader { inode: 0, mode: 0, links: 1, size: 0, device: (0, 0) }, TRAILER)?;
        writer.pad(BLOCK)?;
        Ok(writer.written)
    }

    /// Builds the archive in memory, for small archives.
    ///
    /// # Errors
    /// The errors of [`Archive::write_to`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, ArchiveError> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes)?;
        Ok(bytes)
    }
}

/// Returns `path` without its leading slash, if an entry can have it.
fn normal(path: &str) -> Result<&str, ArchiveError> {
    let inner = path.strip_prefix('/').unwrap_or(path);
    let reason = match text_fits(inner) {
        Err(reason) => Some(reason),
        Ok(()) if inner == TRAILER => Some("the name marks the end of an archive"),
        Ok(()) => inner
            .split('/')
            .any(|part| matches!(part, "" | "." | ".."))
            .then_some("it has an empty component, `.` or `..`"),
    };
    match reason {
        Some(reason) => Err(ArchiveError::Path { path: path.to_owned(), reason }),
        None => Ok(inner),
    }
}

fn text_fits(text: &str) -> Result<(), &'static str> {
    match text {
        "" => Err("it is empty"),
        _ if text.len() > MAX_PATH => Err("it is longer than 4095 bytes"),
        _ if text.contains('\0') => Err("it holds a zero byte"),
        _ => Ok(()),
    }
}

struct NewcHeader {
    inode: u32,
    mode: u32,
    links: u32,
    size: u32,
    device: (u32, u32),
}

/// A writer that counts written bytes, for padding.
struct CountingWriter<W> {
    writer: W,
    written: u64,
}

impl<W: Write> CountingWriter<W> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.writer.write_all(bytes).map_err(ArchiveError::Write)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn pad(&mut self, block: u64) -> Result<(), ArchiveError> {
        let missing = self.written.next_multiple_of(block) - self.written;
        self.put(&[0; BLOCK as usize][..missing as usize])
    }

    /// Writes header and name. The fields are inode, mode, uid, gid, links, mtime, size, device of
    /// the file system, device number, length of the name with its zero, and an unused checksum.
    fn header(&mut self, header: NewcHeader, name: &str) -> Result<(), ArchiveError> {
        let NewcHeader { inode, mode, links, size, device: (major, minor) } = header;
        let fields = [inode, mode, 0, 0, links, 0, size, 0, 0, major, minor, name.len() as u32 + 1, 0];
        let mut text = String::from("070701");
        for field in fields {
            text.push_str(&format!("{field:08X}"));
        }
        self.put(text.as_bytes())?;
        self.put(name.as_bytes())?;
        self.put(&[0])?;
        self.pad(4)
    }

    fn copy(&mut self, path: &Path, size: u64) -> Result<(), ArchiveError> {
        let read = |source| ArchiveError::Read { path: path.to_owned(), source };
        let mut file = bpfassay_input::open_unlinked(path).map_err(read)?;
        let mut buffer = vec![0; 1 << 17];
        let mut found = 0;
        loop {
            let count = match file.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result.map_err(read)?,
            };
            found += count as u64;
            if count == 0 || found > size {
                break;
            }
            self.put(&buffer[..count])?;
        }
        if found == size { Ok(()) } else { Err(ArchiveError::Changed { path: path.to_owned(), expected: size, found }) }
    }
}

#[cfg(test)]
mod tests;
