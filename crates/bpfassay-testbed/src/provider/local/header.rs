// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads architecture and release of a kernel image from its header.

use bpfassay_packages::safe_names::KernelRelease;
use bpfassay_protocol::{Arch, arch::ImageFormat};

/// The kind of an image that QEMU can boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageKind {
    /// Architecture of the kernel.
    pub arch: Arch,
    /// Release of the kernel, if the file contains it uncompressed.
    pub release: Option<KernelRelease>,
}

/// Longest release that a kernel can have (`__NEW_UTS_LEN`).
const MAX_RELEASE: usize = 64;

/// Identifies the kernel image.
///
/// # Errors
/// A description of what the bytes are instead, and of the file to give.
pub fn identify(image: &[u8]) -> Result<ImageKind, String> {
    // An EFI application that unpacks the kernel when it runs:
    // drivers/firmware/efi/libstub/zboot-header.S.
    if has(image, 4, b"zimg") {
        return Err("is a compressed EFI image (zboot), which QEMU 7.2 cannot boot: give arch/*/boot/Image".to_owned());
    }
    for &arch in Arch::ALL {
        match arch.facts().image {
            ImageFormat::BzImage if has(image, 0x202, b"HdrS") => {
                if is_32_bit(image) {
                    let problem = "is a 32-bit kernel, and guests are 64-bit: set CONFIG_64BIT (make menuconfig)";
                    return Err(problem.to_owned());
                }
                let offset = usize::from(word(image, 0x20e));
                let release = (offset != 0).then(|| image.get(offset + 0x200..)).flatten().and_then(first_token);
                return Ok(ImageKind { arch, release });
            }
            ImageFormat::Image { magic } if has(image, 0x38, &magic) => {
                return Ok(ImageKind { arch, release: banner(image) });
            }
            ImageFormat::BzImage | ImageFormat::Image { .. } => {}
        }
    }
    Err(if has(image, 0, b"\x7fELF") {
        "is an ELF file (vmlinux): give arch/x86/boot/bzImage, or arch/*/boot/Image on other architectures"
    } else if has(image, 0, b"\x1f\x8b") {
        "is compressed with gzip, which does not boot on every architecture: unpack it (gunzip) and give arch/*/boot/Image"
    } else {
        "is no kernel image: give arch/x86/boot/bzImage, or arch/*/boot/Image on other architectures"
    }
    .to_owned())
}

/// Returns whether a bzImage is a kernel of 32 bits. `XLF_KERNEL_64` in `xloadflags` tells, from
/// version 2.12 of the boot protocol on (Documentation/arch/x86/boot.rst).
fn is_32_bit(image: &[u8]) -> bool {
    word(image, 0x206) >= 0x020c && word(image, 0x236) & 1 == 0
}

/// Returns the 16-bit field at `at` of a header; 0 if the image ends before the field.
fn word(image: &[u8], at: usize) -> u16 {
    image.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
}

fn has(image: &[u8], at: usize, magic: &[u8]) -> bool {
    image.get(at..).is_some_and(|rest| rest.starts_with(magic))
}

/// Finds the release in the banner `Linux version RELEASE (…`. The text before it also occurs
/// elsewhere in a kernel, without a release.
fn banner(image: &[u8]) -> Option<KernelRelease> {
    const BEFORE: &[u8] = b"Linux version ";
    let mut rest = image;
    while let Some(at) = rest.windows(BEFORE.len()).position(|window| window == BEFORE) {
        rest = &rest[at + BEFORE.len()..];
        if let Some(release) = first_token(rest).filter(|release| release.starts_with(|c: char| c.is_ascii_digit())) {
            return Some(release);
        }
    }
    None
}

/// Parses the characters before a space or zero byte as a release.
fn first_token(bytes: &[u8]) -> Option<KernelRelease> {
    let end = bytes.iter().take(MAX_RELEASE + 1).position(|&byte| matches!(byte, b' ' | 0))?;
    std::str::from_utf8(&bytes[..end]).ok()?.parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The header of an arm64 image, and a banner after other text.
    pub(crate) fn arm64_image(release: &str) -> Vec<u8> {
        let mut image = vec![0; 0x38];
        image.extend(b"ARM\x64");
        image.extend([0; 100]);
        image.extend(format!("Linux version %s (%s)\0\x01Linux version {release} (me@host) (gcc)\n\0").as_bytes());
        image
    }

    fn x86_image(release: &str) -> Vec<u8> {
        let mut image = vec![0; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x180u16.to_le_bytes());
        image.truncate(0x380);
        image.extend(format!("{release} (me@host) #1 SMP\0").as_bytes());
        image
    }

    #[test]
    fn a_kernel_of_32_bits_is_refused() {
        let mut image = x86_image("6.1.192");
        image[0x206..0x208].copy_from_slice(&0x020fu16.to_le_bytes());
        assert!(identify(&image).unwrap_err().contains("CONFIG_64BIT"));
        image[0x236] = 1;
        assert_eq!(identify(&image).unwrap().arch, Arch::X86_64);
    }

    #[test]
    fn architecture_and_release_are_read_from_images() {
        let found = identify(&arm64_image("6.12.1-mine+")).unwrap();
        assert_eq!(found, ImageKind { arch: Arch::Aarch64, release: "6.12.1-mine+".parse().ok() });
        let found = identify(&x86_image("6.1.0-50-amd64")).unwrap();
        assert_eq!(found, ImageKind { arch: Arch::X86_64, release: "6.1.0-50-amd64".parse().ok() });
        let mut riscv = arm64_image("7.2");
        riscv[0x38..0x3c].copy_from_slice(b"RSC\x05");
        assert_eq!(identify(&riscv).unwrap().arch, Arch::Riscv64);
    }

    #[test]
    fn other_files_are_named_with_a_remedy() {
        assert!(identify(b"\x7fELF\x02").unwrap_err().contains("bzImage"));
        assert!(identify(b"\x1f\x8b\x08").unwrap_err().contains("gunzip"));
        assert!(identify(b"MZ\0\0zimg").unwrap_err().contains("zboot"));
        assert!(identify(b"").unwrap_err().contains("is no kernel image"));
    }

    #[test]
    fn an_image_without_banner_has_no_release() {
        let mut image = arm64_image("x");
        image.truncate(0x80);
        assert_eq!(identify(&image).unwrap().release, None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_image_or_refused(mut bytes: Vec<u8>, x86: bool, more in prop::collection::vec(any::<u8>(), 0x200..0x240)) {
            let _ = identify(&bytes);
            if x86 {
                let mut image = more;
                image.truncate(0x200);
                // A version of the boot protocol that does not tell 32-bit kernels apart.
                image.extend(b"\0\0HdrS\0\0");
                image.append(&mut bytes);
                prop_assert_eq!(identify(&image).unwrap().arch, Arch::X86_64);
            }
        }
    }
}
