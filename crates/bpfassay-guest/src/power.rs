// SPDX-License-Identifier: MIT OR Apache-2.0
//! Powering off, and the console for what cannot be reported.

use std::io::{self, Write};

use rustix::system::{RebootCommand, reboot};

/// Powers off at once. A guest has nothing to write back.
pub(crate) fn off() -> ! {
    // As process 1 with all capabilities this does not return, except on machines without power
    // control; then this process waits, and the host's deadline ends the guest.
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        say(&format!("cannot power off: {error}"));
    }
    loop {
        rustix::thread::sched_yield();
        // SAFETY: pause(2) only waits for a signal.
        unsafe { libc::pause() };
    }
}

/// Writes a line to the console.
pub(crate) fn say(text: &str) {
    // Where the console itself fails, there is nothing left to report it to.
    let _ = writeln!(io::stderr(), "bpfassay-guest: {text}");
}
