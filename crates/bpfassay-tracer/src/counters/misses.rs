// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events that the kernel did not pass to a program, as far as it counts them.

use std::os::fd::AsFd as _;

use super::error::ReadError;
use crate::{
    kernel::{bpf_objects, tracefs::profile},
    loader::plan::{
        hooked::{AttachKind, Hooked, KprobeMode},
        return_probe,
    },
};

/// Misses of all programs together; `None` if the kernel does not count them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MissCounts {
    pub(crate) probes: Option<u64>,
    pub(crate) recursion: Option<u64>,
}

/// Sums the misses of `hooked`. One program whose misses the kernel does not count makes the sum
/// unknown.
///
/// # Errors
/// [`ReadError`] if the kernel counts misses and they cannot be read.
pub(crate) fn of_all(hooked: &[Hooked]) -> Result<MissCounts, ReadError> {
    let mut sum = None;
    for hooked in hooked {
        let of_one = of(hooked)?;
        sum = Some(match sum {
            None => of_one,
            Some(MissCounts { probes, recursion }) => {
                MissCounts { probes: add(probes, of_one.probes), recursion: add(recursion, of_one.recursion) }
            }
        });
    }
    Ok(sum.unwrap_or_default())
}

fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a?.wrapping_add(b?))
}

/// Returns the misses of one program.
///
/// # Errors
/// The errors of [`of_all`].
pub(crate) fn of(hooked: &Hooked) -> Result<MissCounts, ReadError> {
    let failed = |source| ReadError::Program { program: hooked.program.clone(), source };
    let recursion = || Ok(hooked.counted().map_err(failed)?.recursion_misses);
    match hooked.kind {
        AttachKind::Trampoline => Ok(MissCounts { probes: None, recursion: recursion()? }),
        // The hook itself can be missed, too, which is not counted here.
        AttachKind::RawTracepoint => Ok(MissCounts { probes: None, recursion: recursion()? }),
        AttachKind::KprobeMulti | AttachKind::Tracepoint | AttachKind::Kprobe(KprobeMode::Perf) => {
            let probes = match &hooked.link_fd {
                Some(link) => bpf_objects::link_missed(link.as_fd()).map_err(failed)?,
                None => None,
            };
            // The field is older than the count for kprobes, which arrived in 6.7 together with the
            // missed hits.
            let recursion = if probes.is_some() { recursion()? } else { None };
            Ok(MissCounts { probes, recursion })
        }
        // uprobes run without a check for recursion.
        AttachKind::Uprobe => Ok(MissCounts { probes: None, recursion: None }),
        AttachKind::Kprobe(KprobeMode::Tracefs) => {
            let prefix = if hooked.attached_to.ends_with(" (return)") { return_probe::PREFIX } else { "libbpf" };
            let missed = profile::missed(prefix, std::process::id(), &hooked.function).map_err(ReadError::Profile)?;
            let probes = missed.ok_or_else(|| ReadError::Unlisted { function: hooked.function.clone() })?;
            Ok(MissCounts { probes: Some(probes), recursion: None })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_unknown_makes_the_sum_unknown() {
        assert_eq!(add(Some(1), Some(2)), Some(3));
        assert_eq!(add(Some(1), None), None);
        assert_eq!(add(None, Some(2)), None);
    }
}
