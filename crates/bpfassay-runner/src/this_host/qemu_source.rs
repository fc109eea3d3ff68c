// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where QEMU comes from: the `PATH` of the host, or `testbed.lock`.

use std::{fmt, str::FromStr};

use bpfassay_packages::apt::is_of_another_distribution;
use bpfassay_protocol::Arch;
use bpfassay_results::Provenance;
use bpfassay_testbed::locked_qemu;
use bpfassay_vm::qemu::is_on_path;

use crate::error::Error;

/// The source of QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QemuSource {
    /// The QEMU of `testbed.lock`, unpacked into the cache.
    Lock,
    /// The QEMU on this host's `PATH`.
    Host,
}

impl fmt::Display for QemuSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lock => "lock",
            Self::Host => "host",
        })
    }
}

/// The text does not name a source of QEMU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected `lock` (that of testbed.lock) or `host` (the one on PATH)")]
pub struct NotAQemuSource;

impl FromStr for QemuSource {
    type Err = NotAQemuSource;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "lock" => Ok(Self::Lock),
            "host" => Ok(Self::Host),
            _ => Err(NotAQemuSource),
        }
    }
}

impl QemuSource {
    /// Returns the source of the QEMU in `provenance`, if it is known. Results that were measured
    /// with the QEMU of a lock are verified with it.
    #[must_use]
    pub fn of(provenance: &Provenance) -> Option<Self> {
        provenance.qemu.values().any(|facts| facts.package.is_some()).then_some(Self::Lock)
    }

    /// Returns the source for guests of `arch`: `asked` if given, else the host, unless it has no
    /// QEMU and the lock has one.
    ///
    /// The host comes first for users who chose a QEMU by `PATH` (Nix, containers, CI), and because
    /// this works without a network. A host whose apt belongs to another distribution does not get
    /// Debian's packages unasked, and installs its own QEMU.
    ///
    /// # Errors
    /// [`Error::Testbed`] if the compiled-in lock is invalid.
    pub(crate) fn resolved(asked: Option<Self>, arch: Arch) -> Result<Self, Error> {
        Ok(match asked {
            Some(source) => source,
            None if is_on_path(arch) || locked_qemu::locked()?.is_none() || is_of_another_distribution() => Self::Host,
            None => Self::Lock,
        })
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_results::provenance::{Artefact, QemuFacts};

    use super::*;

    #[test]
    fn sources_read_back_as_written() {
        for source in [QemuSource::Lock, QemuSource::Host] {
            assert_eq!(source.to_string().parse(), Ok(source));
        }
        assert!("qemu".parse::<QemuSource>().unwrap_err().to_string().contains("`lock`"));
    }

    #[test]
    fn what_is_asked_for_is_taken_and_otherwise_the_hosts_where_it_has_one() {
        for &arch in Arch::ALL {
            assert_eq!(QemuSource::resolved(Some(QemuSource::Lock), arch).unwrap(), QemuSource::Lock);
            assert_eq!(QemuSource::resolved(Some(QemuSource::Host), arch).unwrap(), QemuSource::Host);
            let by_itself = QemuSource::resolved(None, arch).unwrap();
            let has_none = !is_on_path(arch) && locked_qemu::locked().unwrap().is_some();
            assert_eq!(by_itself == QemuSource::Lock, has_none && !is_of_another_distribution(), "{arch}");
        }
    }

    #[test]
    fn results_of_the_locks_qemu_are_repeated_with_it() {
        let mut provenance = Provenance::default();
        assert_eq!(QemuSource::of(&provenance), None);
        let artefact = |name: &str| Artefact { name: name.to_owned(), version: "1".to_owned(), sha256: None };
        let facts = QemuFacts {
            program: artefact("qemu-system-x86_64"),
            path: "/cache/usr/bin/qemu-system-x86_64".to_owned(),
            accelerator: "tcg".to_owned(),
            accelerator_reason: "asked for".to_owned(),
            machine: "q35".to_owned(),
            cpu: "max".to_owned(),
            plugin_api: None,
            package: None,
        };
        provenance.qemu.insert(Arch::X86_64, facts.clone());
        assert_eq!(QemuSource::of(&provenance), None);
        let of_lock = QemuFacts { package: Some(artefact("qemu-system-x86")), ..facts.clone() };
        // The same program makes the same machine, however it came to the host.
        assert!(facts.is_same_machine(&of_lock));
        provenance.qemu.insert(Arch::X86_64, of_lock);
        assert_eq!(QemuSource::of(&provenance), Some(QemuSource::Lock));
    }
}
