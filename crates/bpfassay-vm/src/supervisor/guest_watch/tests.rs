// SPDX-License-Identifier: MIT OR Apache-2.0
use std::sync::Arc;

use bpfassay_protocol::message::Phase;
use tokio::sync::{
    Semaphore,
    mpsc::{self, UnboundedReceiver},
};

use super::*;
use crate::{agent_port::Received, console::KernelIncidentKind};

const SECOND: Duration = Duration::from_secs(1);

/// A guest that was started now, and the questions to the reader of its port.
fn watch(suspended: bool) -> (GuestWatch, UnboundedReceiver<u64>, Instant) {
    let deadlines =
        GuestDeadlines { boot: Some(10), whole_boot: Some(100), power_off: Some(5), ..GuestDeadlines::default() };
    let (ask, asked) = mpsc::unbounded_channel();
    let started = Instant::now();
    (GuestWatch::new(started, (deadlines, BootedFor::Runs), ask, Box::new(move || suspended)), asked, started)
}

fn message(message: GuestMessage) -> GuestEvent {
    let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    GuestEvent::Port(Some(PortEvent::Message(Received { message, room })))
}

fn caught_up(number: u64) -> GuestEvent {
    GuestEvent::Port(Some(PortEvent::CaughtUp(number)))
}

fn incident(kind: KernelIncidentKind) -> GuestEvent {
    let incident = KernelIncident { kind, line: "x".to_owned(), time_us: Some(1), details: Vec::new() };
    GuestEvent::Incident(Some(incident))
}

fn names(watch: &GuestWatch) -> Vec<&'static str> {
    let name = |event: &VmEvent| match event {
        VmEvent::KernelIncident(_) => "incident",
        VmEvent::Message(GuestMessage::Phase { .. }) => "phase",
        VmEvent::Message(_) => "message",
        _ => "other",
    };
    watch.queue.iter().map(|(event, _)| name(event)).collect()
}

#[test]
fn an_incident_comes_after_what_the_agent_had_sent_by_then() {
    let (mut watch, mut asked, now) = watch(false);
    watch.on_event(message(GuestMessage::Hello { agent: "1".to_owned() }), now);
    watch.on_event(incident(KernelIncidentKind::Warning), now);
    assert_eq!(asked.try_recv(), Ok(1));
    watch.on_event(message(GuestMessage::Phase { phase: Phase::SetUp, run: None }), now);
    assert_eq!(names(&watch), ["message", "phase"]);
    watch.on_event(caught_up(1), now);
    assert_eq!(names(&watch), ["message", "phase", "incident"]);
    // Nothing follows that could show the run of the incident.
    watch.on_event(incident(KernelIncidentKind::Warning), now);
    watch.on_event(GuestEvent::Port(None), now);
    watch.on_event(incident(KernelIncidentKind::Warning), now);
    assert_eq!(names(&watch), ["message", "phase", "incident", "incident", "incident"]);
    assert!(!watch.reads_port());
}

#[test]
fn a_phase_that_is_too_long_ends_the_guest_after_a_last_look_at_the_port() {
    for (suspended, reason) in [(false, EndReason::BootTimeout { seconds: 10 }), (true, EndReason::QemuSuspended)] {
        let (mut watch, mut asked, started) = watch(suspended);
        let end = started + 10 * SECOND;
        assert_eq!(watch.next_alarm(), Some((end, Alarm::Phase)));
        assert_eq!(watch.on_event(GuestEvent::Alarm(end, Alarm::Phase), end), None);
        assert_eq!(asked.try_recv(), Ok(1));
        assert_eq!(watch.next_alarm(), Some((started + 100 * SECOND, Alarm::WholeBoot)));
        assert_eq!(watch.on_event(caught_up(1), end), None);
        assert_eq!(watch.next_alarm(), Some((end, Alarm::Kill)));
        assert_eq!(watch.on_event(GuestEvent::Alarm(end, Alarm::Kill), end), Some(Reaction::Kill));
        let status = Ok(std::os::unix::process::ExitStatusExt::from_raw(9));
        assert_eq!(watch.classifier.reason(&[], &[], &status), reason);
    }
}

#[test]
fn a_message_that_came_in_time_counts() {
    let (mut watch, _asked, started) = watch(false);
    let end = started + 10 * SECOND;
    watch.on_event(GuestEvent::Alarm(end, Alarm::Phase), end);
    watch.on_event(message(GuestMessage::Hello { agent: "1".to_owned() }), end);
    watch.on_event(caught_up(1), end);
    assert!(!watch.classifier.is_decided());
}

#[test]
fn a_host_that_was_suspended_gives_the_phase_its_time_again() {
    let (mut watch, mut asked, started) = watch(false);
    let late = started + 60 * SECOND;
    watch.on_event(GuestEvent::Alarm(started + 10 * SECOND, Alarm::Phase), late);
    assert!(asked.try_recv().is_err());
    assert_eq!(watch.next_alarm(), Some((late + 10 * SECOND, Alarm::Phase)));
}

#[test]
fn the_last_message_is_acknowledged_and_a_wrong_one_ends_the_guest() {
    let (mut watch, _asked, now) = watch(false);
    let failed = || message(GuestMessage::Failed { message: "x".to_owned() });
    assert_eq!(watch.on_event(message(GuestMessage::Hello { agent: "1".to_owned() }), now), None);
    assert_eq!(watch.on_event(failed(), now), Some(Reaction::Acknowledge));
    assert_eq!(watch.next_alarm(), Some((now + 5 * SECOND, Alarm::Phase)));
    assert_eq!(watch.on_event(failed(), now), None);
    assert!(watch.classifier.is_decided() && !watch.reads_port());
    assert_eq!(watch.next_alarm(), Some((now, Alarm::Kill)));
}

#[test]
fn a_request_to_stop_quits_and_then_kills() {
    let (mut watch, _asked, now) = watch(false);
    watch.on_event(GuestEvent::StopRequest(Some(StopRequest { grace: 3 * SECOND })), now);
    assert!(watch.open.stop_requests);
    assert_eq!(watch.next_alarm(), Some((now + 3 * SECOND, Alarm::Quit)));
    watch.on_event(GuestEvent::StopRequest(None), now);
    assert!(!watch.open.stop_requests);
    assert_eq!(watch.next_alarm(), Some((now, Alarm::Quit)));
    assert_eq!(watch.on_event(GuestEvent::Alarm(now, Alarm::Quit), now), Some(Reaction::Quit));
    assert_eq!(watch.next_alarm(), Some((now + QUIT_PATIENCE, Alarm::Kill)));
}
