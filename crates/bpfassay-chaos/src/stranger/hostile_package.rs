// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packages as a stranger makes them: `.deb` and `.rpm` with entries that packers refuse.

use std::path::Path;

/// The kind and content of a package's entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryNode {
    /// A regular file.
    File(Vec<u8>),
    /// A regular file that may be executed.
    Program(Vec<u8>),
    /// A directory.
    Directory,
    /// A symbolic link to this target.
    Link(String),
    /// A hard link to the file at this path.
    Same(String),
    /// A pipe.
    Pipe,
    /// The block device 8:0.
    Device,
}

/// An entry: its path and what it is.
pub type PackageEntry = (String, EntryNode);

/// A plant: its description, and a function from the path of the room to the node.
pub type Planted = (&'static str, fn(&Path) -> EntryNode);

/// A regular file.
#[must_use]
pub fn file(path: impl Into<String>, content: &[u8]) -> PackageEntry {
    (path.into(), EntryNode::File(content.to_vec()))
}

/// The start of an x86_64 kernel image with `release`. It has the fields that are read before a
/// boot (Documentation/arch/x86/boot.rst).
#[must_use]
pub fn image(release: &str) -> Vec<u8> {
    let mut image = vec![0; 0x400];
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
    image.truncate(0x300);
    image.extend(release.bytes().chain(*b" (a stranger)\0"));
    image.resize(0x1000, 0);
    image
}

/// The form of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageForm {
    /// Debian's `.deb`.
    Deb,
    /// Fedora's `.rpm`.
    Rpm,
}

impl PackageForm {
    /// Returns the package with `entries`.
    #[must_use]
    pub fn package(self, entries: &[PackageEntry]) -> Vec<u8> {
        match self {
            Self::Deb => deb("a-stranger", "amd64", tar(entries)),
            Self::Rpm => rpm(entries),
        }
    }

    /// The extension of such a package.
    #[must_use]
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Deb => "deb",
            Self::Rpm => "rpm",
        }
    }
}

/// A Debian package with the archive `data`, which may be compressed.
#[must_use]
pub fn deb(name: &str, architecture: &str, data: Vec<u8>) -> Vec<u8> {
    let control =
        format!("Package: {name}\nVersion: 1.0-1\nArchitecture: {architecture}\nMaintainer: x\nDescription: x\n");
    let is_xz = data.starts_with(b"\xfd7zXZ\0");
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, member) in [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar", tar(&[file("./control", control.as_bytes())])),
        (if is_xz { "data.tar.xz" } else { "data.tar" }, data),
    ] {
        bytes.extend(format!("{name:<16}0           0     0     100644  {:<10}`\n", member.len()).bytes());
        bytes.extend(&member);
        bytes.resize(bytes.len().next_multiple_of(2), b'\n');
    }
    bytes
}

