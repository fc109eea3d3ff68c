// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Functions that change names in directories, observed at their entry: `vfs_create`, `vfs_mkdir`,
//! `vfs_unlink`, `vfs_rmdir`, `vfs_rename`.
//!
//! How they receive the superblock differs between kernels; the loader reads it from the kernel's
//! BTF ([`bpfassay_tracer_common::Prototype`]). None of them receives the mount: the system calls
//! take write access of it just before, in the same task, so `mnt_want_write` is hooked, too, and
//! the mount is kept. It is used if it has the same superblock; otherwise the mount is 0, with the
//! right device. `names.h` on the C side has the details.

use aya_ebpf::{Global, macros::map, maps::LruHashMap};
use bpfassay_tracer_common::{Operation, Prototype};

use super::{
    count::{Subject, thread},
    kernel::{Address, Place, offset, read},
};

/// Set by the loader, one for each operation.
#[unsafe(no_mangle)]
static PROTOTYPES: Global<[Prototype; Operation::ALL.len()]> =
    Global::new([Prototype { source: 0, argument: 0 }; Operation::ALL.len()]);

/// The prototype that the loader found for `operation`.
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

/// A mount of which a thread has taken write access.
#[repr(C)]
#[derive(Clone, Copy)]
struct Wanted {
    mount: Address,
    superblock: Address,
}

/// By thread. Opening a file for writing leaves an entry, which LRU eviction removes later.
#[map]
static WANTED_MOUNTS: LruHashMap<u32, Wanted> = LruHashMap::with_max_entries(4096, 0);

/// The calling thread takes write access of this `struct vfsmount *`.
#[inline(always)]
pub(super) fn wants(mount: Address) {
    let wanted = Wanted { mount, superblock: read(mount, offset!(mount_superblock)) };
    let _ = WANTED_MOUNTS.insert(thread(), wanted, 0);
}

/// `argument` is the one that the prototype selects.
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
        // SAFETY: a value of a map; no other thread writes this one's.
        Some(wanted) if unsafe { (*wanted).superblock } == superblock => unsafe { (*wanted).mount },
        _ => 0,
    };
    Subject::new(Place { mount, device: read(superblock, offset!(superblock_device)) })
}
