// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user and the capabilities of a tool under test (capabilities(7)).

use serde::{Deserialize, Serialize};

use crate::names;

names! {
    /// A capability of a thread. The order is that of the kernel's numbers, from 0
    /// (include/uapi/linux/capability.h).
    pub enum Capability: "capability" {
        /// Change owners of files.
        Chown = "CAP_CHOWN",
        /// Ignore permissions of files.
        DacOverride = "CAP_DAC_OVERRIDE",
        /// Ignore permissions for reading files and searching directories.
        DacReadSearch = "CAP_DAC_READ_SEARCH",
        /// Act as the owner of files.
        Fowner = "CAP_FOWNER",
        /// Keep set-user-ID bits of changed files.
        Fsetid = "CAP_FSETID",
        /// Send signals to processes of other users.
        Kill = "CAP_KILL",
        /// Change group IDs.
        Setgid = "CAP_SETGID",
        /// Change user IDs.
        Setuid = "CAP_SETUID",
        /// Change capabilities.
        Setpcap = "CAP_SETPCAP",
        /// Set the attributes immutable and append-only of files.
        LinuxImmutable = "CAP_LINUX_IMMUTABLE",
        /// Bind ports below 1024.
        NetBindService = "CAP_NET_BIND_SERVICE",
        /// Send broadcasts. The kernel does not use it.
        NetBroadcast = "CAP_NET_BROADCAST",
        /// Configure the network, and load programs of the network.
        NetAdmin = "CAP_NET_ADMIN",
        /// Use raw sockets.
        NetRaw = "CAP_NET_RAW",
        /// Lock memory.
        IpcLock = "CAP_IPC_LOCK",
        /// Ignore permissions of System V IPC objects.
        IpcOwner = "CAP_IPC_OWNER",
        /// Load kernel modules.
        SysModule = "CAP_SYS_MODULE",
        /// Access I/O ports and memory.
        SysRawio = "CAP_SYS_RAWIO",
        /// Change the root directory, and enter mount namespaces.
        SysChroot = "CAP_SYS_CHROOT",
        /// Trace processes of other users, and read their memory.
        SysPtrace = "CAP_SYS_PTRACE",
        /// Account processes.
        SysPacct = "CAP_SYS_PACCT",
        /// Administrate the system. It includes CAP_BPF and CAP_PERFMON.
        SysAdmin = "CAP_SYS_ADMIN",
        /// Reboot.
        SysBoot = "CAP_SYS_BOOT",
        /// Change priorities.
        SysNice = "CAP_SYS_NICE",
        /// Exceed limits of resources, such as RLIMIT_MEMLOCK.
        SysResource = "CAP_SYS_RESOURCE",
        /// Set the clock.
        SysTime = "CAP_SYS_TIME",
        /// Configure terminals.
        SysTtyConfig = "CAP_SYS_TTY_CONFIG",
        /// Create device files.
        Mknod = "CAP_MKNOD",
        /// Take leases on files.
        Lease = "CAP_LEASE",
        /// Write to the audit log.
        AuditWrite = "CAP_AUDIT_WRITE",
        /// Configure audit.
        AuditControl = "CAP_AUDIT_CONTROL",
        /// Set capabilities of files.
        Setfcap = "CAP_SETFCAP",
        /// Ignore mandatory access control.
        MacOverride = "CAP_MAC_OVERRIDE",
        /// Configure mandatory access control.
        MacAdmin = "CAP_MAC_ADMIN",
        /// Read the kernel's log, and addresses of the kernel.
        Syslog = "CAP_SYSLOG",
        /// Set timers that wake the machine.
        WakeAlarm = "CAP_WAKE_ALARM",
        /// Keep the machine from sleeping.
        BlockSuspend = "CAP_BLOCK_SUSPEND",
        /// Read the audit log.
        AuditRead = "CAP_AUDIT_READ",
        /// Measure performance, and load programs that read the kernel's memory (Linux 5.8).
        Perfmon = "CAP_PERFMON",
        /// Use bpf(2) (Linux 5.8).
        Bpf = "CAP_BPF",
        /// Restore checkpointed processes (Linux 5.9).
        CheckpointRestore = "CAP_CHECKPOINT_RESTORE",
    }
}

