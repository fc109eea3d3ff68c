// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Functions that change names in directories, observed at entry: `vfs_create`, `vfs_mkdir`,
//! `vfs_unlink`, `vfs_rmdir`, `vfs_rename`.
//!
//! Kernels differ in how they pass the superblock to these functions. The loader reads it from the
//! kernel's BTF ([`bpfassay_tracer_common::Prototype`]). No function receives the mount. The system
//! calls get write access to it just before, in the same task, so `mnt_want_write` is hooked, too,
//! and the mount is kept. It is used if it has the same superblock. Otherwise the mount is 0, and
//! the device is right. For details see `names.h` of the C programs.

use aya_ebpf::{Global, macros::map, maps::LruHashMap};
use bpfassay_tracer_common::{Operation, Prototype};

use super::{
    count::{Subject, thread},
    kernel::{Address, Place, offset, read},
};

/// Prototypes of the functions, one per operation, set by the loader.
#[unsafe(no_mangle)]
static PROTOTYPES: Global<[Prototype; Operation::ALL.len()]> =
    Global::new([Prototype { source: 0, argument: 0 }; Operation::ALL.len()]);

/// Returns the prototype that the loader found for `operation`.
#[inline(always)]
pub(super) fn prototype(operation: Operation) -> Prototype {
    let table = (&raw const PROTOTYPES).cast::<Prototype>();
    // SAFETY: inside the global; volatile, because the values in this file are not the values at
    // run time.
    unsafe {
        let one = table.add(operation as usize).cast::<u8>();
        Prototype { source: one.read_volatile(), argument: one.add(1).read_volatile() }
    }
}

/// A mount to which a thread has got write access.
#[repr(C)]
#[derive(Clone, Copy)]
struct Wanted {
    mount: Address,
    superblock: Address,
}

/// Mounts by thread. Opening a file for writing leaves an entry, which LRU eviction removes later.
#[map]
static WANTED_MOUNTS: LruHashMap<u32, Wanted> = LruHashMap::with_max_entries(4096, 0);

/// Records that the calling thread gets write access to this `struct vfsmount *`.
#[inline(always)]
pub(super) fn wants(mount: Address) {
    let wanted = Wanted { mount, superblock: read(mount, offset!(mount_superblock)) };
    let _ = WANTED_MOUNTS.insert(thread(), wanted, 0);
}

/// Creates the subject of a call. `argument` is the one that the prototype selects.
#[inline(always)]
pub(super) fn subject(prototype: Prototype, argument: Address) -> Option<Subject> {
    let superblock: Address = match prototype.source {
        Prototype::INODE => read(argument, offset!(inode_superblock)),
        Prototype::DENTRY => read(argument, offset!(dentry_superblock)),
        Prototype::RENAME => {
            read(read::<Address>(argument, offset!(renamedata_old_dentry)), offset!(dentry_superblock))
        }
        _ => return None,
    };
    let mount = match WANTED_MOUNTS.get_ptr(thread()) {
        // SAFETY: a value of a map; no other thread writes this thread's value.
        Some(wanted) if unsafe { (*wanted).superblock } == superblock => unsafe { (*wanted).mount },
        _ => 0,
    };
    Subject::new(Place { mount, device: read(superblock, offset!(superblock_device)) })
}
