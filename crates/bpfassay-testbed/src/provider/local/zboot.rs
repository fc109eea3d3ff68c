// SPDX-License-Identifier: MIT OR Apache-2.0
//! EFI zboot images of arm64 and riscv64 (`CONFIG_EFI_ZBOOT`): programs for firmware that unpack the kernel in them. QEMU boots a kernel without firmware, so
//! that it is unpacked here.
//!
//! The header is that of drivers/firmware/efi/libstub/zboot-header.S (Linux 6.1 and later). What is in it is not trusted.

use bpfassay_protocol::with_causes;

use crate::modules::decompress::decompress;

/// Where in the header the mark, the place and the size of the payload in bytes, and the name of its compression stand.
const MARK: std::ops::Range<usize> = 4..8;
const OFFSET: usize = 8;
const SIZE: usize = 12;
const COMPRESSION: std::ops::Range<usize> = 24..56;

/// The kernel in `image`, of at most `limit` bytes; `None` where it is no zboot image.
///
/// # Errors
/// What is wrong with it, as the end of a sentence about the file.
pub fn unpack(image: &[u8], limit: u64) -> Result<Option<Vec<u8>>, String> {
    if !image.starts_with(b"MZ") || image.get(MARK) != Some(b"zimg") {
        return Ok(None);
    }
    let number = |at: usize| {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let payload = number(OFFSET).zip(number(SIZE)).and_then(|(at, size)| image.get(at..at.checked_add(size)?));
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
        // What unpacks it follows.
        image.extend(b"program");
        image
    }

    /// A zboot image with `kernel` in it, compressed by gzip.
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

    proptest! {
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
