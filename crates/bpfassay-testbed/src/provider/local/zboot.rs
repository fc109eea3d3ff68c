// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unpacks kernels from EFI programs. QEMU boots a kernel without firmware, which would run such a
//! program. Their headers are untrusted.
//!
//! - zboot images of arm64 and riscv64 (`CONFIG_EFI_ZBOOT`) unpack the kernel themselves. Their
//!   header is drivers/firmware/efi/libstub/zboot-header.S (Linux 6.1 and later).
//! - Images of systemd-stub and stubble (unified kernel images) are used by new Ubuntu and Fedora
//!   for arm64. The section `.linux` contains the kernel, which can be a zboot image. The headers
//!   are those of Microsoft's "PE Format": `e_lfanew` at 0x3c, then "PE\0\0", the COFF header with
//!   the number of sections and the size of the optional header, and 40 bytes for each section.

use bpfassay_protocol::with_causes;

use crate::kernel_modules::decompress::decompress;

/// Positions in the zboot header: the mark, offset and size of the payload in bytes, and the name
/// of the compression.
const MARK: std::ops::Range<usize> = 4..8;
const OFFSET: usize = 8;
const SIZE: usize = 12;
const COMPRESSION: std::ops::Range<usize> = 24..56;

/// Returns the kernel in `image`, of at most `limit` bytes. Returns `None` if `image` is not an EFI
/// program that contains a kernel.
///
/// # Errors
/// The problem, as the end of a sentence about the file.
pub fn unpack(image: &[u8], limit: u64) -> Result<Option<Vec<u8>>, String> {
    let section = linux_section(image)?;
    let image = section.unwrap_or(image);
    if !image.starts_with(b"MZ") || image.get(MARK) != Some(b"zimg") {
        return Ok(section.map(<[u8]>::to_vec));
    }
    let (at, size) = (number(image, OFFSET), number(image, SIZE));
    let payload = at.zip(size).and_then(|(at, size)| image.get(at..at.checked_add(size)?));
    let (Some(payload), Some(name)) = (payload, image.get(COMPRESSION)) else {
        return Err("is an EFI zboot image that is cut short; copy or build it again".to_owned());
    };
    let name = String::from_utf8_lossy(name.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned();
    if !["gzip", "xz", "xzkern", "zstd", "zstd22"].contains(&name.as_str()) {
        let name = name.escape_debug();
        return Err(format!(
            "is an EFI zboot image compressed by `{name}`, which is not read here: give the Image that it was made of, or choose gzip, xz or zstd"
        ));
    }
    let unpacked = decompress(payload.to_vec(), limit);
    let kernel = unpacked.map_err(|error| {
        format!("is an EFI zboot image that cannot be unpacked: {}; build or copy it again", with_causes(&error))
    })?;
    if kernel == payload {
        return Err(format!("is an EFI zboot image whose payload is not compressed by {name}; build or copy it again"));
    }
    Ok(Some(kernel))
}

/// Reads the little-endian number of 32 bits at `at`.
fn number(image: &[u8], at: usize) -> Option<usize> {
    let bytes = image.get(at..at.checked_add(4)?)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(bytes)).ok()
}

