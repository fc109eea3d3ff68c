//! kretprobes that watch as many calls at once as is asked for.
//!
//! The kernel sets apart room for the calls that a kretprobe watches when it is made, and misses those beyond. Through the
//! perf event source `kprobe` nobody can ask for more than its own number, which is one per CPU on a kernel of 5.10 without
//! preemption (`register_kretprobe` in kernel/kprobes.c, where 6.1 has at least 10): four tasks that wait in `vfs_write` on
//! one CPU are three too many. A line in tracefs' `kprobe_events` can.

use std::{
    ffi::CString,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    mem::size_of,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use libbpf_sys::perf_event_attr;

use crate::{
    hooked::{Kind, KprobeMode},
    kernel,
};

/// Calls that are watched at once unless told otherwise. The kernel takes up to 4096 (`KRETPROBE_MAXACTIVE_MAX`, 5.10 to 7.2),
/// and makes room for all of them at once, about 100 bytes each.
const MAXACTIVE: u32 = 1024;

/// Beginning of the names of this program's events, before its process id.
pub(crate) const PREFIX: &str = "bpfassay";

/// Where tracefs may be mounted, in the order in which libbpf looks for it.
const TRACEFS: [&str; 2] = ["/sys/kernel/debug/tracing", "/sys/kernel/tracing"];

/// A kretprobe with its program. Detaches when dropped.
#[derive(Debug)]
pub(crate) struct ReturnProbe {
    /// From 5.15 on.
    link: Option<OwnedFd>,
    kind: Kind,
    /// In this order: the program goes before the event, and the event before its line.
    _event: OwnedFd,
    _line: Line,
}

impl ReturnProbe {
    /// Makes a kretprobe on `function` that watches `maxactive` calls at once, and attaches `program` to it.
    ///
    /// # Errors
    /// The kernel's error; `NotFound` with a message where tracefs is not mounted.
    pub(crate) fn attach(program: BorrowedFd<'_>, function: &str, maxactive: Option<u32>) -> io::Result<Self> {
        let tracefs = TRACEFS.into_iter().map(Path::new).find(|path| path.join("kprobe_events").exists());
        let tracefs = tracefs.ok_or_else(|| {
            let message = "tracefs has no kprobe_events: mount it at /sys/kernel/tracing (kretprobes are made there)";
            io::Error::new(io::ErrorKind::NotFound, message)
        })?;
        let line = Line::add(tracefs, function, maxactive.unwrap_or(MAXACTIVE))?;
        let event = open_event(&attributes(libbpf_sys::PERF_TYPE_TRACEPOINT, line.id(tracefs)?))?;
        let link = attach_to(program, event.as_fd())?;
        let tells = link.as_ref().map(|link| kernel::link_missed(link.as_fd())).transpose()?.flatten().is_some();
        let kind = Kind::Kprobe(if tells { KprobeMode::Perf } else { KprobeMode::Tracefs });
        Ok(Self { link, kind, _event: event, _line: line })
    }

    /// The link to ask for misses.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn link(&self) -> io::Result<Option<OwnedFd>> {
        self.link.as_ref().map(OwnedFd::try_clone).transpose()
    }

    /// Where misses are counted.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }
}

/// A line in `kprobe_events`; taken out when dropped. One that a killed process leaves behind has no effect.
#[derive(Debug)]
struct Line {
    events: PathBuf,
    name: String,
}

impl Line {
    fn add(tracefs: &Path, function: &str, maxactive: u32) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = name(std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed), function);
        let events = tracefs.join("kprobe_events");
        match append(&events, &format!("r{maxactive}:{PREFIX}/{name} {function}\n")) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(why_refused(function).unwrap_or(error)),
            outcome => outcome.map(|()| Self { events, name }),
        }
    }

    fn id(&self, tracefs: &Path) -> io::Result<u64> {
        let path = tracefs.join("events").join(PREFIX).join(&self.name).join("id");
        let text = fs::read_to_string(&path)?;
        text.trim().parse().map_err(|_| io::Error::other(format!("{} holds no number", path.display())))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // What cannot be taken out stays there without effect.
        let _ = append(&self.events, &format!("-:{PREFIX}/{}\n", self.name));
    }
}

/// Name of an event, which must be an identifier; in the form in which libbpf names its own.
fn name(process: u32, number: u32, function: &str) -> String {
    let function: String = function.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("{PREFIX}_{process}_{number}_{function}_0x0")
}

/// The kernel's error for a kretprobe on `function` by the perf event source, if it refuses that, too: tracefs calls a
/// function that does not exist, or that there are several of, an invalid line (`trace_kprobe_create_internal` in
/// kernel/trace/trace_kprobe.c from 6.6 on).
fn why_refused(function: &str) -> Option<io::Error> {
    const SOURCE: &str = "/sys/bus/event_source/devices/kprobe/type";
    /// `format/retprobe` says `config:0`, on 4.17 to 7.2.
    const AT_RETURN: u64 = 1;
    let source = fs::read_to_string(SOURCE).ok()?.trim().parse().ok()?;
    let function = CString::new(function).ok()?;
    let mut attributes = attributes(source, AT_RETURN);
    attributes.__bindgen_anon_3.kprobe_func = function.as_ptr() as u64;
    open_event(&attributes).err()
}

/// One write is one command to the kernel, whose error is that of the write.
fn append(path: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().append(true).open(path)?.write_all(line.as_bytes())
}

/// The event `config` of a source.
fn attributes(source: u32, config: u64) -> perf_event_attr {
    let mut attributes =
        perf_event_attr { type_: source, size: size_of::<perf_event_attr>() as u32, config, ..Default::default() };
    attributes.__bindgen_anon_1.sample_period = 1;
    attributes.__bindgen_anon_2.wakeup_events = 1;
    attributes
}

/// Opens an event. Programs run wherever it happens, whichever CPU is named here (`kprobe_perf_func` and its like in
/// kernel/trace/trace_kprobe.c).
fn open_event(attributes: &perf_event_attr) -> io::Result<OwnedFd> {
    const EVERY_PROCESS: libc::pid_t = -1;
    const FIRST_CPU: libc::c_int = 0;
    const NO_GROUP: libc::c_int = -1;
    // SAFETY: the kernel reads `size` bytes of the attributes.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attributes),
            EVERY_PROCESS,
            FIRST_CPU,
            NO_GROUP,
            libbpf_sys::PERF_FLAG_FD_CLOEXEC as libc::c_ulong,
        )
    };
    let Ok(fd) = i32::try_from(fd) else { return Err(io::Error::other("the kernel gave no descriptor")) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches by a link, or where there are none for perf events (before 5.15) to the event itself.
fn attach_to(program: BorrowedFd<'_>, event: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    /// `_IOW('$', 8, __u32)` and `_IO('$', 0)` (include/uapi/linux/perf_event.h).
    const SET_BPF: u64 = 0x4004_2408;
    const ENABLE: u64 = 0x2400;
    // SAFETY: descriptors and numbers only.
    unsafe {
        let link = libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            event.as_raw_fd(),
            libbpf_sys::BPF_PERF_EVENT,
            std::ptr::null(),
        );
        let link = match link {
            0.. => Some(OwnedFd::from_raw_fd(link)),
            _ if -link == libc::EINVAL => {
                if libc::ioctl(event.as_raw_fd(), SET_BPF as _, program.as_raw_fd()) < 0 {
                    return Err(io::Error::last_os_error());
                }
                None
            }
            _ => return Err(io::Error::from_raw_os_error(-link)),
        };
        if libc::ioctl(event.as_raw_fd(), ENABLE as _, 0) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(link)
    }
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
