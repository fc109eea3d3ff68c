//! BPF tokens: a process without privileges, in a user namespace of its own, gets a part of the rights to the bpf system
//! call by a file system `bpf` that a privileged process has set up for it (Linux 6.9).
//!
//! The file system has to belong to the user namespace and its delegation to be set from the initial one. So a child goes
//! into a new namespace, opens the file system's context there and passes it on; this process configures and mounts it and
//! gives the mount back; the child makes the token, and a map with it.

use std::{
    ffi::CStr,
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
    ptr,
};

use bpfassay_bpf::MapSpec;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::sys::{Failure, Result};

/// Makes a token, and a map with it.
///
/// # Errors
/// The kernel's, at whichever step.
pub(super) fn create() -> Result<()> {
    let not_tried = |error: io::Error| Failure::NotTried(format!("token: {error}"));
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|error| not_tried(error.into()))?;
    // SAFETY: this process has one thread, so the child may do as it likes.
    match unsafe { libc::fork() } {
        -1 => Err(not_tried(io::Error::last_os_error())),
        0 => {
            drop(ours);
            let code = i32::from(become_delegate(&theirs).is_err());
            // SAFETY: ends the child without running what this process has registered for its end.
            unsafe { libc::_exit(code) }
        }
        child => {
            drop(theirs);
            let outcome = set_up(&ours);
            // Without its peer, a child that still waits comes to its end.
            drop(ours);
            let mut status = 0;
            // SAFETY: waits for our own child.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            outcome
        }
    }
}

/// The child's part: each step is told to the parent, with its error number or 0.
fn become_delegate(parent: &OwnedFd) -> io::Result<()> {
    // SAFETY: no pointers.
    let entered = status(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) }.into());
    tell(parent, entered.map(drop), None)?;
    // SAFETY: the name is static.
    let context = opened(unsafe { libc::syscall(libc::SYS_fsopen, c"bpf".as_ptr(), 0) });
    let context = passed(parent, context, true)?;
    let mount = hear(parent)?.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    drop(context);
    // SAFETY: the name is static.
    let root = unsafe { libc::openat(mount.as_raw_fd(), c".".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY) };
    let root = passed(parent, opened(root.into()), false)?;
    let token = passed(parent, bpfassay_bpf::token(root.as_fd()), false)?;
    let map = MapSpec { flags: libbpf_sys::BPF_F_TOKEN_FD, token: Some(token.as_fd()), ..MapSpec::array(4) };
    passed(parent, map.create(), false).map(drop)
}

/// This process's part.
fn set_up(child: &OwnedFd) -> Result<()> {
    let step = |what: &str| hear(child).map_err(|error| Failure::kernel(what, &error));
    // A kernel or a sandbox without user namespaces says nothing of tokens.
    step("user namespace").map_err(|failure| match failure {
        Failure::Refused { message, .. } => Failure::NotTried(message),
        other => other,
    })?;
    let context =
        step("fsopen")?.ok_or_else(|| Failure::NotTried("token: the child passed on no file system".to_owned()))?;
    let mount = mount(&context)?;
    tell(child, Ok(()), Some(mount.as_fd())).map_err(|error| Failure::NotTried(format!("token: {error}")))?;
    for what in ["open the file system", "BPF_TOKEN_CREATE", "map with a token"] {
        step(what)?;
    }
    Ok(())
}

/// Delegates everything, and mounts. Kernels that know of no delegation ignore the options (kernel/bpf/inode.c,
/// `bpf_parse_param`) and refuse the token.
fn mount(context: &OwnedFd) -> Result<OwnedFd> {
    /// `enum fsconfig_command` (include/uapi/linux/mount.h).
    const SET_STRING: u32 = 1;
    const CREATE: u32 = 6;
    let configure = |command: u32, key: Option<&CStr>, value: Option<&CStr>| {
        let pointer = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
        // SAFETY: null or strings that outlive the call.
        let done =
            unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), command, pointer(key), pointer(value), 0) };
        status(done).map_err(|error| Failure::kernel("fsconfig", &error))
    };
    for key in [c"delegate_cmds", c"delegate_maps", c"delegate_progs", c"delegate_attachs"] {
        configure(SET_STRING, Some(key), Some(c"any"))?;
    }
    configure(CREATE, None, None)?;
    // SAFETY: no pointers.
    opened(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), 0, 0) })
        .map_err(|error| Failure::kernel("fsmount", &error))
}

/// A result of a system call, or of libbpf, which sets errno too.
fn status(value: libc::c_long) -> io::Result<libc::c_long> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

fn opened(value: libc::c_long) -> io::Result<OwnedFd> {
    // SAFETY: a new descriptor that nobody else owns.
    status(value).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Tells how a step went that opens something, and passes that on if `along`.
fn passed(peer: &OwnedFd, made: io::Result<OwnedFd>, along: bool) -> io::Result<OwnedFd> {
    match made {
        Ok(fd) => tell(peer, Ok(()), along.then(|| fd.as_fd())).map(|()| fd),
        Err(error) => {
            let number = error.raw_os_error().unwrap_or(libc::EIO);
            tell(peer, Err(error), None)?;
            Err(io::Error::from_raw_os_error(number))
        }
    }
}

/// Sends an error number, or 0 with a descriptor or without.
fn tell(peer: &OwnedFd, done: io::Result<()>, along: Option<BorrowedFd<'_>>) -> io::Result<()> {
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

/// Receives what [`tell`] sent.
fn hear(peer: &OwnedFd) -> io::Result<Option<OwnedFd>> {
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
