// SPDX-License-Identifier: MIT OR Apache-2.0
//! The uncompressed x86_64 kernel inside a bzImage.
//!
//! QEMU enters an ELF `vmlinux` through its PVH entry (Xen's note `XEN_ELFNOTE_PHYS32_ENTRY`,
//! kernel option `CONFIG_PVH`). This skips the decompressor, which under TCG takes longer than the
//! rest of the boot: Debian 6.1 finishes booting after 1.5 s instead of 3.8 s. The kernel's text is
//! then not relocated.
//!
//! Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header", describes the layout of a
//! bzImage: `setup_sects` at 0x1f1, `header` ("HdrS") at 0x202, `payload_offset` at 0x248 and
//! `payload_length` at 0x24c. The payload's offset is relative to the protected-mode code at
//! `(setup_sects + 1) * 512`.

use std::fmt;

use bpfassay_packages::{cache::Cache, digest::Digest};
use bpfassay_protocol::arch::ImageFormat;
use object::{
    Endianness,
    read::elf::{ElfFile64, FileHeader},
};

use crate::{
    error::{Error, Result},
    kernel::BootableKernel,
    kernel_modules::decompress::{DecompressError, decompress},
    manifest::File,
};

/// Largest kernel image that is read, in bytes.
const MAX_IMAGE: u64 = 1 << 30;

/// Largest decompressed kernel, in bytes. Debian's kernels have about 70 MB.
const MAX_KERNEL: u64 = 1 << 30;

/// `XEN_ELFNOTE_PHYS32_ENTRY` of include/xen/interface/elfnote.h.
const PHYS32_ENTRY: u32 = 18;

/// Kind of cache record that maps the digest of a bzImage to that of its vmlinux, or to nothing if
/// that has no PVH entry.
const RECORD: &str = "pvh";

/// Returns the image to boot `kernel` with: the `vmlinux` inside if it has a PVH entry, else the
/// kernel's image.
///
/// # Errors
/// [`Error::DamagedKernel`] for a kernel that nothing can boot, `PackagesError::Io` if the image
/// cannot be read, `PackagesError::DiskFull`, and the errors of the cache. An image of unknown
/// structure is no error, because QEMU may still boot it.
pub fn boot_image(cache: &Cache, kernel: &BootableKernel) -> Result<File> {
    if kernel.arch.facts().image != ImageFormat::BzImage {
        return Ok(kernel.image.clone());
    }
    // Records of version 1 can also be of damaged kernels.
    let key = Digest::of_parts(["2", &kernel.image.sha256.to_string()]);
    if let Some(known) = cache.recorded::<Option<Digest>>(RECORD, &key)? {
        match known {
            None => return Ok(kernel.image.clone()),
            Some(digest) => {
                if let Some(object) = cache.object(&digest)? {
                    return Ok(File::from(&object));
                }
            }
        }
    }
    let image = bpfassay_input::read(&kernel.image.path, MAX_IMAGE).map_err(Error::io("read", &kernel.image.path))?;
    let vmlinux = match extract(&image) {
        Ok(vmlinux) => vmlinux,
        // Reported here, once: a guest with this kernel would write nothing until its deadline.
        Err(Unusable::Damaged(problem)) => {
            let (name, arch, path) = (kernel.name.clone(), kernel.arch, kernel.image.path.clone());
            return Err(Error::DamagedKernel { name, arch, path, problem });
        }
        Err(problem) => {
            tracing::info!("kernel {} boots from its bzImage: {problem}", kernel.release);
            cache.record(RECORD, &key, &None::<Digest>)?;
            return Ok(kernel.image.clone());
        }
    };
    let object = cache.add_bytes(&format!("the uncompressed kernel {}", kernel.release), &vmlinux)?;
    cache.record(RECORD, &key, &Some(object.digest))?;
    Ok(File::from(&object))
}

/// Why no `vmlinux` can be extracted from an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// The image has an unknown structure. QEMU may still boot it.
    NotUnderstood(String),
    /// The kernel is damaged. No machine can boot it, and its console would stay empty.
    Damaged(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUnderstood(problem) | Self::Damaged(problem) => f.write_str(problem),
        }
    }
}

