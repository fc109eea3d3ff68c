// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asynchronous I/O of the C library (POSIX AIO) and of the kernel (libaio's system calls).

use std::{
    fs::File,
    io,
    mem::{size_of, zeroed},
    ops::Range,
    os::fd::AsRawFd as _,
    ptr,
};

use bpfassay_protocol::operation::Direction;
use libc::{aiocb, c_long, iovec};

use super::path_calls::{bytes, pieces};

/// The number of requests in flight at once.
pub(crate) const DEPTH: usize = 4;

/// Transfers `ranges` of `file` by `aio_read` or `aio_write`. `memory` is the address that belongs
/// to the file's first byte.
///
/// # Errors
/// The error of the first request that the C library refuses, or of waiting. Errors of requests are
/// in the result.
pub(crate) fn posix(
    direction: Direction,
    file: &File,
    memory: *mut u8,
    ranges: &[Range<usize>],
) -> io::Result<Vec<io::Result<usize>>> {
    let mut requests: Vec<aiocb> = ranges
        .iter()
        .map(|range| {
            // SAFETY: zeros are what POSIX asks to initialise the structure with.
            let mut request: aiocb = unsafe { zeroed() };
            request.aio_fildes = file.as_raw_fd();
            request.aio_buf = memory.wrapping_add(range.start).cast();
            request.aio_nbytes = range.len();
            request.aio_offset = range.start as libc::off_t;
            request.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
            request
        })
        .collect();
    let mut refused = None;
    let mut begun = 0;
    for request in &mut requests {
        let begin = match direction {
            Direction::In => libc::aio_read,
            Direction::Out => libc::aio_write,
        };
        // SAFETY: the request stays where it is, and its memory valid, until it is done (below).
        let status = unsafe { begin(request) };
        if status != 0 {
            refused = Some(io::Error::last_os_error());
            break;
        }
        begun += 1;
    }
    // Every request that was begun must be done before its memory is freed.
    let results = requests[..begun].iter_mut().map(finish).collect();
    refused.map_or(Ok(results), Err)
}

/// Waits for a request and returns its result.
fn finish(request: &mut aiocb) -> io::Result<usize> {
    loop {
        let list = [ptr::from_ref(request)];
        // SAFETY: the list holds one request that was begun.
        let error = unsafe { libc::aio_error(request) };
        if error != libc::EINPROGRESS {
            // SAFETY: the request is done, and its result is taken once.
            let returned = unsafe { libc::aio_return(request) };
            return if error == 0 { bytes(returned) } else { Err(io::Error::from_raw_os_error(error)) };
        }
        // SAFETY: as above; an interruption only leads to another round.
        unsafe { libc::aio_suspend(list.as_ptr(), 1, ptr::null()) };
    }
}

/// `struct iocb` of include/uapi/linux/aio_abi.h, little-endian.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_descriptor: u32,
}

/// `struct io_event` of the same file.
#[repr(C)]
#[derive(Default, Clone, Copy)]
struct AioEvent {
    data: u64,
    iocb: u64,
    result: i64,
    result2: i64,
}

const _: () = assert!(size_of::<Iocb>() == 64 && size_of::<AioEvent>() == 32);

/// `IOCB_CMD_*` of the same file: reading and writing, in one piece and in several.
const COMMANDS: [[u16; 2]; 2] = [[0, 1], [7, 8]];

/// A context of the kernel's AIO.
#[derive(Debug)]
pub(crate) struct AioContext(libc::c_ulong);

impl AioContext {
    /// Creates a context.
    ///
    /// # Errors
    /// The kernel's error, from `io_setup`.
    pub(crate) fn new() -> io::Result<Self> {
        let mut context = 0;
        // SAFETY: the kernel writes the context's name to the variable, which must be 0.
        bytes(unsafe { libc::syscall(libc::SYS_io_setup, DEPTH as c_long, &raw mut context) } as isize)?;
        Ok(Self(context))
    }

    /// Transfers `ranges` of `file`, at most [`DEPTH`]. `memory` is the address that belongs to the
    /// file's first byte.
    ///
    /// # Errors
    /// The kernel's error, if it does not accept all requests. Errors of requests are in the
    /// result.
    pub(crate) fn run(
        &self,
        direction: Direction,
        vectored: bool,
        file: &File,
        memory: *mut u8,
        ranges: &[Range<usize>],
    ) -> io::Result<Vec<io::Result<usize>>> {
        let opcode = COMMANDS[usize::from(vectored)][usize::from(direction == Direction::Out)];
        let vectors: Vec<[iovec; 3]> =
            ranges.iter().map(|range| pieces(memory.wrapping_add(range.start), range.len())).collect();
        let requests: Vec<Iocb> = ranges
            .iter()
            .zip(&vectors)
            .enumerate()
            .map(|(index, (range, vector))| {
                let (buffer, length) = match vectored {
                    true => (vector.as_ptr() as u64, vector.len() as u64),
                    false => (memory.wrapping_add(range.start) as u64, range.len() as u64),
                };
                Iocb {
                    data: index as u64,
                    opcode,
                    descriptor: file.as_raw_fd() as u32,
                    buffer,
                    length,
                    offset: range.start as i64,
                    ..Iocb::default()
                }
            })
            .collect();
        let list: Vec<*const Iocb> = requests.iter().map(ptr::from_ref).collect();
        // SAFETY: requests, vectors and memory live until all that were taken are done (below).
        let taken =
            bytes(unsafe { libc::syscall(libc::SYS_io_submit, self.0, list.len() as c_long, list.as_ptr()) } as isize)?;
        let results = self.wait(taken)?;
        if taken < ranges.len() {
            // The error that stopped it is only known if it is the first request's.
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        Ok(results)
    }

    /// Returns the results of `count` requests, by their index.
    fn wait(&self, count: usize) -> io::Result<Vec<io::Result<usize>>> {
        let mut results: Vec<io::Result<usize>> = Vec::new();
        results.resize_with(count, || Ok(0));
        let mut done = 0;
        while done < count {
            let mut events = [AioEvent::default(); DEPTH];
            let wanted = (count - done) as c_long;
            // SAFETY: room for DEPTH events, and no more are in flight.
            let got = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.0,
                    wanted,
                    wanted,
                    events.as_mut_ptr(),
                    ptr::null_mut::<libc::timespec>(),
                )
            };
            match bytes(got as isize) {
                Ok(got) => {
                    for event in &events[..got] {
                        if let Some(result) = results.get_mut(event.data as usize) {
                            *result = usize::try_from(event.result)
                                .map_err(|_| io::Error::from_raw_os_error(event.result.unsigned_abs() as i32));
                        }
                    }
                    done += got;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(results)
    }
}

impl Drop for AioContext {
    fn drop(&mut self) {
        // SAFETY: the context is ours; the call waits for what is in flight.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}
