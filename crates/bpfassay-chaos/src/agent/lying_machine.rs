// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stopped machine as the player sees it: a QEMU monitor that can write to I/O ports.

use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

/// How long QEMU can take for a reply.
const PATIENCE: Duration = Duration::from_secs(20);

/// Monitor commands that enable the board's power management (ICH9: registers at I/O port 0x600)
/// and then enter sleep state S5, as a kernel does.
const POWER_OFF: [&str; 5] =
    ["o /w 0xcf8 0x8000f840", "o /w 0xcfc 0x601", "o /w 0xcf8 0x8000f844", "o /b 0xcfc 0x80", "o /h 0x604 0x2000"];
/// Monitor command that writes the board's reset register.
const RESET: [&str; 1] = ["o /b 0xcf9 6"];

/// The player's connection to QEMU's monitor.
#[derive(Debug)]
pub(crate) struct PlayerMonitor {
    answers: BufReader<UnixStream>,
    orders: UnixStream,
}

impl PlayerMonitor {
    /// Connects on `socket` and waits for QEMU's greeting.
    ///
    /// # Errors
    /// If the socket is closed, or QEMU has not answered within [`PATIENCE`].
    pub(crate) fn connect(socket: UnixStream) -> io::Result<Self> {
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut machine = Self { answers: BufReader::new(socket.try_clone()?), orders: socket };
        machine.answer()?;
        machine.order(r#"{"execute":"qmp_capabilities"}"#)?;
        Ok(machine)
    }

    /// Powers the guest off.
    ///
    /// # Errors
    /// If QEMU has closed its monitor, or has not answered within [`PATIENCE`].
    pub(crate) fn power_off(&mut self) -> io::Result<()> {
        self.write_ports(&POWER_OFF)
    }

    /// Resets the guest.
    ///
    /// # Errors
    /// The errors of [`PlayerMonitor::power_off`].
    pub(crate) fn reset(&mut self) -> io::Result<()> {
        self.write_ports(&RESET)
    }

    fn write_ports(&mut self, lines: &[&str]) -> io::Result<()> {
        for line in lines {
            self.order(&format!(r#"{{"execute":"human-monitor-command","arguments":{{"command-line":"{line}"}}}}"#))?;
        }
        Ok(())
    }

    fn order(&mut self, order: &str) -> io::Result<()> {
        self.orders.write_all(order.as_bytes())?;
        self.orders.write_all(b"\n")?;
        // Ends with the reply, or when QEMU closes the monitor.
        self.answer()
    }

    fn answer(&mut self) -> io::Result<()> {
        let mut line = String::new();
        loop {
            line.clear();
            let count = self.answers.read_line(&mut line)?;
            if count == 0 || !line.contains("\"event\"") {
                return Ok(());
            }
        }
    }
}
