// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes, touches and removes memory that processes could share.

use std::{io, ptr::NonNull};

use bpfassay_protocol::{operation::Totals, program_set::ProgramEvent};

use super::{Events, MicrobenchmarkError, MicrobenchmarkPhase, call};

pub(super) fn run(operations: u64, size: usize, phase: &mut MicrobenchmarkPhase) -> Result<(), MicrobenchmarkError> {
    phase.of(|| {
        let mut events = Events::new();
        let mut done = |event, bytes: usize| {
            *events.entry(event).or_default() += Totals { calls: 1, bytes: bytes as u64, errors: 0 };
        };
        for _ in 0..operations {
            let segment = MemorySegment::new(size).map_err(call("make a segment of shared memory"))?;
            done(ProgramEvent::ShmGet, 0);
            let address = segment.attach().map_err(call("attach shared memory"))?;
            done(ProgramEvent::ShmAttach, 0);
            // SAFETY: attached just now, writable, and at least a byte long.
            unsafe { address.write_volatile(1) };
            segment.detach(address).map_err(call("detach shared memory"))?;
            done(ProgramEvent::ShmDetach, 0);
            drop(segment);
            map(size).map_err(call("map shared memory"))?;
            done(ProgramEvent::MapShared, size);
        }
        Ok(events)
    })
}

/// A segment of System V shared memory. It is removed when it is dropped.
struct MemorySegment(libc::c_int);

impl MemorySegment {
    fn new(size: usize) -> io::Result<Self> {
        // SAFETY: takes numbers only.
        match unsafe { libc::shmget(libc::IPC_PRIVATE, size, libc::IPC_CREAT | 0o600) } {
            id if id < 0 => Err(io::Error::last_os_error()),
            id => Ok(Self(id)),
        }
    }

    fn attach(&self) -> io::Result<NonNull<u8>> {
        // SAFETY: the kernel chooses a place where nothing is.
        let address = unsafe { libc::shmat(self.0, std::ptr::null(), 0) };
        // shmat(2) returns -1 on failure.
        match NonNull::new(address.cast::<u8>()) {
            Some(address) if address.as_ptr().addr() != usize::MAX => Ok(address),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn detach(&self, address: NonNull<u8>) -> io::Result<()> {
        // SAFETY: what `attach` gave; no other code has the address.
        if unsafe { libc::shmdt(address.as_ptr().cast()) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for MemorySegment {
    fn drop(&mut self) {
        // SAFETY: the segment is ours, and the command takes no buffer. A failure leaves it behind
        // until the guest ends.
        unsafe { libc::shmctl(self.0, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

/// Creates an anonymous shared mapping, touches it and removes it.
fn map(size: usize) -> io::Result<()> {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at a place of the kernel's choice, used and removed here only.
    unsafe {
        let address = libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0);
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        address.cast::<u8>().write_volatile(1);
        if libc::munmap(address, size) < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
