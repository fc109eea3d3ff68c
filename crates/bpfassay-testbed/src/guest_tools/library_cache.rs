// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/etc/ld.so.cache`: where the shared libraries of a guest are. Packages do not contain it, since
//! `ldconfig` writes it when they are installed. bpftrace and bcc look in it for a library that a
//! uprobe names (`uprobe:libc:getaddrinfo`).
//!
//! Format: `struct cache_file_new` of glibc (sysdeps/generic/dl-cache.h), the only one since glibc
//! 2.32. Entries descend by name, because the dynamic linker searches by bisection.

use std::cmp::Ordering;

use bpfassay_protocol::Arch;

use crate::{
    error::Result,
    initramfs::{Archive, FileContent, NewcNode},
};

const PATH: &str = "etc/ld.so.cache";

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";

/// Bytes of the header and of each entry.
const HEADER: usize = 48;
const ENTRY: usize = 24;

/// `cache_file_new_flags_endian_little`.
const LITTLE_ENDIAN: u8 = 2;

/// Returns the flags of a library for glibc 2 (sysdeps/generic/ldconfig.h): `FLAG_ELF_LIBC6` with
/// `FLAG_X8664_LIB64` (x86_64), `FLAG_AARCH64_LIB64` (aarch64) or `FLAG_RISCV_FLOAT_ABI_DOUBLE`
/// (riscv64).
const fn flags(arch: Arch) -> u32 {
    match arch {
        Arch::X86_64 => 0x0303,
        Arch::Aarch64 => 0x0a03,
        Arch::Riscv64 => 0x1003,
    }
}

/// Adds the cache of the libraries in `archive`, if there are any.
///
/// # Errors
/// The errors of [`Archive::add`].
pub(super) fn add(archive: &mut Archive, arch: Arch) -> Result<()> {
    let multiarch = format!("{}-linux-gnu", arch.name());
    let mut libraries: Vec<(&str, &str)> = Vec::new();
    for (path, node) in archive.entries() {
        let Some((directory, name)) = path.rsplit_once('/') else { continue };
        let directory =
            directory.strip_suffix(&*multiarch).and_then(|parent| parent.strip_suffix('/')).unwrap_or(directory);
        let is_library = name.starts_with("lib") && name.contains(".so");
        if matches!(directory, "lib" | "usr/lib") && is_library && !matches!(node, NewcNode::Directory { .. }) {
            libraries.push((name, path));
        }
    }
    if libraries.is_empty() || archive.get(PATH).is_some() {
        return Ok(());
    }
    let cache = cache(libraries, flags(arch));
    archive.add(PATH, NewcNode::File { executable: false, content: FileContent::Bytes(cache) })?;
    Ok(())
}

/// Returns the cache of `libraries`: names and paths without the leading `/`.
fn cache(mut libraries: Vec<(&str, &str)>, flags: u32) -> Vec<u8> {
    libraries.sort_by(|(one, _), (other, _)| compare(other.as_bytes(), one.as_bytes()));
    let (mut entries, mut texts) = (Vec::new(), Vec::new());
    let at = HEADER + ENTRY * libraries.len();
    let mut place = |text: &str, prefix: &str| {
        let place = at + texts.len();
        texts.extend([prefix.as_bytes(), text.as_bytes(), &[0]].concat());
        // Archives are much smaller than 4 GiB.
        u32::try_from(place).unwrap_or(u32::MAX)
    };
    for (name, path) in &libraries {
        for number in [flags, place(name, ""), place(path, "/"), 0, 0, 0] {
            entries.extend(number.to_le_bytes());
        }
    }
    let mut cache = MAGIC.to_vec();
    for length in [libraries.len(), texts.len()] {
        cache.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    }
    cache.push(LITTLE_ENDIAN);
    cache.resize(HEADER, 0);
    [cache, entries, texts].concat()
}

/// Compares names as the dynamic linker does: numbers by value, and after all other characters
/// (`_dl_cache_libcmp`).
fn compare(mut one: &[u8], mut other: &[u8]) -> Ordering {
    loop {
        match (one.first().copied(), other.first().copied()) {
            (None, None) => return Ordering::Equal,
            (Some(first), Some(second)) if first.is_ascii_digit() && second.is_ascii_digit() => {
                let ordering = number(&mut one).cmp(&number(&mut other));
                if ordering.is_ne() {
                    return ordering;
                }
            }
            (Some(first), _) if first.is_ascii_digit() => return Ordering::Greater,
            (_, Some(second)) if second.is_ascii_digit() => return Ordering::Less,
            (first, second) if first != second => return first.cmp(&second),
            _ => (one, other) = (one.get(1..).unwrap_or_default(), other.get(1..).unwrap_or_default()),
        }
    }
}

/// Takes the number at the start of `text`.
fn number(text: &mut &[u8]) -> u64 {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    *text = rest;
    number.iter().fold(0, |number: u64, digit| number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    #[test]
    fn names_descend_as_the_dynamic_linker_searches_them() {
        // The order of `ldconfig -p` of glibc 2.36 for these names.
        let names = ["libz.so.1", "libm.so.10", "libm.so.6", "libc.so.6", "libbz2.so.1.0", "libb.so.1"];
        let mut sorted = names;
        sorted.reverse();
        sorted.sort_by(|one, other| compare(other.as_bytes(), one.as_bytes()));
        assert_eq!(sorted, names);
        assert_eq!(compare(b"lib1", b"liba"), Ordering::Greater);
        assert_eq!(compare(b"lib", b"lib1"), Ordering::Less);
        assert_eq!(compare(b"lib01", b"lib1"), Ordering::Equal);
    }

    /// The independent reader is glibc's own `ldconfig`.
    #[test]
    fn ldconfig_reads_the_cache() {
        let mut archive = Archive::default();
        let library = || NewcNode::File { executable: false, content: FileContent::Bytes(b"x".as_slice().into()) };
        for path in
            ["usr/lib/x86_64-linux-gnu/libc.so.6", "usr/lib/libone.so", "usr/lib/other/libtwo.so.1", "usr/lib/x"]
        {
            archive.add(path, library()).unwrap();
        }
        add(&mut archive, Arch::X86_64).unwrap();
        let Some(NewcNode::File { content: FileContent::Bytes(bytes), .. }) = archive.get(PATH) else { panic!() };
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("cache");
        fs::write(&file, bytes).unwrap();
        let ldconfig =
            Command::new("/sbin/ldconfig").arg("-p").arg("-C").arg(&file).env("LC_ALL", "C").output().unwrap();
        let listed = String::from_utf8(ldconfig.stdout).unwrap();
        let lines: Vec<&str> = listed.lines().skip(1).take(2).map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "libone.so (libc6,x86-64) => /usr/lib/libone.so",
                "libc.so.6 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libc.so.6"
            ],
            "{listed}"
        );
    }

    #[test]
    fn a_guest_without_libraries_has_no_cache() {
        let mut archive = Archive::default();
        add(&mut archive, Arch::Riscv64).unwrap();
        assert_eq!(archive.get(PATH), None);
    }
}
