// SPDX-License-Identifier: MIT OR Apache-2.0
//! The task that watches one guest.

#![allow(clippy::disallowed_methods, reason = "reads files of the kernel, in /proc or /sys")]

mod alarms;
mod guest_watch;
mod waiting_incidents;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::AsyncWriteExt,
    net::unix::OwnedWriteHalf,
    process::Child,
    sync::{
        mpsc::{self, Permit, error::SendError},
        watch,
    },
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};

use self::{
    alarms::Alarm,
    guest_watch::{GuestEvent, GuestWatch, Reaction},
};
use crate::{
    agent_port::{self, PortEvent},
    boot_progress::GuestDeadlines,
    bounded_output::OutputFile,
    console::{
        ConsoleLog, KernelIncident,
        reader::{self, ConsoleReport},
    },
    flood,
    guest_ending::{EndReason, GuestEnding},
    monitor::{MonitorClient, Notice},
    order::BootedFor,
    vm_event::{Delivery, StopRequest, VmEvent},
};

/// Largest number of events that wait for the guest's owner before reading of the agent's port
/// pauses.
pub(crate) const EVENT_BACKLOG: usize = 64;
/// Time from the message that reports the kernel's death to the kill of a guest that does not end
/// by itself. The rest of the report is written in that time.
const OUTPUT_TAIL: Duration = Duration::from_secs(5);
/// Time from the order to quit to the kill of a QEMU that does not quit.
const QUIT_PATIENCE: Duration = Duration::from_secs(2);
/// Time limit after QEMU's exit for its sockets to end, for reading their remaining contents, and
/// for its standard error. Sockets close at once unless another process holds them open.
const DRAIN_PATIENCE: Duration = Duration::from_secs(3);

/// Time from the order to stop to the result of the console's reader.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// The halves of a guest's port. The second is absent if nothing can be written to the port.
type PortHalves = (OutputFile, Option<OwnedWriteHalf>);

/// Everything that is watched, and the receivers of reports.
pub(crate) struct Supervisor {
    pub(crate) child: Child,
    pub(crate) stderr: JoinHandle<String>,
    pub(crate) started: Instant,
    pub(crate) monitor: MonitorClient,
    pub(crate) notices: mpsc::UnboundedReceiver<Notice>,
    /// Announces QEMU's exit.
    pub(crate) qemu_gone: watch::Sender<bool>,
    pub(crate) console: PortHalves,
    pub(crate) log: ConsoleLog,
    pub(crate) console_output: Option<mpsc::Sender<Vec<u8>>>,
    pub(crate) console_input: mpsc::Receiver<Vec<u8>>,
    pub(crate) agent: PortHalves,
    pub(crate) floods: mpsc::UnboundedReceiver<EndReason>,
    pub(crate) _flood_guard: flood::Guard,
    pub(crate) agent_input: mpsc::Receiver<Vec<u8>>,
    /// The sender and the frame of the acknowledgement for the agent's last message.
    pub(crate) shutdown_ack: (mpsc::Sender<Vec<u8>>, Vec<u8>),
    pub(crate) events: mpsc::Sender<Delivery>,
    pub(crate) stop_requests: mpsc::UnboundedReceiver<StopRequest>,
    pub(crate) deadlines: GuestDeadlines,
    pub(crate) booted_for: BootedFor,
}

/// The tasks that read and write the guest's console and the agent's port.
struct PortTasks {
    console: JoinHandle<ConsoleReport>,
    incidents: mpsc::UnboundedReceiver<KernelIncident>,
    /// Stops the console's reader at its current offset.
    enough: Arc<AtomicBool>,
    listener: JoinHandle<()>,
    port_events: mpsc::Receiver<PortEvent>,
    writers: [JoinHandle<()>; 2],
}

