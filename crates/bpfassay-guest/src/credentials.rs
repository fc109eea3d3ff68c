// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user and the capabilities of a process that is about to execute a program.

use bpfassay_protocol::privileges::{Capability, Privileges};
use rustix::{
    io::Errno,
    process::{Gid, Uid},
    thread::{
        CapabilitySet, CapabilitySets, configure_capability_in_ambient_set, remove_capability_from_bounding_set,
        set_capabilities, set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
    },
};

/// The number after that of the last capability that a set has room for.
const CAPABILITIES: u32 = u64::BITS;

/// The credentials to take, without any need to allocate memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Credentials {
    user: u32,
    kept: u64,
    /// Whether nothing has to be changed.
    are_all: bool,
}

impl Credentials {
    pub(crate) fn of(privileges: &Privileges) -> Self {
        let kept = privileges.capabilities().iter().copied().map(Capability::bit).fold(0, |set, bit| set | bit);
        Self { user: privileges.user, kept, are_all: privileges.are_all() }
    }

    /// Takes the credentials, from root with all capabilities. Allocates nothing, because it is
    /// called between fork and exec.
    ///
    /// A program of root gets the capabilities of the bounding set, and a program of another user
    /// those of the ambient set (capabilities(7), "Transformation of capabilities during
    /// execve()").
    pub(crate) fn take(self) -> rustix::io::Result<()> {
        if self.are_all {
            return Ok(());
        }
        let each = || (0..CAPABILITIES).map(|number| 1 << number);
        for bit in each().filter(|bit| self.kept & bit == 0) {
            match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(bit)) {
                // The kernel knows no capability with this number.
                Err(Errno::INVAL) => break,
                other => other?,
            }
        }
        if self.user != 0 {
            let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.user));
            set_thread_groups(&[])?;
            set_thread_res_gid(group, group, group)?;
            set_keep_capabilities(true)?;
            set_thread_res_uid(user, user, user)?;
        }
        let kept = CapabilitySet::from_bits_retain(self.kept);
        set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: kept })?;
        if self.user != 0 {
            for bit in each().filter(|bit| self.kept & bit != 0) {
                configure_capability_in_ambient_set(CapabilitySet::from_bits_retain(bit), true)?;
            }
        }
        Ok(())
    }
}
