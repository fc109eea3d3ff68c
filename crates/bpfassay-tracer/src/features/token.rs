// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF tokens (Linux 6.9). A process without privileges, in its own user namespace, gets some of
//! the rights to the bpf system call. It gets them through a bpf file system that a privileged
//! process has set up for it.
//!
//! The file system must belong to the user namespace, but its delegation must be set from the
//! initial one. Therefore the work is divided:
//!
//! 1. A child enters a new namespace, opens the file system's context there, and passes the context
//!    on.
//! 2. This process configures and mounts the file system, and passes the mount back.
//! 3. The child creates the token, and a map with the token.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use bpfassay_bpf::MapSpec;
use rustix::{
    fs::{Mode, OFlags, openat},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    },
    thread::{UnshareFlags, unshare_unsafe},
};

use super::trial_calls::{Result, TrialFailure};

/// Creates a token, and a map with the token.
///
/// # Errors
/// The kernel's error, at any step.
pub(super) fn create() -> Result<()> {
    let not_tried = |error: io::Error| TrialFailure::NotTried(format!("token: {error}"));
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|error| not_tried(error.into()))?;
    // SAFETY: this process has one thread, so the child can do anything.
    match unsafe { libc::fork() } {
        -1 => Err(not_tried(io::Error::last_os_error())),
        0 => {
            drop(ours);
            let code = i32::from(become_delegate(&theirs).is_err());
            // SAFETY: ends the child without running exit handlers of this process.
            unsafe { libc::_exit(code) }
        }
        child => {
            drop(theirs);
            let outcome = set_up(&ours);
            // If the child still waits, it exits because its peer is gone.
            drop(ours);
            let mut status = 0;
            // SAFETY: waits for our own child.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            outcome
        }
    }
}

/// Does the child's part. Each step is reported to the parent, with an error number or 0.
fn become_delegate(parent: &OwnedFd) -> io::Result<()> {
    // SAFETY: this process has one thread, and nothing in it depends on the namespaces.
    let entered = unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) };
    report(parent, entered.map_err(io::Error::from), None)?;
    let context = passed(parent, fsopen(c"bpf", FsOpenFlags::empty()), true)?;
    let mount = receive(parent)?.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    drop(context);
    let root = passed(parent, openat(&mount, c".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()), false)?;
    let token = passed(parent, bpfassay_bpf::token(root.as_fd()), false)?;
    let map = MapSpec { flags: libbpf_sys::BPF_F_TOKEN_FD, token: Some(token.as_fd()), ..MapSpec::array(4) };
    passed(parent, map.create(), false).map(drop)
}

/// Does this process's part.
fn set_up(child: &OwnedFd) -> Result<()> {
    let step = |what: &str| receive(child).map_err(|error| TrialFailure::kernel(what, &error));
    // A kernel or a sandbox without user namespaces proves nothing about tokens.
    step("user namespace").map_err(|failure| match failure {
        TrialFailure::Refused { message, .. } => TrialFailure::NotTried(message),
        other => other,
    })?;
    let context = step("fsopen")?
        .ok_or_else(|| TrialFailure::NotTried("token: the child passed on no file system".to_owned()))?;
    let mount = mount(&context)?;
    report(child, Ok(()), Some(mount.as_fd())).map_err(|error| TrialFailure::NotTried(format!("token: {error}")))?;
    for what in ["open the file system", "BPF_TOKEN_CREATE", "map with a token"] {
        step(what)?;
    }
    Ok(())
}

/// Delegates everything, and mounts. Kernels without delegation ignore the options
/// (kernel/bpf/inode.c, `bpf_parse_param`) and refuse the token.
fn mount(context: &OwnedFd) -> Result<OwnedFd> {
    let configured =
        |done: rustix::io::Result<()>| done.map_err(|error| TrialFailure::kernel("fsconfig", &error.into()));
    for key in [c"delegate_cmds", c"delegate_maps", c"delegate_progs", c"delegate_attachs"] {
        configured(fsconfig_set_string(context, key, c"any"))?;
    }
    configured(fsconfig_create(context))?;
    fsmount(context, FsMountFlags::empty(), MountAttrFlags::empty())
        .map_err(|error| TrialFailure::kernel("fsmount", &error.into()))
}

/// Reports the outcome of a step that opens something. Passes the descriptor on if `along`.
fn passed<E: Into<io::Error>>(
    peer: &OwnedFd,
    made: std::result::Result<OwnedFd, E>,
    along: bool,
) -> io::Result<OwnedFd> {
    match made.map_err(Into::into) {
        Ok(fd) => report(peer, Ok(()), along.then(|| fd.as_fd())).map(|()| fd),
        Err(error) => {
            let number = error.raw_os_error().unwrap_or(libc::EIO);
            report(peer, Err(error), None)?;
            Err(io::Error::from_raw_os_error(number))
        }
    }
}

/// Sends an error number, or 0 with or without a descriptor.
fn report(peer: &OwnedFd, done: io::Result<()>, along: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let number = done.as_ref().err().map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
    let bytes = number.to_ne_bytes();
    let descriptors: Vec<BorrowedFd<'_>> = along.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::from(io::ErrorKind::StorageFull));
    }
    sendmsg(peer, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    done
}

/// Receives what [`report`] sent.
fn receive(peer: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut bytes = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(peer, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes != bytes.len() {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
    }
    let passed = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    match i32::from_ne_bytes(bytes) {
        0 => Ok(passed),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}
