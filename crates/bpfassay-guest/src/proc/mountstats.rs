// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/proc/self/mountstats`: the client's counters of each NFS mount (fs/nfs/super.c,
//! net/sunrpc/stats.c).

use std::{collections::BTreeMap, fs};

use bpfassay_protocol::{mangle::unescape, message::MountStats};

use crate::error::{Error, Result};

const PATH: &str = "/proc/self/mountstats";

/// The counters of one mount.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MountCounters {
    /// Values of the line `bytes:`.
    pub bytes: MountStats,
    /// Calls sent to the server, by procedure ("READ").
    pub calls: BTreeMap<String, u64>,
}

/// Returns the counters of the mount at `path`; `None` if the mount keeps none because it is not
/// NFS.
pub(crate) fn read(path: &str) -> Result<Option<MountCounters>> {
    let text = fs::read_to_string(PATH).map_err(Error::file("read", PATH))?;
    find(&text, path)
}

/// Returns the counters of the last (topmost) mount at `path` in `text`.
pub(crate) fn find(text: &str, path: &str) -> Result<Option<MountCounters>> {
    let marker = " mounted on ";
    let at_path = |(start, _): &(usize, &str)| {
        let line = text[start + marker.len()..].lines().next().unwrap_or_default();
        line.split_once(" with fstype ").is_some_and(|(place, _)| unescape(place) == path)
    };
    let Some((start, _)) = text.rmatch_indices(marker).find(at_path) else { return Ok(None) };
    let section = &text[start + marker.len()..];
    let section = section.find("\ndevice ").map_or(section, |end| &section[..end]);
    let Some(line) = section.lines().find_map(|line| line.trim_start().strip_prefix("bytes:")) else {
        return Ok(None);
    };
    let numbers = line.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<u64>, _>>();
    let Ok([normal_read, normal_written, direct_read, direct_written, server_read, server_written, ..]) =
        numbers.as_deref()
    else {
        return Err(Error::unexpected(PATH, "six or more numbers after `bytes:`", line));
    };
    let bytes = MountStats {
        normal_read: *normal_read,
        normal_written: *normal_written,
        direct_read: *direct_read,
        direct_written: *direct_written,
        server_read: *server_read,
        server_written: *server_written,
    };
    let calls = section
        .lines()
        .skip_while(|line| line.trim() != "per-op statistics")
        .skip(1)
        .filter_map(|line| {
            let (name, numbers) = line.trim().split_once(':')?;
            Some((name.to_owned(), numbers.split_whitespace().next()?.parse().ok()?))
        })
        .collect();
    Ok(Some(MountCounters { bytes, calls }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: &str = include_str!("../../tests/golden/mountstats-6.1");

    #[test]
    fn a_real_file_gives_bytes_and_calls() {
        let counters = find(SAMPLE, "/mnt/nfs").unwrap().unwrap();
        assert!(counters.bytes.normal_written > 0);
        assert!(counters.calls["WRITE"] > 0);
        assert!(counters.calls.contains_key("READ"));
    }

    #[test]
    fn a_mount_without_counters_is_none() {
        assert_eq!(find(SAMPLE, "/mnt/tmpfs").unwrap(), None);
        assert_eq!(find("device none mounted on /mnt/nfs with fstype tmpfs\n", "/mnt/nfs").unwrap(), None);
    }

    #[test]
    fn each_mount_has_its_own_section() {
        let text = "device a:/ mounted on /a with fstype nfs4 statvers=1.1\n\tbytes:\t1 2 3 4 5 6 7 8\n\
                    device none mounted on /b with fstype tmpfs\n\
                    device a:/ mounted on /c with fstype nfs4 statvers=1.1\n\tbytes:\t9 2 3 4 5 6 7 8\n";
        assert_eq!(find(text, "/a").unwrap().unwrap().bytes.normal_read, 1);
        assert_eq!(find(text, "/b").unwrap(), None);
        assert_eq!(find(text, "/c").unwrap().unwrap().bytes.normal_read, 9);
    }

    #[test]
    fn a_path_is_written_as_the_kernel_escapes_it() {
        let text = "device a:/ mounted on /a\\040b with fstype nfs4 statvers=1.1\n\tbytes:\t7 2 3 4 5 6 7 8\n";
        assert_eq!(find(text, "/a b").unwrap().unwrap().bytes.normal_read, 7);
        assert_eq!(find(text, "/a").unwrap(), None);
    }

    #[test]
    fn a_short_line_is_an_error() {
        let text = "device a:/ mounted on /a with fstype nfs4\n\tbytes:\t1 2 x\n";
        assert!(find(text, "/a").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text: String) {
            let _ = find(&text, "/a");
            let _ = find(&format!("device x mounted on /a with fstype nfs\n{text}"), "/a");
        }

        #[test]
        fn numbers_come_back(numbers in proptest::array::uniform8(any::<u64>())) {
            let fields = numbers.map(|n| n.to_string()).join(" ");
            let text = format!("device a:/ mounted on /a with fstype nfs4 statvers=1.1\n\tage:\t4\n\tbytes:\t{fields}\n");
            let bytes = find(&text, "/a").unwrap().unwrap().bytes;
            prop_assert_eq!((bytes.normal_read, bytes.server_written), (numbers[0], numbers[5]));
        }
    }
}
