// SPDX-License-Identifier: MIT OR Apache-2.0
//! QEMU's arguments as bpfassay passes them, read by the stand-in and by the player.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use bpfassay_protocol::{
    JOB_PATH,
    job::{Job, RunSpec, Task},
};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

/// Largest initramfs that is searched for the job.
const MAX_INITRAMFS: u64 = 64 << 20;

/// The directory that the stand-in was started from.
pub(crate) fn home(arguments: &[OsString]) -> PathBuf {
    let name = arguments.first().map(Path::new);
    name.and_then(Path::parent).map_or_else(PathBuf::new, Path::to_owned)
}

/// The argument after `option`.
pub(crate) fn value<'a>(arguments: &'a [OsString], option: &str) -> Option<&'a OsString> {
    let at = arguments.iter().position(|argument| argument == option)?;
    arguments.get(at + 1)
}

/// The seed of the machine, or 0 without one.
pub(crate) fn seed(arguments: &[OsString]) -> u64 {
    value(arguments, "-seed").and_then(|argument| argument.to_str()?.parse().ok()).unwrap_or_default()
}

/// Duplicates the descriptor `number` of this process.
///
/// # Errors
/// The kernel's error if this process has no such descriptor, or no more may be open.
pub(crate) fn inherited(number: i32) -> io::Result<OwnedFd> {
    let this = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(this, number, PidfdGetfdFlags::empty())?)
}

/// Reads the job from the initramfs that QEMU was started with.
///
/// # Errors
/// If there is no `-initrd`, or the initramfs is unreadable or has no job of this version's form.
pub(crate) fn job(arguments: &[OsString]) -> io::Result<Job> {
    let path = value(arguments, "-initrd").ok_or_else(|| io::Error::other("no -initrd"))?;
    let text = path.to_string_lossy();
    let descriptor = text.strip_prefix("/dev/fd/").or_else(|| text.strip_prefix("/proc/self/fd/"));
    let mut bytes = Vec::new();
    match descriptor.and_then(|number| number.parse().ok()) {
        // This process's user may not be permitted to open the descriptor by name.
        Some(number) => read_from_start(&inherited(number)?, &mut bytes)?,
        None => {
            File::open(Path::new(path))?.take(MAX_INITRAMFS).read_to_end(&mut bytes)?;
        }
    }
    let text = last_file(&bytes, JOB_PATH).ok_or_else(|| io::Error::other("the initramfs has no job"))?;
    Ok(serde_json::from_slice(text)?)
}

fn read_from_start(file: impl AsFd, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = rustix::io::pread(&file, &mut *buffer, bytes.len() as u64)?;
        if count == 0 || bytes.len() as u64 > MAX_INITRAMFS {
            return Ok(());
        }
        bytes.extend_from_slice(&buffer[..count]);
    }
}

/// Returns the contents of the last file named `wanted` in concatenated newc archives.
fn last_file<'a>(bytes: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    const HEADER: usize = 110;
    let wanted = wanted.trim_start_matches('/').as_bytes();
    let (mut at, mut found) = (0, None);
    while let Some(header) = bytes.get(at..at + HEADER) {
        if !header.starts_with(b"070701") {
            // Zeros can separate archives.
            at += 4;
            continue;
        }
        let field = |index: usize| {
            let digits = std::str::from_utf8(&header[6 + 8 * index..14 + 8 * index]).ok()?;
            usize::from_str_radix(digits, 16).ok()
        };
        let (size, name_length) = (field(6)?, field(11)?);
        let body = (at + HEADER + name_length).next_multiple_of(4);
        let name = bytes.get(at + HEADER..(at + HEADER + name_length).saturating_sub(1))?;
        if name == wanted {
            found = bytes.get(body..body + size);
        }
        at = (body + size).next_multiple_of(4);
    }
    found
}

/// The runs of `job`.
pub(crate) fn runs(job: &Job) -> &[RunSpec] {
    match &job.task {
        Task::Runs { runs } => runs,
        Task::Shell | Task::Serve => &[],
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_testbed::initramfs::{Archive, NewcNode};

    use super::*;

    #[test]
    fn the_job_is_found_in_the_last_of_several_archives() {
        let archive = |path: &str, text: &str| {
            let mut archive = Archive::default();
            archive.add(path, NewcNode::File { executable: false, content: text.as_bytes().to_vec().into() }).unwrap();
            archive.to_bytes().unwrap()
        };
        let mut bytes = archive("/init", "x");
        bytes.extend(archive(JOB_PATH, "first"));
        bytes.extend(archive(JOB_PATH, "second"));
        assert_eq!(last_file(&bytes, JOB_PATH), Some(&b"second"[..]));
        assert_eq!(last_file(&bytes, "/nothing"), None);
        assert_eq!(last_file(b"070701zz", JOB_PATH), None);
    }
}
