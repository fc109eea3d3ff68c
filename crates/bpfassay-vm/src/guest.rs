// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running guest as its owner sees it.

use std::{
    fs::File,
    os::fd::{OwnedFd, RawFd},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use bpfassay_protocol::{frame, message::HostMessage};
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use crate::{
    BootedFor, Deadlines, Ending, Event, Initramfs, Machine, Qemu, QemuVersion, VmError,
    console::ConsoleLog,
    device::descriptor,
    event::{Delivery, StopRequest},
    flood,
    limits::Limits,
    load,
    monitor::Monitor,
    output::{Backlog, Tail},
    process, supervisor,
};

/// How long a QEMU that has refused its guest may take to exit.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(5);
/// Messages to the agent that may wait to be read.
const AGENT_BACKLOG: usize = 64;
/// Chunks of console output or input that may wait, for an interactive guest.
const TERMINAL_BACKLOG: usize = 64;

/// How to run a guest.
#[derive(Debug, Clone)]
pub struct BootOptions {
    /// File for the console's output, made anew; its name is that of the guest.
    pub log_path: PathBuf,
    /// The same where it has been made already, and is open for writing: then nothing is opened by
    /// its path.
    pub log: Option<Arc<File>>,
    /// Largest size of that file in bytes, apart from the last lines, which are always added.
    pub log_limit: u64,
    /// How long each phase may take.
    pub deadlines: Deadlines,
    /// Whether the console is for [`Guest::interact`], and the guest's job is a shell.
    pub interactive: bool,
    /// The initramfs, for a machine with [`Initramfs::OpenFile`]: any file that is open for
    /// reading, at any offset.
    /// [`crate::file_for_initramfs`] returns one without a name.
    pub initramfs: Option<Arc<File>>,
    /// The plugin, a shared object that QEMU loads (`bpfassay-plugin`), for a guest that counts
    /// instructions: without it, a busy host can change the guest's clock. Where the machine has a
    /// plugin ([`Machine::plugin`]), it also counts, and [`Guest::read_counts`] returns the counts.
    pub plugin: Option<&'static [u8]>,
    /// The ends of the cables of a machine that is a node ([`cables`]): of a node its own, of the
    /// server one for each node.
    pub network: Vec<Arc<OwnedFd>>,
}

/// `count` cables between the server of a job and its nodes: the server's end of each, and the
/// node's.
///
/// # Errors
/// [`VmError::System`] where the host refuses a socket pair.
pub fn cables(count: u32) -> Result<Vec<(OwnedFd, OwnedFd)>, VmError> {
    let cable = |_| {
        rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|error| VmError::System { what: "a socket pair", source: error.into() })
    };
    (0..count).map(cable).collect()
}

impl BootOptions {
    /// At most 4 MiB of log, default deadlines, not interactive, no open initramfs.
    #[must_use]
    pub fn new(log_path: impl Into<PathBuf>) -> Self {
        Self {
            log_path: log_path.into(),
            log: None,
            log_limit: 4 << 20,
            deadlines: Deadlines::default(),
            interactive: false,
            initramfs: None,
            plugin: None,
            network: Vec::new(),
        }
    }
}

/// A guest from QEMU's start to QEMU's exit.
///
/// A task of the tokio runtime watches it: it enforces the deadlines, writes the log, and
/// acknowledges the agent's last message (`Done`, `Failed` or `Unsound`) with
/// [`HostMessage::PowerOff`], whether or not anybody asks for events. Dropping the guest kills
/// QEMU.
#[derive(Debug)]
pub struct Guest {
    events: mpsc::Receiver<Delivery>,
    stop_requests: mpsc::UnboundedSender<StopRequest>,
    agent: mpsc::Sender<Vec<u8>>,
    pub(crate) terminal: Option<TerminalEnds>,
    qemu_version: QemuVersion,
    process_id: Option<u32>,
    one_way: bool,
    unconfined: Vec<String>,
    ended: Option<Box<Ending>>,
    counts: Option<Tail>,
}

/// A file that QEMU inherits, and the number that it has there.
type Inherited = (OwnedFd, RawFd);

/// The console of an interactive guest.
#[derive(Debug)]
pub(crate) struct TerminalEnds {
    pub(crate) output: mpsc::Receiver<Vec<u8>>,
    pub(crate) input: mpsc::Sender<Vec<u8>>,
}

