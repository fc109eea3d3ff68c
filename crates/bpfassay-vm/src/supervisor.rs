// SPDX-License-Identifier: MIT OR Apache-2.0
//! The task that watches one guest.

#![allow(clippy::disallowed_methods, reason = "reads files of the kernel, in /proc or /sys")]

mod alarms;
mod held;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bpfassay_protocol::message::GuestMessage;
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
    alarms::{Alarm, Alarms},
    held::Held,
};
use crate::{
    BootedFor, Deadlines, EndReason, Ending, Event, MessageOrder,
    agent::{self, PortEvent},
    console::{
        ConsoleLog,
        reader::{self, ConsoleReport},
    },
    event::{Delivery, StopRequest},
    exit_classifier::ExitClassifier,
    flood,
    monitor::{Monitor, Notice},
    output::Output,
    progress::Progress,
};

/// Events that may wait for the owner of the guest before the agent's port is not read any further.
pub(crate) const EVENT_BACKLOG: usize = 64;
/// From the message that reports the kernel's death to the kill of a guest that has not ended by itself: the rest of the
/// report is written in that time.
const OUTPUT_TAIL: Duration = Duration::from_secs(5);
/// From the order to quit to the kill of a QEMU that does not.
const QUIT_PATIENCE: Duration = Duration::from_secs(2);
/// From QEMU's exit to the end of its sockets, which close at once unless another process holds them open; for their remaining contents to
/// be read; and for its standard error.
const DRAIN_PATIENCE: Duration = Duration::from_secs(3);

/// An alarm this late means that the host was suspended: this program, and maybe QEMU, was stopped or frozen, and since when is unknown.
const LATE: Duration = Duration::from_secs(1);

/// From the order to the console's reader to stop to its result.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Everything that is watched, and the receivers of reports.
pub(crate) struct Supervisor {
    pub(crate) child: Child,
    pub(crate) stderr: JoinHandle<String>,
    pub(crate) started: Instant,
    pub(crate) monitor: Monitor,
    pub(crate) notices: mpsc::UnboundedReceiver<Notice>,
    /// Receives QEMU's end.
    pub(crate) qemu_gone: watch::Sender<bool>,
    pub(crate) console: (Output, Option<OwnedWriteHalf>),
    pub(crate) log: ConsoleLog,
    pub(crate) console_output: Option<mpsc::Sender<Vec<u8>>>,
    pub(crate) console_input: mpsc::Receiver<Vec<u8>>,
    pub(crate) agent: (Output, Option<OwnedWriteHalf>),
    pub(crate) floods: mpsc::UnboundedReceiver<EndReason>,
    pub(crate) _flood_guard: flood::Guard,
    pub(crate) agent_input: mpsc::Receiver<Vec<u8>>,
    /// The acknowledgement of an agent's last message, and where to send it.
    pub(crate) shutdown_ack: (mpsc::Sender<Vec<u8>>, Vec<u8>),
    pub(crate) events: mpsc::Sender<Delivery>,
    pub(crate) stop_requests: mpsc::UnboundedReceiver<StopRequest>,
    pub(crate) deadlines: Deadlines,
    pub(crate) booted_for: BootedFor,
}

/// Whether `message` is the agent's last, after which it powers off.
fn is_last(message: &GuestMessage) -> bool {
    matches!(message, GuestMessage::Done | GuestMessage::Failed { .. } | GuestMessage::Unsound { .. })
}

