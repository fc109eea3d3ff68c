// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers the upcalls of the kernel's NFS server: the caches' questions, and the tracking of
//! clients.
//!
//! One thread answers for as long as the guest runs, so that no question waits for a timeout.

use std::{
    ffi::CStr,
    fs::{File, OpenOptions},
    io::{ErrorKind, Read, Write},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    thread,
};

use rustix::{
    event::{PollFd, PollFlags},
    fs::inotify,
    io::Errno,
};

use super::channel::{Export, NfsdCache};
use crate::{
    agent_link::{self, wait_readable},
    error::{Error, Result},
};

/// Mount point of rpc_pipefs.
pub(crate) const PIPES: &str = "/run/rpc_pipefs";

/// The directory in which nfsd makes its pipe when it starts.
const PIPE_DIRECTORY: &str = "/run/rpc_pipefs/nfsd";
const PIPE: &CStr = c"cld";

/// Longest question of a cache. The kernel returns at most a page at once.
const MAX_QUESTION: usize = 8192;

/// Writes the first entries and starts the thread. The sunrpc and nfsd modules must be inserted,
/// and nfsd must not be started yet.
pub(crate) fn start(export: Export<'static>) -> Result<()> {
    let mut server = Server::new(export)?;
    let run = move || match server.run() {
        Ok(never) => match never {},
        Err(error) => agent_link::fail(&error),
    };
    thread::Builder::new().name("upcalls".to_owned()).spawn(run).map_err(Error::system("start a thread"))?;
    Ok(())
}

struct Server {
    export: Export<'static>,
    channels: Vec<(NfsdCache, File)>,
    directory: OwnedFd,
    pipe: Option<File>,
}

impl Server {
    fn new(export: Export<'static>) -> Result<Self> {
        let mut channels = Vec::new();
        for cache in NfsdCache::ALL {
            let path = cache.channel();
            let mut channel =
                OpenOptions::new().read(true).write(true).open(path).map_err(Error::file("open", path))?;
            channel.write_all(cache.first_entry(export).as_bytes()).map_err(Error::file("write", path))?;
            channels.push((cache, channel));
        }
        let directory = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)
            .and_then(|directory| {
                inotify::add_watch(&directory, PIPE_DIRECTORY, inotify::WatchFlags::CREATE)?;
                Ok(directory)
            })
            .map_err(Error::file("watch", PIPE_DIRECTORY))?;
        // The watch exists now, so no pipe can appear unnoticed between this check and the first
        // wait.
        let pipe = open_pipe()?;
        Ok(Self { export, channels, directory, pipe })
    }

    fn run(&mut self) -> Result<std::convert::Infallible> {
        loop {
            let mut waiting: Vec<_> =
                self.channels.iter().map(|(_, channel)| PollFd::new(channel, PollFlags::IN)).collect();
            waiting.push(PollFd::new(&self.directory, PollFlags::IN));
            waiting.extend(self.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            wait_readable(&mut waiting, None)?;
            let ready: Vec<bool> = waiting.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(waiting);
            let count = self.channels.len();
            for ((cache, channel), _) in self.channels.iter_mut().zip(&ready).filter(|(_, ready)| **ready) {
                answer_question(*cache, channel, self.export)?;
            }
            if ready.get(count) == Some(&true) && self.pipe_was_made()? {
                self.pipe = open_pipe()?;
            }
            if ready.get(count + 1) == Some(&true)
                && let Some(pipe) = &mut self.pipe
            {
                answer_tracking(pipe)?;
            }
        }
    }

    /// Reads all events of the directory. Returns whether the pipe was created.
    fn pipe_was_made(&self) -> Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.directory, &mut buffer);
        let mut made = false;
        loop {
            match reader.next() {
                Ok(event) => made |= event.file_name() == Some(PIPE),
                Err(Errno::AGAIN) => return Ok(made),
                Err(error) => return Err(Error::file("watch", PIPE_DIRECTORY)(error)),
            }
        }
    }
}

fn answer_question(cache: NfsdCache, channel: &mut File, export: Export<'_>) -> Result<()> {
    let path = cache.channel();
    let mut question = [0; MAX_QUESTION];
    let length = match channel.read(&mut question) {
        Ok(length) => length,
        Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
        Err(error) => return Err(Error::file("read", path)(error)),
    };
    let question = &question[..length];
    if question.is_empty() {
        return Ok(());
    }
    let answer = cache
        .answer(question, export)
        .ok_or_else(|| Error::unexpected(path, "a question", &String::from_utf8_lossy(question)))?;
    channel.write_all(answer.as_bytes()).map_err(Error::file("write", path))
}

/// Opens the pipe, if it exists.
fn open_pipe() -> Result<Option<File>> {
    let path = format!("{PIPE_DIRECTORY}/{}", PIPE.to_string_lossy());
    match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(pipe) => Ok(Some(pipe)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("open", path)(error)),
    }
}

/// Reads one message of the client tracker and replies to it.
fn answer_tracking(pipe: &mut File) -> Result<()> {
    let path = format!("{PIPE_DIRECTORY}/{}", PIPE.to_string_lossy());
    let mut message = [0; cld::MAX_MESSAGE];
    let length = pipe.read(&mut message).map_err(Error::file("read", &path))?;
    let message = &mut message[..length];
    if message.is_empty() {
        return Ok(());
    }
    cld::answer(message).ok_or_else(|| Error::unexpected(&path, "a message of the client tracker", ""))?;
    match pipe.write_all(message) {
        // The server has given up waiting for this reply.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        other => other.map_err(Error::file("write", path)),
    }
}

/// Messages of the client tracker (include/uapi/linux/nfsd/cld.h): version, command, status,
/// number, data.
pub(crate) mod cld {
    /// Larger than `struct cld_msg_v2` (1067 bytes).
    pub(super) const MAX_MESSAGE: usize = 4096;
    /// `Cld_GetVersion` asks which version of the protocol user space implements.
    const GET_VERSION: u8 = 5;
    /// The version implemented here.
    const VERSION: u8 = 2;
    const HEADER: usize = 8;

    /// Turns a request into its reply: success, and no client known, so that the server waits for
    /// no client after its start. `None` if the message is too short.
    pub(crate) fn answer(message: &mut [u8]) -> Option<()> {
        let (header, data) = message.split_at_mut_checked(HEADER)?;
        header[2..4].fill(0);
        if header[1] == GET_VERSION {
            *data.first_mut()? = VERSION;
        }
        Some(())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_version_is_sent_and_the_number_kept() {
            let mut message = [0; 1067];
            message[..8].copy_from_slice(&[2, GET_VERSION, 0xff, 0xff, 7, 0, 0, 0]);
            answer(&mut message).unwrap();
            assert_eq!(message[..9], [2, GET_VERSION, 0, 0, 7, 0, 0, 0, VERSION]);
        }

        #[test]
        fn a_new_client_is_acknowledged_unchanged() {
            let mut message = [2, 0, 0, 0, 9, 0, 0, 0, 3, 0, b'a', b'b', b'c'];
            let before = message;
            answer(&mut message).unwrap();
            assert_eq!(message, before);
        }

        #[test]
        fn a_truncated_message_is_refused() {
            assert_eq!(answer(&mut [2, GET_VERSION, 0]), None);
            assert_eq!(answer(&mut [2, GET_VERSION, 0, 0, 1, 0, 0, 0]), None);
        }
    }
}
