// SPDX-License-Identifier: MIT OR Apache-2.0
//! The virtio-serial port for frames between agent and host.

use std::ffi::OsString;

use bpfassay_protocol::AGENT_PORT;

use crate::{
    device::{MachineDevice, channel, descriptor},
    guest_clock::GuestClock,
};

/// One virtio-serial bus with one port, named [`AGENT_PORT`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentPort {
    pub(crate) clock: GuestClock,
}

impl MachineDevice for AgentPort {
    fn arguments(&self) -> Vec<OsString> {
        let mut all = channel("agent", descriptor::AGENT, self.clock).to_vec();
        // Port 0 is reserved for a console, so there are two ports. The bus is on PCI, which all
        // three boards have. The `virtio-mmio` transport is a module in some distribution kernels
        // and built into others.
        let mut bus = "virtio-serial-pci,id=serial,max_ports=2".to_owned();
        if self.clock == GuestClock::Instructions {
            // A host thread would read the guest's output some time later through an ioeventfd. The
            // guest's processor now reads it between two of its instructions.
            bus.push_str(",ioeventfd=off");
        }
        all.extend(["-device".into(), bus.into()]);
        all.extend([
            "-device".into(),
            format!("virtserialport,bus=serial.0,nr=1,chardev=agent,name={AGENT_PORT}").into(),
        ]);
        all
    }
}
