// SPDX-License-Identifier: MIT OR Apache-2.0
//! Barriers at which the nodes of a job meet, through the host ([`bpfassay_protocol::job_nodes`]).

use bpfassay_protocol::{job_nodes::Node, message::GuestMessage};

use crate::{
    agent_link::Link,
    error::{Error, Result},
};

/// The barriers of one run on this guest.
pub(crate) struct Meetings<'a> {
    node: Option<Node>,
    link: &'a Link,
    run: &'a str,
    /// How many barriers were met.
    met: u32,
}

impl<'a> Meetings<'a> {
    /// Makes the barriers of `run`. `node` is one of several, or `None` for a guest that is alone,
    /// which has no barriers.
    pub(crate) const fn of(node: Option<Node>, link: &'a Link, run: &'a str) -> Self {
        Self { node, link, run, met: 0 }
    }

    /// Returns whether this guest creates and removes what all nodes share.
    pub(crate) fn is_first(&self) -> bool {
        self.node.is_none_or(Node::is_first)
    }

    /// Waits until all nodes are here. Returns at once in a guest that is alone.
    ///
    /// # Errors
    /// Another node has ended the run, or nothing can be sent to the host.
    pub(crate) fn meet(&mut self) -> Result<()> {
        if self.node.is_none() {
            return Ok(());
        }
        self.met += 1;
        self.link.send(&GuestMessage::Barrier { run: self.run.to_owned(), number: self.met })?;
        match self.link.await_barrier() {
            true => Ok(()),
            false => Err(Error::Order("another node has ended this run".to_owned())),
        }
    }
}
