// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several guests as the nodes of one job: a server, and nodes that run the workload together on its export.
//!
//! Each node executes the same runs in the same order. It meets the others at *barriers*: it sends [`crate::message::GuestMessage::Barrier`] and waits for
//! the host's [`crate::message::HostMessage::Barrier`]. The host releases all nodes when all wait at the same barrier, and reports to those that wait for one
//! which has ended the run without them that the run is lost.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// Which of several nodes a guest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// From 1; 0 is the server, which runs no workload.
    pub number: u32,
    /// How many run the workload.
    pub count: u32,
}

impl Node {
    /// Most nodes that run a workload together.
    pub const MOST: u32 = 8;

    /// The server of so many nodes.
    #[must_use]
    pub const fn server(count: u32) -> Self {
        Self { number: 0, count }
    }

    /// The nodes that run the workload.
    pub fn all(count: u32) -> impl Iterator<Item = Self> {
        (1..=count).map(move |number| Self { number, count })
    }

    /// Whether it serves the file system and runs no workload.
    #[must_use]
    pub const fn is_server(self) -> bool {
        self.number == 0
    }

    /// Whether it makes and removes what all nodes share.
    #[must_use]
    pub const fn is_first(self) -> bool {
        self.number == 1
    }

    /// Its address in the network of the nodes: one of TEST-NET-1 (RFC 5737), which no other network has.
    #[must_use]
    pub const fn address(self) -> Ipv4Addr {
        // At most `MOST`.
        Ipv4Addr::new(192, 0, 2, 1 + self.number as u8)
    }

    /// The address of its network card: a locally administered one.
    #[must_use]
    pub fn hardware_address(self) -> String {
        format!("52:54:00:00:00:{:02x}", 1 + self.number)
    }

    /// What it is called in messages: `server`, `node 2`.
    #[must_use]
    pub fn name(self) -> String {
        match self.number {
            0 => "server".to_owned(),
            number => format!("node {number}"),
        }
    }

    /// Its name as `uname -n` shows it. An NFSv4 client makes its identifier from it: two clients of one name would take each other's state.
    #[must_use]
    pub fn host_name(self) -> String {
        match self.number {
            0 => "bpfassay-server".to_owned(),
            number => format!("bpfassay-{number}"),
        }
    }

    /// What stands for [`NODE`] in arguments.
    #[must_use]
    pub fn place(self) -> String {
        format!("{}/{}", self.number, self.count)
    }
}

/// In the arguments of a [`crate::job::Workload`], the placeholder of the node that it runs on: `2/4`.
pub const NODE: &str = "{node}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_names_and_addresses_of_its_own() {
        let nodes: Vec<Node> = std::iter::once(Node::server(Node::MOST)).chain(Node::all(Node::MOST)).collect();
        let distinct = |of: fn(&Node) -> String| nodes.iter().map(of).collect::<std::collections::BTreeSet<_>>().len();
        assert_eq!(nodes.len(), 9);
        assert_eq!(distinct(|node| node.address().to_string()), 9);
        assert_eq!(distinct(|node| node.hardware_address()), 9);
        assert_eq!(distinct(|node| node.host_name()), 9);
        let second = nodes[2];
        assert_eq!(
            (second.name(), second.place(), second.address().to_string()),
            ("node 2".to_owned(), "2/8".to_owned(), "192.0.2.3".to_owned())
        );
        assert!(nodes[0].is_server() && nodes[1].is_first() && !second.is_first());
    }
}
