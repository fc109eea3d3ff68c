// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files and offsets of the functions that the probe `uprobe` hooks.

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use bpfassay_protocol::Arch;
use bpfassay_tracer_common::functions::{C_LIBRARY, Function, MPI_IO};
use object::{
    Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind,
    read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _},
};

/// File name of the C library.
const LIBC: &str = "libc.so.6";

/// Returns where the C library is searched after `LD_LIBRARY_PATH`, as in libbpf. Debian and its
/// derivatives use the last directory.
fn system_directories() -> [String; 3] {
    ["/usr/lib64".to_owned(), "/usr/lib".to_owned(), format!("/usr/lib/{}", Arch::BUILT_FOR.gnu_triplet())]
}

/// Prefixes of the names of libraries with functions of the C library (glibc, before 2.34 in two
/// parts, and musl) or of MPI-IO (Open MPI, MPICH and its derivatives).
const LIBRARIES: [&str; 6] = ["libc.so", "libc.musl-", "libpthread.so", "libmpi.so", "libmpich.so", "libmpi_"];

/// The end of a function to which a program is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FunctionEnd {
    Entry,
    Return,
}

/// The position at which a function begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Name of the function in the file.
    pub(crate) name: &'static str,
    pub(crate) file: PathBuf,
    /// Offset from the beginning of the file, in bytes.
    pub(crate) offset: u64,
}

impl Place {
    /// Returns the text that is shown for a program that is attached at this place.
    pub(crate) fn describe(&self, end: FunctionEnd) -> String {
        let end = if end == FunctionEnd::Return { " (return)" } else { "" };
        format!("{} in {}{end}", self.name, self.file.display())
    }
}

/// Files that contain functions to hook.
#[derive(Debug, Default)]
pub(crate) struct Files {
    /// Each file with the offsets of functions by name.
    files: Vec<(PathBuf, BTreeMap<&'static str, u64>)>,
}

impl Files {
    /// Opens the files for `named`: see [`files`].
    ///
    /// # Errors
    /// The errors of [`files`], or a file that is not a 64-bit program or library.
    pub(crate) fn open(named: &[PathBuf]) -> io::Result<Self> {
        let mut all = Self::default();
        for path in files(named)? {
            let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            let offsets = fs::read(&path)
                .and_then(|elf| offsets(&elf).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)))
                .map_err(failed)?;
            all.files.push((path, offsets));
        }
        Ok(all)
    }

    /// Returns the places of the functions to which the program at `end` with the target `target`
    /// is attached. Each file contributes the functions that it has, by the first of their names.
    ///
    /// # Errors
    /// No file contains `read` or `write`, which every configuration needs. If another function is
    /// missing, the program cannot call it.
    pub(crate) fn places(&self, target: &str, end: FunctionEnd) -> io::Result<Vec<Place>> {
        let is_wanted = |function: &&Function| {
            target == if end == FunctionEnd::Return { function.returns.target() } else { function.entry }
        };
        let mut places = Vec::new();
        for function in C_LIBRARY.iter().chain(MPI_IO).filter(is_wanted) {
            let before = places.len();
            for (file, offsets) in &self.files {
                let found = function.names.iter().find_map(|name| Some((*name, *offsets.get(name)?)));
                places.extend(found.map(|(name, offset)| Place { name, file: file.clone(), offset }));
            }
            let name = function.names[0];
            if places.len() == before && matches!(name, "read" | "write") {
                let files: Vec<String> = self.files.iter().map(|(file, _)| file.display().to_string()).collect();
                let message = format!("no function `{name}` in {}", files.join(", "));
                return Err(io::Error::new(io::ErrorKind::NotFound, message));
            }
        }
        Ok(places)
    }
}

/// Returns where the hooked functions begin that a program or library defines. If several have the
/// same name (a program can have local functions), the visible ones are used, and of these the
/// strong ones.
pub(crate) fn offsets(elf: &[u8]) -> Result<BTreeMap<&'static str, u64>, object::Error> {
    let wanted: BTreeMap<&str, &'static str> =
        C_LIBRARY.iter().chain(MPI_IO).flat_map(|function| function.names).map(|name| (*name, *name)).collect();
    let object = ElfFile64::<Endianness>::parse(elf)?;
    let mut found = BTreeMap::new();
    for symbol in object.dynamic_symbols().chain(object.symbols()).filter(|symbol| symbol.kind() == SymbolKind::Text) {
        // A function that this file imports is in no section.
        let Some(section) = symbol.section_index() else { continue };
        let Some(&name) = symbol.name().ok().and_then(|name| wanted.get(name)) else { continue };
        let section = object.section_by_index(section)?;
        let Some((start, _)) = section.file_range() else { continue };
        let inside = symbol.address().checked_sub(section.address());
        // Headers can contain any values.
        let Some(offset) = inside.and_then(|inside| inside.checked_add(start)) else { continue };
        let rank = (symbol.is_local(), symbol.is_weak());
        let best = found.entry(name).or_insert((rank, offset));
        if rank < best.0 {
            *best = (rank, offset);
        }
    }
    Ok(found.into_iter().map(|(name, (_, offset))| (name, offset)).collect())
}

