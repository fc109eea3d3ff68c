// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two threads hand a futex back and forth.

use std::{
    io,
    sync::atomic::{AtomicU32, Ordering},
};

use bpfassay_protocol::{operation::Totals, program_set::ProgramEvent};

use super::{Events, MicrobenchmarkError, MicrobenchmarkPhase, call, count, side_by_side};

/// The futex word tells whose turn it is.
const OURS: u32 = 0;
const THEIRS: u32 = 1;
/// One of the two threads has failed.
const BROKEN: u32 = 2;

pub(super) fn run(operations: u64, phase: &mut MicrobenchmarkPhase) -> Result<(), MicrobenchmarkError> {
    let word = AtomicU32::new(OURS);
    side_by_side(phase, || take_turns(&word, operations, OURS, THEIRS), || take_turns(&word, operations, THEIRS, OURS))
}

/// Waits `times` times for the `own` turn and hands it over to the `other`. Returns the calls that
/// this took. The thread that begins also waits for its last turn.
fn take_turns(word: &AtomicU32, times: u64, own: u32, other: u32) -> Result<Events, MicrobenchmarkError> {
    let (mut waits, mut wakes) = (Totals::default(), Totals::default());
    for _ in 0..times {
        wait(word, other, &mut waits)?;
        hand(word, own, other, &mut wakes)?;
    }
    if own == OURS {
        wait(word, other, &mut waits)?;
    }
    let calls = [(ProgramEvent::FutexWait, waits), (ProgramEvent::FutexWake, wakes)];
    Ok(calls.into_iter().filter(|(_, totals)| totals.calls > 0).collect())
}

/// Waits for as long as it is the `other`'s turn.
fn wait(word: &AtomicU32, other: u32, waits: &mut Totals) -> Result<(), MicrobenchmarkError> {
    loop {
        match word.load(Ordering::Acquire) {
            BROKEN => {
                return Err(call("continue without the other thread")(io::Error::from(io::ErrorKind::BrokenPipe)));
            }
            turn if turn != other => return Ok(()),
            _ => {}
        }
        match count(waits, futex(word, libc::FUTEX_WAIT, other)) {
            Ok(_) => {}
            // The other thread was faster, or a signal arrived.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {}
            Err(error) => return Err(broken(word, call("wait on a futex")(error))),
        }
    }
}

fn hand(word: &AtomicU32, own: u32, other: u32, wakes: &mut Totals) -> Result<(), MicrobenchmarkError> {
    // This must not overwrite the other thread's `BROKEN`.
    if word.compare_exchange(own, other, Ordering::Release, Ordering::Relaxed).is_ok() {
        count(wakes, futex(word, libc::FUTEX_WAKE, 1)).map_err(|error| broken(word, call("wake a thread")(error)))?;
    }
    Ok(())
}

/// Makes the other thread stop waiting.
fn broken(word: &AtomicU32, error: MicrobenchmarkError) -> MicrobenchmarkError {
    word.store(BROKEN, Ordering::Release);
    // If this fails, `error` is still reported.
    let _ = futex(word, libc::FUTEX_WAKE, 1);
    error
}

/// Makes the system call. Returns 0 bytes on success.
fn futex(word: &AtomicU32, operation: libc::c_int, value: u32) -> io::Result<usize> {
    let no_timeout = std::ptr::null::<libc::timespec>();
    // SAFETY: the word outlives the call, which reads it only.
    let result = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation | libc::FUTEX_PRIVATE_FLAG, value, no_timeout)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(0) }
}