impl Capability {
    /// The set with only this capability, as the kernel writes it: the bit of its number.
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << self as u64
    }
}

/// The user of a tool and the capabilities that the tool has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Privileges {
    /// User ID, and ID of its only group.
    #[serde(default, skip_serializing_if = "is_root")]
    pub user: u32,
    /// The capabilities, without duplicates. `None`: all for root, and none for another user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Vec<Capability>>,
    /// Whether the tool is root of a user namespace, to which it belongs with no other user. The
    /// namespace has a BPF file system at /sys/fs/bpf that delegates everything, if the kernel has
    /// BPF tokens (Linux 6.9).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub user_namespace: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires a reference")]
const fn is_root(user: &u32) -> bool {
    *user == 0
}

impl Privileges {
    /// Whether the tool is root with all capabilities, in no user namespace of its own.
    #[must_use]
    pub fn are_all(&self) -> bool {
        *self == Self::default()
    }

    /// The capabilities that the tool has.
    #[must_use]
    pub fn capabilities(&self) -> &[Capability] {
        match &self.capabilities {
            Some(some) => some,
            None if self.user == 0 => Capability::ALL,
            None => &[],
        }
    }
}

/// The capabilities with which a tool starts, found by starting it with different sets.
///
/// The tool *starts* with a set if it becomes ready with the programs and links that it has with
/// all capabilities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CapabilitySearch {
    /// User ID of the tool.
    #[serde(default, skip_serializing_if = "is_root")]
    pub user: u32,
    /// The capabilities that the tool had in every start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub had: Vec<Capability>,
    /// The capabilities that the tool needs in addition. The tool started with them, and did not
    /// start without any one of them.
    pub needs: Needs,
    /// How often the tool was started.
    pub starts: u32,
}

impl CapabilitySearch {
    /// The largest number of starts of a tool. A tool that starts with more capabilities if it
    /// starts with less needs about ten.
    pub const MAX_STARTS: u32 = 64;
}

/// The outcome of a search for capabilities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Needs {
    /// The needed capabilities, each with what happened without it.
    Capabilities(Vec<NeededCapability>),
    /// The reason why they are not known: the tool does not start with all capabilities either, or
    /// was started too often.
    Unknown(String),
}

/// A capability without which a tool does not start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NeededCapability {
    /// The capability.
    pub capability: Capability,
    /// The outcome without it, as a predicate ("ended with exit status 1 before it was ready"):
    /// with all other capabilities or, if the tool starts with these, with the other needed ones.
    pub without: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_the_kernels_numbers() {
        let known = [
            (Capability::Chown, 0),
            (Capability::NetAdmin, 12),
            (Capability::SysPtrace, 19),
            (Capability::SysAdmin, 21),
            (Capability::SysResource, 24),
            (Capability::Syslog, 34),
            (Capability::Perfmon, 38),
            (Capability::Bpf, 39),
            (Capability::CheckpointRestore, 40),
        ];
        for (capability, number) in known {
            assert_eq!(capability.bit(), 1 << number, "{capability}");
        }
        assert_eq!(Capability::ALL.len(), 41);
    }

    #[test]
    fn root_has_all_capabilities_and_other_users_have_none() {
        let of = |user, capabilities| Privileges { user, capabilities, user_namespace: false };
        assert!(of(0, None).are_all());
        assert_eq!(of(0, None).capabilities(), Capability::ALL);
        assert_eq!(of(1000, None).capabilities(), []);
        let bpf = of(1000, Some(vec![Capability::Bpf]));
        assert_eq!((bpf.are_all(), bpf.capabilities()), (false, [Capability::Bpf].as_slice()));
        assert!(!Privileges { user_namespace: true, ..Privileges::default() }.are_all());
    }
}