/// A tar archive. Long names are stored as GNU tar does it.
#[must_use]
pub fn tar(entries: &[PackageEntry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (path, node) in entries {
        let (kind, mode, link, content): (u8, u32, &str, &[u8]) = match node {
            EntryNode::File(content) => (b'0', 0o644, "", content),
            EntryNode::Program(content) => (b'0', 0o755, "", content),
            EntryNode::Directory => (b'5', 0o755, "", b""),
            EntryNode::Link(target) => (b'2', 0o777, target, b""),
            EntryNode::Same(target) => (b'1', 0o644, target, b""),
            EntryNode::Pipe => (b'6', 0o644, "", b""),
            EntryNode::Device => (b'4', 0o644, "", b""),
        };
        for (kind, long) in [(b'L', path.as_str()), (b'K', link)] {
            if long.len() > 99 {
                block(&mut bytes, kind, "././@LongLink", 0o644, "", &[long.as_bytes(), b"\0"].concat());
            }
        }
        block(&mut bytes, kind, path, mode, link, content);
    }
    bytes.extend([0; 1024]);
    bytes
}

/// Adds a ustar header, which truncates long names, and the content.
fn block(bytes: &mut Vec<u8>, kind: u8, path: &str, mode: u32, link: &str, content: &[u8]) {
    let mut header = [0; 512];
    let mut put = |at: usize, text: &[u8]| {
        let length = text.len().min(99);
        header[at..at + length].copy_from_slice(&text[..length]);
    };
    put(0, path.as_bytes());
    put(100, format!("{mode:07o}").as_bytes());
    put(124, format!("{:011o}", content.len()).as_bytes());
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    header[156] = kind;
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    bytes.extend(header);
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
}

/// A cpio archive (newc). Hard links share an inode number, and the last of them has the content.
#[must_use]
pub fn cpio(entries: &[PackageEntry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, (path, node)) in entries.iter().enumerate() {
        let number = number + 1;
        match node {
            EntryNode::File(content) => newc(&mut bytes, path, (0o100_644, 1, number), content),
            EntryNode::Program(content) => newc(&mut bytes, path, (0o100_755, 1, number), content),
            EntryNode::Directory => newc(&mut bytes, path, (0o040_755, 2, number), b""),
            EntryNode::Link(target) => newc(&mut bytes, path, (0o120_777, 1, number), target.as_bytes()),
            EntryNode::Same(target) => {
                newc(&mut bytes, path, (0o100_644, 2, number), b"");
                newc(&mut bytes, target, (0o100_644, 2, number), b"of a stranger");
            }
            EntryNode::Pipe => newc(&mut bytes, path, (0o010_644, 1, number), b""),
            EntryNode::Device => newc(&mut bytes, path, (0o060_644, 1, number), b""),
        }
    }
    newc(&mut bytes, "TRAILER!!!", (0, 1, 0), b"");
    bytes
}

fn newc(bytes: &mut Vec<u8>, path: &str, (mode, links, number): (u32, u32, usize), content: &[u8]) {
    let fields = [number, mode as usize, 0, 0, links as usize, 0, content.len(), 0, 0, 0, 0, path.len() + 1, 0];
    bytes.extend(b"070701");
    bytes.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
    bytes.extend(path.bytes().chain([0]));
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// An RPM package: lead, an empty signature, a header with names, and the uncompressed archive.
fn rpm(entries: &[PackageEntry]) -> Vec<u8> {
    let mut lead = vec![0; 96];
    lead[..4].copy_from_slice(&[0xed, 0xab, 0xee, 0xdb]);
    let head = |index: &[[u32; 4]], data: &[u8]| {
        let words = [index.len(), data.len()].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        let words = words.into_iter().chain(index.iter().copied().flatten());
        let mut bytes = vec![0x8e, 0xad, 0xe8, 0x01, 0, 0, 0, 0];
        bytes.extend(words.flat_map(u32::to_be_bytes));
        bytes.extend(data);
        bytes
    };
    let (mut index, mut data) = (Vec::new(), Vec::new());
    // NAME, VERSION, RELEASE and ARCH, as strings.
    for (tag, text) in [(1000, "a-stranger"), (1001, "1.0"), (1002, "1"), (1022, "x86_64")] {
        index.push([tag, 6, u32::try_from(data.len()).unwrap_or(u32::MAX), 1]);
        data.extend(text.bytes().chain([0]));
    }
    [lead, head(&[], b""), head(&index, &data), cpio(entries)].concat()
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    fn entries() -> Vec<PackageEntry> {
        vec![
            ("./usr".to_owned(), EntryNode::Directory),
            file("./usr/file", b"content"),
            ("./usr/program".to_owned(), EntryNode::Program(b"#!".to_vec())),
            ("./usr/link".to_owned(), EntryNode::Link(format!("/{}", "x".repeat(150)))),
            file(format!("./usr/{}", "y".repeat(150)), b"long"),
        ]
    }

    /// An unpacker other than bpfassay's accepts the archives.
    #[test]
    fn archives_are_read_by_tar() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive");
        fs::write(&path, tar(&entries())).unwrap();
        let output = Command::new("tar").arg("-tvf").arg(&path).output().unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(listed.lines().count(), entries().len(), "{listed}");
        assert!(listed.contains(&format!("link -> /{}", "x".repeat(150))), "{listed}");
    }

    #[test]
    fn packages_of_both_forms_are_packages() {
        let directory = tempfile::tempdir().unwrap();
        for form in [PackageForm::Deb, PackageForm::Rpm] {
            let path = directory.path().join(form.ending());
            fs::write(&path, form.package(&entries())).unwrap();
            assert!(bpfassay_packages::unpack::is_package(&path));
            let about = bpfassay_packages::unpack::about(&path).unwrap();
            assert_eq!(about.name, "a-stranger");
        }
    }
}
