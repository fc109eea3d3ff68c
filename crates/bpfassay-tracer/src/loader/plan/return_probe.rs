// SPDX-License-Identifier: MIT OR Apache-2.0
//! kretprobes that watch a given number of calls at once.
//!
//! When a kretprobe is created, the kernel reserves capacity for the calls that it watches, and
//! misses calls beyond that. The perf event source `kprobe` uses the kernel's default, which is one
//! per CPU on 5.10 without preemption, and at least 10 on 6.1 (`register_kretprobe` in
//! kernel/kprobes.c). If four tasks wait in `vfs_write` on one CPU of such a 5.10 kernel, three are
//! missed. A line in tracefs' `kprobe_events` can set the number.

use std::{
    ffi::CString,
    fs::OpenOptions,
    io::{self, Write as _},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::{
    kernel::{
        bpf_objects,
        perf::{self, PerfEvent},
        tracefs,
    },
    loader::plan::hooked::{AttachKind, KprobeMode},
};
use bpfassay_bpf::{LinkTarget, link_create};

/// Default number of calls that are watched at once. The kernel accepts up to 4096
/// (`KRETPROBE_MAXACTIVE_MAX`, 5.10 to 7.2), and reserves memory for all of them at once, about 100
/// bytes each.
const MAXACTIVE: u32 = 1024;

/// Prefix of the names of this program's events, before the process id.
pub(crate) const PREFIX: &str = "bpfassay";

/// A kretprobe with its program. It detaches when it is dropped.
#[derive(Debug)]
pub(crate) struct ReturnProbe {
    /// The link, which exists from 5.15 on.
    link: Option<OwnedFd>,
    kind: AttachKind,
    /// Fields are dropped in order: the program before the event, and the event before its line.
    _event: OwnedFd,
    _line: KprobeEventsLine,
}

impl ReturnProbe {
    /// Creates a kretprobe on `function` that watches `maxactive` calls at once, and attaches
    /// `program` to it.
    ///
    /// # Errors
    /// The kernel's error; `NotFound` with a message if tracefs is not mounted.
    pub(crate) fn attach(program: BorrowedFd<'_>, function: &str, maxactive: Option<u32>) -> io::Result<Self> {
        let events = tracefs::path("kprobe_events").ok_or_else(|| {
            let message = "tracefs has no kprobe_events: mount it at /sys/kernel/tracing (kretprobes are made there)";
            io::Error::new(io::ErrorKind::NotFound, message)
        })?;
        let line = KprobeEventsLine::add(events, function, maxactive.unwrap_or(MAXACTIVE))?;
        let id = tracefs::event_id(&format!("{PREFIX}/{}", line.name))?;
        let event = perf::open(PerfEvent::Tracepoint(id))?;
        let link = attach_to(program, event.as_fd())?;
        let counts = link.as_ref().map(|link| bpf_objects::link_missed(link.as_fd())).transpose()?.flatten().is_some();
        let kind = AttachKind::Kprobe(if counts { KprobeMode::Perf } else { KprobeMode::Tracefs });
        Ok(Self { link, kind, _event: event, _line: line })
    }

    /// Returns the link that reports misses.
    ///
    /// # Errors
    /// The kernel's error, if the descriptor cannot be duplicated.
    pub(crate) fn link(&self) -> io::Result<Option<OwnedFd>> {
        self.link.as_ref().map(OwnedFd::try_clone).transpose()
    }

    /// Returns the kind, which tells where misses are counted.
    pub(crate) fn kind(&self) -> AttachKind {
        self.kind
    }
}

/// A line in `kprobe_events`, which is removed when this is dropped. A line that a killed process
/// leaves behind has no effect.
#[derive(Debug)]
struct KprobeEventsLine {
    events: PathBuf,
    name: String,
}

impl KprobeEventsLine {
    fn add(events: PathBuf, function: &str, maxactive: u32) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = name(std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed), function);
        match append(&events, &format!("r{maxactive}:{PREFIX}/{name} {function}\n")) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(why_refused(function).unwrap_or(error)),
            outcome => outcome.map(|()| Self { events, name }),
        }
    }
}

impl Drop for KprobeEventsLine {
    fn drop(&mut self) {
        // A line that cannot be removed stays, without effect.
        let _ = append(&self.events, &format!("-:{PREFIX}/{}\n", self.name));
    }
}

/// Returns the name of an event, in the form that libbpf uses. It must be an identifier.
fn name(process: u32, number: u32, function: &str) -> String {
    let function: String = function.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("{PREFIX}_{process}_{number}_{function}_0x0")
}

/// Returns the kernel's error for a kretprobe on `function` by the perf event source, if it refuses
/// that, too. For tracefs, a function that does not exist, or exists several times, is an invalid
/// line (`trace_kprobe_create_internal` in kernel/trace/trace_kprobe.c from 6.6 on).
fn why_refused(function: &str) -> Option<io::Error> {
    let kind = perf::source("kprobe").ok()?;
    let function = CString::new(function).ok()?;
    perf::open(PerfEvent::Kprobe { kind, returns: true, function: &function }).err()
}

/// Appends in one write, which is one command to the kernel. The error of the command is the error
/// of the write.
fn append(path: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().append(true).open(path)?.write_all(line.as_bytes())
}

/// Attaches by a link, or to the event itself if there are no links for perf events (before 5.15).
fn attach_to(program: BorrowedFd<'_>, event: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let link = match link_create(program, libbpf_sys::BPF_PERF_EVENT, LinkTarget::PerfEvent { event, cookie: 0 }) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            perf::set_program(event, program)?;
            None
        }
        made => Some(made?),
    };
    perf::enable(event)?;
    Ok(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_events_are_identifiers() {
        assert_eq!(name(7, 2, "vfs_write"), "bpfassay_7_2_vfs_write_0x0");
        assert_eq!(name(7, 2, "vfs_rmdir.part.0"), "bpfassay_7_2_vfs_rmdir_part_0_0x0");
    }
}
