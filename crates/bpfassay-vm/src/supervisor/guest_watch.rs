// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a watched guest, and the reaction to each event. It neither waits nor touches QEMU.

use std::{collections::VecDeque, time::Duration};

use bpfassay_protocol::message::GuestMessage;
use tokio::{sync::mpsc::UnboundedSender, time::Instant};

use super::{
    EVENT_BACKLOG, OUTPUT_TAIL, QUIT_PATIENCE,
    alarms::{Alarm, Alarms},
    waiting_incidents::WaitingIncidents,
};
use crate::{
    agent_port::PortEvent,
    boot_progress::{GuestDeadlines, GuestProgress},
    console::KernelIncident,
    exit_classifier::ExitClassifier,
    guest_ending::EndReason,
    monitor::Shutdown,
    order::{BootedFor, MessageOrder},
    vm_event::{Delivery, StopRequest, VmEvent},
};

/// An alarm this late means that the host was suspended: this program, and possibly QEMU, was
/// stopped or frozen for an unknown time.
const LATE: Duration = Duration::from_secs(1);

/// An event of a guest, of QEMU, or of the owner. `None` means that no further events of this kind
/// follow.
pub(super) enum GuestEvent {
    Incident(Option<KernelIncident>),
    Port(Option<PortEvent>),
    Flood(Option<EndReason>),
    Shutdown(Shutdown),
    Panicked,
    /// QEMU stopped the guest permanently, in this state.
    Stopped(String),
    MonitorClosed,
    StopRequest(Option<StopRequest>),
    /// The time of this alarm is reached.
    Alarm(Instant, Alarm),
}

/// An order of [`GuestWatch`] to the supervisor, which owns QEMU and the agent's port.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// Acknowledges the agent's last message.
    Acknowledge,
    Quit,
    Kill,
}

/// The sources that can still have events.
pub(super) struct OpenSources {
    pub(super) agent: bool,
    pub(super) monitor: bool,
    pub(super) console: bool,
    pub(super) floods: bool,
    pub(super) stop_requests: bool,
}

/// The state of a watched guest.
pub(super) struct GuestWatch {
    started: Instant,
    whole_boot: Option<u64>,
    pub(super) classifier: ExitClassifier,
    order: MessageOrder,
    /// Incidents of the kernel. They wait until everything that the agent had sent by then is read,
    /// which shows the run of each incident.
    pub(super) held: WaitingIncidents,
    /// Events for the owner, in order.
    pub(super) queue: VecDeque<Delivery>,
    /// A deadline that has passed, and the question that must be answered first, because the agent
    /// may have sent a message in time.
    last_look: Option<(u64, Instant)>,
    alarms: Alarms,
    pub(super) open: OpenSources,
    /// Asks the reader of the agent's port to report when it has read everything.
    ask: UnboundedSender<u64>,
    /// Returns whether QEMU is suspended.
    is_suspended: Box<dyn Fn() -> bool + Send>,
}

impl GuestWatch {
    pub(super) fn new(
        started: Instant,
        (deadlines, booted_for): (GuestDeadlines, BootedFor),
        ask: UnboundedSender<u64>,
        is_suspended: Box<dyn Fn() -> bool + Send>,
    ) -> Self {
        let progress = GuestProgress::new(deadlines);
        Self {
            started,
            whole_boot: progress.whole_boot(),
            classifier: ExitClassifier::new(progress),
            order: MessageOrder::new(booted_for),
            held: WaitingIncidents::default(),
            queue: VecDeque::new(),
            last_look: None,
            alarms: Alarms::default(),
            open: OpenSources { agent: true, monitor: true, console: true, floods: true, stop_requests: true },
            ask,
            is_suspended,
        }
    }

    /// Returns whether to read the agent's port. Reading pauses while the owner does not take
    /// events.
    pub(super) fn reads_port(&self) -> bool {
        self.open.agent && self.queue.len() < EVENT_BACKLOG
    }

    /// Returns the next alarm and its instant.
    pub(super) fn next_alarm(&self) -> Option<(Instant, Alarm)> {
        let is_undecided = !self.classifier.is_decided();
        // While the owner does not take events, the guest cannot report progress. The deadline of
        // the phase is then paused, but not the deadline of the boot.
        let phase_end = self.end_of_phase().filter(|_| self.queue.len() < EVENT_BACKLOG && is_undecided);
        let phase_end = phase_end.filter(|end| self.last_look.is_none_or(|(_, asked_for)| asked_for != *end));
        let whole_boot_end = self.whole_boot.and_then(|seconds| self.started.checked_add(Duration::from_secs(seconds)));
        self.alarms.next(phase_end, whole_boot_end.filter(|_| is_undecided))
    }

