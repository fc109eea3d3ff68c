// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts a tool as root of a user namespace, whose BPF file system delegates everything
//! (kernel/bpf/token.c, Linux 6.9). libbpf gets a token from it by itself (from 1.5 on).

use std::{
    fs,
    io::{Read as _, Write as _},
    os::{fd::AsRawFd as _, unix::net::UnixStream},
    thread::{self, JoinHandle},
};

use bpfassay_protocol::privileges::Privileges;
use rustix::{
    fs::CWD,
    io::{Errno, read, write},
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_string, fsmount,
        fsopen, move_mount,
    },
    process::{Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open},
    thread::{UnshareFlags, unshare_unsafe},
};

use crate::{
    credentials::Credentials,
    error::{Error, Result},
};

/// The options with which a BPF file system delegates.
const DELEGATED: [&str; 4] = ["delegate_cmds", "delegate_maps", "delegate_progs", "delegate_attachs"];

/// Answers to a process in its namespace: whether its BPF file system is ready to be mounted.
const READY: u8 = 1;
const NO_TOKENS: u8 = 0;

/// The thread that serves a tool that enters a user namespace, if the tool does.
pub(super) type Served = Option<JoinHandle<Result<()>>>;

/// Returns the function with which a tool takes `privileges` between fork and exec, and the thread
/// that serves the function.
pub(super) fn entry(
    privileges: &Privileges,
) -> Result<(impl Fn() -> rustix::io::Result<()> + Send + Sync + 'static, Served)> {
    let credentials = Credentials::of(privileges);
    let (theirs, served) = match privileges.user_namespace {
        false => (None, None),
        true => {
            let (ours, theirs) = UnixStream::pair().map_err(Error::system("make a pair of sockets"))?;
            let user = privileges.user;
            (Some(theirs), Some(thread::spawn(move || serve(ours, user))))
        }
    };
    let enter = move || {
        credentials.take()?;
        theirs.as_ref().map_or(Ok(()), enter)
    };
    Ok((enter, served))
}

/// Waits for the thread, whose tool has been started or has failed to start.
pub(super) fn end(served: Served) -> Result<()> {
    let ended = served.map_or(Ok(Ok(())), JoinHandle::join);
    ended.unwrap_or_else(|_| Err(Error::Order("the thread that makes a user namespace has panicked".to_owned())))
}

/// Enters a user namespace and a mount namespace. Allocates nothing.
fn enter(agent: &UnixStream) -> rustix::io::Result<()> {
    // SAFETY: no descriptors are unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }?;
    let context = fsopen(c"bpf", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let mut message = [0; 8];
    message[..4].copy_from_slice(&getpid().as_raw_nonzero().get().to_ne_bytes());
    message[4..].copy_from_slice(&context.as_raw_fd().to_ne_bytes());
    write(agent, &message)?;
    let mut answer = [0];
    match (read(agent, &mut answer)?, answer) {
        (1, [READY]) => {}
        (1, [NO_TOKENS]) => return Ok(()),
        _ => return Err(Errno::PERM),
    }
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    move_mount(&mount, c"", CWD, c"/sys/fs/bpf", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

/// Makes `user` the root of the namespace of the process at the other end of `tool`, and prepares
/// the BPF file system of the process. Always answers, unless the process has ended.
fn serve(mut tool: UnixStream, user: u32) -> Result<()> {
    let mut message = [0; 8];
    if tool.read_exact(&mut message).is_err() {
        // The process could not enter a namespace: starting the tool returns the reason.
        return Ok(());
    }
    let [a, b, c, d, e, f, g, h] = message;
    let (process, context) = (i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h]));
    let prepared = prepare(process, context, user);
    let answer = match prepared {
        Ok(true) => READY,
        Ok(false) => NO_TOKENS,
        Err(_) => u8::MAX,
    };
    tool.write_all(&[answer]).map_err(Error::system("answer a tool that enters a user namespace"))?;
    prepared.map(drop)
}

/// Returns whether the kernel has BPF tokens.
fn prepare(process: i32, context: i32, user: u32) -> Result<bool> {
    for (file, line) in
        [("setgroups", "deny".to_owned()), ("uid_map", format!("0 {user} 1")), ("gid_map", format!("0 {user} 1"))]
    {
        let path = format!("/proc/{process}/{file}");
        fs::write(&path, line).map_err(Error::file("write", &path))?;
    }
    let asked = || Error::system("prepare the BPF file system of a user namespace");
    let pid = Pid::from_raw(process).ok_or_else(|| Error::Order("a tool has no process id".to_owned()))?;
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(asked())?;
    let context = pidfd_getfd(process, context, PidfdGetfdFlags::empty()).map_err(asked())?;
    for delegated in DELEGATED {
        fsconfig_set_string(&context, delegated, "any").map_err(asked())?;
    }
    match fsconfig_create(&context) {
        Ok(()) => Ok(true),
        // An older kernel ignores unknown options, and mounts no BPF file system in a namespace.
        Err(Errno::PERM) => Ok(false),
        Err(error) => Err(asked()(error)),
    }
}
