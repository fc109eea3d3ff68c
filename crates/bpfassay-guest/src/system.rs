// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest as a system: kernel file systems, name, usual files.

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

use bpfassay_protocol::job_nodes::Node;

use crate::{
    error::{Error, Result},
    ranks,
};

/// Name of the guest as `uname -n` shows it. NFSv4 derives the client identifier from it.
const HOST_NAME: &str = "bpfassay";

/// A mount of the set-up.
struct Early {
    file_system: &'static str,
    path: &'static str,
    options: Option<&'static CStr>,
    /// Whether a guest cannot work without this file system.
    needed: bool,
}

/// Options of /run, which holds the output of programs. The limit keeps a program that prints
/// without end from using up the guest's memory.
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

/// Mounts what the agent needs to reach the host.
pub(crate) fn mount_first() -> Result<()> {
    EARLY.iter().try_for_each(|early| mount_one(early).map(|_| ()))
}

/// Mounts the rest. Returns the file systems that this kernel does not have.
pub(crate) fn mount_rest() -> Result<Vec<&'static str>> {
    let mut missing = Vec::new();
    for later in &LATER {
        if !mount_one(later)? {
            missing.push(later.file_system);
        }
    }
    Ok(missing)
}

/// Returns whether the file system is mounted now.
fn mount_one(early: &Early) -> Result<bool> {
    let Early { file_system, path, options, needed } = early;
    // Directories of the kernel either exist or cannot be created. Others can be missing in the
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
    // The job names every module. Otherwise each `request_module` of the kernel starts a process
    // that fails.
    const MODPROBE: &str = "/proc/sys/kernel/modprobe";
    // A kernel that cannot load modules does not have this file.
    if Path::new(MODPROBE).exists() {
        write(MODPROBE, "\n")?;
    }
    Ok(())
}

/// Creates the files and directories that tools and libraries expect, unless a user's tree contains
/// them. One of several nodes gets the names of all nodes.
pub(crate) fn make_usual_files(node: Option<Node>) -> Result<()> {
    // The MPI library of a real IOR looks up its own host.
    for directory in ["/etc", "/root", "/var/log"] {
        fs::create_dir_all(directory).map_err(Error::file("make directory", directory))?;
    }
    // If the shell is `sh`, Open MPI's launcher first reads a profile on other nodes, through a
    // compound command. The program that runs commands there is not a shell (`ranks`).
    let passwd = if node.is_none() { "root:x:0:0:root:/root:/bin/sh\n" } else { "root:x:0:0:root:/root:/bin/bash\n" };
    for (path, text) in [
        (ranks::HOSTS, if node.is_none() { "127.0.0.1 localhost bpfassay\n" } else { "127.0.0.1 localhost\n" }),
        ("/etc/passwd", passwd),
        ("/etc/group", "root:x:0:\n"),
        ("/etc/hostname", "bpfassay\n"),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
        // There is no name server. Names that are not in /etc/hosts are unknown at once.
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
        // The kernel's devtmpfs lacks these links, which udev makes elsewhere. bpftrace, from 0.24
        // on, compiles into a file in /dev/fd.
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

/// Returns the text of a file of the kernel, without trailing white space.
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
