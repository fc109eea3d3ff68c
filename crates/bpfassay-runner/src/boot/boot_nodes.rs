// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guests of one boot: a single guest, or a server and the nodes that run the workload
//! together. The caller sees them as one guest, the first node. Its runs end when they have ended
//! on all nodes, with the figures of all.

mod outcomes;
mod rendezvous;

use std::{
    collections::VecDeque,
    future::{Future as _, poll_fn},
    os::fd::OwnedFd,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bpfassay_protocol::{
    job_nodes::Node,
    message::{GuestFacts, GuestMessage, HostMessage},
};
use bpfassay_results::NodeFacts;
use bpfassay_vm::{Guest, GuestEnding, VmError, VmEvent, cables};

use self::{
    outcomes::{NodeRunEnded, Outcomes},
    rendezvous::Rendezvous,
};
use crate::{boot::joint_report::JointReport, decisions::asked::AskedGuest};

/// How long guests whose work is done can take to power off.
const GRACE: Duration = Duration::from_secs(5);

/// A guest that was started.
pub(crate) struct Booted {
    pub(crate) guest: Guest,
    /// The console log, relative to the results directory.
    pub(crate) log: String,
    /// The requested properties of the guest.
    pub(crate) asked: AskedGuest,
}

/// One guest of a boot.
struct MemberGuest {
    /// `None` for a single guest.
    node: Option<Node>,
    guest: Guest,
    log: String,
    asked: AskedGuest,
    /// The facts that the guest reported when it was ready.
    facts: Option<Box<GuestFacts>>,
    /// Whether the guest has reported that everything is done.
    is_done: bool,
    has_ended: bool,
}

impl MemberGuest {
    fn new(node: Option<Node>, Booted { guest, log, asked }: Booted) -> Self {
        Self { node, guest, log, asked, facts: None, is_done: false, has_ended: false }
    }

    fn name(&self) -> String {
        self.node.map(Node::name).unwrap_or_default()
    }

    /// Waits for the guest's end and describes it.
    async fn end(mut self) -> GroupEnding {
        GroupEnding { ending: self.guest.end().await, name: self.node.map(Node::name), log: self.log }
    }
}

/// The guests of a boot. The nodes come first, in their order; the server comes last.
pub(crate) struct Guests {
    members: Vec<MemberGuest>,
    rendezvous: Rendezvous,
    outcomes: Outcomes,
    /// Events that the caller has not received yet.
    due: VecDeque<GroupEvent>,
    /// Events of the first node after the end of a run that others have not ended yet.
    held: VecDeque<VmEvent>,
    /// How the first node ended, while other nodes still have work.
    first_ended: Option<Box<GuestEnding>>,
    /// Index of the guest that ended first without finishing its work.
    broken: Option<usize>,
}

/// An event of the guests for the caller.
#[derive(Debug)]
pub(crate) enum GroupEvent {
    /// An event of the single guest, or of the first node.
    Event(VmEvent),
    /// A report of all nodes.
    Together(JointReport),
    /// The guests cannot be trusted any more.
    Violation(String),
    /// A guest differs from the request.
    Differs(String),
}

/// Why a guest is not watched any more.
enum Wrong {
    /// The guest violated the protocol.
    Violation(String),
    /// The guest differs from the request.
    Differs(String),
}

/// How the guests of a boot ended, described by the guest that is to blame.
pub(crate) struct GroupEnding {
    pub(crate) ending: GuestEnding,
    /// The console log, relative to the results directory.
    pub(crate) log: String,
    /// `node 2`, `server`; `None` for a single guest.
    pub(crate) name: Option<String>,
}

/// Why there are no guests.
pub(crate) enum NotBooted {
    /// A QEMU could not be started.
    Vm(VmError),
    /// The server ended before it served.
    Server(Box<GroupEnding>),
    /// The server differs from the request.
    Differs {
        difference: String,
        /// The console log, relative to the results directory.
        log: String,
    },
}

impl From<VmError> for NotBooted {
    fn from(error: VmError) -> Self {
        Self::Vm(error)
    }
}

impl Guests {
    /// Boots a single guest.
    ///
    /// # Errors
    /// [`NotBooted::Vm`] if the guest cannot be started.
    pub(crate) async fn one(boot: impl Future<Output = Result<Booted, VmError>>) -> Result<Self, NotBooted> {
        Ok(Self::with(vec![MemberGuest::new(None, boot.await?)], (1, 1)))
    }

    /// Boots `server`, and the `nodes` when it serves, each with `ranks` ranks. `boot` boots one
    /// guest with its ends of the network cables.
    ///
    /// # Errors
    /// [`NotBooted`]. Guests that were started are killed.
    pub(crate) async fn several(
        (server, nodes, ranks): (Node, Vec<Node>, u32),
        mut boot: impl AsyncFnMut(Node, Vec<Arc<OwnedFd>>) -> Result<Booted, VmError>,
    ) -> Result<Self, NotBooted> {
        let (ends, others): (Vec<_>, Vec<_>) = cables(server.count)?.into_iter().unzip();
        let booted = boot(server, ends.into_iter().map(Arc::new).collect()).await?;
        let mut server = MemberGuest::new(Some(server), booted);
        loop {
            match server.guest.next_event().await {
                VmEvent::Message(GuestMessage::Ready(facts)) => match server.asked.difference(&facts) {
                    None => break,
                    Some(difference) => return Err(NotBooted::Differs { difference, log: server.log }),
                },
                VmEvent::Ended(_) => return Err(NotBooted::Server(Box::new(server.end().await))),
                VmEvent::Message(_) | VmEvent::KernelIncident(_) => {}
            }
        }
        let mut members = Vec::new();
        for (node, cable) in nodes.into_iter().zip(others) {
            members.push(MemberGuest::new(Some(node), boot(node, vec![Arc::new(cable)]).await?));
        }
        let count = members.len();
        members.push(server);
        Ok(Self::with(members, (count, ranks)))
    }

    fn with(members: Vec<MemberGuest>, (nodes, ranks): (usize, u32)) -> Self {
        Self {
            members,
            rendezvous: Rendezvous::new(nodes),
            outcomes: Outcomes::new(nodes, ranks),
            due: VecDeque::new(),
            held: VecDeque::new(),
            first_ended: None,
            broken: None,
        }
    }

    /// Describes in which ways the guests' confinement is incomplete, a sentence each.
    pub(crate) fn unconfined(&self) -> Vec<String> {
        self.members.first().map(|first| first.guest.unconfined().to_vec()).unwrap_or_default()
    }

    /// Calls [`Guest::read_counts`] for the first guest.
    ///
    /// # Errors
    /// The errors of [`Guest::read_counts`].
    pub(crate) fn read_counts(&mut self) -> std::io::Result<Vec<u8>> {
        self.members.first_mut().map_or_else(|| Ok(Vec::new()), |first| first.guest.read_counts())
    }

    /// Acknowledges the last message of the first guest.
    pub(crate) fn power_off(&self) {
        if let Some(first) = self.members.first() {
            // A guest that has ended needs no answer.
            let _ = first.guest.send(&HostMessage::PowerOff);
        }
    }

    /// Waits for the next event. Cancel-safe.
    pub(crate) async fn next_event(&mut self) -> GroupEvent {
        loop {
            if let Some(event) = self.due.pop_front() {
                return event;
            }
            let (at, event) = self.next_of_any().await;
            if let VmEvent::Ended(_) = &event
                && let Some(member) = self.members.get_mut(at)
            {
                member.has_ended = true;
            }
            match self.take(at, event) {
                Ok(()) => {}
                Err(Wrong::Violation(problem)) => return GroupEvent::Violation(problem),
                Err(Wrong::Differs(difference)) => {
                    self.broken = Some(at);
                    return GroupEvent::Differs(difference);
                }
            }
        }
    }

    /// Stops all guests and waits until they have ended. Returns the ending of the guest that is to
    /// blame, or else of the first.
    pub(crate) async fn end(self) -> GroupEnding {
        let Self { members, broken, .. } = self;
        let are_several = members.len() > 1;
        for member in &members {
            // Nodes that have done their work power off by themselves.
            member.guest.request_stop(if member.is_done && are_several { GRACE } else { Duration::ZERO });
        }
        let mut endings = Vec::new();
        for member in members {
            endings.push(member.end().await);
        }
        // There is always a first guest.
        endings.swap_remove(broken.unwrap_or(0))
    }

    /// Waits at most `patience` for the rest of the first guest's output while it ends by itself.
    pub(crate) async fn linger(&mut self, patience: Duration) {
        let Some(first) = self.members.first_mut() else { return };
        let _ = tokio::time::timeout(patience, first.guest.end()).await;
    }

    /// Waits for the next event of any running guest. Returns the guest's index and the event.
    async fn next_of_any(&mut self) -> (usize, VmEvent) {
        poll_fn(|context| {
            for (at, member) in self.members.iter_mut().enumerate() {
                // A guest that has ended would return its end at each call.
                if member.has_ended {
                    continue;
                }
                if let Poll::Ready(event) = pin!(member.guest.next_event()).poll(context) {
                    return Poll::Ready((at, event));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Handles an event of the guest at index `at`.
    ///
    /// # Errors
    /// Why the guest is not watched any more.
    fn take(&mut self, at: usize, event: VmEvent) -> Result<(), Wrong> {
        let problem = |problem: String| Wrong::Violation(format!("protocol error: {problem}"));
        if let (VmEvent::Message(GuestMessage::Ready(facts)), Some(member)) = (&event, self.members.get(at))
            && let Some(difference) = member.asked.difference(facts)
        {
            return Err(Wrong::Differs(difference));
        }
        if self.members.len() == 1 {
            match event {
                VmEvent::Message(GuestMessage::Barrier { .. }) => {
                    return Err(problem("a guest without other nodes waits for them".to_owned()));
                }
                event => self.due.push_back(GroupEvent::Event(event)),
            }
            return Ok(());
        }
        let is_server = at == self.nodes().len();
        match event {
            VmEvent::Message(GuestMessage::Barrier { run, number }) if !is_server => {
                let answers = self.rendezvous.waits(at, &run, number).map_err(problem)?;
                self.answer(&answers);
            }
            VmEvent::Message(GuestMessage::RunEnded { run, outcome }) if !is_server => {
                let is_lost = self.rendezvous.has_lost(at, &run);
                let answers = self.rendezvous.ended(at, &run).map_err(problem)?;
                self.answer(&answers);
                let ended = NodeRunEnded { run, outcome: *outcome, is_lost };
                if let Some(together) = self.outcomes.take(at, ended).map_err(problem)? {
                    self.due.push_back(GroupEvent::Together(JointReport::RunEnded(together)));
                    self.release();
                }
            }
            VmEvent::Message(GuestMessage::RunEnded { .. } | GuestMessage::Barrier { .. }) => {
                return Err(problem("the server executes runs".to_owned()));
            }
            VmEvent::Message(GuestMessage::Ready(facts)) => {
                if let Some(member) = self.members.get_mut(at) {
                    member.facts = Some(facts);
                }
                self.all_ready();
            }
            VmEvent::Message(GuestMessage::Log { text }) => {
                let name = self.members.get(at).map(MemberGuest::name).unwrap_or_default();
                let text = format!("{name}: {text}");
                self.due.push_back(GroupEvent::Event(VmEvent::Message(GuestMessage::Log { text })));
            }
            VmEvent::Message(GuestMessage::Done) => {
                if let Some(member) = self.members.get_mut(at) {
                    member.is_done = true;
                }
                // The boot is done when all nodes have reported it.
                if self.are_all_done() {
                    self.hold_or_push(VmEvent::Message(GuestMessage::Done));
                    if let Some(ending) = self.first_ended.take() {
                        self.hold_or_push(VmEvent::Ended(ending));
                    }
                }
            }
            VmEvent::Message(message) if at == 0 => self.hold_or_push(VmEvent::Message(message)),
            // The progress and the code addresses of other nodes are not used. An unsound node is
            // reported by its end.
            VmEvent::Message(_) => {}
            VmEvent::KernelIncident(incident) => {
                self.due.push_back(GroupEvent::Event(VmEvent::KernelIncident(incident)))
            }
            VmEvent::Ended(ending) if at == 0 && ending.reason.is_done() && !self.are_all_done() => {
                self.first_ended = Some(ending);
            }
            VmEvent::Ended(ending) if at == 0 => self.hold_or_push(VmEvent::Ended(ending)),
            VmEvent::Ended(ending) if ending.reason.is_done() || self.broken.is_some() => {}
            VmEvent::Ended(ending) => {
                self.broken = Some(at);
                self.due.push_back(GroupEvent::Event(VmEvent::Ended(ending)));
            }
        }
        Ok(())
    }

    /// Returns the guests that run the workload: all but the server.
    fn nodes(&self) -> &[MemberGuest] {
        self.members.split_last().map_or(&[], |(_, nodes)| nodes)
    }

    /// Reports that all nodes are ready when they are.
    fn all_ready(&mut self) {
        let facts =
            |member: &MemberGuest| Some(NodeFacts { node: member.name(), facts: (**member.facts.as_ref()?).clone() });
        let Some(nodes) = self.nodes().iter().map(facts).collect::<Option<Vec<_>>>() else { return };
        if let Some(first) = nodes.first() {
            let facts = Box::new(first.facts.clone());
            self.due.push_back(GroupEvent::Together(JointReport::Ready { facts, nodes }));
        }
    }

    /// Returns whether every node has reported that everything is done. The server never does.
    fn are_all_done(&self) -> bool {
        self.nodes().iter().all(|member| member.is_done)
    }

    fn answer(&self, answers: &[rendezvous::Answer]) {
        for answer in answers {
            if let Some(member) = self.members.get(answer.node) {
                // A dead node is noticed when its connection ends.
                let _ = member.guest.send(&HostMessage::Barrier { all_there: answer.all_there });
            }
        }
    }

    /// Delays events of the first node until its last run has ended on all nodes.
    fn hold_or_push(&mut self, event: VmEvent) {
        match self.outcomes.is_first_waiting() {
            true => self.held.push_back(event),
            false => self.due.push_back(GroupEvent::Event(event)),
        }
    }

    fn release(&mut self) {
        while !self.outcomes.is_first_waiting()
            && let Some(event) = self.held.pop_front()
        {
            self.due.push_back(GroupEvent::Event(event));
        }
    }
}
