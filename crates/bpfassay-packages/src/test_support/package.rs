// SPDX-License-Identifier: MIT OR Apache-2.0
//! Minimal Debian packages.

use std::io::Write as _;

/// Builds an entry of a tar archive in ustar format.
pub fn tar_entry(kind: u8, path: &str, mode: u32, link: &str, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..path.len()].copy_from_slice(path.as_bytes());
    block[100..107].copy_from_slice(format!("{mode:07o}").as_bytes());
    block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link.as_bytes());
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.extend(content);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

/// Builds a regular file of a tar archive.
pub fn file(path: &str, content: &str) -> Vec<u8> {
    tar_entry(b'0', path, 0o644, "", content.as_bytes())
}

/// Builds a directory of a tar archive.
pub fn directory(path: &str) -> Vec<u8> {
    tar_entry(b'5', path, 0o755, "", b"")
}

/// Compresses `bytes` by gzip.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// Builds a Debian package `linux-image-x` with these tar entries.
pub fn deb(data: &[Vec<u8>]) -> Vec<u8> {
    let control = "Package: linux-image-x\nVersion: 6.1-1\nArchitecture: amd64\nDescription: x\n Version: 9\n";
    let control = gzip(&[file("./control", control), vec![0; 1024]].concat());
    let data = gzip(&[data.concat(), vec![0; 1024]].concat());
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, member) in [("debian-binary", b"2.0\n".to_vec()), ("control.tar.gz", control), ("data.tar.gz", data)] {
        bytes.extend(format!("{name:<16}0           0     0     100644  {:<10}`\n", member.len()).bytes());
        bytes.extend(&member);
        bytes.resize(bytes.len().next_multiple_of(2), b'\n');
    }
    bytes
}
