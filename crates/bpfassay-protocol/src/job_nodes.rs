// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several guests as the nodes of one job: a server, and nodes that run the workload together on
//! the server's export.
//!
//! Each node executes the same runs in the same order. Nodes meet at *barriers*: a node sends
//! [`crate::message::GuestMessage::Barrier`] and waits for the host's
//! [`crate::message::HostMessage::Barrier`]. The host releases all nodes when all of them wait at
//! the same barrier. If a node ends the run without that barrier, the host tells the waiting nodes
//! that the run is lost.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// The position of a guest among several nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The number, from 1. 0 is the server, which runs no workload.
    pub number: u32,
    /// Number of nodes that run the workload.
    pub count: u32,
}

impl Node {
    /// Largest number of nodes that can run a workload together.
    pub const MOST: u32 = 8;

    /// The server of `count` nodes.
    #[must_use]
    pub const fn server(count: u32) -> Self {
        Self { number: 0, count }
    }

    /// Returns all nodes that run the workload.
    pub fn all(count: u32) -> impl Iterator<Item = Self> {
        (1..=count).map(move |number| Self { number, count })
    }

    /// Whether the node serves the file system and runs no workload.
    #[must_use]
    pub const fn is_server(self) -> bool {
        self.number == 0
    }

    /// Whether the node creates and removes what all nodes share.
    #[must_use]
    pub const fn is_first(self) -> bool {
        self.number == 1
    }

    /// Returns the node's address in the network of the nodes. It is in TEST-NET-1 (RFC 5737),
    /// which no other network uses.
    #[must_use]
    pub const fn address(self) -> Ipv4Addr {
        // The number is at most `MOST`.
        Ipv4Addr::new(192, 0, 2, 1 + self.number as u8)
    }

    /// Returns the MAC address of the node's network card, which is locally administered.
    #[must_use]
    pub fn hardware_address(self) -> String {
        format!("52:54:00:00:00:{:02x}", 1 + self.number)
    }

    /// Returns the name for messages: `server`, `node 2`.
    #[must_use]
    pub fn name(self) -> String {
        match self.number {
            0 => "server".to_owned(),
            number => format!("node {number}"),
        }
    }

    /// Returns the host name, as by `uname -n`. NFSv4 clients build their identifier from it, and
    /// two clients with one identifier would take over each other's state.
    #[must_use]
    pub fn host_name(self) -> String {
        match self.number {
            0 => "bpfassay-server".to_owned(),
            number => format!("bpfassay-{number}"),
        }
    }

    /// Returns the replacement of [`NODE`] in arguments.
    #[must_use]
    pub fn place(self) -> String {
        format!("{}/{}", self.number, self.count)
    }
}

/// The placeholder in a [`crate::job::Workload`]'s arguments for the node, such as `2/4`.
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