/// Returns the files to search for functions: those of `named`, and the libraries of the programs
/// among them, as the dynamic linker finds them. If `named` is empty, it is the C library.
///
/// For each program, the dynamic linker is started with `--list`: it maps the program's libraries,
/// and does not run the program.
///
/// # Errors
/// A file that cannot be read, a dynamic linker that does not find everything, or no C library.
fn files(named: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in named {
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let path = fs::canonicalize(path).map_err(failed)?;
        if let Some(linker) = interpreter(&fs::read(&path).map_err(failed)?) {
            files.extend(libraries(&linker, &path).map_err(failed)?);
        }
        files.push(path);
    }
    if files.is_empty() {
        let first = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let directories = env::split_paths(&first).chain(system_directories().map(PathBuf::from));
        files.push(c_library(directories)?);
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// Returns the C library in the first of `directories` that has it.
fn c_library(directories: impl Iterator<Item = PathBuf>) -> io::Result<PathBuf> {
    let mut paths = directories.map(|directory| directory.join(LIBC));
    paths.find(|path| path.is_absolute() && path.is_file()).ok_or_else(|| {
        let message =
            format!("no {LIBC} in {}: name a program or library by --uprobe", system_directories().join(", "));
        io::Error::new(io::ErrorKind::NotFound, message)
    })
}

/// Returns the dynamic linker that a program names; `None` for a static program, a library, or
/// anything else.
pub(crate) fn interpreter(elf: &[u8]) -> Option<PathBuf> {
    let file = ElfFile64::<Endianness>::parse(elf).ok()?;
    let endian = file.endian();
    let headers = file.elf_header().program_headers(endian, elf).ok()?;
    let path = headers.iter().find_map(|header| header.interpreter(endian, elf).ok()?)?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// Returns those libraries of `program` that have functions to hook.
fn libraries(linker: &Path, program: &Path) -> io::Result<Vec<PathBuf>> {
    let output = Command::new(linker).arg("--list").arg(program).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{} does not find its libraries: {}", linker.display(), stderr.trim())));
    }
    Ok(listed(&String::from_utf8_lossy(&output.stdout)))
}

/// Returns the paths in the list of a dynamic linker, one library per line: `NAME => PATH
/// (ADDRESS)`.
pub(crate) fn listed(text: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let (_, rest) = line.split_once(" => ")?;
        let path = Path::new(rest.rsplit_once(" (").map_or(rest, |(path, _)| path).trim());
        let name = path.file_name()?.to_str()?;
        LIBRARIES.iter().any(|known| name.starts_with(known)).then(|| path.to_owned())
    };
    text.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use object::{Architecture, BinaryFormat, SymbolFlags, SymbolScope, write};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn without_a_name_it_is_the_c_library() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let path = |index: usize| directories[index].path().join("libc.so.6");
        let find = || c_library(directories.iter().map(|directory| directory.path().to_owned()));
        assert!(find().unwrap_err().to_string().starts_with("no libc.so.6 in /usr/lib64, "));
        fs::write(path(2), "").unwrap();
        fs::write(path(1), "").unwrap();
        assert_eq!(find().unwrap(), path(1));
        assert!(files(&["/nowhere/at/all".into()]).unwrap_err().to_string().starts_with("/nowhere/at/all: "));
    }

    #[test]
    fn the_libraries_of_a_dynamic_program_are_included() {
        // This program is built for this host, with glibc or musl, unless it is static.
        let this = fs::canonicalize("/proc/self/exe").unwrap();
        let found = files(std::slice::from_ref(&this)).unwrap();
        assert!(found.contains(&this));
        let is_dynamic = interpreter(&fs::read(&this).unwrap()).is_some();
        let has_libc = found.iter().any(|path| path.file_name().unwrap().to_string_lossy().starts_with("libc."));
        assert_eq!(has_libc, is_dynamic, "{found:?}");
    }

    #[test]
    fn only_libraries_with_functions_of_interest_are_taken() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibmpi.so.12 => /opt/ior/lib/libmpi.so.12 (0x00007f1)\n\
                    \tlibm.so.6 => /lib/libm.so.6 (0x1)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f2)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f3)\n";
        assert_eq!(listed(text), ["/opt/ior/lib/libmpi.so.12", "/lib/x86_64-linux-gnu/libc.so.6"].map(PathBuf::from));
        assert_eq!(
            listed("\tlibc.musl-x86_64.so.1 => /lib/ld-musl-x86_64.so.1 (0x7f)\n\tlibc.so => not found\n"),
            [] as [PathBuf; 0]
        );
    }

    /// Creates an object with functions of one byte each, one after the other.
    fn functions(symbols: &[(&str, SymbolScope, bool)]) -> Vec<u8> {
        let mut object = write::Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let section = object.section_id(write::StandardSection::Text);
        for &(name, scope, weak) in symbols {
            let value = object.append_section_data(section, &[0xc3], 1);
            object.add_symbol(write::Symbol {
                name: name.into(),
                value,
                size: 1,
                kind: SymbolKind::Text,
                scope,
                weak,
                section: write::SymbolSection::Section(section),
                flags: SymbolFlags::None,
            });
        }
        object.write().unwrap()
    }

    #[test]
    fn a_section_beyond_the_largest_offset_holds_no_function() {
        let mut elf = functions(&[("other", SymbolScope::Dynamic, false), ("read", SymbolScope::Dynamic, false)]);
        assert!(offsets(&elf).unwrap().contains_key("read"));
        // Overwrite the offset (`sh_offset`) of the section with the code.
        let number = |at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().unwrap()) as usize;
        let (table, count) = (number(40), usize::from(u16::from_le_bytes([elf[60], elf[61]])));
        let code = (0..count).map(|index| table + 64 * index).find(|&at| elf[at + 8] & 4 != 0).unwrap();
        elf[code + 24..code + 32].fill(0xff);
        assert!(!offsets(&elf).unwrap().contains_key("read"));
    }

    #[test]
    fn of_functions_of_one_name_the_most_visible_is_used() {
        let elf = functions(&[
            ("read", SymbolScope::Compilation, false),
            ("other", SymbolScope::Dynamic, false),
            ("read", SymbolScope::Dynamic, true),
            ("read", SymbolScope::Dynamic, false),
            ("MPI_File_read", SymbolScope::Compilation, false),
        ]);
        let found = offsets(&elf).unwrap();
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), ["MPI_File_read", "read"]);
        assert_eq!(elf[usize::try_from(found["read"]).unwrap()], 0xc3);
        assert_eq!(found["MPI_File_read"], found["read"] + 1);
    }

    #[test]
    fn each_file_gives_the_first_name_that_it_has() {
        let file = |path: &str, names: &[(&'static str, u64)]| (path.into(), names.iter().copied().collect());
        let all = Files {
            files: vec![
                file("/lib/a", &[("read", 1), ("pread", 2), ("pread64", 3), ("write", 4), ("unlinkat", 5)]),
                file("/lib/b", &[("pread", 6), ("MPI_File_read_c", 7)]),
            ],
        };
        let place = |name, file: &str, offset| Place { name, file: file.into(), offset };
        let reads = [place("read", "/lib/a", 1), place("pread64", "/lib/a", 3), place("pread", "/lib/b", 6)];
        assert_eq!(all.places("read", FunctionEnd::Entry).unwrap(), reads);
        let bytes = [&reads[..], &[place("write", "/lib/a", 4)]].concat();
        assert_eq!(all.places("bytes", FunctionEnd::Return).unwrap(), bytes);
        assert_eq!(all.places("mpi", FunctionEnd::Return).unwrap(), [place("MPI_File_read_c", "/lib/b", 7)]);
        assert_eq!(all.places("mkdir", FunctionEnd::Entry).unwrap(), []);
        assert_eq!(reads[1].describe(FunctionEnd::Return), "pread64 in /lib/a (return)");
        let none = Files { files: vec![file("/lib/b", &[("read", 6)])] };
        assert_eq!(none.places("write", FunctionEnd::Entry).unwrap_err().to_string(), "no function `write` in /lib/b");
    }

    #[test]
    fn this_program_is_searched() {
        let this = fs::canonicalize("/proc/self/exe").unwrap();
        let all = Files::open(std::slice::from_ref(&this)).unwrap();
        assert!(!all.places("read", FunctionEnd::Entry).unwrap().is_empty(), "{all:?}");
        let error = Files::open(&["/proc/version".into()]).unwrap_err().to_string();
        assert!(error.starts_with("/proc/version: "), "{error}");
    }

    proptest! {
        #[test]
        fn any_list_and_no_file_makes_it_panic(text: String, bytes: Vec<u8>) {
            let _ = listed(&text);
            let _ = offsets(&bytes);
            let _ = interpreter(&bytes);
        }
    }
}
