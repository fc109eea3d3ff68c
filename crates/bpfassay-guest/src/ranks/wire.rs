// SPDX-License-Identifier: MIT OR Apache-2.0
//! What passes between the nodes: a request, a line of JSON, and the end of what was requested,
//! another line.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Where a process that attends listens: the port of rsh(1).
pub(super) const PORT: u16 = 514;

/// Longest line, in bytes. Hydra's commands have some hundred, Open MPI's some thousand.
const MAX_LINE: u64 = 64 << 10;

/// How long a node may take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(20);

/// The first line of a connection.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Request {
    /// Attend until this connection is closed.
    Hold,
    /// Run this command, as rsh(1) joins its words, and report its end.
    Run(String),
}

/// The answer to [`Request::Run`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ended {
    /// The exit status of the command: 127 where it could not be started, 128 and the number of a
    /// signal that ended it, as shells have it.
    pub(super) status: u8,
}

/// Connects to `address` and sends `request`.
///
/// # Errors
/// Nobody accepts the connection in time.
pub(super) fn connect(address: SocketAddr, request: &Request) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    send(&mut stream, request)?;
    Ok(stream)
}

/// Sends one line.
///
/// # Errors
/// Those of the stream.
pub(super) fn send(stream: &mut TcpStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Receives one line, and nothing after it.
///
/// # Errors
/// Those of the stream; the other side has closed it; the line is too long, or is no such message.
pub(super) fn receive<T: DeserializeOwned>(stream: &TcpStream) -> io::Result<T> {
    let mut line = Vec::new();
    BufReader::new(stream.take(MAX_LINE)).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        let problem = if line.is_empty() { "the other side has closed the connection" } else { "a line has no end" };
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
    }
    Ok(serde_json::from_slice(&line)?)
}
