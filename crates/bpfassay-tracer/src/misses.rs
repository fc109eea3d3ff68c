//! Events that the kernel did not hand to a program, as far as it counts them.

use std::{fs, io, os::fd::AsFd as _, path::Path};

use crate::{
    hooked::{Hooked, Kind, KprobeMode},
    kernel, return_probe,
    tracer::ReadError,
};

/// `kprobe_profile`, in the order in which libbpf looks for tracefs.
const PROFILES: [&str; 2] = ["/sys/kernel/debug/tracing/kprobe_profile", "/sys/kernel/tracing/kprobe_profile"];

/// Misses over all programs; `None` where the kernel does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Misses {
    pub(crate) probes: Option<u64>,
    pub(crate) recursion: Option<u64>,
}

/// The file where tracefs counts hits and misses of kprobes, if tracefs is mounted.
pub(crate) fn profile() -> Option<&'static str> {
    PROFILES.into_iter().find(|path| Path::new(path).exists())
}

/// Sums the misses of `hooked`. One program of which the kernel does not tell makes the sum unknown.
///
/// # Errors
/// [`ReadError`] if the kernel tells in principle and the reading failed.
pub(crate) fn of_all(hooked: &[Hooked]) -> Result<Misses, ReadError> {
    let mut sum = None;
    for hooked in hooked {
        let of_one = of(hooked)?;
        sum = Some(match sum {
            None => of_one,
            Some(Misses { probes, recursion }) => {
                Misses { probes: add(probes, of_one.probes), recursion: add(recursion, of_one.recursion) }
            }
        });
    }
    Ok(sum.unwrap_or_default())
}

fn add(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    Some(a?.wrapping_add(b?))
}

/// The misses of one program.
///
/// # Errors
/// As [`of_all`].
pub(crate) fn of(hooked: &Hooked) -> Result<Misses, ReadError> {
    let failed = |source| ReadError::Program { program: hooked.program.clone(), source };
    let recursion = || Ok(kernel::program_info(hooked.program_fd()).map_err(failed)?.recursion_misses);
    match hooked.kind {
        Kind::Trampoline => Ok(Misses { probes: None, recursion: recursion()? }),
        // Not the program but the hook may be missed, which nothing counts here.
        Kind::RawTracepoint => Ok(Misses { probes: None, recursion: recursion()? }),
        Kind::KprobeMulti | Kind::Tracepoint | Kind::Kprobe(KprobeMode::Perf) => {
            let probes = match &hooked.link_fd {
                Some(link) => kernel::link_missed(link.as_fd()).map_err(failed)?,
                None => None,
            };
            // The field is older than the counting for kprobes, which came in 6.7 together with the missed hits.
            let recursion = if probes.is_some() { recursion()? } else { None };
            Ok(Misses { probes, recursion })
        }
        // Run without a check for recursion.
        Kind::Uprobe => Ok(Misses { probes: None, recursion: None }),
        Kind::Kprobe(KprobeMode::Tracefs) => {
            let path = profile().unwrap_or(PROFILES[1]);
            let text = fs::read_to_string(path).map_err(|source| ReadError::Profile { path, source })?;
            let prefix = if hooked.attached_to.ends_with(" (return)") { return_probe::PREFIX } else { "libbpf" };
            let missed = missed_in_profile(&text, prefix, std::process::id(), &hooked.function)
                .map_err(|source| ReadError::Profile { path, source })?;
            let probes = missed.ok_or_else(|| ReadError::Unlisted { path, function: hooked.function.clone() })?;
            Ok(Misses { probes: Some(probes), recursion: None })
        }
    }
}

/// Misses of the kprobes that `prefix` made for process `pid` on `function`; `None` if none is listed.
///
/// Lines are `NAME HITS MISSES`; libbpf names its events `libbpf_PID_INDEX_FUNCTION_0xOFFSET`, and kretprobes are named
/// likewise ([`return_probe`]).
pub(crate) fn missed_in_profile(text: &str, prefix: &str, pid: u32, function: &str) -> io::Result<Option<u64>> {
    let ours = format!("{prefix}_{pid}_");
    // What an event's name cannot have is replaced in it.
    let function = function.replace('.', "_");
    let mut sum = None;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let found = words.next().and_then(|name| {
            let (_index, rest) = name.strip_prefix(&ours)?.split_once('_')?;
            rest.strip_prefix(function.as_str())?.strip_prefix("_0x")
        });
        if found.is_some() {
            let missed: u64 = words
                .nth(1)
                .and_then(|word| word.parse().ok())
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("no miss count in {line:?}")))?;
            sum = Some(sum.unwrap_or(0u64).wrapping_add(missed));
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PROFILE: &str = "  \
  libbpf_77_0_vfs_read_0x0                                  1200               3
  libbpf_77_1_vfs_write_0x0                                 9999               0
  libbpf_77_2_vfs_readv_0x0                                    5             100
  libbpf_77_3_vfs_read_return                               1200              70
  libbpf_770_0_vfs_read_0x0                                    5             100
  libbpf_7_7_0_vfs_read_0x0                                    5             100
  bpfassay_77_0_vfs_read_0x0                                   5               7
  vfs_read                                                     5             100
";

    #[test]
    fn only_our_own_events_on_that_function_count() {
        assert_eq!(missed_in_profile(PROFILE, "libbpf", 77, "vfs_read").unwrap(), Some(3));
        assert_eq!(missed_in_profile(PROFILE, "bpfassay", 77, "vfs_read").unwrap(), Some(7));
        assert_eq!(missed_in_profile(PROFILE, "libbpf", 77, "vfs_write").unwrap(), Some(0));
        assert_eq!(missed_in_profile(PROFILE, "libbpf", 78, "vfs_read").unwrap(), None);
        assert_eq!(missed_in_profile("", "libbpf", 77, "vfs_read").unwrap(), None);
    }

    #[test]
    fn a_listed_event_without_count_is_an_error_not_a_zero() {
        assert!(missed_in_profile("libbpf_77_0_vfs_read_0x0 12", "libbpf", 77, "vfs_read").is_err());
        assert!(missed_in_profile("libbpf_77_0_vfs_read_0x0 12 -", "libbpf", 77, "vfs_read").is_err());
    }

    #[test]
    fn one_unknown_makes_the_sum_unknown() {
        assert_eq!(add(Some(1), Some(2)), Some(3));
        assert_eq!(add(Some(1), None), None);
        assert_eq!(add(None, Some(2)), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = missed_in_profile(&text, "libbpf", 1, "vfs_read");
        }
    }
}
