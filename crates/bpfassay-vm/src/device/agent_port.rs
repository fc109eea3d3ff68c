//! The virtio-serial port that carries frames between agent and host.

use std::ffi::OsString;

use bpfassay_protocol::AGENT_PORT;

use super::{Device, descriptor, socket};

/// One virtio-serial bus with one port, named [`AGENT_PORT`].
#[derive(Debug, Clone, Copy)]
pub struct AgentPort;

impl Device for AgentPort {
    fn arguments(&self) -> Vec<OsString> {
        let mut words = socket("agent", descriptor::AGENT).to_vec();
        // Port 0 is reserved for a console, hence two ports. On PCI, which all three boards have: the `virtio-mmio`
        // transport is a module in some distribution kernels and built in in others.
        words.extend(["-device".into(), "virtio-serial-pci,id=serial,max_ports=2".into()]);
        words.extend([
            "-device".into(),
            format!("virtserialport,bus=serial.0,nr=1,chardev=agent,name={AGENT_PORT}").into(),
        ]);
        words
    }
}
