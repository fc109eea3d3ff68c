// SPDX-License-Identifier: MIT OR Apache-2.0
//! The channel on which the scripted guest requests an action of the host from the driver, and gets
//! an acknowledgement.

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::Path,
    time::Duration,
};

/// How long the driver can take.
const PATIENCE: Duration = Duration::from_secs(20);
const SOCKET: &str = "control";

/// Requests the host's part `index` from the driver and waits until it is done.
///
/// # Errors
/// The system's error if no driver listens in `state`, or it has not replied within 20 s.
pub fn ask(state: &Path, index: usize) -> io::Result<()> {
    let mut socket = UnixStream::connect(state.join(SOCKET))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(&[u8::try_from(index).unwrap_or(u8::MAX)])?;
    socket.read_exact(&mut [0])
}

/// The driver's end of the channel.
#[derive(Debug)]
pub struct ControlListener(UnixListener);

impl ControlListener {
    /// Creates the socket in `state`. Any user can connect.
    ///
    /// # Errors
    /// The system's error if the socket cannot be created in `state`.
    pub fn bind(state: &Path) -> io::Result<Self> {
        let path = state.join(SOCKET);
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
        Ok(Self(listener))
    }

    /// Executes the pending request, if there is one.
    ///
    /// # Errors
    /// The errors of `act`, and the system's error if the socket cannot be read or written to.
    pub fn serve(&self, act: impl FnOnce(usize) -> io::Result<()>) -> io::Result<()> {
        let mut socket = match self.0.accept() {
            Ok((socket, _)) => socket,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut index = [0];
        if socket.read_exact(&mut index).is_ok() {
            act(index[0].into())?;
            // The action may have killed the guest.
            let _ = socket.write_all(&[0]);
        }
        Ok(())
    }
}
