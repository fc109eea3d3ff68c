// SPDX-License-Identifier: MIT OR Apache-2.0
//! An endpoint with one page, the counters (`--listen`) or maps (`object`): HTTP on a TCP or Unix
//! socket, inside the tracer's own loop.
//!
//! One thread serves everything, so nothing in this module blocks. Each connection has bounded
//! buffers, a deadline, and one response. There are at most [`MAX_CONNECTIONS`] connections.
//! Further clients wait in the kernel's queue.

pub(crate) mod http_request;

use std::{
    fmt, fs, io,
    net::{SocketAddr, TcpListener},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{
            fs::FileTypeExt as _,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    str::FromStr,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    net::{SendFlags, Shutdown, SocketFlags, accept_with, send, shutdown},
};

use self::http_request::ClientRequest;
use crate::service::metrics::Format;

/// The most clients that are served at a time.
const MAX_CONNECTIONS: usize = 64;
/// How long a client can take for its request, and how long for reading the response.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes that are read from a client after its response was sent, so that the response is
/// not lost to a reset.
const MAX_DRAINED: usize = 64 << 10;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    /// `ip:port`.
    Tcp(SocketAddr),
    /// A path that contains `/`, or follows `unix:`.
    Unix(PathBuf),
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        match text.parse() {
            Ok(address) => Ok(Self::Tcp(address)),
            Err(_) if text.contains('/') => Ok(Self::Unix(text.into())),
            Err(_) => Err(format!(
                "`{text}` is neither IP:PORT (127.0.0.1:9100, [::]:9100) nor the path of a Unix socket (./socket)"
            )),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}/metrics"),
            Self::Unix(path) => write!(f, "{} (path /metrics)", path.display()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    #[error("cannot listen on {address}: name an address of this machine that is free, with --listen")]
    Bind { address: ListenAddress, source: io::Error },
    #[error("cannot accept connections on {address}")]
    Accept { address: ListenAddress, source: io::Error },
}

/// The page of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Page {
    /// The counters, for Prometheus.
    Metrics,
    /// A map of an object, as JSON ([`bpfassay_protocol::loaded_object::MapPage`]).
    Map,
    /// No page: a client only learns that the program runs.
    Nothing,
}

impl Page {
    const fn path(self) -> &'static str {
        match self {
            Self::Metrics => "/metrics",
            Self::Map => "/map",
            Self::Nothing => "",
        }
    }

    const fn content_type(self, format: Format) -> &'static str {
        match self {
            Self::Metrics => format.content_type(),
            Self::Map | Self::Nothing => "application/json",
        }
    }
}

/// Returns the page as text, in a format. `None` after an error, which has been reported.
pub(crate) type Render<'a> = &'a mut dyn FnMut(Format) -> Option<String>;

#[derive(Debug)]
pub(crate) struct MetricsEndpoint {
    address: ListenAddress,
    /// Non-blocking, like the connections.
    listener: OwnedFd,
    page: Page,
    connections: Vec<Connection>,
}

impl MetricsEndpoint {
    /// Listens on `address`, to serve `page`.
    ///
    /// # Errors
    /// [`ListenError::Bind`] if the address is in use, or this machine does not have it.
    pub(crate) fn bind(address: ListenAddress, page: Page) -> Result<Self, ListenError> {
        let bound = match &address {
            ListenAddress::Tcp(wanted) => TcpListener::bind(wanted).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok((ListenAddress::Tcp(listener.local_addr()?), listener.into()))
            }),
            ListenAddress::Unix(path) => bind_unix(path).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok((address.clone(), listener.into()))
            }),
        };
        match bound {
            Ok((address, listener)) => Ok(Self { address, listener, page, connections: Vec::new() }),
            Err(source) => Err(ListenError::Bind { address, source }),
        }
    }

    /// Returns the address on which this listens, with the port that the kernel chose if 0 was
    /// requested.
    pub(crate) fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// Returns the descriptors to poll. [`MetricsEndpoint::serve`] gets the results in this order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = PollFd<'_>> {
        // At the limit, new clients wait in the kernel's queue.
        let accepts = if self.connections.len() < MAX_CONNECTIONS { PollFlags::IN } else { PollFlags::empty() };
        let listener = PollFd::from_borrowed_fd(self.listener.as_fd(), accepts);
        std::iter::once(listener).chain(
            self.connections
                .iter()
                .map(|connection| PollFd::from_borrowed_fd(connection.stream.as_fd(), connection.waits_for())),
        )
    }

    /// Returns the latest time at which the endpoint must act even if nothing can be read or
    /// written.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.connections.iter().map(|connection| connection.deadline).min()
    }

    /// Continues with every connection that is ready. `ready` has an element for each of
    /// [`MetricsEndpoint::waiting`]. The page is made at most once per format, however many clients
    /// request it at this moment.
    ///
    /// # Errors
    /// [`ListenError::Accept`] if the listening socket fails. An error of a client only ends that
    /// client.
    pub(crate) fn serve(&mut self, ready: &[bool], now: Instant, render: Render<'_>) -> Result<(), ListenError> {
        let mut rendered: [Option<Option<String>>; 2] = [None, None];
        let mut once = |format: Format| {
            rendered[usize::from(format == Format::OpenMetrics)].get_or_insert_with(|| render(format)).clone()
        };
        let mut index = 0;
        self.connections.retain_mut(|connection| {
            index += 1;
            let alive = !ready.get(index).is_some_and(|&ready| ready) || connection.go_on(now, &mut once);
            alive && now < connection.deadline
        });
        if ready.first() == Some(&true) {
            self.accept(now)?;
        }
        Ok(())
    }

    fn accept(&mut self, now: Instant) -> Result<(), ListenError> {
        while self.connections.len() < MAX_CONNECTIONS {
            match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(stream) => self.connections.push(Connection::new(stream, self.page, now)),
                // The client has disconnected already, or the machine is briefly short of resources
                // (accept(2)).
                Err(
                    Errno::AGAIN
                    | Errno::CONNABORTED
                    | Errno::INTR
                    | Errno::PROTO
                    | Errno::NETDOWN
                    | Errno::NETUNREACH
                    | Errno::HOSTUNREACH
                    | Errno::HOSTDOWN
                    | Errno::NOPROTOOPT
                    | Errno::PERM
                    | Errno::MFILE
                    | Errno::NFILE
                    | Errno::NOBUFS
                    | Errno::NOMEM,
                ) => break,
                Err(error) => {
                    return Err(ListenError::Accept { address: self.address.clone(), source: error.into() });
                }
            }
        }
        Ok(())
    }
}

