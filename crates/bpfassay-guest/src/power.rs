//! Powering off, on purpose and in distress.

use std::{
    io::{self, Write},
    panic,
    sync::atomic::{AtomicBool, Ordering},
};

use bpfassay_protocol::{message::GuestMessage, with_causes};
use rustix::system::{RebootCommand, reboot};

use crate::{
    error::{Error, Result},
    link::Link,
};

/// Powers off at once. Nothing in a guest needs writing back.
pub(crate) fn off() -> ! {
    // As process 1 with all capabilities this does not come back, except on machines without power control; then
    // waiting is all that is left, and the host's deadline ends the guest.
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        say(&format!("cannot power off: {error}"));
    }
    loop {
        rustix::thread::sched_yield();
        // SAFETY: pause(2) only waits for a signal.
        unsafe { libc::pause() };
    }
}

/// Tells the host (and the console) what failed, then powers off.
pub(crate) fn fail(error: &Error) -> ! {
    fail_with(with_causes(error))
}

/// Set once the first failure is being reported: the reports of those that follow from it are not sent.
static FAILING: AtomicBool = AtomicBool::new(false);

fn fail_with(message: String) -> ! {
    say(&format!("failed: {message}"));
    if !FAILING.swap(true, Ordering::SeqCst) {
        // Where it failed early the port may be there and not open yet.
        let told =
            Link::try_open().and_then(|link| link.map_or(Ok(()), |l| l.send_last(&GuestMessage::Failed { message })));
        if let Err(error) = told {
            say(&format!("failed to tell the host: {}", with_causes(&error)));
        }
    }
    off()
}

/// Writes a line to the console.
pub(crate) fn say(text: &str) {
    // There is nobody left to tell when the console itself fails.
    let _ = writeln!(io::stderr(), "bpfassay-guest: {text}");
}

/// A panic anywhere in the agent is reported like any other failure.
pub(crate) fn report_panics() {
    panic::set_hook(Box::new(|panic| {
        let what = panic.payload_as_str().unwrap_or("unknown reason");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        fail_with(format!("the agent panicked at {place}: {what}; this is a bug in bpfassay-guest"))
    }));
}

/// Blocks the signals that the agent takes through file descriptors. Call before the first thread starts; programs that
/// the agent starts get them unblocked by the standard library.
pub(crate) fn block_signals() -> Result<()> {
    block(&[libc::SIGCHLD, libc::SIGIO])
}

/// Signals by which an agent on a running system is asked to end.
pub(crate) const TO_END: [libc::c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Blocks these too, likewise.
pub(crate) fn block_signals_to_end() -> Result<()> {
    block(&TO_END)
}

fn block(signals: &[libc::c_int]) -> Result<()> {
    // SAFETY: the set is initialised by sigemptyset before use.
    let status = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for &signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
    };
    if status == 0 { Ok(()) } else { Err(Error::system("block signals")(io::Error::from_raw_os_error(status))) }
}