    /// Records `event`, which was received at `now`.
    pub(super) fn on_event(&mut self, event: GuestEvent, now: Instant) -> Option<Reaction> {
        match event {
            GuestEvent::Incident(Some(incident)) => self.on_incident(incident, now),
            GuestEvent::Incident(None) => self.open.console = false,
            GuestEvent::Port(event) => return self.on_port(event, now),
            // Earlier messages of the agent are still read, because they show the run of the flood.
            GuestEvent::Flood(Some(flood)) => self.end(flood, now),
            GuestEvent::Flood(None) => self.open.floods = false,
            GuestEvent::Shutdown(shutdown) => self.classifier.shutdown = Some(shutdown),
            GuestEvent::Panicked => {
                self.classifier.panicked();
                self.alarms.output_tail.get_or_insert(now + OUTPUT_TAIL);
            }
            GuestEvent::Stopped(state) => self.end(EndReason::QemuStopped { state }, now),
            GuestEvent::MonitorClosed => self.open.monitor = false,
            GuestEvent::StopRequest(request) => {
                // A missing request means that the owner has ended, and nothing needs the guest any
                // more.
                let grace = request.map_or(Duration::ZERO, |StopRequest { grace }| grace);
                self.open.stop_requests = !grace.is_zero();
                self.classifier.stop_asked = true;
                self.alarms.quit = Some(now + grace);
            }
            GuestEvent::Alarm(at, alarm) => return self.on_alarm(at, alarm, now),
        }
        None
    }

    fn on_incident(&mut self, incident: KernelIncident, now: Instant) {
        self.classifier.take_incident(&incident);
        if self.classifier.is_dead() {
            self.alarms.output_tail.get_or_insert(now + OUTPUT_TAIL);
        }
        // The reader ends with the agent's port.
        match self.open.agent && self.ask.send(self.held.next()).is_ok() {
            true => self.held.push(incident),
            false => self.queue.push_back((VmEvent::KernelIncident(incident), None)),
        }
    }

    fn on_port(&mut self, event: Option<PortEvent>, now: Instant) -> Option<Reaction> {
        match event {
            None => {
                self.last_look = None;
                self.close_port();
            }
            Some(PortEvent::CaughtUp(number)) => {
                self.held.up_to(number, &mut self.queue);
                if let Some((_, end)) = self.last_look.take_if(|(asked, _)| *asked <= number)
                    && self.end_of_phase() == Some(end)
                {
                    self.end_unless_suspended(self.classifier.overdue(), now);
                }
            }
            Some(event) => {
                let Some(delivery) = self.take(event, now) else {
                    self.close_port();
                    self.alarms.end_now(now);
                    return None;
                };
                let is_last = matches!(&delivery, (VmEvent::Message(message), _) if is_last(message));
                self.queue.push_back(delivery);
                // The agent does not know when its last frame has left QEMU, so it waits for this
                // acknowledgement before it powers off. An agent that receives no messages has its
                // own deadline, and ours for the shutdown.
                return is_last.then_some(Reaction::Acknowledge);
            }
        }
        None
    }

    fn on_alarm(&mut self, at: Instant, alarm: Alarm, now: Instant) -> Option<Reaction> {
        match alarm {
            Alarm::Phase if now.saturating_duration_since(at) > LATE => {
                self.classifier.progress.restart(now.saturating_duration_since(self.started));
            }
            Alarm::Phase => {
                let number = self.held.next();
                match self.open.agent && self.ask.send(number).is_ok() {
                    true => self.last_look = Some((number, at)),
                    false => self.end_unless_suspended(self.classifier.overdue(), now),
                }
            }
            Alarm::WholeBoot => {
                let seconds = self.whole_boot.unwrap_or_default();
                self.end_unless_suspended(EndReason::TooLong { seconds }, now);
            }
            Alarm::OutputTail => self.alarms.end_now(now),
            Alarm::Quit => {
                self.alarms.quit = None;
                self.alarms.kill = Some(now + QUIT_PATIENCE);
                return Some(Reaction::Quit);
            }
            Alarm::Kill => {
                self.alarms = Alarms::default();
                return Some(Reaction::Kill);
            }
        }
        None
    }

    /// Processes an item from the agent, and returns the owner's event. After `None`, no message of
    /// this agent counts, and the classifier has the reason.
    pub(super) fn take(&mut self, event: PortEvent, now: Instant) -> Option<Delivery> {
        let received = match event {
            PortEvent::Message(received) => received,
            PortEvent::Wrong(reason) => {
                self.classifier.decide(reason);
                return None;
            }
            PortEvent::CaughtUp(_) => return None,
        };
        if let Err(error) = self.order.take(&received.message) {
            self.classifier.decide(EndReason::ProtocolError { message: error.to_string() });
            return None;
        }
        if !self.classifier.handle_message(&received.message, now.saturating_duration_since(self.started)) {
            return None;
        }
        Some((VmEvent::Message(received.message), Some(received.room)))
    }

    fn end_of_phase(&self) -> Option<Instant> {
        self.classifier.progress.deadline().and_then(|at| self.started.checked_add(at))
    }

    /// Records that no message of the agent will follow.
    fn close_port(&mut self) {
        self.open.agent = false;
        self.held.all(&mut self.queue);
    }

    /// Ends the guest at once, for `reason`.
    fn end(&mut self, reason: EndReason, now: Instant) {
        self.classifier.decide(reason);
        self.alarms.end_now(now);
    }

    /// Ends a guest that has not progressed in time, for `reason` or because QEMU is suspended.
    fn end_unless_suspended(&mut self, reason: EndReason, now: Instant) {
        let reason = if (self.is_suspended)() { EndReason::QemuSuspended } else { reason };
        self.end(reason, now);
    }
}

/// Returns whether `message` is the agent's last, after which it powers off.
fn is_last(message: &GuestMessage) -> bool {
    matches!(message, GuestMessage::Done | GuestMessage::Failed { .. } | GuestMessage::Unsound { .. })
}

#[cfg(test)]
mod tests;