/// Extracts the `vmlinux` from `image`.
///
/// # Errors
/// [`Unusable`] if `image` is not a bzImage, has an unsupported compression, or contains no kernel
/// that QEMU can start through PVH.
pub(crate) fn extract(image: &[u8]) -> Result<Vec<u8>, Unusable> {
    let no = |problem: &str| Unusable::NotUnderstood(problem.to_owned());
    let number = |at: usize| -> Option<usize> {
        let bytes = image.get(at..at.checked_add(4)?)?;
        usize::try_from(u32::from_le_bytes(bytes.try_into().ok()?)).ok()
    };
    if image.get(0x202..0x206) != Some(b"HdrS") {
        return Err(no("it is no bzImage"));
    }
    let sectors = match image.get(0x1f1) {
        // Zero stands for four "for backwards compatibility", according to the documentation.
        Some(0) | None => 4,
        Some(&sectors) => usize::from(sectors),
    };
    // Before version 2.08 of the boot protocol, the header names no payload.
    let named = number(0x248).zip(number(0x24c)).filter(|(offset, length)| (*offset, *length) != (0, 0));
    let (offset, length) = named.ok_or_else(|| no("its header names no payload"))?;
    let start = ((sectors + 1) * 512).checked_add(offset);
    let payload = start.and_then(|start| image.get(start..start.checked_add(length)?)).ok_or_else(|| {
        let size = image.len();
        Unusable::Damaged(format!("it is cut off: it has {size} bytes, and its payload of {length} ends behind them"))
    })?;
    let vmlinux = decompress(payload.to_vec(), MAX_KERNEL).map_err(|error| match error {
        // Everything that kernels use of zstd and gzip is supported. Some filters of xz are not.
        DecompressError::Damaged { format: "zstd" | "gzip", .. } => Unusable::Damaged(format!("its payload: {error}")),
        error => Unusable::NotUnderstood(format!("its payload: {error}")),
    })?;
    if has_pvh_entry(&vmlinux) { Ok(vmlinux) } else { Err(no("the kernel in it has no PVH entry")) }
}

fn has_pvh_entry(vmlinux: &[u8]) -> bool {
    let find = || -> object::read::Result<bool> {
        let file = ElfFile64::<Endianness>::parse(vmlinux)?;
        let (endian, header) = (file.endian(), file.elf_header());
        for segment in header.program_headers(endian, vmlinux)? {
            let Some(mut notes) = object::read::elf::ProgramHeader::notes(segment, endian, vmlinux)? else { continue };
            while let Some(note) = notes.next()? {
                if note.name() == b"Xen" && note.n_type(endian) == PHYS32_ENTRY {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    };
    find().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_files_are_no_kernels() {
        assert_eq!(extract(b"MZ").unwrap_err().to_string(), "it is no bzImage");
        let mut image = vec![0; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x24c..0x250].copy_from_slice(&u32::MAX.to_le_bytes());
        // A copy that was cut off.
        let cut = "it is cut off: it has 1024 bytes, and its payload of 4294967295 ends behind them";
        assert_eq!(extract(&image).unwrap_err(), Unusable::Damaged(cut.to_owned()));
        image[0x24c..0x250].fill(0);
        let none = Unusable::NotUnderstood("its header names no payload".to_owned());
        assert_eq!(extract(&image).unwrap_err(), none);
    }

    #[test]
    fn a_payload_that_is_no_kernel_is_refused() {
        let mut image = vec![0; 0x1000];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x24c] = 16;
        let none = Unusable::NotUnderstood("the kernel in it has no PVH entry".to_owned());
        assert_eq!(extract(&image).unwrap_err(), none);
    }

    /// A damaged zstd or gzip stream means that nothing can boot the kernel. A damaged xz stream
    /// can also mean that this program lacks a filter.
    #[test]
    fn a_damaged_payload_is_distinguished_from_one_that_is_not_understood() {
        let with = |payload: &[u8]| {
            let mut image = vec![0; 0xa00];
            image[0x202..0x206].copy_from_slice(b"HdrS");
            image[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
            image.extend_from_slice(payload);
            extract(&image).unwrap_err()
        };
        for damaged in [&b"\x28\xb5\x2f\xfd\xff\xff\xff\xff"[..], b"\x1f\x8b\x08\xff\xff"] {
            assert!(matches!(with(damaged), Unusable::Damaged(problem) if problem.contains("damaged")), "{damaged:?}");
        }
        assert!(matches!(with(b"\xfd7zXZ\0\xff\xff\xff\xff"), Unusable::NotUnderstood(_)));
    }

    proptest! {
        #[test]
        fn no_image_brings_it_down(mut image: Vec<u8>, offset: u32, length: u32) {
            if image.len() > 0x250 {
                image[0x202..0x206].copy_from_slice(b"HdrS");
                image[0x248..0x24c].copy_from_slice(&offset.to_le_bytes());
                image[0x24c..0x250].copy_from_slice(&length.to_le_bytes());
            }
            let _ = extract(&image);
        }

        #[test]
        fn no_elf_brings_it_down(rest: Vec<u8>) {
            let _ = has_pvh_entry(&[b"\x7fELF\x02\x01\x01", &rest[..]].concat());
        }
    }
}
