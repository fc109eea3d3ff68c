// SPDX-License-Identifier: MIT OR Apache-2.0
//! Offsets of members of the kernel's structures.
//!
//! Rust has no CO-RE relocations. The loader `aya` finds these offsets in the running kernel's BTF
//! and writes them into a read-only global of the programs before it loads them.

/// Declares [`Offsets`] from names of fields and members. A member is written
/// `structure.member.member`, with these additions:
///
/// - `?` before it: some kernels lack the member, and their programs do without it.
/// - `a|b`: the first member that the kernel has counts.
/// - `a+8`: the offset plus a number of bytes.
/// - `$N`: the member that holds argument N of a system call, which the loader knows for its
///   architecture.
macro_rules! offsets {
    ($($(#[$doc:meta])* $field:ident = $member:literal,)+) => {
        /// Offsets in bytes.
        #[repr(C)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct Offsets {
            $(#[doc = concat!("`", $member, "`.")] $(#[$doc])* pub $field: u32,)+
        }

        impl Offsets {
            /// Offsets that no loader has written. They are so large that every read at them fails.
            pub const UNKNOWN: Self = Self { $($field: u32::MAX,)+ };

            /// The members, in the order of the fields: a structure, and the way from it to a
            /// member.
            pub const MEMBERS: &[&str] = &[$($member,)+];
        }
    };
}

offsets! {
    file_mount = "file.f_path.mnt",
    file_mode = "file.f_mode",
    mount_superblock = "vfsmount.mnt_sb",
    superblock_device = "super_block.s_dev",
    mount_embedded = "mount.mnt",
    mount_id = "mount.mnt_id",
    mount_parent = "mount.mnt_parent",
    mount_point = "mount.mnt_mountpoint",
    mount_root = "mount.mnt.mnt_root",
    dentry_parent = "dentry.d_parent",
    dentry_name = "dentry.d_name.name",
    inode_superblock = "inode.i_sb",
    dentry_superblock = "dentry.d_sb",
    /// The argument of `vfs_rename` from 5.12 on.
    renamedata_old_dentry = "?renamedata.old_dentry",
    task_files = "task_struct.files",
    files_table = "files_struct.fdt",
    table_size = "fdtable.max_fds",
    table_files = "fdtable.fd",
    /// The status on x86_64, the flags on arm64.
    thread_status = "?task_struct.thread_info.status|task_struct.thread_info.flags",
    /// Argument 0 at the entry of the system call.
    syscall_argument_0 = "?$0",
    syscall_argument_1 = "?$1",
    syscall_argument_2 = "?$2",
    enter_number = "?trace_event_raw_sys_enter.id",
    enter_arguments = "?trace_event_raw_sys_enter.args",
    exit_result = "?trace_event_raw_sys_exit.ret",
    /// Incremented by each call that reads.
    task_reads = "?task_struct.ioac.syscr",
    /// Incremented by each call that writes.
    task_writes = "?task_struct.ioac.syscw",
}

impl Offsets {
    /// Returns the bytes of the structure, from one offset for each of [`Offsets::MEMBERS`].
    #[must_use]
    pub fn to_bytes(values: [u32; Self::MEMBERS.len()]) -> [u8; size_of::<Self>()] {
        let mut bytes = [0; size_of::<Self>()];
        for (place, value) in bytes.chunks_exact_mut(size_of::<u32>()).zip(values) {
            place.copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use super::*;

    #[test]
    fn each_member_has_the_field_in_its_place() {
        assert_eq!(size_of::<Offsets>(), 4 * Offsets::MEMBERS.len());
        let index = Offsets::MEMBERS.iter().position(|member| *member == "mount.mnt_id").unwrap();
        assert_eq!(offset_of!(Offsets, mount_id), 4 * index);
        let mut values = [0; Offsets::MEMBERS.len()];
        values[index] = 7;
        let bytes = Offsets::to_bytes(values);
        assert_eq!(bytes[4 * index..][..4], 7u32.to_ne_bytes());
        assert_eq!(bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>(), 7);
    }
}