impl Supervisor {
    /// Watches until QEMU has exited, then reports the end.
    pub(crate) async fn run(mut self) {
        let (ask, asked) = mpsc::unbounded_channel();
        let qemu = self.child.id();
        let is_suspended = Box::new(move || is_suspended(qemu));
        let mut watch = GuestWatch::new(self.started, (self.deadlines, self.booted_for), ask, is_suspended);
        let mut tasks = PortTasks::spawn(
            (self.console, self.agent),
            (self.log, self.console_output),
            [self.console_input, self.agent_input],
            asked,
        );
        let status = loop {
            let alarm = watch.next_alarm();
            let event = tokio::select! {
                status = self.child.wait() => break status,
                permit = self.events.reserve(), if !watch.queue.is_empty() => {
                    deliver(permit, &mut watch.queue);
                    continue;
                }
                incident = tasks.incidents.recv(), if watch.open.console => GuestEvent::Incident(incident),
                event = tasks.port_events.recv(), if watch.reads_port() => GuestEvent::Port(event),
                flood = self.floods.recv(), if watch.open.floods => GuestEvent::Flood(flood),
                notice = self.notices.recv(), if watch.open.monitor => match notice {
                    Some(Notice::Shutdown(shutdown)) => GuestEvent::Shutdown(shutdown),
                    Some(Notice::GuestPanicked) => GuestEvent::Panicked,
                    Some(Notice::Paused) => match stopped_state(&self.monitor).await {
                        Some(state) => GuestEvent::Stopped(state),
                        None => continue,
                    },
                    None => GuestEvent::MonitorClosed,
                },
                request = self.stop_requests.recv(), if watch.open.stop_requests => GuestEvent::StopRequest(request),
                Some((at, alarm)) = due(alarm) => GuestEvent::Alarm(at, alarm),
            };
            match watch.on_event(event, Instant::now()) {
                None => {}
                Some(Reaction::Acknowledge) => {
                    let (agent, frame) = &self.shutdown_ack;
                    let _ = agent.try_send(frame.clone());
                }
                Some(Reaction::Quit) => self.monitor.quit(),
                Some(Reaction::Kill) => {
                    // This fails only if QEMU has exited, which the next iteration notices.
                    let _ = self.child.start_kill();
                }
            }
        };
        // After QEMU's exit, the remaining contents of sockets and files are read to the end.
        self.qemu_gone.send_replace(true);
        let flood = self.floods.try_recv().ok().or_else(|| flood::of_exit(status.as_ref().ok()?));
        if let Some(flood) = flood {
            watch.classifier.decide(flood);
        }
        tasks.drain_port(&mut watch, &self.events).await;
        let report = tasks.end(&mut watch, &mut self.notices).await;
        let GuestWatch { classifier, mut queue, .. } = watch;
        let ending = GuestEnding {
            reason: classifier.reason(&report.incidents, &report.tail, &status),
            phase: classifier.progress.phase,
            run: classifier.progress.run,
            lived_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            incidents: report.incidents,
            console_tail: report.tail,
            qemu_stderr: timeout(DRAIN_PATIENCE, self.stderr).await.ok().and_then(Result::ok).unwrap_or_default(),
            log_incomplete: report.problem,
        };
        queue.push_back((VmEvent::Ended(Box::new(ending)), None));
        for event in queue {
            // A missing owner is no error.
            let _ = self.events.send(event).await;
        }
    }
}

impl PortTasks {
    fn spawn(
        (console, agent): (PortHalves, PortHalves),
        (log, console_output): (ConsoleLog, Option<mpsc::Sender<Vec<u8>>>),
        [console_input, agent_input]: [mpsc::Receiver<Vec<u8>>; 2],
        asked: mpsc::UnboundedReceiver<u64>,
    ) -> Self {
        let ((console_read, console_write), (agent_read, agent_write)) = (console, agent);
        let (incident_sender, incidents) = mpsc::unbounded_channel();
        let (port_event_sender, port_events) = mpsc::channel(16);
        let enough = Arc::new(AtomicBool::new(false));
        let console = reader::watch(console_read, log, console_output, incident_sender, Arc::clone(&enough));
        Self {
            console: tokio::spawn(console),
            incidents,
            enough,
            listener: tokio::spawn(agent_port::listen(agent_read, port_event_sender, asked)),
            port_events,
            writers: [
                tokio::spawn(write_all(console_write, console_input)),
                tokio::spawn(write_all(agent_write, agent_input)),
            ],
        }
    }

