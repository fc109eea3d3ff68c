// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stand-in for the workload on a node. It runs the commands that the launcher on the first
//! node requests, until the first node closes the connection.

use std::{
    io::{self, Read as _},
    net::{TcpListener, TcpStream},
    os::{
        fd::{FromRawFd as _, OwnedFd},
        unix::process::ExitStatusExt as _,
    },
    process::{Command, ExitCode, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use super::wire::{self, RankEnded, RankRequest};
use crate::power_off;

/// First argument of a process that attends.
pub(super) const NAME: &str = "attend";

/// How long the launcher's processes can take to end after the launcher.
const ENDING: Duration = Duration::from_secs(10);

#[derive(Debug)]
enum Progress {
    Began,
    Ended(u8),
}

/// Attends on the socket with the number `socket`.
pub(super) fn main(socket: &str) -> ExitCode {
    let Ok(number @ 3..) = socket.parse::<i32>() else {
        power_off::say("the number of a socket is missing");
        return ExitCode::from(2);
    };
    // SAFETY: the agent has opened it for this process alone, and nothing here has used it yet.
    let listener = TcpListener::from(unsafe { OwnedFd::from_raw_fd(number) });
    match attend(listener) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            power_off::say(&problem);
            ExitCode::FAILURE
        }
    }
}

/// Attends until the agent of the first node closes the first connection.
///
/// # Errors
/// Nothing was requested, a requested command failed or does not end, or a system call failed.
fn attend(listener: TcpListener) -> Result<(), String> {
    let held = |error: io::Error| format!("the first node does not hold this one: {error}");
    let (mut holder, _) = listener.accept().map_err(held)?;
    match wire::receive(&holder).map_err(held)? {
        RankRequest::Hold => {}
        RankRequest::Run(command) => return Err(format!("a launcher that no agent has started requests `{command}`")),
    }
    let (progress, ended) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let progress = progress.clone();
            thread::spawn(move || serve(stream, &progress));
        }
    });
    // The first node writes nothing more, so this returns when the connection is closed.
    holder.read(&mut [0]).map_err(held)?;
    check(&ended)
}

/// Checks that every command that began has ended successfully.
fn check(progress: &Receiver<Progress>) -> Result<(), String> {
    let deadline = Instant::now() + ENDING;
    let (mut began, mut running) = (false, 0u32);
    loop {
        // Messages that have arrived already are received even after the deadline.
        let left = if running > 0 { deadline.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
        match progress.recv_timeout(left) {
            Ok(Progress::Began) => (began, running) = (true, running + 1),
            Ok(Progress::Ended(0)) => running = running.saturating_sub(1),
            Ok(Progress::Ended(status)) => {
                return Err(format!("what the launcher has started on this node ended with exit status {status}"));
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) if running > 0 => {
                return Err(format!(
                    "what the launcher has started on this node runs on {} s after the launcher has ended",
                    ENDING.as_secs()
                ));
            }
            Err(_) if began => return Ok(()),
            Err(_) => return Err("the launcher on the first node has started nothing on this node".to_owned()),
        }
    }
}

/// Runs what `stream` requests.
fn serve(mut stream: TcpStream, progress: &Sender<Progress>) {
    let command = match wire::receive(&stream) {
        Ok(RankRequest::Run(command)) => command,
        Ok(RankRequest::Hold) => return power_off::say("a second agent holds this node"),
        Err(error) => return power_off::say(&format!("a request of the launcher cannot be read: {error}")),
    };
    // The receiver lives as long as this process.
    let _ = progress.send(Progress::Began);
    let status = run(&command);
    let _ = progress.send(Progress::Ended(status));
    // The launcher may have ended.
    let _ = wire::send(&mut stream, &RankEnded { status });
}

/// Runs `command`, whose words are split as in a shell, and returns the exit status.
fn run(command: &str) -> u8 {
    let Some((program, arguments)) = shlex::split(command).and_then(|words| {
        let mut words = words.into_iter();
        Some((words.next()?, words.collect::<Vec<String>>()))
    }) else {
        power_off::say(&format!("no command: {command:?}"));
        return NOT_STARTED;
    };
    match Command::new(&program).args(arguments).stdin(Stdio::null()).status() {
        Ok(status) => of_shell(status),
        Err(error) => {
            power_off::say(&format!("cannot start {program}: {error}"));
            NOT_STARTED
        }
    }
}

/// Exit status of a command that could not be started.
const NOT_STARTED: u8 = 127;

fn of_shell(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    number.and_then(|number| u8::try_from(number).ok()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::{super::remote, *};

    /// Starts a thread that attends, calls `with` with the thread's address while the node is held,
    /// then closes the connection. Returns how attending ended.
    fn attended(with: impl FnOnce(SocketAddr)) -> Result<(), String> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let attending = thread::spawn(move || attend(listener));
        let holder = wire::connect(address, &RankRequest::Hold).unwrap();
        with(address);
        drop(holder);
        attending.join().unwrap()
    }

    fn words(command: &[&str]) -> Vec<String> {
        command.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn commands_run_there_and_their_ends_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let made = directory.path().join("made here");
        let ended = attended(|address| {
            // Hydra quotes the program, as for a shell.
            let command = words(&["\"/usr/bin/touch\"", &format!("'{}'", made.display())]);
            assert_eq!(remote::run(address, &command).unwrap(), 0);
        });
        assert_eq!(ended, Ok(()));
        assert!(made.exists());
    }

    #[test]
    fn a_command_that_fails_is_a_failure_of_both() {
        for (command, status) in
            [(&["sh", "-c", "'exit 3'"][..], 3), (&["sh", "-c", "'kill -9 $$'"], 137), (&["/no/such"], 127), (&[], 127)]
        {
            let ended = attended(|address| assert_eq!(remote::run(address, &words(command)).unwrap(), status));
            assert!(ended.unwrap_err().ends_with(&format!("exit status {status}")), "{command:?}");
        }
    }

    #[test]
    fn a_launcher_that_starts_nothing_is_a_failure() {
        let problem = attended(|_| {}).unwrap_err();
        assert!(problem.contains("started nothing"), "{problem}");
    }

    #[test]
    fn a_command_that_ends_a_little_later_than_its_launcher_is_waited_for() {
        let ended = attended(|address| {
            let command = words(&["sleep", "1"]);
            let begun = wire::connect(address, &RankRequest::Run(command.join(" "))).unwrap();
            // The command has begun by the time that the node is no longer held.
            thread::sleep(Duration::from_millis(500));
            drop(begun);
        });
        assert_eq!(ended, Ok(()));
    }

    #[test]
    fn nobody_but_an_agent_begins() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let attending = thread::spawn(move || attend(listener));
        assert!(remote::run(address, &words(&["true"])).is_err());
        assert!(attending.join().unwrap().unwrap_err().contains("no agent"));
    }
}
