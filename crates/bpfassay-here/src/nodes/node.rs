// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of a node in addition to its agent: the stand-in for IOR, and the ranks of IOR.
//!
//! The agent starts a workload as its child, in the cgroup that its tracer counts. An MPI program,
//! however, is started by a launcher that knows all nodes. So the agent starts a stand-in that only
//! waits. Each rank asks its node's relay for the stand-in's cgroup, joins it, and becomes IOR.

#![allow(
    clippy::disallowed_methods,
    reason = "reads and writes files of the kernel, and makes a file that is not there yet"
)]

use std::{
    ffi::OsString,
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            net::{SocketAddr, UnixStream},
            process::CommandExt as _,
        },
    },
    path::{Component, Path, PathBuf},
    process::Command,
    time::Duration,
};

use bpfassay_protocol::mangle::unescape;
use rustix::{
    fs::{Mode, OFlags, openat},
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

use super::node_wire::{self, FromRelay, MAX_LOCAL, ToRelay};

/// Prefix of IOR's argument that names the summary file.
const SUMMARY: &str = "summaryFile=";

/// How long a relay can take to answer a rank.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a process of a node cannot do its work.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// There is no relay.
    #[error("cannot reach the relay of bpfassay on this node ({name})")]
    NoRelay {
        /// The name of the relay's socket.
        name: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The relay and this process do not understand each other.
    #[error("the relay of bpfassay on this node does not answer as it should")]
    Relay(#[source] io::Error),
    /// The relay knows of no run.
    #[error("no run of bpfassay is measured on this node: a rank of IOR was started beside one")]
    NoRun,
    /// The cgroup of the run cannot be joined.
    #[error("cannot join the cgroup of the run, {cgroup}: without that the tracer would not count this rank")]
    Cgroup {
        /// The cgroup.
        cgroup: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The directory of the run does not exist.
    #[error("cannot enter {}: all nodes must have the same file system mounted at the same place", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// IOR cannot be started.
    #[error("cannot start {}", program.display())]
    Ior {
        /// The program.
        program: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// There is nothing to measure, for this reason.
    #[error("{0}")]
    Problem(String),
    /// The file of the summary cannot be created.
    #[error("cannot make {}", path.display())]
    Summary {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// Returns the socket name at which the relay with process id `relay` listens to its stand-in.
pub(super) fn of_stand(relay: u32) -> String {
    format!("bpfassay-stand-{relay}")
}

/// Returns the name of the socket at which this host's relay listens to ranks. The name has the
/// host's name, because several hosts can share a kernel. Launchers of MPI programs do not change a
/// host's name, while some pass the first node's variables on to all nodes.
pub(super) fn of_ranks(token: &str) -> String {
    let host = rustix::system::uname();
    format!("bpfassay-ranks-{token}-{}", host.nodename().to_string_lossy())
}

/// Returns an address in the abstract name space, which disappears with its process.
///
/// # Errors
/// The system's error if the name is too long.
pub(super) fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

/// Returns the program that the agent starts as IOR's stand-in: the program of its relay.
pub(super) fn program_of_stand(relay: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{relay}/exe"))
}

/// Returns the relay's process id if `program` says that this is IOR's stand-in ([`stand`]).
#[must_use]
pub fn relay_of(program: &Path) -> Option<u32> {
    let parts: Vec<&str> = program.to_str()?.split('/').collect();
    match parts.as_slice() {
        ["", "proc", relay, "exe"] if relay.bytes().all(|byte| byte.is_ascii_digit()) => relay.parse().ok(),
        _ => None,
    }
}

/// Stands in for IOR, which would have `arguments`, until IOR has ended on all nodes.
///
/// # Errors
/// [`NodeError`], which is [`NodeError::Problem`] if IOR has failed.
pub fn stand(relay: u32, arguments: impl Iterator<Item = OsString>) -> Result<(), NodeError> {
    let arguments: Vec<String> = arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let summary = arguments.iter().find_map(|argument| argument.strip_prefix(SUMMARY)).map(PathBuf::from);
    let failed = |source| NodeError::Relay(source);
    let cgroup = own_cgroup().map_err(failed)?;
    let directory = std::env::current_dir().map_err(failed)?;
    let name = of_stand(relay);
    // IOR has no time limit. The stand-in also ends when the relay does.
    match ask(&name, &ToRelay::Stand { arguments, directory, cgroup }, None)? {
        FromRelay::Over { problem: Some(problem), .. } => Err(NodeError::Problem(problem)),
        FromRelay::Over { problem: None, is_first: true } => Ok(()),
        FromRelay::Over { problem: None, is_first: false } => {
            // Each agent reads a summary. IOR writes it on the first node only, so this one is
            // empty.
            let Some(path) = summary else { return Ok(()) };
            File::create_new(&path).map(drop).map_err(|source| NodeError::Summary { path, source })
        }
        FromRelay::Join { .. } | FromRelay::NoRun => {
            Err(NodeError::Relay(io::Error::new(io::ErrorKind::InvalidData, "an answer to a rank")))
        }
    }
}

/// Becomes a rank of IOR on this node: joins the run's cgroup, enters `directory` and executes
/// `program` with `arguments`. Returns only if this fails.
#[must_use]
pub fn rank(token: &str, directory: &Path, program: &Path, arguments: &[OsString]) -> NodeError {
    match join(token, directory) {
        Err(error) => error,
        Ok(()) => NodeError::Ior { program: program.to_owned(), source: Command::new(program).args(arguments).exec() },
    }
}

fn join(token: &str, directory: &Path) -> Result<(), NodeError> {
    match ask(&of_ranks(token), &ToRelay::Rank, Some(PATIENCE))? {
        FromRelay::Join { cgroup } => {
            enter(&cgroup).map_err(|source| NodeError::Cgroup { cgroup, source })?;
        }
        FromRelay::NoRun => return Err(NodeError::NoRun),
        FromRelay::Over { .. } => {
            return Err(NodeError::Relay(io::Error::new(io::ErrorKind::InvalidData, "an answer to no rank")));
        }
    }
    std::env::set_current_dir(directory).map_err(|source| NodeError::Directory { path: directory.to_owned(), source })
}

/// Sends `question` to the relay at `name` and waits for the answer, with `patience` if given.
fn ask(name: &str, question: &ToRelay, patience: Option<Duration>) -> Result<FromRelay, NodeError> {
    let connected = address(name).and_then(|address| UnixStream::connect_addr(&address)).and_then(of_this_user);
    let mut stream = connected.map_err(|source| NodeError::NoRelay { name: name.to_owned(), source })?;
    let answer =
        stream.set_read_timeout(patience).and_then(|()| stream.write_all(&node_wire::line(question)?)).and_then(|()| {
            let mut line = Vec::new();
            BufReader::new(stream).take(MAX_LOCAL as u64).read_until(b'\n', &mut line)?;
            node_wire::message(&line)
        });
    answer.map_err(NodeError::Relay)
}

/// Returns `stream` if its peer belongs to this user. Any user can bind such a name first.
fn of_this_user(stream: UnixStream) -> io::Result<UnixStream> {
    let own = rustix::process::geteuid();
    match rustix::net::sockopt::socket_peercred(&stream)?.uid == own {
        true => Ok(stream),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user has a socket of that name")),
    }
}

/// Returns the cgroup (v2) of this process, from the root of the hierarchy.
fn own_cgroup() -> io::Result<String> {
    let text = std::fs::read_to_string("/proc/self/cgroup")?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::")).filter(|path| path.starts_with('/'));
    own.map(str::to_owned).ok_or_else(|| io::Error::other("this process is in no cgroup of version 2"))
}

/// Moves this process to `cgroup`. If the hierarchy is not mounted, it gets a mount outside of all
/// mount tables, as in the agent.
fn enter(cgroup: &str) -> io::Result<()> {
    let below = Path::new(cgroup.trim_start_matches('/'));
    if !below.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it lies outside of the cgroups of this process"));
    }
    let door = below.join("cgroup.procs");
    for mounted in hierarchies(&std::fs::read_to_string("/proc/self/mountinfo")?) {
        // The cgroup is not there if the mount is covered or belongs to another namespace.
        if let Ok(mut door) = File::options().write(true).open(mounted.join(&door)) {
            return door.write_all(b"0");
        }
    }
    let context = fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let door = openat(&root, door, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    File::from(door).write_all(b"0")
}

/// Returns where the whole hierarchy of cgroups (v2) is mounted according to the mountinfo `text`.
fn hierarchies(text: &str) -> Vec<PathBuf> {
    let place = |line: &str| {
        let mut fields = line.split(' ').skip(3);
        let (root, path) = (fields.next()?, fields.next()?);
        let file_system = fields.skip_while(|field| *field != "-").nth(1)?;
        (root == "/" && file_system == "cgroup2").then(|| PathBuf::from(unescape(path)))
    };
    text.lines().filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_stands_for_ior_is_known_by_its_name_alone() {
        assert_eq!(relay_of(&program_of_stand(17)), Some(17));
        for other in ["/proc/self/exe", "/proc/17/exe/x", "proc/17/exe", "/proc/17/root", "/proc/+1/exe", "bpfassay"] {
            assert_eq!(relay_of(Path::new(other)), None, "{other}");
        }
        assert_eq!(relay_of(Path::new("/proc/99999999999/exe")), None);
    }

    #[test]
    fn a_rank_without_a_relay_names_what_is_missing() {
        let error = ask(&of_ranks("none"), &ToRelay::Rank, Some(PATIENCE)).unwrap_err();
        assert!(error.to_string().contains("bpfassay-ranks-none-"), "{error}");
    }

    #[test]
    fn the_hierarchy_is_used_where_it_is_mounted_as_a_whole() {
        let text = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw shared:2 - cgroup2 cgroup2 rw\n\
                    42 31 0:38 /docker/x /x rw - cgroup2 cgroup2 rw\n6 1\n";
        assert_eq!(hierarchies(text), [PathBuf::from("/sys/fs/cgroup/uni fied")]);
    }

    #[test]
    fn only_a_cgroup_below_the_root_is_entered() {
        for path in ["/../x", "/a/../../b", "/./.."] {
            assert_eq!(enter(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }
}
