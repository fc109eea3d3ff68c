// SPDX-License-Identifier: MIT OR Apache-2.0
//! A running guest, from the view of its owner.

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
    boot_progress::GuestDeadlines,
    bounded_output::{Backlog, Tail},
    console::ConsoleLog,
    device::descriptor,
    error::VmError,
    flood,
    guest_ending::GuestEnding,
    host_load,
    limits::QemuLimits,
    machine::{Initramfs, Machine},
    monitor::MonitorClient,
    order::BootedFor,
    qemu::Qemu,
    qemu_process,
    qemu_version::QemuVersion,
    supervisor,
    vm_event::{Delivery, StopRequest, VmEvent},
};

/// Time for a QEMU that has refused its guest to exit.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(5);
/// Largest number of unread messages to the agent.
const AGENT_BACKLOG: usize = 64;
/// Largest number of unread chunks of console output or input of an interactive guest.
const TERMINAL_BACKLOG: usize = 64;

/// Options for running a guest.
#[derive(Debug, Clone)]
pub struct BootOptions {
    /// File for the console's output, newly created. Its name is the guest's name.
    pub log_path: PathBuf,
    /// The file at `log_path`, if it is already created and open for writing. The path is then not
    /// opened.
    pub log: Option<Arc<File>>,
    /// Largest size of the log in bytes, without the last lines, which are always added.
    pub log_limit: u64,
    /// Time limits of the phases.
    pub deadlines: GuestDeadlines,
    /// Whether the console is for [`Guest::interact`], and the guest's job is a shell.
    pub interactive: bool,
    /// The initramfs for a machine with [`Initramfs::OpenFile`]: any file that is open for reading,
    /// at any offset. [`crate::file_for_initramfs`] returns one without a name.
    pub initramfs: Option<Arc<File>>,
    /// The plugin, a shared object that QEMU loads (`bpfassay-plugin`), for a guest that counts
    /// instructions. Without it, a busy host can change the guest's clock. If [`Machine::plugin`]
    /// is set, the plugin also counts, and [`Guest::read_counts`] returns the counts.
    pub plugin: Option<&'static [u8]>,
    /// Ends of the network's cables ([`cables`]): a node has one, the server has one for each node.
    pub network: Vec<Arc<OwnedFd>>,
}

/// Creates `count` cables between a job's server and its nodes. Returns the ends of the server and
/// of the node for each cable.
///
/// # Errors
/// [`VmError::System`] if the host refuses a socket pair.
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
    /// Sets at most 4 MiB of log, default deadlines, not interactive, no open initramfs.
    #[must_use]
    pub fn new(log_path: impl Into<PathBuf>) -> Self {
        Self {
            log_path: log_path.into(),
            log: None,
            log_limit: 4 << 20,
            deadlines: GuestDeadlines::default(),
            interactive: false,
            initramfs: None,
            plugin: None,
            network: Vec::new(),
        }
    }
}

/// A guest from QEMU's start to QEMU's exit.
///
/// A task of the tokio runtime watches the guest. It enforces the deadlines, writes the log, and
/// acknowledges the agent's last message (`Done`, `Failed` or `Unsound`) with
/// [`HostMessage::PowerOff`], even if nobody asks for events. Dropping the guest kills QEMU.
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
    ended: Option<Box<GuestEnding>>,
    counts: Option<Tail>,
}

/// A file that QEMU inherits, and its number in QEMU.
type Inherited = (OwnedFd, RawFd);

#[derive(Debug)]
pub(crate) struct TerminalEnds {
    pub(crate) output: mpsc::Receiver<Vec<u8>>,
    pub(crate) input: mpsc::Sender<Vec<u8>>,
}

/// Opens the files that QEMU inherits for `machine`. Also returns the file of the counts if the
/// plugin counts.
///
/// # Errors
/// [`VmError::Input`], [`VmError::NoInitramfs`] or [`VmError::NoPlugin`] if a file is missing or
/// unreadable, [`VmError::System`] if the host refuses a descriptor or a file in memory.
fn loaded(
    machine: &Machine,
    options: &BootOptions,
    limits: &QemuLimits,
) -> Result<(Vec<Inherited>, Option<File>), VmError> {
    let kernel = host_load::open("kernel", &machine.kernel, limits)?;
    let initrd = match (&machine.initrd, &options.initramfs) {
        (None, _) => None,
        (Some(Initramfs::Path(path)), _) => Some(host_load::open("initramfs", path, limits)?),
        (Some(Initramfs::OpenFile), Some(file)) => Some(host_load::inherit("initramfs", file, limits)?),
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
            let (inherited, counts) = host_load::plugin(plugin)?;
            loaded.extend(inherited);
            machine.plugin.then_some(counts)
        }
    };
    Ok((loaded, counts))
}

