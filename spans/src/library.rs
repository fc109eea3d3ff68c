// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads files with MPI-IO functions: where each begins, and the family of the library.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind, read::elf::ElfFile64};

use crate::{bytes::Family, functions::FUNCTIONS};

/// Most files at once: src/bpf/spans.bpf.c has a program at returns for each.
pub(crate) const MOST: usize = 4;

/// Largest file that is read, in bytes.
const MAX_FILE: u64 = 1 << 30;

/// A file with MPI-IO functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Library {
    /// The canonical path.
    pub path: PathBuf,
    /// Its family.
    pub family: Family,
    /// File offsets of each function, by its number in [`FUNCTIONS`]. If `MPI_…` and `PMPI_…` are
    /// different code, the function has two offsets.
    pub places: BTreeMap<usize, BTreeSet<u64>>,
}

/// A file that cannot be traced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LibraryError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file's path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file is not a 64-bit ELF file.
    #[error("{} is no 64-bit program or library", path.display())]
    Elf {
        /// The file's path.
        path: PathBuf,
        /// The parser's error.
        #[source]
        source: object::Error,
    },
    /// The file does not define `MPI_File_open`.
    #[error("{} has no function MPI_File_open: name the library of MPI, such as libmpich.so.12 or libmpi.so.40", path.display())]
    NoMpi {
        /// The file's path.
        path: PathBuf,
    },
    /// The layout of the library's status and datatypes is unknown.
    #[error("{} is of neither MPICH nor Open MPI: the layout of its MPI_Status is not known", path.display())]
    Family {
        /// The file's path.
        path: PathBuf,
    },
}

impl Library {
    /// Reads the library or static program at `path`.
    ///
    /// # Errors
    /// [`LibraryError`] if the file cannot be traced.
    pub(crate) fn open(path: &Path) -> Result<Self, LibraryError> {
        let failed = |source| LibraryError::Read { path: path.to_owned(), source };
        let path = fs::canonicalize(path).map_err(failed)?;
        let elf = bpfassay_input::read(&path, MAX_FILE).map_err(failed)?;
        let symbols = symbols(&elf).map_err(|source| LibraryError::Elf { path: path.clone(), source })?;
        if !FUNCTIONS
            .iter()
            .enumerate()
            .any(|(number, function)| function.name == "MPI_File_open" && symbols.places.contains_key(&number))
        {
            return Err(LibraryError::NoMpi { path });
        }
        match symbols.family {
            Some(family) => Ok(Self { path, family, places: symbols.places }),
            None => Err(LibraryError::Family { path }),
        }
    }
}

/// The relevant symbols of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileSymbols {
    family: Option<Family>,
    places: BTreeMap<usize, BTreeSet<u64>>,
}

pub(crate) fn symbols(elf: &[u8]) -> Result<FileSymbols, object::Error> {
    let wanted: BTreeMap<&str, usize> =
        FUNCTIONS.iter().enumerate().map(|(number, function)| (function.name, number)).collect();
    let object = ElfFile64::<Endianness>::parse(elf)?;
    let mut found = FileSymbols { family: None, places: BTreeMap::new() };
    for symbol in object.dynamic_symbols().chain(object.symbols()) {
        // Imported symbols have no section.
        let (Some(section), Ok(name)) = (symbol.section_index(), symbol.name()) else { continue };
        match name {
            "ompi_mpi_comm_world" => found.family = Some(Family::OpenMpi),
            "MPIR_Err_create_code" => found.family = Some(Family::Mpich),
            _ => {}
        }
        let Some(&number) = wanted.get(name.strip_prefix('P').unwrap_or(name)) else { continue };
        if symbol.kind() != SymbolKind::Text {
            continue;
        }
        let section = object.section_by_index(section)?;
        let Some((start, _)) = section.file_range() else { continue };
        // The values in headers are untrusted.
        let inside = symbol.address().checked_sub(section.address());
        let Some(offset) = inside.and_then(|inside| inside.checked_add(start)) else { continue };
        found.places.entry(number).or_default().insert(offset);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use object::{Architecture, BinaryFormat, SymbolFlags, SymbolScope, write};
    use proptest::prelude::*;

    use super::*;

    /// An object with these functions of one byte each. `a=b` gives one function two names.
    fn functions(names: &[&str]) -> Vec<u8> {
        let mut object = write::Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let text = object.section_id(write::StandardSection::Text);
        for names in names {
            let at = object.append_section_data(text, &[0xc3], 1);
            for name in names.split('=') {
                object.add_symbol(write::Symbol {
                    name: name.as_bytes().to_vec(),
                    value: at,
                    size: 1,
                    kind: SymbolKind::Text,
                    scope: SymbolScope::Dynamic,
                    weak: false,
                    section: write::SymbolSection::Section(text),
                    flags: SymbolFlags::None,
                });
            }
        }
        object.write().unwrap()
    }

    fn open(elf: &[u8]) -> Result<Library, LibraryError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), elf).unwrap();
        Library::open(file.path())
    }

    #[test]
    fn both_names_of_a_function_are_one_place_or_two() {
        let elf =
            functions(&["MPI_File_open=PMPI_File_open", "MPI_File_read", "PMPI_File_read", "MPIR_Err_create_code"]);
        let library = open(&elf).unwrap();
        assert_eq!(library.family, Family::Mpich);
        let places: Vec<(&str, usize)> =
            library.places.iter().map(|(&number, places)| (FUNCTIONS[number].short, places.len())).collect();
        assert_eq!(places, [("open", 1), ("read", 2)]);
        for &offset in library.places.values().flatten() {
            assert_eq!(elf[usize::try_from(offset).unwrap()], 0xc3);
        }
    }

    #[test]
    fn other_files_are_refused() {
        let library = open(&functions(&["MPI_File_open", "ompi_mpi_comm_world"])).unwrap();
        assert_eq!(library.family, Family::OpenMpi);
        assert!(matches!(open(&functions(&["MPI_File_open"])), Err(LibraryError::Family { .. })));
        assert!(matches!(open(&functions(&["MPI_Init", "MPIR_Err_create_code"])), Err(LibraryError::NoMpi { .. })));
        assert!(matches!(open(b"#!/bin/sh\n"), Err(LibraryError::Elf { .. })));
        assert!(matches!(Library::open(Path::new("/nowhere")), Err(LibraryError::Read { .. })));
    }

    proptest! {
        #[test]
        fn no_file_makes_it_panic(bytes: Vec<u8>, at in 0..400usize, value: u8) {
            let _ = symbols(&bytes);
            let mut elf = functions(&["MPI_File_open", "PMPI_File_open"]);
            if let Some(byte) = elf.get_mut(at) { *byte = value; }
            let _ = symbols(&elf);
        }
    }
}
