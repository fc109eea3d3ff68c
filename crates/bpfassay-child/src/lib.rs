// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of the host, started as children.
//!
//! A child gets the variables of the environment that it is listed to need, and no others: a token
//! in the caller's environment is no business of a package manager or of a compiler. A child ends
//! when its caller is killed.

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

/// What every program gets: where it finds programs, libraries, its user's files and room for
/// temporary ones.
const EVERY: &[&str] = &["PATH", "LD_LIBRARY_PATH", "HOME", "TMPDIR", "TZ"];

/// Proxies and certificates, as apt, curl, git and cargo read them.
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

/// What cargo and rustup are configured by: registries with their tokens, toolchains, and how git
/// reaches what a registry names.
pub const CARGO: &[&str] = &["CARGO", "CARGO_*", "RUSTUP_*", "RUSTC*", "RUSTFLAGS", "GIT_*", "SSH_AUTH_SOCK", "USER"];

/// What programs of Slurm are configured by.
pub const SLURM: &[&str] = &["SLURM_*", "SQUEUE_*", "MUNGE_*", "USER", "LOGNAME"];

/// The command that starts `program` with the variables of the environment that every program gets,
/// and those that `variables` name, as far as they are set: each is a name, or the beginning of
/// names with `*` behind it. The program is killed when the thread that starts it ends before it.
#[must_use]
pub fn command(program: impl AsRef<OsStr>, variables: &[&[&str]]) -> Command {
    let mut command = lasting(program, variables);
    let caller = getpid();
    let ends_with_caller = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A caller that was killed before this sends no signal.
        if getppid() == Some(caller) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: the closure makes system calls only, which are allowed between fork and exec.
    unsafe { command.pre_exec(ends_with_caller) };
    command
}

/// The same for a program that must not be killed halfway, such as one that installs packages.
#[must_use]
pub fn lasting(program: impl AsRef<OsStr>, variables: &[&[&str]]) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(kept(env::vars_os(), variables));
    command
}

/// Those of `environment` that a program gets.
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

    /// Every variable that a program is started with.
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

    /// A program that the thread `start` starts, and whether it is gone a little after that thread.
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

    /// The kernel sends the signal when the thread ends that started the child, which a killed
    /// caller's does.
    #[test]
    fn a_program_ends_with_its_caller_unless_it_must_last() {
        assert!(is_gone(|program| command(program, &[]).arg("60").stdout(Stdio::piped()).spawn().unwrap()));
        assert!(!is_gone(|program| lasting(program, &[]).arg("60").stdout(Stdio::piped()).spawn().unwrap()));
    }
}
