// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two threads send messages back and forth over TCP on the loopback interface.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
};

use bpfassay_protocol::{operation::Totals, program_set::ProgramEvent};

use super::{Events, MicrobenchmarkError, MicrobenchmarkPhase, call, count, side_by_side};

pub(super) fn run(operations: u64, size: usize, phase: &mut MicrobenchmarkPhase) -> Result<(), MicrobenchmarkError> {
    let connect = || -> io::Result<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let ours = TcpStream::connect(listener.local_addr()?)?;
        let (theirs, _) = listener.accept()?;
        for stream in [&ours, &theirs] {
            // The end of a message must not be delayed until its beginning has been acknowledged.
            stream.set_nodelay(true)?;
        }
        Ok((ours, theirs))
    };
    let (ours, theirs) = connect().map_err(call("connect over TCP on 127.0.0.1"))?;
    let mut ours = ConnectionEnd::new(ours, size);
    let mut theirs = ConnectionEnd::new(theirs, size);
    side_by_side(
        phase,
        move || {
            for _ in 0..operations {
                ours.send()?;
                ours.receive()?;
            }
            Ok(ours.events())
        },
        // A failure closes the connection, so that the other end does not wait for it.
        move || {
            for _ in 0..operations {
                theirs.receive()?;
                theirs.send()?;
            }
            Ok(theirs.events())
        },
    )
}

/// One end of the connection.
struct ConnectionEnd {
    stream: TcpStream,
    message: Vec<u8>,
    sent: Totals,
    received: Totals,
}

impl ConnectionEnd {
    fn new(stream: TcpStream, size: usize) -> Self {
        Self { stream, message: vec![b'b'; size], sent: Totals::default(), received: Totals::default() }
    }

    /// Sends the message. `write` on a stream is the system call `sendto`.
    fn send(&mut self) -> Result<(), MicrobenchmarkError> {
        let mut sent = 0;
        while sent < self.message.len() {
            sent += again(|| count(&mut self.sent, self.stream.write(&self.message[sent..])))
                .map_err(call("send a message"))?;
        }
        Ok(())
    }

    /// Receives a message. `read` on a stream is the system call `recvfrom`.
    fn receive(&mut self) -> Result<(), MicrobenchmarkError> {
        let mut received = 0;
        while received < self.message.len() {
            let more = again(|| count(&mut self.received, self.stream.read(&mut self.message[received..])));
            match more.map_err(call("receive a message"))? {
                0 => return Err(call("receive a message")(io::Error::from(io::ErrorKind::UnexpectedEof))),
                more => received += more,
            }
        }
        Ok(())
    }

    fn events(&self) -> Events {
        [(ProgramEvent::TcpSend, self.sent), (ProgramEvent::TcpReceive, self.received)].into()
    }
}

/// Repeats a call that a signal interrupted.
fn again(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