impl Supervisor {
    /// Watches until QEMU has exited, then reports the end.
    pub(crate) async fn run(mut self) {
        let ((console_read, console_write), (agent_read, agent_write)) = (self.console, self.agent);
        let (incident_sender, mut incidents) = mpsc::unbounded_channel();
        let (port_event_sender, mut port_events) = mpsc::channel(16);
        let enough = Arc::new(AtomicBool::new(false));
        let mut console = tokio::spawn(reader::watch(
            console_read,
            self.log,
            self.console_output,
            incident_sender,
            Arc::clone(&enough),
        ));
        let writers = [
            tokio::spawn(write_all(console_write, self.console_input)),
            tokio::spawn(write_all(agent_write, self.agent_input)),
        ];
        let (ask, asked) = mpsc::unbounded_channel();
        let listener = tokio::spawn(agent::listen(agent_read, port_event_sender, asked));
        // Incidents of the kernel, until all is read that the agent had sent by then, which shows in which run they occurred.
        let mut held = Held::default();
        // A deadline that has passed, and the question that must be answered first: the agent may have sent a message in time.
        let mut last_look: Option<(u64, Instant)> = None;

        let mut classifier = ExitClassifier::new(Progress::new(self.deadlines));
        let mut order = MessageOrder::new(self.booted_for);
        let mut queue = VecDeque::<Delivery>::new();
        let whole_boot = classifier.progress.whole_boot();
        let whole_boot_end = whole_boot.and_then(|seconds| self.started.checked_add(Duration::from_secs(seconds)));
        let mut alarms = Alarms::default();
        let started = self.started;
        let end_of_phase = |progress: &Progress| progress.deadline().and_then(|at| started.checked_add(at));
        let mut stop_requests_open = true;
        let mut agent_open = true;
        let mut monitor_open = true;
        let mut console_open = true;
        let mut floods_open = true;
        let status = loop {
            let phase_end = end_of_phase(&classifier.progress);
            // While the owner does not take events, the guest cannot report progress either: the time of its phase is paused, that
            // of the boot does not.
            let phase_end = phase_end.filter(|_| queue.len() < EVENT_BACKLOG && !classifier.is_decided());
            let phase_end = phase_end.filter(|end| last_look.is_none_or(|(_, asked_for)| asked_for != *end));
            let alarm = alarms.next(phase_end, whole_boot_end.filter(|_| !classifier.is_decided()));
            tokio::select! {
                status = self.child.wait() => break status,
                permit = self.events.reserve(), if !queue.is_empty() => deliver(permit, &mut queue),
                incident = incidents.recv(), if console_open => match incident {
                    Some(incident) => {
                        classifier.take_incident(&incident);
                        if classifier.is_dead() && alarms.output_tail.is_none() {
                            alarms.output_tail = Some(Instant::now() + OUTPUT_TAIL);
                        }
                        // The reader ends with the agent's port.
                        match agent_open && ask.send(held.next()).is_ok() {
                            true => held.push(incident),
                            false => queue.push_back((Event::KernelIncident(incident), None)),
                        }
                    }
                    None => console_open = false,
                },
                message = port_events.recv(), if agent_open && queue.len() < EVENT_BACKLOG => {
                    let message = match message {
                        None => {
                            agent_open = false;
                            last_look = None;
                            held.all(&mut queue);
                            continue;
                        }
                        Some(PortEvent::CaughtUp(number)) => {
                            held.up_to(number, &mut queue);
                            if let Some((_, end)) = last_look.take_if(|(asked, _)| *asked <= number)
                                && end_of_phase(&classifier.progress) == Some(end)
                            {
                                classifier.decide(unless_suspended(self.child.id(), classifier.overdue()));
                                alarms.end_now();
                            }
                            continue;
                        }
                        Some(message) => message,
                    };
                    match take(message, &mut order, &mut classifier, self.started.elapsed()) {
                        Some(delivery) => {
                            if let (Event::Message(message), _) = &delivery && is_last(message) {
                                // The agent cannot know whether its last frame has left QEMU; it waits for this before it powers
                                // off. One that receives no messages has its own deadline, and ours for the shutdown.
                                let (agent, frame) = &self.shutdown_ack;
                                let _ = agent.try_send(frame.clone());
                            }
                            queue.push_back(delivery);
                        }
                        None => {
                            agent_open = false;
                            held.all(&mut queue);
                            alarms.end_now();
                        }
                    }
                },
                flood = self.floods.recv(), if floods_open => match flood {
                    // What the agent sent before is still read: it shows in which run this was.
                    Some(flood) => {
                        classifier.decide(flood);
                        alarms.end_now();
                    }
                    None => floods_open = false,
                },
                notice = self.notices.recv(), if monitor_open => match notice {
                    Some(Notice::Shutdown(shutdown)) => classifier.shutdown = Some(shutdown),
                    Some(Notice::GuestPanicked) => {
                        classifier.panicked();
                        alarms.output_tail.get_or_insert_with(|| Instant::now() + OUTPUT_TAIL);
                    }
                    Some(Notice::Paused) => {
                        if let Some(state) = stopped_state(&self.monitor).await {
                            classifier.decide(EndReason::QemuStopped { state });
                            alarms.end_now();
                        }
                    }
                    None => monitor_open = false,
                },
                request = self.stop_requests.recv(), if stop_requests_open => {
                    // The guest has no owner any more: nothing needs it to continue.
                    let grace = request.map_or(Duration::ZERO, |StopRequest { grace }| grace);
                    stop_requests_open = !grace.is_zero();
                    classifier.stop_asked = true;
                    alarms.quit = Some(Instant::now() + grace);
                },
                () = sleep_until(alarm.map_or_else(Instant::now, |(at, _)| at)), if alarm.is_some() => {
                    match alarm.map(|(_, alarm)| alarm) {
                        Some(Alarm::Phase) => {
                            let late = alarm.map(|(at, _)| at.elapsed()).unwrap_or_default();
                            if late > LATE {
                                classifier.progress.restart(self.started.elapsed());
                                continue;
                            }
                            let number = held.next();
                            match phase_end.filter(|_| agent_open && ask.send(number).is_ok()) {
                                Some(end) => last_look = Some((number, end)),
                                None => {
                                    classifier.decide(unless_suspended(self.child.id(), classifier.overdue()));
                                    alarms.end_now();
                                }
                            }
                        }
                        Some(Alarm::WholeBoot) => {
                            let seconds = whole_boot.unwrap_or_default();
                            classifier.decide(unless_suspended(self.child.id(), EndReason::TooLong { seconds }));
                            alarms.end_now();
                        }
                        Some(Alarm::OutputTail) => alarms.end_now(),
                        Some(Alarm::Quit) => {
                            self.monitor.quit();
                            alarms.quit = None;
                            alarms.kill = Some(Instant::now() + QUIT_PATIENCE);
                        }
                        Some(Alarm::Kill) => {
                            alarms = Alarms::default();
                            // It fails only if QEMU has exited, which the next iteration notices.
                            let _ = self.child.start_kill();
                        }
                        None => {}
                    }
                },
            }
        };

        // QEMU has exited: the remaining contents of sockets and files are read to the end.
        self.qemu_gone.send_replace(true);
        let flood = self.floods.try_recv().ok().or_else(|| flood::of_exit(status.as_ref().ok()?));
        if let Some(flood) = flood {
            classifier.decide(flood);
        }
        // A flood on the agent's port continues after the messages that show in which run it began; it is not read for longer than this.
        let flood_end = classifier.is_flood().then(|| Instant::now() + DRAIN_PATIENCE);
        if flood_end.is_some() {
            // The rest of the console is not needed.
            enough.store(true, Ordering::Relaxed);
        }
        while agent_open {
            tokio::select! {
                () = sleep_until(flood_end.unwrap_or_else(Instant::now)), if flood_end.is_some() => agent_open = false,
                message = port_events.recv() => match message {
                    Some(PortEvent::CaughtUp(number)) => held.up_to(number, &mut queue),
                    message => {
                        let delivery = message.and_then(|message| take(message, &mut order, &mut classifier, self.started.elapsed()));
                        agent_open = delivery.is_some();
                        queue.extend(delivery);
                    }
                },
                // Messages that wait for the owner keep later ones at the port.
                permit = self.events.reserve(), if !queue.is_empty() => deliver(permit, &mut queue),
                () = sleep(DRAIN_PATIENCE), if queue.is_empty() => {
                    tracing::warn!("the agent's port of a guest stayed open after QEMU's exit");
                    agent_open = false;
                },
            }
        }
        listener.abort();
        held.all(&mut queue);
        let patience = Instant::now() + DRAIN_PATIENCE;
        let drain = async {
            while let Some(notice) = self.notices.recv().await {
                if let Notice::Shutdown(shutdown) = notice {
                    classifier.shutdown = Some(shutdown);
                }
            }
            while let Some(incident) = incidents.recv().await {
                classifier.take_incident(&incident);
                queue.push_back((Event::KernelIncident(incident), None));
            }
        };
        if timeout_at(patience, drain).await.is_err() {
            tracing::warn!("sockets of a guest stayed open after QEMU's exit");
        }
        for writer in writers {
            writer.abort();
        }
        let report = match timeout_at(patience, &mut console).await {
            Ok(report) => report.ok(),
            Err(_) => {
                // It stops at its current offset.
                enough.store(true, Ordering::Relaxed);
                timeout(LAST_LOOK, console).await.ok().and_then(Result::ok)
            }
        };
        let report = match report {
            Some(report) => report,
            None => ConsoleReport {
                incidents: Vec::new(),
                tail: Vec::new(),
                problem: Some("the console was not read to its end".to_owned()),
            },
        };
        let ending = Ending {
            reason: classifier.reason(&report.incidents, &report.tail, &status),
            phase: classifier.progress.phase,
            run: classifier.progress.run,
            lived_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            incidents: report.incidents,
            console_tail: report.tail,
            qemu_stderr: timeout(DRAIN_PATIENCE, self.stderr).await.ok().and_then(Result::ok).unwrap_or_default(),
            log_incomplete: report.problem,
        };
        queue.push_back((Event::Ended(Box::new(ending)), None));
        for event in queue {
            // The owner may be gone, which is no error.
            let _ = self.events.send(event).await;
        }
    }
}

