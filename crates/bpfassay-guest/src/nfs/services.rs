// SPDX-License-Identifier: MIT OR Apache-2.0
//! The port mapper and the mount protocol on their sockets, for NFSv3.

use std::{
    fs,
    io::{self, ErrorKind, Read, Write},
    net::{Ipv4Addr, TcpListener},
    os::unix::net::UnixListener,
    sync::{Arc, OnceLock},
    thread,
};

use super::rpc::{self, Exported};
use crate::{
    agent_link,
    error::{Error, Result},
};

/// Where the kernel first looks for a port mapper (net/sunrpc/rpcb_clnt.c).
const RPCBIND: &str = "/var/run/rpcbind.sock";

/// Port of the mount protocol, which the client gets from its mount options.
pub(crate) const MOUNT_PORT: u16 = 20048;

/// Both services. The export becomes known only when nfsd runs, and nfsd needs the port mapper.
#[derive(Debug, Clone, Default)]
pub(crate) struct Services {
    exported: Arc<OnceLock<Exported>>,
}

impl Services {
    /// Starts both services. The mount protocol listens on `address`, whose interface must be up.
    pub(crate) fn start(address: Ipv4Addr) -> Result<Self> {
        let services = Self::default();
        fs::create_dir_all("/var/run").map_err(Error::file("make directory", "/var/run"))?;
        let listener = UnixListener::bind(RPCBIND).map_err(Error::file("listen on", RPCBIND))?;
        services.accept(move || listener.accept().map(|(stream, _)| stream))?;
        let listener =
            TcpListener::bind((address, MOUNT_PORT)).map_err(Error::system(format!("listen on port {MOUNT_PORT}")))?;
        services.accept(move || listener.accept().map(|(stream, _)| stream))?;
        Ok(services)
    }

    /// Sets what the mount protocol returns from now on.
    pub(crate) fn export(&self, exported: Exported) {
        // A second value in the same boot would be the same.
        let _ = self.exported.set(exported);
    }

    /// Starts one thread for the listener, and one per connection. The clients are kernels of
    /// guests.
    fn accept<S: Read + Write + Send + 'static>(
        &self,
        mut next: impl FnMut() -> io::Result<S> + Send + 'static,
    ) -> Result<()> {
        let services = self.clone();
        let run = move || {
            loop {
                let accepted = next().map_err(Error::system("accept a call of the kernel")).and_then(|stream| {
                    let services = services.clone();
                    thread::Builder::new()
                        .name("rpc".to_owned())
                        .spawn(move || services.serve(stream))
                        .map_err(Error::system("start a thread"))
                });
                if let Err(error) = accepted {
                    agent_link::fail(&error);
                }
            }
        };
        thread::Builder::new().name("rpc".to_owned()).spawn(run).map_err(Error::system("start a thread"))?;
        Ok(())
    }

    /// Replies to calls until the peer hangs up. Closes the connection of a peer that sends an
    /// invalid call.
    fn serve(&self, mut stream: impl Read + Write) {
        let nothing = Exported { path: String::new(), handle: Vec::new() };
        loop {
            let mut mark = [0; 4];
            let call = match stream.read_exact(&mut mark) {
                Ok(()) => rpc::record_length(mark).map(|length| vec![0; length]),
                Err(_) => return,
            };
            let Some(mut call) = call else { return };
            let answered = stream.read_exact(&mut call).and_then(|()| {
                let reply = rpc::reply(&call, self.exported.get().unwrap_or(&nothing)).ok_or(ErrorKind::InvalidData)?;
                let mark = rpc::record_mark(reply.len()).ok_or(ErrorKind::InvalidData)?;
                stream.write_all(&[&mark[..], &reply].concat())
            });
            if answered.is_err() {
                return;
            }
        }
    }
}