/// Returns the content of the section `.linux` of an EFI program. Returns `None` if there is no
/// such section.
///
/// # Errors
/// The section is cut short. The text is the end of a sentence about the file.
fn linux_section(image: &[u8]) -> Result<Option<&[u8]>, String> {
    let header = || {
        let start = number(image, 0x3c).filter(|_| image.starts_with(b"MZ"))?;
        let coff = image.get(start..)?.strip_prefix(b"PE\0\0")?;
        let half = |at: usize| Some(usize::from(u16::from_le_bytes(coff.get(at..at + 2)?.try_into().ok()?)));
        let (sections, optional) = (half(2)?, half(16)?);
        let headers = coff.get(20 + optional..)?;
        headers.chunks_exact(40).take(sections).find(|section| section.starts_with(b".linux\0\0"))
    };
    let Some(section) = header() else { return Ok(None) };
    // The section in the file is padded, so the smaller size is the real one.
    let size = number(section, 8).into_iter().chain(number(section, 16)).filter(|&size| size > 0).min();
    let content = number(section, 20).zip(size).and_then(|(at, size)| image.get(at..at.checked_add(size)?));
    let cut = "is an EFI image whose section .linux, which has the kernel, is cut short; copy or build it again";
    content.map(Some).ok_or_else(|| cut.to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    const LIMIT: u64 = 1 << 20;

    /// A zboot image with `payload`.
    fn image(payload: &[u8], compression: &str) -> Vec<u8> {
        let mut image = b"MZ\0\0zimg".to_vec();
        image.extend(64_u32.to_le_bytes());
        image.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
        image.resize(24, 0);
        image.extend(compression.as_bytes());
        image.resize(64, 0);
        image.extend(payload);
        // The program that unpacks the payload follows.
        image.extend(b"program");
        image
    }

    /// A zboot image that contains `kernel`, compressed by gzip.
    pub(in crate::provider::local) fn zboot(kernel: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(kernel).unwrap();
        image(&packed.finish().unwrap(), "gzip")
    }

    #[test]
    fn the_kernel_is_unpacked_and_what_is_wrong_is_named() {
        let kernel = b"a kernel".repeat(100);
        assert_eq!(unpack(&zboot(&kernel), LIMIT), Ok(Some(kernel.clone())));
        assert_eq!(unpack(&kernel, LIMIT), Ok(None));
        assert_eq!(unpack(b"MZ", LIMIT), Ok(None));
        let whole = zboot(&kernel);
        for (wrong, problem) in [
            (whole[..whole.len() - 10].to_vec(), "is cut short"),
            (whole[..40].to_vec(), "is cut short"),
            (image(b"\x1f\x8b damaged", "gzip"), "cannot be unpacked: the gzip stream is damaged or cut short"),
            (image(&kernel, "lz4"), "compressed by `lz4`, which is not read here"),
            (image(&kernel, "zstd"), "is not compressed by zstd"),
        ] {
            let error = unpack(&wrong, LIMIT).unwrap_err();
            assert!(error.starts_with("is an EFI zboot image") && error.contains(problem), "{error}");
        }
        let error = unpack(&whole, 100).unwrap_err();
        assert!(error.contains("it is larger than 100 bytes when decompressed"), "{error}");
    }

    /// An EFI program whose sections are `.text` and `.linux`, padded to 512 bytes.
    pub(in crate::provider::local) fn unified(kernel: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 0x400];
        image[..2].copy_from_slice(b"MZ");
        image[0x3c] = 0x80;
        image[0x80..0x84].copy_from_slice(b"PE\0\0");
        image[0x86] = 2;
        image[0x94] = 0x10;
        let padded = kernel.len().next_multiple_of(512);
        let numbers = [kernel.len(), 0x1000, padded, 0x400];
        for (index, (name, numbers)) in [(&b".text"[..], [16, 0, 512, 0x200]), (b".linux", numbers)].iter().enumerate()
        {
            let at = 0x80 + 24 + 0x10 + 40 * index;
            image[at..at + name.len()].copy_from_slice(name);
            for (place, number) in numbers.iter().enumerate() {
                let place = at + 8 + 4 * place;
                image[place..place + 4].copy_from_slice(&u32::try_from(*number).unwrap().to_le_bytes());
            }
        }
        image.extend(kernel);
        image.resize(0x400 + padded, 0);
        image
    }

    #[test]
    fn the_kernel_of_a_section_is_found_as_it_is_or_unpacked() {
        let kernel = b"MZ and the rest of a kernel".repeat(50);
        assert_eq!(unpack(&unified(&kernel), LIMIT), Ok(Some(kernel.clone())));
        assert_eq!(unpack(&unified(&zboot(&kernel)), LIMIT), Ok(Some(kernel.clone())));
        let whole = unified(&kernel);
        let error = unpack(&whole[..whole.len() - 600], LIMIT).unwrap_err();
        assert!(error.contains("section .linux, which has the kernel, is cut short"), "{error}");
        // A kernel is an EFI program as well, but without that section.
        let mut other = whole.clone();
        let at = 0x80 + 24 + 0x10 + 40;
        other[at..at + 6].copy_from_slice(b".data\0");
        assert_eq!(unpack(&other, LIMIT), Ok(None));
    }

    proptest! {
        #[test]
        fn damage_of_sections_ends_in_a_kernel_or_an_error(at in 0usize..0x400, value: u8, length in 0usize..0x800) {
            let mut image = unified(&b"a kernel".repeat(100));
            image[at] = value;
            image.truncate(length);
            let _ = unpack(&image, LIMIT);
        }

        #[test]
        fn damage_ends_in_a_kernel_or_an_error(at in 0usize..200, value: u8, length in 0usize..400) {
            let mut image = zboot(&b"a kernel".repeat(100));
            let place = at % image.len();
            image[place] = value;
            image.truncate(length);
            let _ = unpack(&image, LIMIT);
        }
    }
}
