// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the output of a guest as it arrives, from a socket or from the end of a growing file.

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::{
    fs::{FallocateFlags, MemfdFlags},
    io::Errno,
    net::RecvFlags,
};
use tokio::{
    io::AsyncReadExt,
    net::{UnixStream, unix::OwnedReadHalf},
    sync::watch,
    time::{sleep, timeout},
};

/// Interval between reads of a file. It looks immediate, and costs hardly anything.
const PERIOD: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) enum OutputFile {
    /// A socket. Its end is the end of the output.
    Socket(OwnedReadHalf),
    /// A file that QEMU writes.
    File(Tail),
}

impl OutputFile {
    /// Reads available output, and waits for some if necessary. Returns 0 at the end.
    ///
    /// # Errors
    /// The error of the socket or the file.
    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Socket(socket) => socket.read(buffer).await,
            Self::File(tail) => tail.read(buffer).await,
        }
    }

    /// Reads output that is already available. Returns 0 if there is none.
    ///
    /// # Errors
    /// The error of the socket or the file. Missing output is no error.
    pub(crate) fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Socket(socket) => {
                // Calls recv(2) directly, because tokio's own attempt depends on what the reactor
                // last noticed.
                let socket: &UnixStream = socket.as_ref();
                match rustix::io::retry_on_intr(|| rustix::net::recv(socket, &mut *buffer, RecvFlags::DONTWAIT)) {
                    Ok((count, _)) => Ok(count),
                    Err(Errno::AGAIN) => Ok(0),
                    Err(error) => Err(error.into()),
                }
            }
            Self::File(tail) => tail.read_now(buffer),
        }
    }
}

/// A file that QEMU writes, and how much of it has been read.
#[derive(Debug)]
pub(crate) struct Tail {
    file: Arc<File>,
    offset: u64,
    /// A copy of the offset for [`Backlog`].
    read: Arc<AtomicU64>,
    /// Whether QEMU has exited, after which the file no longer grows.
    gone: watch::Receiver<bool>,
}

impl Tail {
    /// Reads `file` from its beginning.
    pub(crate) fn new(file: File, gone: watch::Receiver<bool>) -> Self {
        Self { file: Arc::new(file), offset: 0, read: Arc::default(), gone }
    }

    /// Returns a handle for another thread that tells how much is unread.
    pub(crate) fn backlog(&self) -> Backlog {
        Backlog { file: Arc::clone(&self.file), read: Arc::clone(&self.read) }
    }

    /// Reads unread bytes of the file. Returns 0 if there are none.
    ///
    /// # Errors
    /// The error of pread(2).
    pub(crate) fn read_now(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = rustix::io::retry_on_intr(|| rustix::io::pread(&*self.file, &mut *buffer, self.offset))?;
        if count > 0 {
            // The file is in memory, and the part that was read is no longer needed. Pages that
            // cannot be freed now are freed with the file.
            let _ = rustix::fs::fallocate(
                &*self.file,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                0,
                self.offset.saturating_add(count as u64),
            );
            self.offset = self.offset.saturating_add(count as u64);
            self.read.store(self.offset, Ordering::Relaxed);
        }
        Ok(count)
    }

    /// Waits for unread bytes. Cancel-safe: nothing is lost while it waits.
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Lets other tasks of this thread run, even if the file always has more.
        tokio::task::coop::consume_budget().await;
        loop {
            // Checked before the read, so that the last bytes are not missed.
            let gone = *self.gone.borrow();
            let count = self.read_now(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            if gone {
                return Ok(0);
            }
            // The supervisor, which reports QEMU's exit, has ended. After one more period, the file
            // counts as complete.
            if let Ok(Err(_)) = timeout(PERIOD, self.gone.changed()).await {
                sleep(PERIOD).await;
                if rustix::fs::fstat(&*self.file)?.st_size.unsigned_abs() <= self.offset {
                    return Ok(0);
                }
            }
        }
    }
}

/// The part of a file that is written but not yet read.
///
/// QEMU never waits when it writes to a file, so only the host's memory would bound a guest's
/// output.
#[derive(Debug)]
pub(crate) struct Backlog {
    file: Arc<File>,
    read: Arc<AtomicU64>,
}

impl Backlog {
    /// Largest number of unread bytes. A correct agent sends one frame per run, of at most 8 MiB.
    pub(crate) const LIMIT: u64 = 24 << 20;

    /// Returns the number of unread bytes.
    ///
    /// # Errors
    /// The error of fstat(2).
    pub(crate) fn unread(&self) -> io::Result<u64> {
        // The offset is read first. If it grows in the meantime, the result is too large by the
        // bytes that were read in between.
        let read = self.read.load(Ordering::Relaxed);
        Ok(rustix::fs::fstat(&*self.file)?.st_size.unsigned_abs().saturating_sub(read))
    }
}

/// Creates an unnamed file in memory for the initramfs of a boot
/// ([`crate::BootOptions::initramfs`]). It takes no disk space. It is freed with the last process
/// that has it open, however that ends.
///
/// # Errors
/// The system's error if it cannot create a file in memory.
pub fn file_for_initramfs() -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create("initramfs", MemfdFlags::CLOEXEC)?))
}

/// Creates an unnamed file in memory. Returns it twice.
///
/// # Errors
/// The error of memfd_create(2) or of duplicating the descriptor.
pub(crate) fn file_in_memory(name: &str) -> io::Result<(File, OwnedFd)> {
    let file = File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?);
    let other = file.try_clone()?.into();
    Ok((file, other))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[tokio::test]
    async fn what_is_written_is_read_in_order_up_to_the_end() {
        let (file, other) = file_in_memory("test").unwrap();
        let mut writer = File::from(other);
        let (ended, gone) = watch::channel(false);
        let mut output = OutputFile::File(Tail::new(file, gone));
        let mut buffer = [0; 4];
        writer.write_all(b"abcdef").unwrap();
        assert_eq!((output.read(&mut buffer).await.unwrap(), &buffer), (4, b"abcd"));
        assert_eq!(output.read(&mut buffer).await.unwrap(), 2);
        let later = tokio::spawn(async move {
            sleep(3 * PERIOD).await;
            writer.write_all(b"gh").unwrap();
            ended.send(true).unwrap();
        });
        assert_eq!(output.read(&mut buffer).await.unwrap(), 2);
        assert_eq!(&buffer[..2], b"gh");
        assert_eq!(output.read(&mut buffer).await.unwrap(), 0);
        later.await.unwrap();
    }

    #[tokio::test]
    async fn what_is_left_to_be_read_is_known() {
        let (file, other) = file_in_memory("test").unwrap();
        let (_ended, gone) = watch::channel(false);
        let tail = Tail::new(file, gone);
        let backlog = tail.backlog();
        File::from(other).write_all(&[1; 1000]).unwrap();
        assert_eq!(backlog.unread().unwrap(), 1000);
        OutputFile::File(tail).read(&mut [0; 300]).await.unwrap();
        assert_eq!(backlog.unread().unwrap(), 700);
    }

    #[tokio::test]
    async fn a_closed_receiver_of_the_end_is_an_end() {
        let (file, _other) = file_in_memory("test").unwrap();
        let (ended, gone) = watch::channel(false);
        drop(ended);
        assert_eq!(OutputFile::File(Tail::new(file, gone)).read(&mut [0; 4]).await.unwrap(), 0);
    }
}
