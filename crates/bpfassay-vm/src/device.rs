// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface of the parts of a machine. Each device returns its QEMU arguments and kernel
//! parameters, and does not depend on other devices.
//!
//! The parts are the files of `machine/`. [`crate::Machine`] lists them.

use std::ffi::OsString;

use crate::guest_clock::GuestClock;

/// A part of a machine.
pub trait MachineDevice {
    /// QEMU arguments, in order.
    fn arguments(&self) -> Vec<OsString> {
        Vec::new()
    }

    /// Parameters for the kernel command line, in order.
    fn kernel_parameters(&self) -> Vec<String> {
        Vec::new()
    }
}

/// File descriptors that QEMU inherits. Each device has one end of a socket pair, or a file (see
/// [`GuestClock::is_one_way`]). Files to load are opened as /dev/fd/NUMBER. QEMU can therefore load
/// files without a name, and files at paths that its user cannot reach.
///
/// The numbers are fixed, so that a machine always has the same command line. They are high to
/// avoid descriptors that the host program has open, which are numbered from the bottom.
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
    /// The root directory of a QEMU that is not installed.
    pub const QEMU: i32 = 907;
    /// The first cable of the nodes' network. A server's cables are numbered from here, one per
    /// node.
    pub const NETWORK: i32 = 910;
}

/// Returns the arguments for a character device on an inherited socket.
pub(crate) fn socket(id: &str, descriptor: i32) -> [OsString; 2] {
    ["-chardev".into(), format!("socket,id={id},fd={descriptor}").into()]
}

/// Returns the arguments for a character device on `descriptor`: an inherited socket, or an
/// inherited file for a guest that is [`GuestClock::is_one_way`]. A socket blocks QEMU and the
/// guest if the host does not read soon enough. A file never blocks.
pub(crate) fn channel(id: &str, descriptor: i32, clock: GuestClock) -> [OsString; 2] {
    if clock.is_one_way() {
        ["-chardev".into(), format!("file,id={id},path=/dev/fd/{descriptor}").into()]
    } else {
        socket(id, descriptor)
    }
}

/// Returns the path under which QEMU opens the inherited `descriptor`.
pub(crate) fn path_of(descriptor: i32) -> OsString {
    format!("/dev/fd/{descriptor}").into()
}

/// Converts `texts` to arguments.
pub(crate) fn arguments<const N: usize>(texts: [&str; N]) -> Vec<OsString> {
    texts.into_iter().map(OsString::from).collect()
}
