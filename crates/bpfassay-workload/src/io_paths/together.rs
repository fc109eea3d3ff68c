// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many processes that use a file for the first time, all at once. A tracer that loses the first
//! call of a key that several CPUs insert at the same time counts too little.

use std::{io, ops::Range};

use bpfassay_protocol::Operation;

use super::{
    buffer::{Buffer, first_difference},
    error::PathsError,
    path_calls,
    stage::{PathFailure, PathStage},
};
use crate::engine::{EngineError, ranks::Team};

/// Number of processes: more than guests have CPUs.
const PROCESSES: u32 = 8;

/// The call of each process. No earlier path makes a call of the same operation.
const CALL: &str = "preadv";

/// Makes new processes read a part of a file each, all at once.
pub(super) fn reading(stage: &mut PathStage<'_>) -> Result<(), PathFailure> {
    let source = stage.source(0)?;
    let failed =
        |source| PathFailure::from(PathsError::from(EngineError::Ranks { action: "start", ranks: PROCESSES, source }));
    let mut teams = Team::world(PROCESSES + 1, 0).map_err(failed)?.into_iter();
    let Some(own) = teams.next() else { return Err(failed(io::ErrorKind::InvalidInput.into())) };
    let (size, seed) = (stage.size, stage.seed());
    let mut children = PathProcesses { team: own, ids: Vec::new() };
    for team in teams {
        let range = part(size, team.rank() - 1);
        let mut memory = Buffer::zeroed(range.len());
        let parent = rustix::process::getpid();
        // SAFETY: the program has one thread. Tests have more, but the child only allocates through
        // malloc, which fork leaves usable.
        match unsafe { libc::fork() } {
            -1 => return Err(failed(io::Error::last_os_error())),
            0 => {
                let tied = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
                let is_alive = tied.is_ok() && rustix::process::getppid() == Some(parent);
                let done = is_alive && one(&team, &source, &mut memory, range, seed).is_ok();
                // SAFETY: the call uses no address. Nothing of the parent is flushed or dropped
                // twice.
                unsafe { libc::_exit(i32::from(!done)) };
            }
            child => children.ids.push(child),
        }
    }
    let all = stage.phase(|_, moved| {
        let together = || -> Result<Vec<[u64; 4]>, EngineError> {
            children.team.barrier()?;
            children.team.exchange([0; 4])
        };
        let all = together().map_err(PathsError::from)?;
        for &[calls, bytes, errno, _] in all.iter().skip(1) {
            moved.add(Operation::Readv, calls, bytes, u64::from(errno > 0));
        }
        Ok(all)
    })?;
    children.join().map_err(failed)?;
    for (rank, [_, _, errno, wrong_at]) in (0..).zip(all.into_iter().skip(1)) {
        if errno > 0 {
            // Error numbers are small.
            return Err(PathFailure::Refused { call: CALL, source: io::Error::from_raw_os_error(errno as i32) });
        }
        if let Some(at) = wrong_at.checked_sub(1) {
            let at = part(size, rank).start as u64 + at;
            return Err(PathsError::Data { path: stage.path, at, size: size as u64 }.into());
        }
    }
    Ok(())
}

/// Returns the range of `size` bytes that the process `number` reads.
fn part(size: usize, number: u32) -> Range<usize> {
    let share = size / PROCESSES as usize;
    let start = share * number as usize;
    if number + 1 == PROCESSES { start..size } else { start..start + share }
}

/// Does the work of one process: waits for the others, reads its part, and reports four numbers.
/// These are calls, bytes, the error number, and the position of the first wrong byte plus one.
fn one(
    team: &Team,
    file: &std::fs::File,
    memory: &mut Buffer,
    range: Range<usize>,
    seed: u64,
) -> Result<(), EngineError> {
    team.barrier()?;
    let (mut calls, mut at, mut errno) = (0, 0, 0);
    while at < range.len() && errno == 0 {
        calls += 1;
        match path_calls::preadv(file, &mut memory[at..], range.start + at) {
            // An early end of the file shows as wrong data.
            Ok(0) => break,
            Ok(bytes) => at += bytes,
            Err(error) => errno = error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
    let wrong = if errno > 0 { None } else { first_difference(memory, seed, range.start as u64) };
    // The position within the part.
    let wrong = wrong.map_or(0, |place| place - range.start as u64 + 1);
    team.exchange([calls, at as u64, u64::from(errno.unsigned_abs()), wrong]).map(drop)
}

/// The processes. They are waited for whatever happens.
struct PathProcesses {
    team: Team,
    ids: Vec<libc::pid_t>,
}

impl PathProcesses {
    /// Waits until all have ended.
    fn join(mut self) -> io::Result<()> {
        let mut all = Ok(());
        for id in self.ids.drain(..) {
            match wait_for(id) {
                Ok(0) => {}
                Ok(_) => all = Err(io::Error::other("a process that should read ended otherwise")),
                Err(error) => all = Err(error),
            }
        }
        all
    }
}

impl Drop for PathProcesses {
    fn drop(&mut self) {
        if !self.ids.is_empty() {
            self.team.abort();
        }
        for id in self.ids.drain(..) {
            // Processes that wait give up. Their status says nothing more.
            let _ = wait_for(id);
        }
    }
}

fn wait_for(id: libc::pid_t) -> io::Result<libc::c_int> {
    let mut status = 0;
    loop {
        // SAFETY: the pointer is to a live local variable.
        if unsafe { libc::waitpid(id, &raw mut status, 0) } >= 0 {
            return Ok(status);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_the_whole() {
        for size in [4096, 4097, 90_112] {
            let parts: Vec<Range<usize>> = (0..PROCESSES).map(|number| part(size, number)).collect();
            assert_eq!((parts[0].start, parts[PROCESSES as usize - 1].end), (0, size));
            assert!(parts.windows(2).all(|two| two[0].end == two[1].start));
        }
    }
}
