// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest as a system: kernel file systems, name, loopback interface.

use std::{
    ffi::{CStr, CString},
    fs, io,
    io::Write as _,
    path::Path,
};

use rustix::{
    io::Errno,
    mount::{MountFlags, mount},
};

use bpfassay_protocol::nodes::Node;

use crate::{
    error::{Error, Result},
    ranks,
};

/// Name of the guest as `uname -n` shows it; NFSv4 makes its client identifier from it.
const HOST_NAME: &str = "bpfassay";

/// A mount of the set-up.
struct Early {
    file_system: &'static str,
    path: &'static str,
    options: Option<&'static CStr>,
    /// Whether a kernel without this file system cannot be a guest.
    needed: bool,
}

/// The output of programs is kept there; a program that prints without end must not take the
/// guest's memory.
const RUN_SIZE: &CStr = c"size=64m,mode=0755";

const EARLY: [Early; 3] = [
    Early { file_system: "proc", path: "/proc", options: None, needed: true },
    Early { file_system: "sysfs", path: "/sys", options: None, needed: true },
    Early { file_system: "devtmpfs", path: "/dev", options: None, needed: true },
];

const LATER: [Early; 8] = [
    Early { file_system: "tmpfs", path: "/run", options: Some(RUN_SIZE), needed: true },
    Early { file_system: "tmpfs", path: "/tmp", options: None, needed: true },
    Early { file_system: "tmpfs", path: "/dev/shm", options: None, needed: true },
    Early { file_system: "devpts", path: "/dev/pts", options: None, needed: false },
    Early { file_system: "cgroup2", path: "/sys/fs/cgroup", options: None, needed: true },
    Early { file_system: "debugfs", path: "/sys/kernel/debug", options: None, needed: false },
    Early { file_system: "tracefs", path: "/sys/kernel/tracing", options: None, needed: false },
    Early { file_system: "bpf", path: "/sys/fs/bpf", options: None, needed: false },
];

/// Mounts what the agent itself needs to reach the host.
pub(crate) fn mount_first() -> Result<()> {
    EARLY.iter().try_for_each(|early| mount_one(early).map(|_| ()))
}

/// Mounts the rest. Returns what this kernel does not have.
pub(crate) fn mount_rest() -> Result<Vec<&'static str>> {
    let mut missing = Vec::new();
    for later in &LATER {
        if !mount_one(later)? {
            missing.push(later.file_system);
        }
    }
    Ok(missing)
}

/// Whether it is mounted now.
fn mount_one(early: &Early) -> Result<bool> {
    let Early { file_system, path, options, needed } = early;
    // The kernel's own directories exist or cannot be made; the others may be missing in the
    // initramfs.
    if let Err(error) = fs::create_dir_all(path) {
        return if *needed { Err(Error::file("make directory", path)(error)) } else { Ok(false) };
    }
    match mount(*file_system, *path, *file_system, MountFlags::empty(), *options) {
        Ok(()) => Ok(true),
        Err(Errno::BUSY) => Ok(true),
        Err(Errno::NODEV | Errno::NOENT) if !needed => Ok(false),
        Err(error) => Err(Error::system(format!("mount {file_system} at {path}"))(error)),
    }
}

/// Sets the host name and keeps the kernel from starting helper programs that do not exist.
pub(crate) fn name(node: Option<Node>) -> Result<()> {
    let name = node.map_or_else(|| HOST_NAME.to_owned(), Node::host_name);
    rustix::system::sethostname(name.as_bytes()).map_err(Error::system("set the host name"))?;
    // The job names every module; without this each `request_module` of the kernel starts a process
    // that fails.
    const MODPROBE: &str = "/proc/sys/kernel/modprobe";
    // A kernel that cannot load modules has no such file.
    if Path::new(MODPROBE).exists() {
        write(MODPROBE, "\n")?;
    }
    Ok(())
}

/// Makes the files and directories that tools and libraries expect; a user's tree may bring its
/// own. One of several nodes knows the names of all.
pub(crate) fn make_usual_files(node: Option<Node>) -> Result<()> {
    // A real IOR's MPI looks up its own host.
    for directory in ["/etc", "/root", "/var/log"] {
        fs::create_dir_all(directory).map_err(Error::file("make directory", directory))?;
    }
    // For a plain shell, Open MPI's launcher has a profile read on other nodes, by a command of
    // several; what runs commands there is no shell (`ranks`).
    let passwd = if node.is_none() { "root:x:0:0:root:/root:/bin/sh\n" } else { "root:x:0:0:root:/root:/bin/bash\n" };
    for (path, text) in [
        (ranks::HOSTS, if node.is_none() { "127.0.0.1 localhost bpfassay\n" } else { "127.0.0.1 localhost\n" }),
        ("/etc/passwd", passwd),
        ("/etc/group", "root:x:0:\n"),
        ("/etc/hostname", "bpfassay\n"),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
        // No server: names that /etc/hosts lacks are unknown at once, without a wait for an answer.
        ("/etc/resolv.conf", ""),
    ] {
        if !Path::new(path).exists() {
            fs::write(path, text).map_err(Error::file("write", path))?;
        }
    }
    if let Some(node) = node {
        let add = fs::OpenOptions::new().append(true).open(ranks::HOSTS);
        add.and_then(|mut hosts| hosts.write_all(ranks::names(node).as_bytes()))
            .map_err(Error::file("write", ranks::HOSTS))?;
    }
    let links = [
        ("/var/run", "/run"),
        ("/var/tmp", "/tmp"),
        ("/etc/mtab", "/proc/self/mounts"),
        // The kernel's devtmpfs lacks these: elsewhere udev makes them. bpftrace, from 0.24 on,
        // compiles into a file of /dev/fd.
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ];
    for (link, place) in links {
        match std::os::unix::fs::symlink(place, link) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::file("make link", link)(error)),
        }
    }
    Ok(())
}

/// Writes `text` to a file of the kernel, in one write(2).
pub(crate) fn write(path: &str, text: &str) -> Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(Error::file("write", path))
}

/// The text of a file of the kernel, without the newline at its end.
pub(crate) fn read(path: &str) -> Result<String> {
    let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
    Ok(text.trim_end().to_owned())
}

/// Mounts with options as text.
pub(crate) fn mount_with(source: &str, path: &str, file_system: &str, options: &str) -> Result<()> {
    fs::create_dir_all(path).map_err(Error::file("make directory", path))?;
    let action = || format!("mount {source} at {path} as {file_system} with options {options}");
    let data = CString::new(options)
        .map_err(|error| Error::system(action())(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    mount(source, path, file_system, MountFlags::empty(), data.as_c_str()).map_err(|error| match error {
        Errno::NODEV => Error::Order(format!(
            "this kernel does not have the file system {file_system}: name its module in the job, or build the kernel \
             with it"
        )),
        error => Error::system(action())(error),
    })
}
