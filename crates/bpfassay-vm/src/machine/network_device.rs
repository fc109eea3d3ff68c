// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network of a job's nodes. Each node has a card, and the cables are inherited sockets. The
//! server has a cable to each node and a hub. Only these guests can reach this network, and they
//! cannot reach other networks through it.

use std::ffi::OsString;

use bpfassay_protocol::job_nodes::Node;

use crate::device::{MachineDevice, descriptor};

/// The card of one node. A single guest has none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Network {
    pub(crate) node: Option<Node>,
}

impl MachineDevice for Network {
    fn arguments(&self) -> Vec<OsString> {
        let Some(node) = self.node else { return Vec::new() };
        let mut all: Vec<String> = Vec::new();
        let mut backend = |text: String| all.extend(["-netdev".to_owned(), text]);
        if node.is_server() {
            for (to, number) in Node::all(node.count).zip(descriptor::NETWORK..) {
                backend(format!("socket,id=cable{},fd={number}", to.number));
                backend(format!("hubport,id=port{},hubid=0,netdev=cable{}", to.number, to.number));
            }
            backend("hubport,id=network,hubid=0".to_owned());
        } else {
            backend(format!("socket,id=network,fd={}", descriptor::NETWORK));
        }
        // The card has no boot ROM, because nothing boots from it.
        let card = format!("virtio-net-pci,netdev=network,mac={},romfile=", node.hardware_address());
        all.extend(["-device".to_owned(), card]);
        all.into_iter().map(OsString::from).collect()
    }
}
