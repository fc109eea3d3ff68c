//! In which files the functions lie that the probe `uprobe` hooks.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use object::{Endianness, read::elf::ElfFile64, read::elf::FileHeader as _, read::elf::ProgramHeader as _};

/// The C library, as the dynamic linker looks for it.
const LIBC: &str = "libc.so.6";

/// How the names of libraries begin that have the functions of the C library (glibc, before 2.34 in two parts, and musl) or
/// of MPI-IO (Open MPI, MPICH and its relatives).
const LIBRARIES: [&str; 6] = ["libc.so", "libc.musl-", "libpthread.so", "libmpi.so", "libmpich.so", "libmpi_"];

/// The files to look for functions in: those of `named`, and the libraries that come with the programs among them, as the
/// dynamic linker finds them. Without any it is the C library.
///
/// A dynamic linker is started for each program, with `--list`: it maps what the program needs, and runs nothing of it.
///
/// # Errors
/// A file that cannot be read, or a dynamic linker that does not find everything.
pub(crate) fn files(named: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
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
        files.push(PathBuf::from(LIBC));
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// The dynamic linker that a program names; `None` for a static program, a library, or anything else.
fn interpreter(elf: &[u8]) -> Option<PathBuf> {
    let file = ElfFile64::<Endianness>::parse(elf).ok()?;
    let endian = file.endian();
    let headers = file.elf_header().program_headers(endian, elf).ok()?;
    let path = headers.iter().find_map(|header| header.interpreter(endian, elf).ok()?)?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// Those libraries of `program` that are of use here.
fn libraries(linker: &Path, program: &Path) -> io::Result<Vec<PathBuf>> {
    let output = Command::new(linker).arg("--list").arg(program).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{} does not find its libraries: {}", linker.display(), words.trim())));
    }
    Ok(listed(&String::from_utf8_lossy(&output.stdout)))
}

/// The paths in what a dynamic linker lists, one library a line: `NAME => PATH (ADDRESS)`.
fn listed(text: &str) -> Vec<PathBuf> {
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn without_a_name_it_is_the_c_library() {
        assert_eq!(files(&[]).unwrap(), [PathBuf::from("libc.so.6")]);
        assert!(files(&["/nowhere/at/all".into()]).unwrap_err().to_string().starts_with("/nowhere/at/all: "));
    }

    #[test]
    fn a_dynamic_program_comes_with_its_libraries() {
        // Built for this host, with glibc or musl, unless it is static.
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

    proptest! {
        #[test]
        fn any_list_and_any_file_is_survived(text: String, bytes: Vec<u8>) {
            let _ = listed(&text);
            let _ = interpreter(&bytes);
        }
    }
}