    /// Reads the remaining contents of the agent's port after QEMU's exit.
    async fn drain_port(&mut self, watch: &mut GuestWatch, events: &mpsc::Sender<Delivery>) {
        // A flood on the agent's port continues after the messages that show in which run it began.
        // Reading stops at this instant.
        let flood_end = watch.classifier.is_flood().then(|| Instant::now() + DRAIN_PATIENCE);
        if flood_end.is_some() {
            // The rest of the console is not needed.
            self.enough.store(true, Ordering::Relaxed);
        }
        while watch.open.agent {
            tokio::select! {
                () = sleep_until(flood_end.unwrap_or_else(Instant::now)), if flood_end.is_some() => watch.open.agent = false,
                event = self.port_events.recv() => match event {
                    Some(PortEvent::CaughtUp(number)) => watch.held.up_to(number, &mut watch.queue),
                    event => {
                        let delivery = event.and_then(|event| watch.take(event, Instant::now()));
                        watch.open.agent = delivery.is_some();
                        watch.queue.extend(delivery);
                    }
                },
                // Messages that wait for the owner keep later ones at the port.
                permit = events.reserve(), if !watch.queue.is_empty() => deliver(permit, &mut watch.queue),
                () = sleep(DRAIN_PATIENCE), if watch.queue.is_empty() => {
                    tracing::warn!("the agent's port of a guest stayed open after QEMU's exit");
                    watch.open.agent = false;
                },
            }
        }
        self.listener.abort();
        watch.held.all(&mut watch.queue);
    }

    /// Reads the rest of the monitor's notices and of the console, and ends all tasks.
    async fn end(mut self, watch: &mut GuestWatch, notices: &mut mpsc::UnboundedReceiver<Notice>) -> ConsoleReport {
        let patience = Instant::now() + DRAIN_PATIENCE;
        let drain = async {
            while let Some(notice) = notices.recv().await {
                if let Notice::Shutdown(shutdown) = notice {
                    watch.classifier.shutdown = Some(shutdown);
                }
            }
            while let Some(incident) = self.incidents.recv().await {
                watch.classifier.take_incident(&incident);
                watch.queue.push_back((VmEvent::KernelIncident(incident), None));
            }
        };
        if timeout_at(patience, drain).await.is_err() {
            tracing::warn!("sockets of a guest stayed open after QEMU's exit");
        }
        for writer in self.writers {
            writer.abort();
        }
        let report = match timeout_at(patience, &mut self.console).await {
            Ok(report) => report.ok(),
            Err(_) => {
                self.enough.store(true, Ordering::Relaxed);
                timeout(LAST_LOOK, self.console).await.ok().and_then(Result::ok)
            }
        };
        report.unwrap_or_else(|| ConsoleReport {
            incidents: Vec::new(),
            tail: Vec::new(),
            problem: Some("the console was not read to its end".to_owned()),
        })
    }
}

/// Waits until the instant of `alarm`. Never ends without an alarm.
async fn due(alarm: Option<(Instant, Alarm)>) -> Option<(Instant, Alarm)> {
    match alarm {
        Some((at, _)) => sleep_until(at).await,
        None => std::future::pending().await,
    }
    alarm
}

/// Returns whether the process `qemu` is stopped (`proc_pid_stat(5)`: the state is the first
/// character after the name in parentheses).
fn is_suspended(qemu: Option<u32>) -> bool {
    let stat = qemu.and_then(|id| std::fs::read(format!("/proc/{id}/stat")).ok()).unwrap_or_default();
    let behind = stat.iter().rposition(|byte| *byte == b')').map_or(0, |at| at + 1);
    matches!(stat.get(behind..), Some([b' ', b'T' | b't', ..]))
}

/// Passes the first event of `queue` to the owner.
fn deliver(permit: Result<Permit<'_, Delivery>, SendError<()>>, queue: &mut VecDeque<Delivery>) {
    match (permit, queue.pop_front()) {
        (Ok(permit), Some(event)) => permit.send(event),
        // The owner has ended, which the closed stop requests also show.
        _ => queue.clear(),
    }
}

/// Returns QEMU's state of a guest that it stopped permanently, or `None` for a stop that is part
/// of an exit.
async fn stopped_state(monitor: &MonitorClient) -> Option<String> {
    let state = timeout(QUIT_PATIENCE, monitor.state()).await.ok()?.ok()?;
    matches!(state.as_str(), "internal-error" | "io-error" | "guest-panicked" | "paused").then_some(state)
}

/// Writes what it receives, in order, until it is aborted or the other side is closed. Ends at once
/// if the guest cannot be written to, so that sending fails.
async fn write_all(socket: Option<OwnedWriteHalf>, mut input: mpsc::Receiver<Vec<u8>>) {
    let Some(mut socket) = socket else { return };
    while let Some(bytes) = input.recv().await {
        if socket.write_all(&bytes).await.is_err() {
            return;
        }
    }
    // Nothing more follows. Dropping the half would shut it down, which QEMU treats as the end of
    // the socket.
    std::future::pending().await
}
