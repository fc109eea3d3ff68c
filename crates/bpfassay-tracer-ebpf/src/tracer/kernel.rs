// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Reads the kernel's structures, at the offsets that the loader found in the running kernel's BTF.
//!
//! Rust has no CO-RE relocations. The offsets are read-only globals instead. Their map is frozen
//! before the programs are loaded, so the verifier knows their values, and checks loads as in C.

use aya_ebpf::{Global, helpers::bpf_probe_read_kernel};
use bpfassay_tracer_common::Offsets;

/// The offsets, set by the loader.
#[unsafe(no_mangle)]
static OFFSETS: Global<Offsets> = Global::new(Offsets::UNKNOWN);

/// Returns one offset, in bytes.
macro_rules! offset {
    ($field:ident) => {
        $crate::tracer::kernel::known(core::mem::offset_of!(bpfassay_tracer_common::Offsets, $field))
    };
}
pub(crate) use offset;

/// Returns the offset at `at` in [`OFFSETS`].
#[inline(always)]
pub(crate) fn known(at: usize) -> usize {
    // SAFETY: inside the global; volatile, because the value in this file is not the value at run
    // time.
    unsafe { (&raw const OFFSETS).byte_add(at).cast::<u32>().read_volatile() as usize }
}

/// Address of an object in the kernel; 0 for none.
pub(crate) type Address = u64;

/// Loads a field directly. The verifier allows this because it knows the type to which `base`
/// points.
///
/// # Safety
/// `base` must come from a BTF-typed argument, and `offset` must be that of a `T` in its type.
#[inline(always)]
unsafe fn load<T: Copy>(base: *const u8, offset: usize) -> T {
    // SAFETY: the caller ensures this. A bad address reads as zero, by the kernel's exception
    // table.
    unsafe { *base.add(offset).cast::<T>() }
}

/// Reads a field by the helper; zero for an address that is not mapped.
#[inline(always)]
pub(crate) fn read<T: Copy + Default>(base: Address, offset: usize) -> T {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel((base as *const u8).wrapping_add(offset).cast::<T>()) }.unwrap_or_default()
}

/// The location of a file.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// `struct vfsmount *`; 0 if the hook does not know it.
    pub(crate) mount: Address,
    /// `s_dev` of the superblock; 0 if the hook does not know it.
    pub(crate) device: u32,
}

impl Place {
    /// An unknown location.
    pub(crate) const NOWHERE: Self = Self { mount: 0, device: 0 };

    /// Returns the location of a `struct file *` that is a typed argument.
    #[inline(always)]
    pub(crate) fn of_typed_file(file: *const u8) -> Self {
        // SAFETY: a chain of pointers whose types the verifier knows.
        unsafe {
            let mount: *const u8 = load(file, offset!(file_mount));
            let superblock: *const u8 = load(mount, offset!(mount_superblock));
            Self { mount: mount as Address, device: load(superblock, offset!(superblock_device)) }
        }
    }

    /// Returns the location of any `struct file *`.
    #[inline(always)]
    pub(crate) fn of_file(file: Address) -> Self {
        let mount: Address = read(file, offset!(file_mount));
        let superblock: Address = read(mount, offset!(mount_superblock));
        Self { mount, device: read(superblock, offset!(superblock_device)) }
    }
}

/// Returns the `struct mount *` in which a `struct vfsmount *` is embedded.
#[inline(always)]
pub(crate) fn mount_of(vfsmount: Address) -> Address {
    vfsmount.wrapping_sub(offset!(mount_embedded) as u64)
}
