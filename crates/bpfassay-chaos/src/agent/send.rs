// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of a guest: frames, invalid bytes, floods, and kernel messages.

use std::{fs::File, io, io::Write, thread, time::Duration};

use bpfassay_protocol::{
    PROTOCOL_VERSION, frame,
    message::{GuestMessage, RunFigures, RunOutcome},
};
use rustix::process::{Resource, getppid};

use crate::script::SentPiece;

/// The agent's port and the console.
pub(crate) struct AgentLine {
    pub(crate) agent: File,
    pub(crate) console: File,
}

/// A port of the guest.
#[derive(Clone, Copy)]
enum Port {
    Agent,
    Console,
}

impl AgentLine {
    /// Sends `message` to the supervisor.
    ///
    /// # Errors
    /// If the message cannot be encoded, or the port cannot be written to.
    pub(crate) fn message(&mut self, message: &GuestMessage) -> io::Result<()> {
        let frame = frame::encode(message).map_err(io::Error::other)?;
        self.put(Port::Agent, &frame)
    }

    /// Sends `piece`. `figures` returns the figures of a run.
    pub(crate) fn piece(&mut self, piece: &SentPiece, figures: &dyn Fn(&str) -> Option<RunFigures>) -> io::Result<()> {
        let pause = |ms: u64| thread::sleep(Duration::from_millis(ms));
        match piece {
            SentPiece::Pause(ms) => pause(*ms),
            SentPiece::Console(lines) => {
                for line in lines {
                    self.put(Port::Console, format!("{line}\r\n").as_bytes())?;
                }
            }
            SentPiece::ConsoleFlood(mib) => {
                let text = "[    1.000000] a flood of text from the kernel that means nothing at all\r\n".repeat(1000);
                self.flood(Port::Console, text.as_bytes(), *mib)?;
            }
            SentPiece::AgentFlood(mib) => {
                let text = "a flood of text from the agent that means nothing at all ".repeat(1000);
                let frame = frame::encode(&GuestMessage::Log { text }).map_err(io::Error::other)?;
                self.flood(Port::Agent, &frame, *mib)?;
            }
            SentPiece::Repeated(count, ms, piece) => {
                for _ in 0..*count {
                    self.piece(piece, figures)?;
                    pause(*ms);
                }
            }
            SentPiece::ByteByByte(ms, piece) => {
                for byte in bytes(piece, figures)? {
                    self.put(Port::Agent, &[byte])?;
                    pause(*ms);
                }
            }
            piece => self.put(Port::Agent, &bytes(piece, figures)?)?,
        }
        Ok(())
    }

    fn flood(&mut self, port: Port, chunk: &[u8], mib: u64) -> io::Result<()> {
        let mut left = mib << 20;
        while left > 0 {
            self.put(port, chunk)?;
            left = left.saturating_sub(chunk.len() as u64);
        }
        Ok(())
    }

    /// Writes as QEMU does. If QEMU's limit on file sizes forbids the write, sends QEMU `SIGXFSZ`.
    ///
    /// # Errors
    /// If the port cannot be written to, or QEMU cannot be sent the signal.
    fn put(&mut self, port: Port, bytes: &[u8]) -> io::Result<()> {
        let file = match port {
            Port::Agent => &mut self.agent,
            Port::Console => &mut self.console,
        };
        let metadata = file.metadata()?;
        if metadata.is_file() && bytes.len() > 4096 {
            let qemu = getppid();
            let limit = qemu.and_then(|qemu| file_size_limit(qemu.as_raw_pid().unsigned_abs()));
            if limit.is_some_and(|limit| metadata.len() + bytes.len() as u64 > limit) {
                let qemu = qemu.map_or(0, |pid| pid.as_raw_pid().unsigned_abs());
                return crate::command_process::signal(qemu, rustix::process::Signal::XFSZ.as_raw());
            }
        }
        file.write_all(bytes)
    }
}

/// Returns `RLIMIT_FSIZE` of a process, if it has one.
fn file_size_limit(process: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/limits")).ok();
    match text {
        Some(text) => {
            let line = text.lines().find_map(|line| line.strip_prefix("Max file size"))?;
            line.split_whitespace().next()?.parse().ok()
        }
        None => rustix::process::getrlimit(Resource::Fsize).current,
    }
}

/// Encodes a piece for the agent's port.
fn bytes(piece: &SentPiece, figures: &dyn Fn(&str) -> Option<RunFigures>) -> io::Result<Vec<u8>> {
    let encoded = |message: &GuestMessage| frame::encode(message).map_err(io::Error::other);
    match piece {
        SentPiece::Message(message) => encoded(message),
        SentPiece::Measured(run) => {
            let outcome = match figures(run) {
                Some(figures) => RunOutcome::Measured(Box::new(figures)),
                None => RunOutcome::Failed { message: "forged".to_owned() },
            };
            encoded(&GuestMessage::RunEnded { run: run.clone(), outcome: Box::new(outcome) })
        }
        SentPiece::Bytes(bytes) => Ok(bytes.clone()),
        SentPiece::Payload(payload) => Ok(framed(payload)),
        SentPiece::Large(size) => {
            let empty = serde_json::to_vec(&GuestMessage::Log { text: String::new() })?.len();
            let text = "x".repeat(size.saturating_sub(empty));
            Ok(framed(&serde_json::to_vec(&GuestMessage::Log { text })?))
        }
        SentPiece::Truncated(length, piece) => {
            let mut whole = bytes(piece, figures)?;
            whole.truncate(*length);
            Ok(whole)
        }
        SentPiece::Console(_)
        | SentPiece::ConsoleFlood(_)
        | SentPiece::AgentFlood(_)
        | SentPiece::Pause(_)
        | SentPiece::Repeated(..)
        | SentPiece::ByteByByte(..) => Err(io::Error::other("not bytes of the agent's port")),
    }
}

/// Puts `payload` in a frame, whatever its contents and length.
fn framed(payload: &[u8]) -> Vec<u8> {
    let version = u8::try_from(PROTOCOL_VERSION).unwrap_or(u8::MAX);
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut frame = vec![b'B', b'P', b'A', version];
    frame.extend(length.to_le_bytes());
    frame.extend(payload);
    frame
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::frame::{Decoder, MAX_PAYLOAD};

    use super::*;

    #[test]
    fn a_frame_of_the_maximal_size_is_one() {
        let none = |_: &str| None;
        let whole = bytes(&SentPiece::Large(MAX_PAYLOAD), &none).unwrap();
        assert_eq!(whole.len(), MAX_PAYLOAD + 8);
        let mut decoder = Decoder::default();
        decoder.push(&whole);
        assert!(matches!(decoder.next::<GuestMessage>(), Ok(Some(GuestMessage::Log { .. }))));
        let short = bytes(&SentPiece::Truncated(5, Box::new(SentPiece::Large(100))), &none).unwrap();
        assert_eq!(short.len(), 5);
    }
}
