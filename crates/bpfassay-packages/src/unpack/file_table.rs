// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of an RPM package, according to its header.

/// The file list of a header. Paths are assembled on demand, because a small header could stand for
/// many long paths.
#[derive(Debug, Default)]
pub(super) struct FileTable {
    pub(super) names: Vec<Vec<u8>>,
    pub(super) directories: Vec<Vec<u8>>,
    /// For each file, the index of its directory.
    pub(super) places: Vec<u64>,
    pub(super) modes: Vec<u64>,
    pub(super) sizes: Vec<u64>,
    pub(super) links: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableFile {
    pub(super) path: Vec<u8>,
    pub(super) mode: u32,
    pub(super) size: u64,
    /// Target of a symbolic link.
    pub(super) link: Vec<u8>,
}

impl FileTable {
    /// Returns the file with this index, or `None` if the header lacks some of its data.
    pub(super) fn file(&self, index: usize) -> Option<TableFile> {
        let directory = self.directories.get(usize::try_from(*self.places.get(index)?).ok()?)?;
        Some(TableFile {
            path: [directory.as_slice(), self.names.get(index)?].concat(),
            mode: u32::try_from(*self.modes.get(index)?).ok()?,
            size: *self.sizes.get(index)?,
            link: self.links.get(index)?.clone(),
        })
    }
}
