// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many guests run on the host at the same time.

use std::num::NonZeroU32;

/// Memory of one QEMU in addition to its guest's, in MiB: translated code, device state, page
/// tables.
const QEMU_OVERHEAD_MIB: u64 = 320;

/// The resources of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostResources {
    /// Number of CPUs that this process can use.
    pub cpus: u32,
    /// Memory that is available without swapping, in MiB.
    pub available_mib: u64,
}

/// Returns how many boots run in parallel, each with `guests` guests of this size.
///
/// It is the requested number, or as many guests as fit. There are never more vCPUs than host CPUs,
/// because guests would be measured while they wait for each other. Nor do they get more memory
/// than is available. At least one boot runs, even if it does not fit.
pub(crate) fn slots(
    host: HostResources,
    guests: u32,
    (cpus, memory_mib): (u32, u32),
    asked: Option<u32>,
) -> NonZeroU32 {
    let guests = guests.max(1);
    let by_cpus = host.cpus / cpus.max(1).saturating_mul(guests);
    let by_memory = host.available_mib / ((u64::from(memory_mib) + QEMU_OVERHEAD_MIB) * u64::from(guests));
    let fit = by_cpus.min(u32::try_from(by_memory).unwrap_or(u32::MAX));
    NonZeroU32::new(asked.map_or(fit, |asked| asked.min(fit))).unwrap_or(NonZeroU32::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_and_memory_both_limit() {
        let host = HostResources { cpus: 8, available_mib: 4096 };
        assert_eq!(slots(host, 1, (1, 1024), None).get(), 3);
        assert_eq!(slots(host, 1, (4, 256), None).get(), 2);
        assert_eq!(slots(host, 1, (1, 1024), Some(2)).get(), 2);
        assert_eq!(slots(host, 1, (1, 1024), Some(9)).get(), 3, "asking does not make room");
        let large = HostResources { cpus: 16, available_mib: 24 << 10 };
        assert_eq!(slots(large, 5, (1, 768), None).get(), 3, "by CPUs: a boot has five guests");
        assert_eq!(slots(HostResources { cpus: 64, ..large }, 5, (1, 1728), None).get(), 2, "by memory");
    }

    #[test]
    fn one_guest_always_runs() {
        assert_eq!(slots(HostResources { cpus: 2, available_mib: 100 }, 1, (4, 1024), None).get(), 1);
    }
}
