//! The control channel (`bpfassay_protocol::control`): the agent holds the run between phases.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    os::fd::{FromRawFd as _, RawFd},
};

use bpfassay_protocol::{
    Operation,
    control::{ENVIRONMENT, PhaseEvent},
    operation::Totals,
};

use super::EngineError;

/// Rank 0's end of the channel.
pub(crate) struct Control<R = std::fs::File, W = std::fs::File> {
    from_agent: R,
    to_agent: W,
}

/// What the `read`- and `write`-like calls of one rank returned in one phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub(crate) read: Totals,
    pub(crate) write: Totals,
}

impl Ledger {
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

    /// Sums the ranks' [`Ledger::numbers`]; operations without a call are left out.
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

/// The descriptors that the environment names, if any: first the one to read from, then the one to write to.
pub(crate) fn descriptors() -> Result<Option<(RawFd, RawFd)>, EngineError> {
    let Some(value) = std::env::var_os(ENVIRONMENT) else { return Ok(None) };
    let pair = value.to_str().and_then(|text| {
        let (read, write) = text.split_once(',')?;
        let descriptor = |text: &str| text.parse::<RawFd>().ok().filter(|&number| number >= 0);
        Some((descriptor(read)?, descriptor(write)?))
    });
    match pair {
        Some((read, write)) if is_open(read) && is_open(write) => Ok(Some((read, write))),
        Some(_) => Err(failed("a descriptor is not open", io::Error::last_os_error())),
        None => Err(EngineError::Control {
            what: format!("expected `READ,WRITE` descriptors, found {value:?}"),
            source: None,
        }),
    }
}

fn is_open(descriptor: RawFd) -> bool {
    // SAFETY: asks about a number only.
    unsafe { libc::fcntl(descriptor, libc::F_GETFD) != -1 }
}

impl Control {
    /// Takes over the descriptors from [`descriptors`].
    pub(crate) fn take((read, write): (RawFd, RawFd)) -> Self {
        // SAFETY: open (checked by `descriptors`), and the environment gives them to this program to own.
        unsafe { Self { from_agent: std::fs::File::from_raw_fd(read), to_agent: std::fs::File::from_raw_fd(write) } }
    }
}

impl<R: Read, W: Write> Control<R, W> {
    /// Tells `event` and waits until the agent says go on.
    pub(crate) fn announce(&mut self, event: &PhaseEvent) -> Result<(), EngineError> {
        let mut line =
            serde_json::to_vec(event).map_err(|error| failed("cannot encode an event", io::Error::from(error)))?;
        line.push(b'\n');
        self.to_agent.write_all(&line).map_err(|source| failed("cannot tell the agent about a phase", source))?;
        self.from_agent.read_exact(&mut [0]).map_err(|source| failed("the agent did not say go on", source))
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::control::PhaseName;

    use super::*;

    #[test]
    fn an_event_is_one_line_and_takes_one_byte() {
        let mut told = Vec::new();
        let answers = [b'g', b'o'];
        let phase = PhaseName { phase: "write".to_owned(), test: 1, repetition: 2 };
        let mut control = Control { from_agent: &answers[..], to_agent: &mut told };
        control.announce(&PhaseEvent::Begin(phase.clone())).unwrap();
        let ledger = Ledger::sum(&[[0, 0, 0, 3, 12, 1], [0, 0, 0, 1, 4, 0]]);
        control.announce(&PhaseEvent::End { phase, ledger }).unwrap();
        let gone = control.announce(&PhaseEvent::Begin(PhaseName { phase: "read".to_owned(), test: 0, repetition: 0 }));
        assert!(gone.unwrap_err().to_string().contains("did not say go on"));
        let lines: Vec<_> = told.split(|&byte| byte == b'\n').take(2).collect();
        assert_eq!(
            lines.iter().map(|line| String::from_utf8_lossy(line)).collect::<Vec<_>>(),
            [
                r#"{"event":"begin","phase":"write","test":1,"repetition":2}"#,
                r#"{"event":"end","phase":"write","test":1,"repetition":2,"ledger":{"write":{"calls":4,"bytes":16,"errors":1}}}"#,
            ]
        );
    }
}
