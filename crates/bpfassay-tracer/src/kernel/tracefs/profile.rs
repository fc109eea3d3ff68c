// SPDX-License-Identifier: MIT OR Apache-2.0
//! `kprobe_profile`: hits and misses of kprobes that were made through tracefs.

use std::{fs, io};

use super::path;

const FILE: &str = "kprobe_profile";

/// Returns whether tracefs has the file.
pub(crate) fn is_there() -> bool {
    path(FILE).is_some()
}

/// Returns the misses of the kprobes that `prefix` made for process `pid` on `function`; `None` if
/// no such kprobe is listed.
///
/// # Errors
/// The kernel's error, `NotFound` if tracefs is not mounted, or `InvalidData` for an entry without
/// a count.
pub(crate) fn missed(prefix: &str, pid: u32, function: &str) -> io::Result<Option<u64>> {
    let path = path(FILE).ok_or(io::ErrorKind::NotFound)?;
    missed_in_profile(&fs::read_to_string(path)?, prefix, pid, function)
}

/// Returns the misses in the text of the file.
///
/// Lines are `NAME HITS MISSES`. libbpf names its events `libbpf_PID_INDEX_FUNCTION_0xOFFSET`.
/// kretprobes have similar names (`loader/plan/return_probe.rs`).
pub(crate) fn missed_in_profile(text: &str, prefix: &str, pid: u32, function: &str) -> io::Result<Option<u64>> {
    let ours = format!("{prefix}_{pid}_");
    // The name of an event has other characters replaced.
    let function = function.replace('.', "_");
    let mut sum = None;
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        let found = fields.next().and_then(|name| {
            let (_index, rest) = name.strip_prefix(&ours)?.split_once('_')?;
            rest.strip_prefix(function.as_str())?.strip_prefix("_0x")
        });
        if found.is_some() {
            let missed: u64 = fields
                .nth(1)
                .and_then(|field| field.parse().ok())
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

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = missed_in_profile(&text, "libbpf", 1, "vfs_read");
        }
    }
}
