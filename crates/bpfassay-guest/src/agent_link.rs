// SPDX-License-Identifier: MIT OR Apache-2.0
//! The port to the host: finding it, sending frames, receiving frames. If there is no host, the
//! frames go to a file.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    os::fd::{AsRawFd, OwnedFd},
    panic,
    sync::{
        Arc, Condvar, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bpfassay_protocol::{
    AGENT_PORT, frame,
    message::{GuestMessage, HostMessage, Phase},
    with_causes,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    error::{Error, Result},
    power_off, signals,
    uevent::Listener,
};

const PORTS: &str = "/sys/class/virtio-ports";

/// How long to wait for the port after the last module has been inserted.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the host is given to acknowledge the last message before the guest powers off without
/// it.
const SHUTDOWN_ACK_TIMEOUT: Duration = Duration::from_secs(5);

/// The only link of this process, for the panic hook.
static LINK: OnceLock<Link> = OnceLock::new();

/// The open port, or the file in its place.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    port: Arc<Mutex<File>>,
    /// Whether a host receives the last message and acknowledges it.
    answers: bool,
    gone: Arc<(Mutex<bool>, Condvar)>,
    /// The host's answer to the barrier that this guest waits at.
    barrier: Arc<(Mutex<Option<bool>>, Condvar)>,
}

impl Link {
    /// Returns the link, if it is open.
    pub(crate) fn get() -> Option<&'static Self> {
        LINK.get()
    }

    /// Opens the port if it is there, sends [`GuestMessage::Hello`], and starts to receive the
    /// host's messages.
    pub(crate) fn try_open() -> Result<Option<&'static Self>> {
        if let Some(link) = LINK.get() {
            return Ok(Some(link));
        }
        let Some(path) = find(PORTS)? else { return Ok(None) };
        let port = OpenOptions::new().read(true).write(true).open(&path).map_err(Error::file("open", &path))?;
        let reader = port.try_clone().map_err(Error::file("duplicate", &path))?;
        let link =
            Self { port: Arc::new(Mutex::new(port)), answers: true, gone: Arc::default(), barrier: Arc::default() };
        let link = LINK.get_or_init(|| link);
        link.hello()?;
        let listen = move || match link.listen(reader) {
            Ok(never) => match never {},
            Err(error) => fail(&error),
        };
        thread::Builder::new().name("host".to_owned()).spawn(listen).map_err(Error::system("start a thread"))?;
        Ok(Some(link))
    }

    /// Creates a link that writes to `file` and receives no messages.
    pub(crate) fn into_file(file: File) -> Result<Self> {
        let link =
            Self { port: Arc::new(Mutex::new(file)), answers: false, gone: Arc::default(), barrier: Arc::default() };
        link.hello()?;
        Ok(link)
    }

    fn hello(&self) -> Result<()> {
        self.send(&GuestMessage::Hello { agent: env!("CARGO_PKG_VERSION").to_owned() })
    }

    /// Waits until the port exists, then does the same as [`Link::try_open`]. `events` must have
    /// been opened before the device could appear.
    pub(crate) fn open(events: &Listener) -> Result<&'static Self> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(link) = Self::try_open()? {
                return Ok(link);
            }
            wait_for_port_event(events, deadline)?;
        }
    }

    /// Sends one message. Blocks while no host is connected.
    pub(crate) fn send(&self, message: &GuestMessage) -> Result<()> {
        self.send_frame(&frame::encode(message)?)
    }

    /// Sends one frame that [`frame::encode`] made.
    pub(crate) fn send_frame(&self, frame: &[u8]) -> Result<()> {
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        port.write_all(frame).map_err(Error::system("write to the port to the host"))
    }

    pub(crate) fn phase(&self, phase: Phase, run: Option<&str>) -> Result<()> {
        self.send(&GuestMessage::Phase { phase, run: run.map(str::to_owned) })
    }

    /// Sends a line for the host's log.
    pub(crate) fn log(&self, text: impl Into<String>) -> Result<()> {
        self.send(&GuestMessage::Log { text: text.into() })
    }

    /// Sends the last message and gives the host time to receive it. Returns when the host hangs up
    /// or [`SHUTDOWN_ACK_TIMEOUT`] has passed. If the host orders power-off, the receiving thread
    /// powers off, and this function does not return. The port itself does not report how much of
    /// the written data still waits inside QEMU.
    pub(crate) fn send_last(&self, message: &GuestMessage) -> Result<()> {
        self.send(message)?;
        if !self.answers {
            return Ok(());
        }
        let (gone, changed) = &*self.gone;
        let gone = gone.lock().unwrap_or_else(PoisonError::into_inner);
        // A hang-up and a timeout have the same consequence: the guest powers off.
        let _ = changed.wait_timeout_while(gone, SHUTDOWN_ACK_TIMEOUT, |gone| !*gone);
        Ok(())
    }

    /// Receives the host's messages until the process ends.
    fn listen(&self, mut port: File) -> Result<std::convert::Infallible> {
        let connections = connection_events(&port)?;
        let mut connections = File::from(connections);
        let mut decoder = frame::Decoder::default();
        let mut buffer = [0; 4096];
        loop {
            let length = port.read(&mut buffer).map_err(Error::system("read from the port to the host"))?;
            self.set_gone(length == 0);
            if length == 0 {
                // While no host is connected, the port stays readable. Wait for the signal that
                // reports a change.
                let mut event = [0; size_of::<libc::signalfd_siginfo>()];
                let _ = connections.read(&mut event).map_err(Error::system("wait for the host to connect"))?;
                self.set_gone(false);
                continue;
            }
            decoder.push(&buffer[..length]);
            while let Some(message) = decoder.next()? {
                match message {
                    HostMessage::PowerOff => power_off::off(),
                    HostMessage::Barrier { all_there } => {
                        let (answer, changed) = &*self.barrier;
                        *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(all_there);
                        changed.notify_all();
                    }
                }
            }
        }
    }

    /// Waits for the host's answer to a barrier. Returns whether all nodes have arrived. The host
    /// ends guests that wait for too long.
    pub(crate) fn await_barrier(&self) -> bool {
        let (answer, changed) = &*self.barrier;
        let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(all_there) = answer.take() {
                return all_there;
            }
            answer = changed.wait(answer).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn set_gone(&self, now: bool) {
        let (gone, changed) = &*self.gone;
        *gone.lock().unwrap_or_else(PoisonError::into_inner) = now;
        changed.notify_all();
    }
}

