// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts QEMU with inherited sockets and files, so that it does not outlive this program.

use std::{
    ffi::OsString,
    fs::File,
    io,
    mem::ManuallyDrop,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream as StdUnixStream,
    },
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, PoisonError, mpsc},
    thread,
};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use tokio::{
    io::AsyncReadExt,
    net::{UnixStream, unix::OwnedWriteHalf},
    process::{Child, ChildStderr, Command},
    runtime::Handle,
    sync::{oneshot, watch},
    task::JoinHandle,
};

use crate::{
    bounded_output::{Backlog, OutputFile, Tail, file_in_memory},
    device::{descriptor, path_of},
    error::VmError,
    guest_clock::GuestClock,
    limits::QemuLimits,
    own_root::{self, OwnRoot},
};

/// Largest part of QEMU's standard error that is kept, in bytes.
const STDERR_LIMIT: usize = 8 << 10;

/// A running QEMU, and this side's ends of its sockets or files.
pub(crate) struct QemuProcess {
    pub(crate) child: Child,
    pub(crate) console: Channel,
    pub(crate) agent: Channel,
    pub(crate) monitor: UnixStream,
}

/// This side's end of a character device (`device::channel`).
pub(crate) enum Channel {
    /// Both directions.
    Socket(UnixStream),
    /// From the guest to the host only.
    File(File),
}

impl Channel {
    /// Creates a channel for a guest with this clock. Returns it with QEMU's end.
    fn new(name: &str, clock: GuestClock) -> Result<(Self, OwnedFd), VmError> {
        if clock.is_one_way() {
            let (file, theirs) =
                file_in_memory(name).map_err(|source| VmError::System { what: "a file in memory", source })?;
            Ok((Self::File(file), theirs))
        } else {
            let (ours, theirs) = pair()?;
            Ok((Self::Socket(ours), theirs))
        }
    }

    /// Returns the output, the writer if there is one, and the backlog if QEMU does not wait for
    /// reads. `gone` changes when QEMU has exited.
    pub(crate) fn split(self, gone: watch::Receiver<bool>) -> (OutputFile, Option<OwnedWriteHalf>, Option<Backlog>) {
        match self {
            Self::Socket(socket) => {
                let (read, write) = socket.into_split();
                (OutputFile::Socket(read), Some(write), None)
            }
            Self::File(file) => {
                let tail = Tail::new(file, gone);
                let backlog = tail.backlog();
                (OutputFile::File(tail), None, Some(backlog))
            }
        }
    }
}

/// Starts `program` (possibly in its own root directory) for a guest with this clock. QEMU inherits
/// `loaded` among other files.
///
/// # Errors
/// [`VmError::Input`] if the root directory of QEMU cannot be opened. [`VmError::System`] if a
/// socket pair or a file in memory cannot be created. [`VmError::Spawn`] if the program cannot be
/// started.
pub(crate) async fn start(
    (program, own_root): (&Path, Option<&OwnRoot>),
    arguments: Vec<OsString>,
    clock: GuestClock,
    loaded: Vec<(OwnedFd, RawFd)>,
    limits: QemuLimits,
) -> Result<QemuProcess, VmError> {
    let (console, console_end) = Channel::new("console", clock)?;
    let (agent, agent_end) = Channel::new("agent", clock)?;
    let (monitor, monitor_end) = pair()?;
    let mut inherited = loaded;
    inherited.extend([
        (console_end, descriptor::CONSOLE),
        (agent_end, descriptor::AGENT),
        (monitor_end, descriptor::MONITOR),
    ]);
    let (mut command, root) = own_root::command(program, own_root, &limits)?;
    inherited.extend(root);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // In another process group, Ctrl-C does not reach QEMU. This program gets it, and stops its
        // guests in order.
        .process_group(0)
        .kill_on_drop(true);
    let child = spawn(command, inherited, limits).await?;
    Ok(QemuProcess { child, console, agent, monitor })
}

/// Reads QEMU's standard error to its end, and keeps the beginning.
pub(crate) fn keep_stderr(stderr: Option<ChildStderr>) -> JoinHandle<String> {
    tokio::spawn(async move {
        let mut kept = Vec::new();
        if let Some(mut stderr) = stderr {
            let mut buffer = [0; 1024];
            while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
                let room = STDERR_LIMIT.saturating_sub(kept.len()).min(count);
                kept.extend_from_slice(&buffer[..room]);
            }
        }
        // A guest can influence the text.
        let is_control = |c: char| c.is_control() && c != '\n';
        String::from_utf8_lossy(&kept).replace(is_control, " ").trim().to_owned()
    })
}

