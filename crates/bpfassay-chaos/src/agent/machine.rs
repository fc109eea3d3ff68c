// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stopped machine, seen from the player: its monitor, through which it writes to the guest's
//! ports.

use std::{
    io::{self, BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    time::Duration,
};

/// How long QEMU may take for a reply.
const PATIENCE: Duration = Duration::from_secs(20);

/// The monitor's commands that enable the power management of the board (ICH9: its registers at I/O
/// port 0x600) and then enter sleep state S5, as a kernel does.
const POWER_OFF: [&str; 5] =
    ["o /w 0xcf8 0x8000f840", "o /w 0xcfc 0x601", "o /w 0xcf8 0x8000f844", "o /b 0xcfc 0x80", "o /h 0x604 0x2000"];
/// The reset register of the board.
const RESET: [&str; 1] = ["o /b 0xcf9 6"];

/// QEMU's monitor of the player.
#[derive(Debug)]
pub(crate) struct Machine {
    answers: BufReader<UnixStream>,
    orders: UnixStream,
}

impl Machine {
    /// On the socket `socket`, once QEMU has greeted.
    ///
    /// # Errors
    /// Where the socket is closed, or QEMU has not answered on it within [`PATIENCE`].
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
    /// Where QEMU has closed its monitor, or has not answered on it within [`PATIENCE`].
    pub(crate) fn power_off(&mut self) -> io::Result<()> {
        self.write_ports(&POWER_OFF)
    }

    /// Resets the guest.
    ///
    /// # Errors
    /// As with [`Machine::power_off`].
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
        // Its reply, or an event, or QEMU's end.
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
