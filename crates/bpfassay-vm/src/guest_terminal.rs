// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console of a guest on the caller's terminal.

#![allow(clippy::disallowed_methods, reason = "the terminal of `bpfassay shell`")]

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::io::unix::AsyncFd;

use crate::{error::VmError, guest::Guest, guest_ending::GuestEnding, vm_event::VmEvent};

/// The key that leaves the guest: Ctrl-].
const LEAVE: u8 = 0x1d;
/// Time for the guest to power off after its user leaves.
const GRACE: Duration = Duration::from_secs(5);

/// The terminal in raw mode. Dropping this restores the earlier mode.
struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    fn enter() -> Result<Self, VmError> {
        let before = tcgetattr(io::stdin())
            .map_err(|error| VmError::Terminal { step: "read the settings of", source: error.into() })?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)
            .map_err(|error| VmError::Terminal { step: "set", source: error.into() })?;
        Ok(Self { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A closed terminal needs no restoring.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.before);
    }
}

impl Guest {
    /// Connects standard input and output to the console of a guest that was booted as
    /// [`crate::BootOptions::interactive`], until the guest ends. Ctrl-] powers it off. Other
    /// events go to `on_event`, which must end its lines with `\r\n`, because the terminal is raw.
    ///
    /// # Errors
    /// [`VmError::Terminal`] if standard input is not a terminal, or the guest is not interactive.
    pub async fn interact(mut self, mut on_event: impl FnMut(&VmEvent)) -> Result<GuestEnding, VmError> {
        let unusable = |step, message: &str| VmError::Terminal { step, source: io::Error::other(message.to_owned()) };
        let Some(mut console) = self.terminal.take() else {
            return Err(unusable("connect the guest to", "the guest was not booted for it"));
        };
        if !io::stdin().is_terminal() {
            return Err(unusable("use", "standard input is not a terminal"));
        }
        // Waits with epoll and not in a thread, which would block in its last read when the program
        // is to end. SAFETY: standard input names the same descriptor as long as the program runs,
        // and nothing here closes it.
        let keyboard = unsafe { AsyncFd::register(io::stdin()) }
            .map_err(|source| VmError::Terminal { step: "wait for input from", source: source.into() })?;
        let _raw = RawTerminal::enter()?;
        let mut keys = [0; 1024];
        let mut output_open = true;
        let mut typing = true;
        loop {
            tokio::select! {
                bytes = console.output.recv(), if output_open => match bytes {
                    Some(bytes) => show(&bytes)?,
                    None => output_open = false,
                },
                event = self.next_event() => match event {
                    VmEvent::Ended(ending) => {
                        while let Ok(bytes) = console.output.try_recv() {
                            show(&bytes)?;
                        }
                        return Ok(*ending);
                    }
                    event => on_event(&event),
                },
                ready = keyboard.readable(), if typing => {
                    let mut ready = ready.map_err(|source| VmError::Terminal { step: "wait for input from", source })?;
                    let count = rustix::io::read(keyboard.get_ref(), &mut keys)
                        .map_err(|error| VmError::Terminal { step: "read from", source: error.into() })?;
                    ready.clear_ready();
                    if count == 0 || keys[..count].contains(&LEAVE) {
                        typing = false;
                        self.request_stop(GRACE);
                    } else if console.input.send(keys[..count].to_vec()).await.is_err() {
                        typing = false;
                    }
                },
            }
        }
    }
}

fn show(bytes: &[u8]) -> Result<(), VmError> {
    let mut output = io::stdout().lock();
    output
        .write_all(bytes)
        .and_then(|()| output.flush())
        .map_err(|source| VmError::Terminal { step: "write to", source })
}
