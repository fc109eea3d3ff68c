// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workloads without files ([`bpfassay_protocol::job::Microbenchmark`]): a fixed number of
//! operations on futexes, on a TCP connection or on shared memory. They are timed, and their calls
//! are counted exactly.
//!
//! Threads are started before the phase begins, and joined after it has ended, because both use
//! futexes. They notify each other through a pair of Unix sockets, which no program set counts.

mod futex;
mod memory;
mod tcp;

use std::{collections::BTreeMap, fs, io, path::PathBuf, time::Instant};

use bpfassay_protocol::{
    control::{PhaseEvent, PhaseName},
    job::{Microbenchmark, MicrobenchmarkSummary, WORK},
    operation::Totals,
    program_set::ProgramEvent,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use crate::engine::{
    EngineError,
    control_channel::{self, Control},
};

/// Largest number of operations: at a hundred nanoseconds each they take a day.
pub const MAX_OPERATIONS: u64 = 1_000_000_000_000;

/// One run of a microbenchmark.
#[derive(Debug, Clone)]
pub struct MicrobenchmarkRun {
    /// The kind of operation.
    pub microbenchmark: Microbenchmark,
    /// Number of operations: from 1 to [`MAX_OPERATIONS`].
    pub operations: u64,
    /// Bytes of each operation, within [`Microbenchmark::sizes`]. Ignored if there are no sizes.
    pub size: u32,
    /// Path of the summary (JSON), if one is wanted.
    pub summary: Option<PathBuf>,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum MicrobenchmarkError {
    /// A number is out of range.
    #[error("{what} must be from {least} to {most}, found {found}")]
    Number {
        /// Name of the number.
        what: &'static str,
        /// The smallest value.
        least: u64,
        /// The largest value.
        most: u64,
        /// The given value.
        found: u64,
    },
    /// The control channel does not work as expected.
    #[error(transparent)]
    Control(#[from] EngineError),
    /// A call failed.
    #[error("cannot {what}")]
    Call {
        /// The purpose of the call, as a verb with its object.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The summary cannot be written.
    #[error("cannot write {file}")]
    Summary {
        /// Path of the summary.
        file: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Returns a function that makes an [`io::Error`] the failure to do `what`.
fn call<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> MicrobenchmarkError {
    move |error| MicrobenchmarkError::Call { what, source: error.into() }
}

/// Calls by event.
type Events = BTreeMap<ProgramEvent, Totals>;

/// Counts a call and returns its result.
fn count(totals: &mut Totals, result: io::Result<usize>) -> io::Result<usize> {
    *totals += match &result {
        Ok(bytes) => Totals { calls: 1, bytes: *bytes as u64, errors: 0 },
        Err(_) => Totals { calls: 1, bytes: 0, errors: 1 },
    };
    result
}

impl MicrobenchmarkRun {
    /// Does the operations. The environment names the control channel.
    ///
    /// # Errors
    /// [`MicrobenchmarkError`] if a thread, a socket or the agent's descriptor fails.
    pub fn start(&self) -> Result<MicrobenchmarkSummary, MicrobenchmarkError> {
        let within = |what, least: u64, most: u64, found: u64| match (least..=most).contains(&found) {
            true => Ok(()),
            false => Err(MicrobenchmarkError::Number { what, least, most, found }),
        };
        within("the number of operations", 1, MAX_OPERATIONS, self.operations)?;
        if let Some((least, most, _)) = self.microbenchmark.sizes() {
            within("the size", least.into(), most.into(), self.size.into())?;
        }
        let mut phase =
            MicrobenchmarkPhase { control: control_channel::descriptor()?.map(Control::take), elapsed_ns: 0 };
        match self.microbenchmark {
            Microbenchmark::Futex => futex::run(self.operations, &mut phase),
            Microbenchmark::Tcp => tcp::run(self.operations, self.size as usize, &mut phase),
            Microbenchmark::SharedMemory => memory::run(self.operations, self.size as usize, &mut phase),
        }?;
        let summary = MicrobenchmarkSummary { operations: self.operations, elapsed_ns: phase.elapsed_ns };
        if let Some(file) = &self.summary {
            serde_json::to_vec(&summary)
                .map_err(io::Error::from)
                .and_then(|text| fs::write(file, text))
                .map_err(|source| MicrobenchmarkError::Summary { file: file.clone(), source })?;
        }
        Ok(summary)
    }
}

struct MicrobenchmarkPhase {
    control: Option<Control>,
    elapsed_ns: u64,
}

impl MicrobenchmarkPhase {
    /// Calls `work` between the two barriers. It returns the calls that it made, all of which have
    /// returned.
    fn of(&mut self, work: impl FnOnce() -> Result<Events, MicrobenchmarkError>) -> Result<(), MicrobenchmarkError> {
        let phase = PhaseName { phase: WORK.to_owned(), test: 0, repetition: 0 };
        self.announce(&PhaseEvent::Begin(phase.clone()))?;
        let start = Instant::now();
        let events = work()?;
        self.elapsed_ns = bpfassay_protocol::nanoseconds(start.elapsed());
        self.announce(&PhaseEvent::End { phase, moved: BTreeMap::new(), events, mount: None })
    }

    fn announce(&mut self, event: &PhaseEvent) -> Result<(), MicrobenchmarkError> {
        self.control.as_mut().map_or(Ok(()), |control| control.announce(event)).map_err(Into::into)
    }
}

/// One end of a connection between two threads, for single bytes.
struct ByteConnection(std::os::fd::OwnedFd);

impl ByteConnection {
    fn pair() -> Result<(Self, Self), MicrobenchmarkError> {
        let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let (one, other) = pair.map_err(call("make a pair of sockets"))?;
        Ok((Self(one), Self(other)))
    }

    fn notify(&self) -> Result<(), MicrobenchmarkError> {
        send(&self.0, b".", SendFlags::NOSIGNAL).map(drop).map_err(call("notify the other thread"))
    }

    fn wait(&self) -> Result<(), MicrobenchmarkError> {
        match recv(&self.0, &mut [0], RecvFlags::empty()) {
            Ok((1.., _)) => Ok(()),
            Ok(_) => {
                Err(call("wait for the other thread, which has ended")(io::Error::from(io::ErrorKind::UnexpectedEof)))
            }
            Err(error) => Err(call("wait for the other thread")(error)),
        }
    }
}

/// Does `ours` in this thread and `theirs` in another thread, both within the phase.
fn side_by_side(
    phase: &mut MicrobenchmarkPhase,
    ours: impl FnOnce() -> Result<Events, MicrobenchmarkError>,
    theirs: impl FnOnce() -> Result<Events, MicrobenchmarkError> + Send,
) -> Result<(), MicrobenchmarkError> {
    let (here, there) = ByteConnection::pair()?;
    std::thread::scope(|scope| {
        // `here` is dropped when this ends early, so that the other thread does not wait for it.
        let here = here;
        let (sender, receiver) = std::sync::mpsc::channel();
        scope.spawn(move || {
            let work = || {
                there.notify()?;
                there.wait()?;
                theirs()
            };
            // If this thread's half has failed, nothing receives this.
            let _ = sender.send(work());
            let _ = there.notify();
            let _ = there.wait();
        });
        here.wait()?;
        phase.of(|| {
            here.notify()?;
            let ours = ours();
            here.wait()?;
            // The result was sent before the byte, so there is nothing to wait for.
            let theirs = receiver.try_recv().unwrap_or_else(|_| {
                Err(call("receive the result of the other thread")(io::Error::from(io::ErrorKind::UnexpectedEof)))
            });
            let (mut all, theirs) = (ours?, theirs?);
            for (event, totals) in theirs {
                *all.entry(event).or_default() += totals;
            }
            Ok(all)
        })?;
        here.notify()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(microbenchmark: Microbenchmark, operations: u64, size: u32) -> Events {
        let mut phase = MicrobenchmarkPhase { control: None, elapsed_ns: 0 };
        let mut seen = Events::new();
        let counted = |phase: &mut MicrobenchmarkPhase| match microbenchmark {
            Microbenchmark::Futex => futex::run(operations, phase),
            Microbenchmark::Tcp => tcp::run(operations, size as usize, phase),
            Microbenchmark::SharedMemory => memory::run(operations, size as usize, phase),
        };
        // Checks the events of phases, as an agent receives them.
        let (mut agent, ours) = std::os::unix::net::UnixStream::pair().unwrap();
        phase.control = Some(Control::take(std::os::fd::IntoRawFd::into_raw_fd(ours)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                use std::io::{BufRead as _, BufReader, Write as _};
                let mut lines = BufReader::new(agent.try_clone().unwrap()).lines();
                for _ in 0..2 {
                    let line = lines.next().unwrap().unwrap();
                    if let PhaseEvent::End { events, .. } = serde_json::from_str(&line).unwrap() {
                        seen = events;
                    }
                    agent.write_all(b"g").unwrap();
                }
            });
            counted(&mut phase).unwrap();
        });
        assert!(phase.elapsed_ns > 0);
        seen
    }

    #[test]
    fn a_futex_goes_there_and_back() {
        let events = done(Microbenchmark::Futex, 50, 0);
        let wakes = events[&ProgramEvent::FutexWake];
        assert_eq!((wakes.calls, wakes.errors), (100, 0));
        // There are fewer waits if the other thread was faster.
        assert!(events.keys().all(|event| matches!(event, ProgramEvent::FutexWake | ProgramEvent::FutexWait)));
    }

    #[test]
    fn every_byte_of_a_message_comes_back() {
        let events = done(Microbenchmark::Tcp, 20, 100_000);
        let (sent, received) = (events[&ProgramEvent::TcpSend], events[&ProgramEvent::TcpReceive]);
        assert_eq!((sent.bytes, received.bytes), (4_000_000, 4_000_000));
        assert!(sent.calls >= 40 && received.calls >= 40);
    }

    #[test]
    fn memory_is_made_and_removed() {
        let events = done(Microbenchmark::SharedMemory, 3, 10_000);
        for event in [ProgramEvent::ShmGet, ProgramEvent::ShmAttach, ProgramEvent::ShmDetach] {
            assert_eq!(events[&event], Totals { calls: 3, bytes: 0, errors: 0 });
        }
        assert_eq!(events[&ProgramEvent::MapShared], Totals { calls: 3, bytes: 30_000, errors: 0 });
    }

    #[test]
    fn what_cannot_be_done_is_reported() {
        let run = |operations, size| {
            MicrobenchmarkRun { microbenchmark: Microbenchmark::Tcp, operations, size, summary: None }
                .start()
                .unwrap_err()
                .to_string()
        };
        assert_eq!(run(0, 1), "the number of operations must be from 1 to 1000000000000, found 0");
        assert_eq!(run(1, 0), "the size must be from 1 to 1048576, found 0");
    }
}
