// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's uevents (netlink, `NETLINK_KOBJECT_UEVENT`).

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind,
    netlink::{KOBJECT_UEVENT, SocketAddrNetlink},
    recv, socket_with,
};

use crate::error::{Error, Result};

/// Multicast group of uevents from the kernel. Messages of udev are in group 2.
const KERNEL: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Uevent {
    /// The subsystem ("virtio-ports"); empty if there is none.
    pub subsystem: String,
}

/// Receives uevents from the moment it is created.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
}

impl Listener {
    /// Starts to receive.
    pub(crate) fn new() -> Result<Self> {
        let open = || -> rustix::io::Result<OwnedFd> {
            let socket = socket_with(
                AddressFamily::NETLINK,
                SocketType::DGRAM,
                SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
                Some(KOBJECT_UEVENT),
            )?;
            bind(&socket, &SocketAddrNetlink::new(0, KERNEL))?;
            Ok(socket)
        };
        Ok(Self { socket: open().map_err(Error::system("listen to the kernel's device events"))? })
    }

    /// Returns the next uevent that has arrived; `None` if there are no more for now.
    ///
    /// # Errors
    /// `ENOBUFS` if the kernel had to drop uevents: the caller must look at sysfs again.
    pub(crate) fn next(&self) -> io::Result<Option<Uevent>> {
        let mut buffer = [0u8; 8192];
        loop {
            match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, length)) => {
                    if let Some(event) = parse(&buffer[..length.min(8192)]) {
                        return Ok(Some(event));
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Parses `ACTION@DEVPATH\0KEY=VALUE\0…`. Returns `None` for anything else (udev's own messages
/// begin with `libudev`).
pub(crate) fn parse(message: &[u8]) -> Option<Uevent> {
    let mut fields = message.split(|&byte| byte == 0);
    if !fields.next()?.contains(&b'@') {
        return None;
    }
    let subsystem = fields.find_map(|field| field.strip_prefix(b"SUBSYSTEM=")).unwrap_or_default();
    Some(Uevent { subsystem: String::from_utf8_lossy(subsystem).into_owned() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_uevent_of_a_port_is_read() {
        let message = b"add@/devices/pci0000:00/0000:00:03.0/virtio0/virtio-ports/vport0p1\0ACTION=add\0\
            DEVPATH=/devices/pci0000:00/0000:00:03.0/virtio0/virtio-ports/vport0p1\0SUBSYSTEM=virtio-ports\0\
            MAJOR=248\0MINOR=1\0DEVNAME=vport0p1\0SEQNUM=1207\0";
        assert_eq!(parse(message).unwrap().subsystem, "virtio-ports");
    }

    #[test]
    fn udev_is_not_the_kernel() {
        assert_eq!(parse(b"libudev\0\xfe\xed\xca\xfe"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
