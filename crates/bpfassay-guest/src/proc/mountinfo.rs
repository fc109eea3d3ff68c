// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/proc/self/mountinfo` (proc(5)).

use std::fs;

use bpfassay_protocol::{mangle::unescape, message::MountFacts, tracer_messages::Device};
use rustix::process::Pid;

use crate::error::{Error, Result};

const PATH: &str = "/proc/self/mountinfo";

/// Returns the topmost mount at `path`, from `/proc/self/mountinfo`.
pub(crate) fn read(path: &str) -> Result<MountFacts> {
    let text = fs::read_to_string(PATH).map_err(Error::file("read", PATH))?;
    find(&text, path).ok_or_else(|| Error::unexpected(PATH, format!("a mount at {path}"), &text))
}

/// The most mounts of a namespace that are passed on: many times as many as guests have.
const MOST: usize = 256;

/// Returns the mounts in the mount namespace of `process`, as the process sees them.
pub(crate) fn of_process(process: Pid) -> Result<Vec<MountFacts>> {
    let path = format!("/proc/{}/mountinfo", process.as_raw_nonzero());
    let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    Ok(text.lines().filter_map(parse_line).take(MOST).collect())
}

/// Returns the last (topmost) mount at `path` in `text`.
pub(crate) fn find(text: &str, path: &str) -> Option<MountFacts> {
    text.lines().filter_map(parse_line).rfind(|mount| mount.path == path)
}

/// Parses one line: `ID PARENT MAJOR:MINOR ROOT PATH OPTIONS [TAG…] - TYPE SOURCE SUPER_OPTIONS`.
fn parse_line(line: &str) -> Option<MountFacts> {
    let mut fields = line.split(' ');
    let id = fields.next()?.parse().ok()?;
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    let device = Device { major: major.parse().ok()?, minor: minor.parse().ok()? };
    let path = unescape(fields.nth(1)?);
    fields.find(|field| *field == "-")?;
    let file_system = fields.next()?.to_owned();
    let options = fields.nth(1)?.to_owned();
    Some(MountFacts { id, device, path, file_system, options })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE: &str = include_str!("../../tests/golden/mountinfo-6.1");

    #[test]
    fn a_real_file_gives_the_nfs_mount() {
        let mount = find(SAMPLE, "/mnt/nfs").unwrap();
        assert_eq!(mount.file_system, "nfs4");
        assert!(mount.options.contains("vers=4.2"), "{}", mount.options);
        assert!(mount.id > 0);
        assert_eq!(mount.device.major, 0);
        assert!(mount.device.minor > 0);
    }

    #[test]
    fn the_topmost_mount_wins_and_tags_are_skipped() {
        let text = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n\
                    37 36 0:44 / /mnt2 rw - nfs4 127.0.0.1:/ rw,vers=4.2\n";
        let mount = find(text, "/mnt2").unwrap();
        assert_eq!((mount.id, mount.device.minor, mount.options.as_str()), (37, 44, "rw,vers=4.2"));
        let first = find(text.lines().next().unwrap(), "/mnt2").unwrap();
        assert_eq!((first.file_system.as_str(), first.device.major), ("ext3", 98));
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape("/a\\040b\\134c\\0"), "/a b\\c\\0");
        let text = "5 1 0:3 / /a\\040b rw - tmpfs none rw\n";
        assert!(find(text, "/a b").is_some());
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text: String) {
            let _ = find(&text, "/mnt/nfs");
            let _ = unescape(&text);
        }

        #[test]
        fn a_mount_is_found_among_others(id: u64, major in 0u32..4096, minor in 0u32..1 << 20, name in "[a-z \\\\]{1,12}") {
            let mangled = name.replace('\\', "\\134").replace(' ', "\\040");
            let text = format!("1 0 0:1 / / rw - rootfs rootfs rw\n{id} 1 {major}:{minor} / /m/{mangled} rw - t s o=1\n");
            let mount = find(&text, &format!("/m/{name}")).unwrap();
            prop_assert_eq!((mount.id, mount.device), (id, Device { major, minor }));
        }
    }
}
