// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages between the nodes: a request as a line of JSON, and the result of a requested
//! command as another line.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Port on which a process that attends listens: the port of rsh(1).
pub(super) const PORT: u16 = 514;

/// Longest line, in bytes. Hydra's commands have some hundred bytes, Open MPI's some thousand.
const MAX_LINE: u64 = 64 << 10;

/// How long a node can take to accept a connection.
const PATIENCE: Duration = Duration::from_secs(20);

/// The first line of a connection.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum RankRequest {
    /// Attend until this connection is closed.
    Hold,
    /// Run this command, as rsh(1) joins its words, and report its end.
    Run(String),
}

/// The answer to [`RankRequest::Run`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RankEnded {
    /// The command's exit status, as in shells: 127 if the command could not be started, 128 plus
    /// the number of a signal that ended it.
    pub(super) status: u8,
}

/// Connects to `address` and sends `request`.
///
/// # Errors
/// Nothing accepts the connection in time.
pub(super) fn connect(address: SocketAddr, request: &RankRequest) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    send(&mut stream, request)?;
    Ok(stream)
}

/// Sends one line.
///
/// # Errors
/// The stream cannot be written.
pub(super) fn send(stream: &mut TcpStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Receives one line, and nothing after it.
///
/// # Errors
/// The stream cannot be read or was closed by the other side, or the line is too long or not a
/// valid message.
pub(super) fn receive<T: DeserializeOwned>(stream: &TcpStream) -> io::Result<T> {
    let mut line = Vec::new();
    BufReader::new(stream.take(MAX_LINE)).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        let problem = if line.is_empty() { "the other side has closed the connection" } else { "a line has no end" };
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
    }
    Ok(serde_json::from_slice(&line)?)
}
