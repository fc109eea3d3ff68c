// SPDX-License-Identifier: MIT OR Apache-2.0
//! Power-off, and the console for what cannot be reported otherwise.

use std::io::{self, Write};

use rustix::system::{RebootCommand, reboot};

/// Powers off at once. A guest has no data to write back.
pub(crate) fn off() -> ! {
    // Process 1 with all capabilities does not return from this call, except on machines without
    // power control. This process then waits, and the host's deadline ends the guest.
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
    // If the console fails, the error cannot be reported.
    let _ = writeln!(io::stderr(), "bpfassay-guest: {text}");
}
