// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts programs of the host as child processes.
//!
//! A child gets only the environment variables that it is known to need, so a package manager or a
//! compiler does not see a token of the caller. A child ends when its caller is killed.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

use std::{
    env,
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt as _,
    process::Command,
};

use rustix::{
    io::Errno,
    process::{Signal, getpid, getppid, set_parent_process_death_signal},
};

/// Variables that every program gets: paths of programs and libraries, the user's home directory,
/// the directory for temporary files and the time zone.
const EVERY: &[&str] = &["PATH", "LD_LIBRARY_PATH", "HOME", "TMPDIR", "TZ"];

/// Variables for proxies and certificates, as apt, curl, git and cargo read them.
pub const NETWORK: &[&str] = &[
    "http_proxy",
    "https_proxy",
    "ftp_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "FTP_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NIX_SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
];

/// Variables that configure cargo and rustup: registries with their tokens, toolchains, and how git
/// reaches the repositories of a registry.
pub const CARGO: &[&str] = &["CARGO", "CARGO_*", "RUSTUP_*", "RUSTC*", "RUSTFLAGS", "GIT_*", "SSH_AUTH_SOCK", "USER"];

/// Variables that configure the programs of Slurm.
pub const SLURM: &[&str] = &["SLURM_*", "SQUEUE_*", "MUNGE_*", "USER", "LOGNAME"];

/// Returns a command that starts `program` with the variables that every program gets and those
/// that `variables` lists.
///
/// An element of `variables` is a name, or a prefix of names followed by `*`. Variables that are
/// not set are left out. The kernel kills the program when the thread that started it ends.
#[must_use]
pub fn command(program: impl AsRef<OsStr>, variables: &[&[&str]]) -> Command {
    let mut command = lasting(program, variables);
    let caller = getpid();
    let ends_with_caller = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The signal is not sent if the caller was killed before this line.
        if getppid() == Some(caller) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: the closure only makes system calls that are allowed between fork and exec.
    unsafe { command.pre_exec(ends_with_caller) };
    command
}

/// Returns a command like [`command`], for a program that must not be killed halfway.
#[must_use]
pub fn lasting(program: impl AsRef<OsStr>, variables: &[&[&str]]) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(kept(env::vars_os(), variables));
    command
}

/// Selects the variables of `environment` that a program gets.
fn kept<'a>(
    environment: impl Iterator<Item = (OsString, OsString)> + 'a,
    variables: &'a [&[&str]],
) -> impl Iterator<Item = (OsString, OsString)> + 'a {
    let is_named = |name: &str, pattern: &&str| match pattern.strip_suffix('*') {
        Some(begin) => name.starts_with(begin),
        None => name == *pattern,
    };
    environment.filter(move |(name, _)| {
        let Some(name) = name.to_str() else { return false };
        EVERY.iter().chain(variables.iter().copied().flatten()).any(|pattern| is_named(name, pattern))
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read as _,
        process::{Child, Stdio},
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn a_program_gets_what_is_named_and_nothing_else() {
        let environment = [
            "PATH",
            "HOME",
            "MY_SECRET_TOKEN",
            "LD_PRELOAD",
            "http_proxy",
            "CARGO",
            "CARGO_HOME",
            "CARGOES",
            "RUSTUP_TOOLCHAIN",
            "SLURM_CONF",
            "BASH_ENV",
        ];
        let names = |variables: &[&[&str]]| -> Vec<String> {
            let all = environment.iter().map(|&name| (name.into(), "x".into()));
            kept(all, variables).map(|(name, _)| name.into_string().unwrap()).collect()
        };
        assert_eq!(names(&[]), ["PATH", "HOME"]);
        assert_eq!(names(&[NETWORK]), ["PATH", "HOME", "http_proxy"]);
        assert_eq!(names(&[CARGO]), ["PATH", "HOME", "CARGO", "CARGO_HOME", "RUSTUP_TOOLCHAIN"]);
        assert_eq!(names(&[SLURM]), ["PATH", "HOME", "SLURM_CONF"]);
    }

    /// Checks every variable of a started program.
    #[test]
    fn the_environment_of_the_caller_is_cleared() {
        let output = command("/usr/bin/env", &[NETWORK]).env("LC_ALL", "C").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().any(|line| line == "LC_ALL=C"), "{text}");
        let is_listed = |line: &str| {
            let name = line.split('=').next().unwrap();
            name == "LC_ALL" || EVERY.contains(&name) || NETWORK.contains(&name)
        };
        assert!(env::vars_os().count() > EVERY.len(), "cargo sets variables for tests");
        assert!(text.lines().all(is_listed), "{text}");
    }

    /// Starts a program on a thread. Tells whether it has ended within 2 s of the thread's end.
    fn is_gone(start: fn(&str) -> Child) -> bool {
        let (mut child, mut output) = thread::spawn(move || {
            let mut child = start("sleep");
            let output = child.stdout.take().unwrap();
            (child, output)
        })
        .join()
        .unwrap();
        let since = Instant::now();
        let mut is_gone = false;
        while since.elapsed() < Duration::from_secs(2) && !is_gone {
            is_gone = child.try_wait().unwrap().is_some();
            thread::sleep(Duration::from_millis(20));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        output.read_to_end(&mut Vec::new()).unwrap();
        is_gone
    }

    /// The kernel sends the signal when the thread that started the child ends. That includes the
    /// threads of a killed caller.
    #[test]
    fn a_program_ends_with_its_caller_unless_it_must_last() {
        assert!(is_gone(|program| command(program, &[]).arg("60").stdout(Stdio::piped()).spawn().unwrap()));
        assert!(!is_gone(|program| lasting(program, &[]).arg("60").stdout(Stdio::piped()).spawn().unwrap()));
    }
}
