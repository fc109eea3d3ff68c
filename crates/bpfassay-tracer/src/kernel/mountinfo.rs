// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path of a mount from its id, and the id from its path. Both come from `/proc/self/mountinfo`
//! (proc(5)), which is read again whenever the kernel marks it as changed.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _, Seek as _},
    path::PathBuf,
};

use bpfassay_protocol::{
    mangle::unescape,
    tracer_messages::{CounterRow, Device},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{AtFlags, CWD, StatxFlags},
};

const PATH: &str = "/proc/self/mountinfo";

/// The mounts of this process's mount namespace.
#[derive(Debug)]
pub(crate) struct Mounts {
    file: File,
    table: MountTable,
}

/// A mount table that could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {PATH}: mount proc")]
pub(crate) struct MountsError {
    what: &'static str,
    source: io::Error,
}

/// A path whose mount id is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MountIdError {
    #[error("cannot look up the mount of {path:?}: name a path that exists")]
    LookUp { path: PathBuf, source: io::Error },
    #[error("the kernel does not report the mount id of {path:?} (Linux 5.8 and later do): leave out --mount")]
    NotReported { path: PathBuf },
}

/// Returns the id of the mount that contains `path`, as in `/proc/self/mountinfo`. The call sends
/// no request to the server of a network file system.
///
/// # Errors
/// [`MountIdError`] if there is no such path, or the kernel does not report the id.
pub(crate) fn id(path: PathBuf) -> Result<u64, MountIdError> {
    match rustix::fs::statx(CWD, &path, AtFlags::STATX_DONT_SYNC, StatxFlags::MNT_ID) {
        Ok(found) if StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID) => Ok(found.stx_mnt_id),
        Ok(_) => Err(MountIdError::NotReported { path }),
        Err(source) => Err(MountIdError::LookUp { path, source: source.into() }),
    }
}

impl Mounts {
    /// Reads the table.
    ///
    /// # Errors
    /// [`MountsError`] if the file cannot be opened or read.
    pub(crate) fn open() -> Result<Self, MountsError> {
        let file = File::open(PATH).map_err(|source| MountsError { what: "open", source })?;
        let mut mounts = Self { file, table: MountTable::default() };
        mounts.read()?;
        Ok(mounts)
    }

    fn read(&mut self) -> Result<(), MountsError> {
        let mut text = Vec::new();
        self.file
            .rewind()
            .and_then(|()| self.file.read_to_end(&mut text))
            .map_err(|source| MountsError { what: "read", source })?;
        self.table = MountTable::parse(&text);
        Ok(())
    }

    /// Reads the table again if mounts were added, removed or moved since the last reading.
    ///
    /// # Errors
    /// [`MountsError`] if the file cannot be polled or read.
    pub(crate) fn refresh(&mut self) -> Result<(), MountsError> {
        // The kernel marks an open mountinfo with POLLPRI and POLLERR at each change of the mount
        // namespace, and poll(2) itself clears the mark (`mounts_poll`, fs/proc_namespace.c, 2.6.30
        // and later). A change between this poll and the reading is read now, and reported again at
        // the next call. No change is lost.
        let mut waiting = [PollFd::new(&self.file, PollFlags::PRI)];
        rustix::io::retry_on_intr(|| poll(&mut waiting, Some(&Timespec::default())))
            .map_err(|error| MountsError { what: "poll for changes of", source: error.into() })?;
        if waiting[0].revents().is_empty() { Ok(()) } else { self.read() }
    }

    /// Returns the mount point of the mount `id`, if it exists now and has this `device`.
    pub(crate) fn path(&self, id: u64, device: Device) -> Option<&str> {
        self.table.path(id, device)
    }

    /// Returns the topmost mount at `path`.
    pub(crate) fn at(&self, path: &str) -> Option<(u64, Device)> {
        self.table.at(path)
    }

    /// Stores in each row the path of the row's mount, from the present table.
    ///
    /// # Errors
    /// [`MountsError`] if the file cannot be polled or read.
    pub(crate) fn name(&mut self, rows: &mut [CounterRow]) -> Result<(), MountsError> {
        self.refresh()?;
        for row in rows {
            row.path = self.path(row.mount, row.device).map(str::to_owned);
        }
        Ok(())
    }

    /// Returns the mount points of file systems of the type `file_system`.
    pub(crate) fn of_type<'a>(&'a self, file_system: &'a str) -> impl Iterator<Item = &'a str> {
        self.table
            .0
            .values()
            .filter(move |mount| mount.file_system == file_system.as_bytes())
            .map(|mount| mount.path.as_str())
    }
}

/// Mounts by id. Several can have the same path: a mount that another one covers stays mounted, and
/// its files can stay open.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MountTable(HashMap<u64, Mount>);

#[derive(Debug, PartialEq, Eq)]
struct Mount {
    device: Device,
    path: String,
    file_system: Vec<u8>,
}

impl MountTable {
    /// Parses a mountinfo. Lines that cannot be parsed are left out; their mounts have no path.
    pub(crate) fn parse(text: &[u8]) -> Self {
        Self(text.split(|&byte| byte == b'\n').filter_map(parse_line).collect())
    }