/// Reports to the host (and on the console) what failed, then powers off.
pub(crate) fn fail(error: &Error) -> ! {
    fail_with(with_causes(error))
}

/// Set when the first failure is reported. Failures that follow from it are not sent.
static FAILING: AtomicBool = AtomicBool::new(false);

fn fail_with(message: String) -> ! {
    power_off::say(&format!("failed: {message}"));
    if !FAILING.swap(true, Ordering::SeqCst) {
        // After an early failure the port can exist without being open.
        let sent =
            Link::try_open().and_then(|link| link.map_or(Ok(()), |l| l.send_last(&GuestMessage::Failed { message })));
        if let Err(error) = sent {
            power_off::say(&format!("could not report it to the host: {}", with_causes(&error)));
        }
    }
    power_off::off()
}

/// Makes a panic anywhere in the agent be reported like any other failure.
pub(crate) fn report_panics() {
    panic::set_hook(Box::new(|panic| {
        let what = panic.payload_as_str().unwrap_or("unknown reason");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        fail_with(format!("the agent panicked at {place}: {what}; this is a bug in bpfassay-guest"))
    }));
}

/// Returns the driver's signals that the host has connected or hung up, as a readable file. `SIGIO`
/// must be blocked in every thread ([`signals::block`]).
fn connection_events(port: &File) -> Result<OwnedFd> {
    let watch = Error::system("watch the port to the host");
    let events = match signals::descriptor(&[libc::SIGIO]) {
        Ok(events) => events,
        Err(error) => return Err(watch(error)),
    };
    // SAFETY: plain system calls on a file descriptor that is open.
    let status = unsafe {
        match libc::fcntl(port.as_raw_fd(), libc::F_SETOWN, libc::getpid()) {
            0 => libc::fcntl(port.as_raw_fd(), libc::F_SETFL, libc::O_ASYNC),
            error => error,
        }
    };
    if status < 0 { Err(watch(std::io::Error::last_os_error())) } else { Ok(events) }
}

/// Blocks until a uevent of a virtio-serial port arrives.
fn wait_for_port_event(events: &Listener, deadline: Instant) -> Result<()> {
    loop {
        loop {
            match events.next() {
                Ok(Some(event)) if event.subsystem == "virtio-ports" => return Ok(()),
                Ok(Some(_)) => {}
                Ok(None) => break,
                // Uevents were lost: one of them could have been the port's.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(()),
                Err(error) => return Err(Error::system("receive the kernel's device events")(error)),
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Error::NoPort { name: AGENT_PORT, seconds: PATIENCE.as_secs() });
        }
        wait_readable(&mut [PollFd::new(events, PollFlags::IN)], Some(left))?;
    }
}

/// Calls poll(2) with a deadline and repeats it when interrupted. Returns the number of ready
/// descriptors.
pub(crate) fn wait_readable(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<usize> {
    let timeout = timeout.map(|left| Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    loop {
        match poll(fds, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.map_err(Error::system("wait for events")),
        }
    }
}

/// Returns the device file of the port named [`AGENT_PORT`], if it exists.
fn find(ports: &str) -> Result<Option<String>> {
    let entries = match fs::read_dir(ports) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::file("list", ports)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(Error::file("list", ports))?;
        // The attribute appears only after the host has named the port. Then another uevent
        // follows.
        if fs::read_to_string(entry.path().join("name")).is_ok_and(|name| name.trim_end() == AGENT_PORT) {
            return Ok(Some(format!("/dev/{}", entry.file_name().to_string_lossy())));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_takes_the_frames_of_a_link_and_no_answer_is_waited_for() {
        let mut file = tempfile::tempfile().unwrap();
        let link = Link::into_file(file.try_clone().unwrap()).unwrap();
        let since = Instant::now();
        link.send_last(&GuestMessage::Done).unwrap();
        assert!(since.elapsed() < SHUTDOWN_ACK_TIMEOUT);
        let mut bytes = Vec::new();
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        let mut decoder = frame::Decoder::default();
        decoder.push(&bytes);
        assert!(matches!(decoder.next().unwrap(), Some(GuestMessage::Hello { .. })));
        assert_eq!(decoder.next().unwrap(), Some(GuestMessage::Done));
        assert!(!decoder.is_mid_frame());
    }

    #[test]
    fn the_port_is_found_by_its_name() {
        let class = tempfile::tempdir().unwrap();
        let ports = class.path().to_str().unwrap();
        assert_eq!(find(&format!("{ports}/none")).unwrap(), None);
        for (port, name) in [("vport0p1", "org.qemu.guest_agent.0\n"), ("vport1p3", "org.bpfassay.agent\n")] {
            fs::create_dir(class.path().join(port)).unwrap();
            fs::write(class.path().join(port).join("name"), name).unwrap();
        }
        fs::create_dir(class.path().join("vport2p1")).unwrap();
        assert_eq!(find(ports).unwrap().as_deref(), Some("/dev/vport1p3"));
    }
}
