// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network interfaces of a guest: the loopback interface, and the card through which the nodes of a
//! job reach each other.

use std::{
    fs, io,
    net::Ipv4Addr,
    os::fd::{AsRawFd, OwnedFd},
};

use bpfassay_protocol::job_nodes::Node;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::error::{Error, Result};

const INTERFACES: &str = "/sys/class/net";

/// The network of the nodes has 256 addresses.
const MASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);

/// Brings up the loopback interface.
pub(crate) fn loopback_up() -> Result<()> {
    const ACTION: &str = "bring up the loopback interface";
    NetworkInterface::named("lo", ACTION)?.up()
}

/// Gives the network card of `node` its address, and brings it up.
///
/// # Errors
/// The guest has no network card, or the kernel refuses the address.
pub(crate) fn bring_up(node: Node) -> Result<()> {
    const ACTION: &str = "bring up the network card";
    let name = card(&node.hardware_address())?;
    let mut interface = NetworkInterface::named(&name, ACTION)?;
    interface.set(libc::SIOCSIFADDR as _, node.address())?;
    interface.set(libc::SIOCSIFNETMASK as _, MASK)?;
    interface.up()
}

/// Returns the name of the interface with this hardware address.
fn card(hardware_address: &str) -> Result<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(INTERFACES).map_err(Error::file("list", INTERFACES))? {
        let entry = entry.map_err(Error::file("list", INTERFACES))?;
        let address = fs::read_to_string(entry.path().join("address")).unwrap_or_default();
        let name = entry.file_name().to_string_lossy().into_owned();
        if address.trim_end() == hardware_address {
            return Ok(name);
        }
        found.push(name);
    }
    let expected = format!("a network card with the address {hardware_address}: the kernel needs virtio_net");
    Err(Error::unexpected(INTERFACES, expected, &found.join(" ")))
}

/// An interface, and a socket to change it through (netdevice(7)).
struct NetworkInterface {
    socket: OwnedFd,
    request: libc::ifreq,
    action: &'static str,
}

impl NetworkInterface {
    fn named(name: &str, action: &'static str) -> Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map_err(Error::system(action))?;
        // SAFETY: ifreq is plain data for which zero is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays zero, because the name is a C string.
        let room = request.ifr_name.len() - 1;
        for (to, from) in request.ifr_name.iter_mut().take(room).zip(name.as_bytes()) {
            *to = *from as libc::c_char;
        }
        Ok(Self { socket, request, action })
    }

    fn control(&mut self, number: libc::Ioctl) -> Result<()> {
        // SAFETY: these requests read and write the structure alone.
        if unsafe { libc::ioctl(self.socket.as_raw_fd(), number, &raw mut self.request) } < 0 {
            return Err(Error::system(self.action)(io::Error::last_os_error()));
        }
        Ok(())
    }

    fn set(&mut self, number: libc::Ioctl, address: Ipv4Addr) -> Result<()> {
        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
            sin_zero: [0; 8],
        };
        // SAFETY: both are plain data of 16 bytes.
        self.request.ifr_ifru.ifru_addr = unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(address) };
        self.control(number)
    }

    fn up(&mut self) -> Result<()> {
        self.control(libc::SIOCGIFFLAGS as _)?;
        // SAFETY: the kernel has just written the flags.
        unsafe { self.request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short };
        self.control(libc::SIOCSIFFLAGS as _)
    }
}