/// The files that QEMU inherits for `machine`, and where the plugin counts, the file of its counts.
///
/// # Errors
/// [`VmError::Input`], [`VmError::NoInitramfs`], [`VmError::NoPlugin`] where a file is missing or
/// unreadable, [`VmError::System`] where the host refuses a descriptor or a file in memory.
fn loaded(
    machine: &Machine,
    options: &BootOptions,
    limits: &Limits,
) -> Result<(Vec<Inherited>, Option<File>), VmError> {
    let kernel = load::open("kernel", &machine.kernel, limits)?;
    let initrd = match (&machine.initrd, &options.initramfs) {
        (None, _) => None,
        (Some(Initramfs::Path(path)), _) => Some(load::open("initramfs", path, limits)?),
        (Some(Initramfs::OpenFile), Some(file)) => Some(load::inherit("initramfs", file, limits)?),
        (Some(Initramfs::OpenFile), None) => return Err(VmError::NoInitramfs),
    };
    let mut loaded = vec![(kernel, descriptor::KERNEL)];
    loaded.extend(initrd.map(|initrd| (initrd, descriptor::INITRD)));
    for (cable, number) in options.network.iter().zip(descriptor::NETWORK..) {
        let cable = cable.try_clone().map_err(|source| VmError::System { what: "a descriptor", source })?;
        loaded.push((cable, number));
    }
    let counts = match options.plugin {
        None if machine.plugin => return Err(VmError::NoPlugin),
        None => None,
        Some(plugin) => {
            let (inherited, counts) = load::plugin(plugin)?;
            loaded.extend(inherited);
            machine.plugin.then_some(counts)
        }
    };
    Ok((loaded, counts))
}

impl Guest {
    /// Starts QEMU and waits until its monitor replies. The guest runs from then on.
    ///
    /// # Errors
    /// Nothing was started: [`VmError::Input`], [`VmError::NoInitramfs`], [`VmError::NoPlugin`] for
    /// kernel, initramfs or plugin missing or unreadable, [`VmError::OneWay`] for an interactive
    /// guest under the instruction clock, [`VmError::Log`], [`VmError::Spawn`], [`VmError::System`]
    /// where the host refuses a file, a process or a socket. QEMU was started and has exited:
    /// [`VmError::Refused`] where it refused its arguments,
    /// [`VmError::MonitorSilent`], [`VmError::Monitor`] where its monitor failed.
    pub async fn boot(qemu: &Qemu, machine: &Machine, options: BootOptions) -> Result<Self, VmError> {
        let (limits, mut unconfined) = qemu.confinement.limits(machine.accelerator, machine.cpus);
        let (loaded, counts) = loaded(machine, &options, &limits)?;
        if options.interactive && machine.clock.is_one_way() {
            return Err(VmError::OneWay);
        }
        let log = match &options.log {
            Some(file) => ConsoleLog::in_file(file, &options.log_path, options.log_limit),
            None => ConsoleLog::create(&options.log_path, options.log_limit),
        };
        let log = log.map_err(|source| VmError::Log { path: options.log_path.clone(), source })?;
        let shutdown_ack = frame::encode(&HostMessage::PowerOff).map_err(VmError::Frame)?;
        let machine = Machine { sandbox: machine.sandbox && qemu.confinement.sandbox, ..machine.clone() };
        if !machine.sandbox && qemu.confinement.sandbox {
            unconfined.push("QEMU runs without its filter of system calls: the machine is to have none".to_owned());
        }
        let mut process = {
            let program = (qemu.program.as_path(), qemu.own_root.as_ref());
            process::start(program, machine.arguments(), machine.clock, loaded, limits).await?
        };
        let started = tokio::time::Instant::now();
        let process_id = process.child.id();
        let (qemu_gone, gone) = watch::channel(false);
        let (console, console_way, console_backlog) = process.console.split(gone.clone());
        let (agent_port, agent_way, agent_backlog) = process.agent.split(gone.clone());
        let counts = counts.map(|file| Tail::new(file, gone));
        let backlogs = [
            ("the console", console_backlog),
            ("the agent's port", agent_backlog),
            ("the plugin", counts.as_ref().map(Tail::backlog)),
        ];
        let backlogs = backlogs.into_iter().filter_map(|(from, backlog)| Some((from, backlog?))).collect();
        let (flood_guard, floods) = flood::watch(backlogs, process_id)?;
        let stderr = process::keep_stderr(process.child.stderr.take());
        let Some((monitor, notices)) = Monitor::connect(process.monitor).await? else {
            let status = match timeout(REFUSAL_PATIENCE, process.child.wait()).await {
                Ok(status) => status.map_or_else(|error| error.to_string(), |status| status.to_string()),
                Err(_) => format!("it closed its monitor, and did not exit within {} s", REFUSAL_PATIENCE.as_secs()),
            };
            // Dropped, it is killed if it still runs.
            drop(process.child);
            let stderr = timeout(REFUSAL_PATIENCE, stderr).await.ok().and_then(Result::ok).unwrap_or_default();
            return Err(VmError::Refused { status, stderr });
        };
        let qemu_version = monitor.version;
        let (event_sender, events) = mpsc::channel(supervisor::EVENT_BACKLOG);
        let (stop_requests, stop_receiver) = mpsc::unbounded_channel();
        let (agent, agent_input) = mpsc::channel(AGENT_BACKLOG);
        let (output_sender, output) = mpsc::channel(TERMINAL_BACKLOG);
        let (input, input_receiver) = mpsc::channel(TERMINAL_BACKLOG);
        let mut deadlines = options.deadlines;
        if !options.interactive {
            deadlines.whole_boot.get_or_insert(Deadlines::LONGEST_BOOT);
        }
        let terminal = options.interactive.then_some(TerminalEnds { output, input });
        let supervisor = supervisor::Supervisor {
            child: process.child,
            stderr,
            started,
            monitor,
            notices,
            qemu_gone,
            console: (console, console_way),
            log,
            console_output: options.interactive.then_some(output_sender),
            console_input: input_receiver,
            agent: (agent_port, agent_way),
            floods,
            _flood_guard: flood_guard,
            agent_input,
            shutdown_ack: (agent.clone(), shutdown_ack),
            events: event_sender,
            stop_requests: stop_receiver,
            deadlines,
            booted_for: if options.interactive { BootedFor::Shell } else { BootedFor::Runs },
        };
        tokio::spawn(supervisor.run());
        Ok(Self {
            events,
            stop_requests,
            agent,
            terminal,
            qemu_version,
            process_id,
            one_way: machine.clock.is_one_way(),
            unconfined,
            ended: None,
            counts,
        })
    }