/// Creates a connected pair: this side's end for tokio, and the other side's end.
fn pair() -> Result<(UnixStream, OwnedFd), VmError> {
    let make = || -> io::Result<_> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok((UnixStream::from_std(ours)?, theirs.into()))
    };
    make().map_err(|source| VmError::System { what: "a socket pair", source })
}

/// Starts `command` with `descriptors` under the given numbers, within `limits`, and so that it
/// dies with this program. A plugin among `descriptors` is loaded before the C library, because it
/// holds back QEMU's main loop while the guest executes (`main_loop.rs` of bpfassay-plugin).
///
/// # Errors
/// [`VmError::Spawn`] if the program cannot be started, or a step between fork and exec fails.
pub(crate) async fn spawn(
    mut command: Command,
    descriptors: Vec<(OwnedFd, RawFd)>,
    limits: QemuLimits,
) -> Result<Child, VmError> {
    let program = PathBuf::from(command.as_std().get_program());
    if descriptors.iter().any(|(_, number)| *number == descriptor::PLUGIN) {
        command.env("LD_PRELOAD", path_of(descriptor::PLUGIN));
    }
    prepare(&mut command, descriptors, limits);
    on_spawner(command).await?.map_err(|source| VmError::Spawn { program, source })
}

fn prepare(command: &mut Command, descriptors: Vec<(OwnedFd, RawFd)>, limits: QemuLimits) {
    let parent = getpid();
    let prepare = move || -> io::Result<()> {
        for (descriptor, number) in &descriptors {
            place(descriptor, *number)?;
        }
        limits.confine()?;
        // Set after the change of user, which clears it.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the call above. In that case, no signal would be sent.
        if getppid() != Some(parent) {
            return Err(io::Error::from(rustix::io::Errno::SRCH));
        }
        Ok(())
    };
    // SAFETY: between fork and exec, only async-signal-safe functions may be called. The closure
    // makes system calls through rustix, reads memory that it owns, and allocates nothing (errors
    // are bare error numbers).
    unsafe { command.pre_exec(prepare) };
}

/// Duplicates `descriptor` as `number`, to be kept over exec. Refuses to replace an open
/// descriptor, which could be the pipe by which the standard library reports a failed exec.
fn place(descriptor: &OwnedFd, number: RawFd) -> io::Result<()> {
    // SAFETY: `number` is possibly not an open descriptor. It is only passed to fcntl, which then
    // refuses it.
    let target = unsafe { BorrowedFd::borrow_raw(number) };
    if rustix::io::fcntl_getfd(target).is_ok() || descriptor.as_raw_fd() == number {
        return Err(io::Error::from(rustix::io::Errno::BUSY));
    }
    // SAFETY: `number` is not open, so it has no other owner. `dup2` opens it, and it is never
    // dropped here.
    let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    rustix::io::dup2(descriptor, &mut target)?;
    Ok(())
}

type ReaperJob = Box<dyn FnOnce() + Send>;

/// The thread that starts every QEMU.
///
/// The death signal is sent when the *thread* that forked ends (prctl(2)). Threads of a tokio
/// runtime start and end, but this thread exists as long as the program.
static SPAWNER: Mutex<Option<mpsc::Sender<ReaperJob>>> = Mutex::new(None);

async fn on_spawner(mut command: Command) -> Result<io::Result<Child>, VmError> {
    let gone =
        |what: &str| VmError::System { what: "the thread that starts QEMU", source: io::Error::other(what.to_owned()) };
    let (answer, receive) = oneshot::channel();
    let runtime = Handle::current();
    let job: ReaperJob = Box::new(move || {
        // tokio registers the child with the entered runtime.
        let _entered = runtime.enter();
        // If nobody waits any more, the child is dropped, which kills it.
        let _ = answer.send(command.spawn());
    });
    spawner()?.send(job).map_err(|_| gone("it has ended"))?;
    receive.await.map_err(|_| gone("it sent no reply"))
}

fn spawner() -> Result<mpsc::Sender<ReaperJob>, VmError> {
    let mut spawner = SPAWNER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(sender) = spawner.as_ref() {
        return Ok(sender.clone());
    }
    let (sender, jobs) = mpsc::channel::<ReaperJob>();
    thread::Builder::new()
        .name("qemu-spawner".to_owned())
        .spawn(move || jobs.into_iter().for_each(|job| job()))
        .map_err(|source| VmError::System { what: "a thread", source })?;
    Ok(spawner.insert(sender).clone())
}
