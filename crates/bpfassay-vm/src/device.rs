// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the parts of a machine have in common: each returns its QEMU arguments and its kernel
//! parameters, and depends on nothing else.
//!
//! The parts are the files of `machine/`, and [`crate::Machine`] is the list of them.

use std::ffi::OsString;

use crate::Clock;

/// A part of a machine.
pub trait Device {
    /// QEMU arguments, in order.
    fn arguments(&self) -> Vec<OsString> {
        Vec::new()
    }

    /// Parameters for the kernel command line, in order.
    fn kernel_parameters(&self) -> Vec<String> {
        Vec::new()
    }
}

/// File descriptors that QEMU inherits: of devices one end of a socket pair each (or a file: see
/// [`Clock::is_one_way`]), and the files that it loads, which it opens as /dev/fd/NUMBER: so a file
/// without a name can be loaded, and one that QEMU's user cannot reach.
///
/// The numbers are fixed, so that the command line of a machine is the same every time, and high,
/// so that they do not collide with descriptors that the host program has open (which are numbered
/// from the bottom).
pub mod descriptor {
    /// The first serial port.
    pub const CONSOLE: i32 = 900;
    /// The agent's virtio-serial port.
    pub const AGENT: i32 = 901;
    /// The QMP monitor.
    pub const MONITOR: i32 = 902;
    /// The initramfs.
    pub const INITRD: i32 = 903;
    /// The kernel.
    pub const KERNEL: i32 = 904;
    /// The plugin that counts instructions.
    pub const PLUGIN: i32 = 905;
    /// The output of the plugin.
    pub const COUNTS: i32 = 906;
    /// The directory of a QEMU that is not installed.
    pub const QEMU: i32 = 907;
    /// The first cable of the network of nodes; a server has one for each node, numbered from here.
    pub const NETWORK: i32 = 910;
}

/// A character device on an inherited socket.
pub(crate) fn socket(id: &str, descriptor: i32) -> [OsString; 2] {
    ["-chardev".into(), format!("socket,id={id},fd={descriptor}").into()]
}

/// A character device for `descriptor`: an inherited socket, or for a guest that is
/// [`Clock::is_one_way`] an inherited file. A socket makes QEMU wait, and with it the guest, where
/// the host does not read soon enough; a file never does.
pub(crate) fn channel(id: &str, descriptor: i32, clock: Clock) -> [OsString; 2] {
    if clock.is_one_way() {
        ["-chardev".into(), format!("file,id={id},path=/dev/fd/{descriptor}").into()]
    } else {
        socket(id, descriptor)
    }
}

/// The path under which QEMU opens the inherited `descriptor`.
pub(crate) fn path_of(descriptor: i32) -> OsString {
    format!("/dev/fd/{descriptor}").into()
}

/// `texts` as arguments.
pub(crate) fn arguments<const N: usize>(texts: [&str; N]) -> Vec<OsString> {
    texts.into_iter().map(OsString::from).collect()
}