    /// Returns the mount at `path` with the largest id. It was mounted last, unless ids were
    /// reused.
    pub(crate) fn at(&self, path: &str) -> Option<(u64, Device)> {
        let there = self.0.iter().filter(|(_, mount)| mount.path == path);
        there.map(|(&id, mount)| (id, mount.device)).max()
    }

    pub(crate) fn path(&self, id: u64, device: Device) -> Option<&str> {
        // Ids are reused after an unmount. The device detects most of these cases.
        self.0.get(&id).filter(|mount| mount.device == device).map(|mount| mount.path.as_str())
    }
}

/// Parses one line: `ID PARENT MAJOR:MINOR ROOT PATH OPTIONS [TAG…] - TYPE SOURCE SUPER_OPTIONS`.
fn parse_line(line: &[u8]) -> Option<(u64, Mount)> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = number(fields.next()?)?;
    let device = fields.nth(1)?;
    let colon = device.iter().position(|&byte| byte == b':')?;
    let device = Device { major: number(&device[..colon])?, minor: number(&device[colon + 1..])? };
    let path = unescape(fields.nth(1)?);
    fields.find(|field| *field == b"-")?;
    let file_system = fields.next()?.to_vec();
    Some((id, Mount { device, path, file_system }))
}

fn number<N: std::str::FromStr>(digits: &[u8]) -> Option<N> {
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::{Operation, operation::Totals};
    use proptest::prelude::*;

    use super::*;

    const TEXT: &[u8] = b"21 1 0:20 / /sys rw,nosuid - sysfs sysfs rw
40 21 8:3 / /srv/with\\040blank\\134and\\011tab rw shared:1 - ext4 /dev/sda3 rw
41 21 8:3 /sub /bind rw shared:1 master:2 - ext4 /dev/sda3 rw
50 21 0:50 / /mnt rw - tmpfs below rw
51 50 0:51 / /mnt rw - tmpfs above rw
60 21 0:60 / /c\xff rw - cgroup2 cgroup2 rw
nonsense
70 21 0:70 / /cut off
";

    const fn device(major: u32, minor: u32) -> Device {
        Device { major, minor }
    }

    #[test]
    fn mounts_of_one_device_and_mounts_of_one_path_stay_apart() {
        let table = MountTable::parse(TEXT);
        assert_eq!(table.path(40, device(8, 3)), Some("/srv/with blank\\and\ttab"));
        assert_eq!(table.path(41, device(8, 3)), Some("/bind"));
        assert_eq!(table.path(50, device(0, 50)), Some("/mnt"), "mounted over, still mounted");
        assert_eq!(table.path(51, device(0, 51)), Some("/mnt"));
        assert_eq!(table.path(60, device(0, 60)), Some("/c\u{fffd}"));
    }

    #[test]
    fn a_mount_that_does_not_exist_has_no_path() {
        let table = MountTable::parse(TEXT);
        assert_eq!(table.path(40, device(8, 4)), None, "the id was reused");
        assert_eq!(table.path(99, device(8, 3)), None);
        assert_eq!(table.path(70, device(0, 70)), None);
        assert_eq!(table.0.len(), 6);
    }

    #[test]
    fn the_mount_id_is_that_of_mountinfo() {
        let found = id("/proc/self".into()).unwrap();
        let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let of_proc = mountinfo.lines().rev().find(|line| line.split(' ').nth(4) == Some("/proc")).unwrap();
        assert_eq!(of_proc.split(' ').next(), Some(found.to_string().as_str()));
        let error = id("/nowhere/at/all".into()).unwrap_err();
        assert!(matches!(error, MountIdError::LookUp { .. }), "{error}");
    }

    #[test]
    fn rows_are_named_by_the_table_of_this_process() {
        let mut mounts = Mounts::open().unwrap();
        let own = rustix::fs::statx(CWD, "/proc", AtFlags::empty(), StatxFlags::MNT_ID).unwrap();
        let device = device(own.stx_dev_major, own.stx_dev_minor);
        let row = |mount| CounterRow {
            cgroup: 1,
            device,
            mount,
            path: None,
            operation: Operation::Read,
            variant: None,
            task: None,
            totals: Totals::default(),
            latency: Vec::new(),
        };
        let mut rows = vec![row(own.stx_mnt_id), row(u64::MAX)];
        mounts.name(&mut rows).unwrap();
        assert_eq!(rows[0].path.as_deref(), Some("/proc"));
        assert_eq!(rows[1].path, None);
        assert!(mounts.of_type("proc").any(|path| path == "/proc"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(text: Vec<u8>) {
            MountTable::parse(&text);
        }

        #[test]
        fn escaping_and_back_is_the_path(path in "[a-z \t\n\\\\/é]{0,30}") {
            let mut field = Vec::new();
            for byte in path.bytes() {
                match byte {
                    b' ' | b'\t' | b'\n' | b'\\' => field.extend(format!("\\{byte:03o}").bytes()),
                    _ => field.push(byte),
                }
            }
            prop_assert_eq!(unescape(&field), path);
        }
    }
}
