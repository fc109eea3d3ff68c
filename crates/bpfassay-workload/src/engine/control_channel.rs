// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control channel (`bpfassay_protocol::control`), through which the agent holds the run
//! between phases.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    os::fd::{FromRawFd as _, OwnedFd, RawFd},
};

use bpfassay_protocol::{
    Operation,
    control::{ENVIRONMENT, PhaseEvent},
    operation::Totals,
};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::EngineError;

/// Rank 0's end of the channel.
pub(crate) struct Control<S = Socket> {
    agent: S,
}

/// A stream socket that is used through `recv` and `send` only (see
/// [`bpfassay_protocol::control`]).
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&self.0, buffer, RecvFlags::empty())?.0)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(&self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Results of the `read`- and `write`-like calls of one rank in one phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RankResults {
    pub(crate) read: Totals,
    pub(crate) write: Totals,
}

impl RankResults {
    pub(crate) fn count(totals: &mut Totals, result: &io::Result<usize>) {
        *totals += match result {
            Ok(bytes) => Totals { calls: 1, bytes: *bytes as u64, errors: 0 },
            Err(_) => Totals { calls: 1, bytes: 0, errors: 1 },
        };
    }

    pub(crate) const fn numbers(&self) -> [u64; 6] {
        let Self { read, write } = self;
        [read.calls, read.bytes, read.errors, write.calls, write.bytes, write.errors]
    }

    /// Sums the ranks' [`RankResults::numbers`]. Operations without a call are left out.
    pub(crate) fn sum(ranks: &[[u64; 6]]) -> BTreeMap<Operation, Totals> {
        let mut sums = BTreeMap::<Operation, Totals>::new();
        for &[calls, bytes, errors, write_calls, write_bytes, write_errors] in ranks {
            *sums.entry(Operation::Read).or_default() += Totals { calls, bytes, errors };
            *sums.entry(Operation::Write).or_default() +=
                Totals { calls: write_calls, bytes: write_bytes, errors: write_errors };
        }
        sums.retain(|_, totals| totals.calls != 0);
        sums
    }
}

fn failed(what: &str, source: io::Error) -> EngineError {
    EngineError::Control { what: what.to_owned(), source: Some(source) }
}

/// Returns the descriptor that the environment names, if any.
pub(crate) fn descriptor() -> Result<Option<RawFd>, EngineError> {
    let Some(value) = std::env::var_os(ENVIRONMENT) else { return Ok(None) };
    match value.to_str().and_then(|text| text.parse::<RawFd>().ok()).filter(|&number| number >= 0) {
        Some(number) if is_open(number) => Ok(Some(number)),
        Some(_) => Err(failed("the descriptor is not open", io::Error::last_os_error())),
        None => Err(EngineError::Control {
            what: format!("expected the number of a descriptor, found {value:?}"),
            source: None,
        }),
    }
}

fn is_open(descriptor: RawFd) -> bool {
    // SAFETY: asks about a number only.
    unsafe { libc::fcntl(descriptor, libc::F_GETFD) != -1 }
}

impl Control {
    /// Takes over the descriptor that [`descriptor`] returned.
    pub(crate) fn take(number: RawFd) -> Self {
        // SAFETY: open (checked by `descriptor`), and the environment gives it to this program to
        // own.
        Self { agent: Socket(unsafe { OwnedFd::from_raw_fd(number) }) }
    }
}

impl<S: Read + Write> Control<S> {
    /// Creates a channel to `agent`.
    #[cfg(test)]
    pub(crate) const fn over(agent: S) -> Self {
        Self { agent }
    }

    /// Sends `event` and waits until the agent answers.
    pub(crate) fn announce(&mut self, event: &PhaseEvent) -> Result<(), EngineError> {
        let mut line =
            serde_json::to_vec(event).map_err(|error| failed("cannot encode an event", io::Error::from(error)))?;
        line.push(b'\n');
        self.agent.write_all(&line).map_err(|source| failed("cannot report a phase to the agent", source))?;
        self.agent.read_exact(&mut [0]).map_err(|source| failed("the agent did not answer", source))
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::control::PhaseName;

    use super::*;

    #[test]
    fn an_event_is_one_line_and_takes_one_byte() {
        let (mut agent, engine) = std::os::unix::net::UnixStream::pair().unwrap();
        agent.write_all(b"go").unwrap();
        let phase = PhaseName { phase: "write".to_owned(), test: 1, repetition: 2 };
        let mut control = Control { agent: Socket(engine.into()) };
        control.announce(&PhaseEvent::Begin(phase.clone())).unwrap();
        let moved = RankResults::sum(&[[0, 0, 0, 3, 12, 1], [0, 0, 0, 1, 4, 0]]);
        control.announce(&PhaseEvent::End { phase, moved, events: BTreeMap::new(), mount: None }).unwrap();
        agent.shutdown(std::net::Shutdown::Write).unwrap();
        let gone = control.announce(&PhaseEvent::Begin(PhaseName { phase: "read".to_owned(), test: 0, repetition: 0 }));
        assert!(gone.unwrap_err().to_string().contains("did not answer"));
        drop(control);
        let mut sent = Vec::new();
        agent.read_to_end(&mut sent).unwrap();
        let lines: Vec<_> = sent.split(|&byte| byte == b'\n').take(2).collect();
        assert_eq!(
            lines.iter().map(|line| String::from_utf8_lossy(line)).collect::<Vec<_>>(),
            [
                r#"{"event":"begin","phase":"write","test":1,"repetition":2}"#,
                r#"{"event":"end","phase":"write","test":1,"repetition":2,"moved":{"write":{"calls":4,"bytes":16,"errors":1}}}"#,
            ]
        );
    }
}