impl Drop for MetricsEndpoint {
    fn drop(&mut self) {
        if let ListenAddress::Unix(path) = &self.address {
            // The socket may no longer exist.
            let _ = fs::remove_file(path);
        }
    }
}

/// Listens on a path. Replaces the socket of a program that has exited, but not one that accepts
/// connections.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let abandoned = fs::symlink_metadata(path)?.file_type().is_socket()
                && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
            if !abandoned {
                return Err(error);
            }
            fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        other => other,
    }
}

#[derive(Debug)]
struct Connection {
    stream: OwnedFd,
    page: Page,
    state: ConnectionState,
    deadline: Instant,
}

#[derive(Debug)]
enum ConnectionState {
    /// Bytes of an incomplete request.
    Asking(Vec<u8>),
    /// A response, and how much of it was sent.
    Answering(Vec<u8>, usize),
    /// Everything was sent. Number of further bytes of the client that were discarded.
    Draining(usize),
}

impl Connection {
    fn new(stream: OwnedFd, page: Page, now: Instant) -> Self {
        Self { stream, page, state: ConnectionState::Asking(Vec::new()), deadline: now + PATIENCE }
    }

    fn waits_for(&self) -> PollFlags {
        match self.state {
            ConnectionState::Asking(_) | ConnectionState::Draining(_) => PollFlags::IN,
            ConnectionState::Answering(..) => PollFlags::OUT,
        }
    }

    /// Does all work that does not block. Returns whether there is more to do.
    fn go_on(&mut self, now: Instant, render: Render<'_>) -> bool {
        loop {
            let done = match &mut self.state {
                ConnectionState::Asking(_) => self.ask(now, render),
                ConnectionState::Answering(..) => self.answer(),
                ConnectionState::Draining(_) => self.drain(),
            };
            match done {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) => {
                    return matches!(error, Errno::AGAIN | Errno::INTR);
                }
            }
        }
    }

    fn ask(&mut self, now: Instant, render: Render<'_>) -> Result<bool, Errno> {
        let ConnectionState::Asking(asked) = &mut self.state else { return Ok(true) };
        let mut bytes = [0; 2048];
        let read = rustix::io::read(&self.stream, &mut bytes)?;
        if read == 0 {
            return Ok(false);
        }
        asked.extend_from_slice(&bytes[..read]);
        let page = self.page;
        let answer = match http_request::read(asked, page.path()) {
            None => return Ok(true),
            Some(ClientRequest::Refusal { status, head }) => http_request::refusal(status, page.path(), head),
            Some(ClientRequest::Page { format, head }) => match render(format) {
                Some(text) => http_request::page(page.content_type(format), &text, head),
                None => http_request::refusal(http_request::ErrorStatus::Unavailable, page.path(), head),
            },
        };
        self.state = ConnectionState::Answering(answer, 0);
        self.deadline = now + PATIENCE;
        Ok(true)
    }

    fn answer(&mut self) -> Result<bool, Errno> {
        let ConnectionState::Answering(answer, sent) = &mut self.state else { return Ok(true) };
        *sent += send(&self.stream, &answer[*sent..], SendFlags::NOSIGNAL)?;
        if *sent == answer.len() {
            shutdown(&self.stream, Shutdown::Write)?;
            self.state = ConnectionState::Draining(0);
        }
        Ok(true)
    }

    fn drain(&mut self) -> Result<bool, Errno> {
        let ConnectionState::Draining(drained) = &mut self.state else { return Ok(true) };
        let read = rustix::io::read(&self.stream, &mut [0; 4096])?;
        *drained += read;
        Ok(read > 0 && *drained <= MAX_DRAINED)
    }
}

#[cfg(test)]
mod tests;