    /// QEMU's version, from its monitor.
    #[must_use]
    pub fn qemu_version(&self) -> QemuVersion {
        self.qemu_version
    }

    /// How this QEMU is less confined than it should be, one sentence each; empty where it is
    /// confined.
    #[must_use]
    pub fn unconfined(&self) -> &[String] {
        &self.unconfined
    }

    /// QEMU's process id, from which its resource use can be read; `None` if it had exited at once.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.process_id
    }

    /// The output of the plugin since the last call; empty where the machine has none. It is to be
    /// called often: a guest with more unread output than the limit of the agent's port is ended.
    ///
    /// # Errors
    /// The operating system's, where the file cannot be read.
    pub fn read_counts(&mut self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let Some(counts) = &mut self.counts else { return Ok(bytes) };
        let mut buffer = vec![0; 1 << 20];
        while (bytes.len() as u64) < Backlog::LIMIT {
            match counts.read_now(&mut buffer)? {
                0 => break,
                count => bytes.extend_from_slice(&buffer[..count]),
            }
        }
        Ok(bytes)
    }

    /// The next event. Cancel-safe.
    pub async fn next_event(&mut self) -> Event {
        if let Some(ending) = &self.ended {
            return Event::Ended(ending.clone());
        }
        let event = match self.events.recv().await {
            // With the memory that it took: from here on it is its owner's.
            Some((event, _room)) => event,
            None => Event::Ended(Box::new(Ending::abandoned())),
        };
        if let Event::Ended(ending) = &event {
            self.ended = Some(ending.clone());
        }
        event
    }

    /// Sends a message to the agent. It is written when the agent reads.
    ///
    /// # Errors
    /// [`VmError::Ended`] where the guest has ended, [`VmError::AgentBusy`] where the agent has left too many messages unread,
    /// [`VmError::OneWay`] under the instruction clock, [`VmError::Frame`] for a message that is too large.
    pub fn send(&self, message: &HostMessage) -> Result<(), VmError> {
        if self.one_way {
            return Err(VmError::OneWay);
        }
        let frame = frame::encode(message).map_err(VmError::Frame)?;
        self.agent.try_send(frame).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => VmError::AgentBusy { waiting: AGENT_BACKLOG },
            mpsc::error::TrySendError::Closed(_) => VmError::Ended,
        })
    }

    /// Requests the agent to power off and, after `grace`, QEMU to quit; at once where the agent
    /// receives no messages. The end comes as an event.
    pub fn request_stop(&self, grace: Duration) {
        let grace = if self.one_way { Duration::ZERO } else { grace };
        if !grace.is_zero() {
            // Where the agent receives no messages any more, QEMU quits after the grace.
            let _ = self.send(&HostMessage::PowerOff);
        }
        // The guest may have ended by itself, as requested.
        let _ = self.stop_requests.send(StopRequest { grace });
    }

    /// Stops the guest as [`Self::request_stop`] does and waits for its end. Events until then are
    /// dropped.
    pub async fn shut_down(mut self, grace: Duration) -> Ending {
        self.request_stop(grace);
        self.end().await
    }

    /// Stops the guest at once and waits until QEMU has exited. Events until then are dropped.
    pub async fn kill(self) -> Ending {
        self.shut_down(Duration::ZERO).await
    }

    /// Waits for the end. Events until then are dropped.
    pub async fn end(&mut self) -> Ending {
        loop {
            if let Event::Ended(ending) = self.next_event().await {
                return *ending;
            }
        }
    }
}