/// Why a guest that has not progressed in time is ended: for `reason`, unless QEMU is stopped (`proc_pid_stat(5)`: the state is the
/// first character after the name in parentheses).
fn unless_suspended(qemu: Option<u32>, reason: EndReason) -> EndReason {
    let stat = qemu.and_then(|id| std::fs::read(format!("/proc/{id}/stat")).ok()).unwrap_or_default();
    let behind = stat.iter().rposition(|byte| *byte == b')').map_or(0, |at| at + 1);
    match stat.get(behind..) {
        Some([b' ', b'T' | b't', ..]) => EndReason::QemuSuspended,
        _ => reason,
    }
}

/// Passes the first event of `queue` to the owner.
fn deliver(permit: Result<Permit<'_, Delivery>, SendError<()>>, queue: &mut VecDeque<Delivery>) {
    match (permit, queue.pop_front()) {
        (Ok(permit), Some(event)) => permit.send(event),
        // The owner is gone; the closed stop requests show it, too.
        _ => queue.clear(),
    }
}

/// Processes an item from the agent, and returns what the owner gets of it. After `None`, no message of
/// this agent counts, and `classifier` has the reason.
fn take(
    event: PortEvent,
    order: &mut MessageOrder,
    classifier: &mut ExitClassifier,
    now: Duration,
) -> Option<Delivery> {
    let received = match event {
        PortEvent::Message(received) => received,
        PortEvent::Wrong(reason) => {
            classifier.decide(reason);
            return None;
        }
        PortEvent::CaughtUp(_) => return None,
    };
    if let Err(error) = order.take(&received.message) {
        classifier.decide(EndReason::ProtocolError { message: error.to_string() });
        return None;
    }
    if !classifier.handle_message(&received.message, now) {
        return None;
    }
    Some((Event::Message(received.message), Some(received.room)))
}

/// The state, as QEMU names it, of a guest that it stopped permanently; `None` for a stop that is part of an exit.
async fn stopped_state(monitor: &Monitor) -> Option<String> {
    let state = timeout(QUIT_PATIENCE, monitor.state()).await.ok()?.ok()?;
    matches!(state.as_str(), "internal-error" | "io-error" | "guest-panicked" | "paused").then_some(state)
}

/// Writes what it receives, in order, until it is aborted or the other side is closed. Where the guest cannot be written to it ends at
/// once, so that sending fails.
async fn write_all(socket: Option<OwnedWriteHalf>, mut input: mpsc::Receiver<Vec<u8>>) {
    let Some(mut socket) = socket else { return };
    while let Some(bytes) = input.recv().await {
        if socket.write_all(&bytes).await.is_err() {
            return;
        }
    }
    // Nothing more will follow; but dropping the half would shut it down, which QEMU treats as the end of the socket.
    std::future::pending().await
}