impl Guest {
    /// Starts QEMU, and waits until its monitor replies. The guest runs from then on.
    ///
    /// # Errors
    /// Before QEMU starts:
    ///
    /// - [`VmError::Input`], [`VmError::NoInitramfs`] or [`VmError::NoPlugin`] if kernel, initramfs
    ///   or plugin is missing or unreadable.
    /// - [`VmError::OneWay`] for an interactive guest under the instruction clock.
    /// - [`VmError::Log`], [`VmError::Spawn`] or [`VmError::System`] if the host refuses a file, a
    ///   process or a socket.
    ///
    /// After QEMU has started: [`VmError::Refused`] if it refused its arguments,
    /// [`VmError::MonitorSilent`] or [`VmError::Monitor`] if its monitor failed.
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
            qemu_process::start(program, machine.arguments(), machine.clock, loaded, limits).await?
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
        let stderr = qemu_process::keep_stderr(process.child.stderr.take());
        let Some((monitor, notices)) = MonitorClient::connect(process.monitor).await? else {
            let status = match timeout(REFUSAL_PATIENCE, process.child.wait()).await {
                Ok(status) => status.map_or_else(|error| error.to_string(), |status| status.to_string()),
                Err(_) => format!("it closed its monitor, and did not exit within {} s", REFUSAL_PATIENCE.as_secs()),
            };
            // Dropping the process kills it if it still runs.
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
            deadlines.whole_boot.get_or_insert(GuestDeadlines::LONGEST_BOOT);
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

    /// Returns QEMU's version according to its monitor.
    #[must_use]
    pub fn qemu_version(&self) -> QemuVersion {
        self.qemu_version
    }

    /// Returns the measures of confinement that this QEMU lacks, one sentence each. Empty if it is
    /// fully confined.
    #[must_use]
    pub fn unconfined(&self) -> &[String] {
        &self.unconfined
    }

    /// Returns QEMU's process id, for reading its resource use. `None` if it had exited at once.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.process_id
    }

    /// Returns the plugin's output since the last call, or nothing if the machine has no plugin.
    /// Must be called often: a guest with more unread output than the limit of the agent's port is
    /// ended.
    ///
    /// # Errors
    /// The system's error if the file cannot be read.
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

    /// Returns the next event. Cancel-safe.
    pub async fn next_event(&mut self) -> VmEvent {
        if let Some(ending) = &self.ended {
            return VmEvent::Ended(ending.clone());
        }
        let event = match self.events.recv().await {
            // Drops the event's share of the memory limit, because the event now belongs to the
            // owner.
            Some((event, _room)) => event,
            None => VmEvent::Ended(Box::new(GuestEnding::abandoned())),
        };
        if let VmEvent::Ended(ending) = &event {
            self.ended = Some(ending.clone());
        }
        event
    }

    /// Sends a message to the agent. It is written when the agent reads.
    ///
    /// # Errors
    /// [`VmError::Ended`] if the guest has ended. [`VmError::AgentBusy`] if the agent has left too
    /// many messages unread. [`VmError::OneWay`] under the instruction clock. [`VmError::Frame`] if
    /// the message is too large.
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

    /// Requests the agent to power off. After `grace`, QEMU quits; at once if the agent receives no
    /// messages. The end comes as an event.
    pub fn request_stop(&self, grace: Duration) {
        let grace = if self.one_way { Duration::ZERO } else { grace };
        if !grace.is_zero() {
            // If the agent no longer receives messages, QEMU quits after the grace.
            let _ = self.send(&HostMessage::PowerOff);
        }
        // The guest may have ended already.
        let _ = self.stop_requests.send(StopRequest { grace });
    }

    /// Stops the guest like [`Self::request_stop`], and waits for its end. Drops events until then.
    pub async fn shut_down(mut self, grace: Duration) -> GuestEnding {
        self.request_stop(grace);
        self.end().await
    }

    /// Stops the guest at once, and waits until QEMU has exited. Drops events until then.
    pub async fn kill(self) -> GuestEnding {
        self.shut_down(Duration::ZERO).await
    }

    /// Waits for the end. Drops events until then.
    pub async fn end(&mut self) -> GuestEnding {
        loop {
            if let VmEvent::Ended(ending) = self.next_event().await {
                return *ending;
            }
        }
    }
}
