// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of a node besides its agent: what stands in the place of IOR while the run is
//! measured, and the ranks of IOR.
//!
//! The agent starts a workload as a child of its own, in the cgroup that its tracer counts. An MPI
//! program is started by a launcher, which knows all nodes. So the agent starts a process that only
//! waits; each rank asks the relay of its node for the cgroup of that process, joins it, and
//! becomes IOR.

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

use super::wire::{self, FromRelay, MAX_LOCAL, ToRelay};

/// Where the arguments of IOR name the file of its summary.
const SUMMARY: &str = "summaryFile=";

/// How long a relay may take to answer a rank.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a process of a node cannot do what it is for.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// There is no relay.
    #[error("cannot reach the relay of bpfassay on this node ({name})")]
    NoRelay {
        /// Its name.
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
    /// The directory of the run is not there.
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
        /// Its program.
        program: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Nothing is to be measured, and why.
    #[error("{0}")]
    Problem(String),
    /// The summary cannot be made.
    #[error("cannot make {}", path.display())]
    Summary {
        /// Its file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// The name of the socket at which the relay that is this process listens to what stands in the
/// place of IOR.
pub(super) fn of_stand(relay: u32) -> String {
    format!("bpfassay-stand-{relay}")
}

/// The name of the socket at which the relay of this host listens to ranks. Hosts are distinguished
/// as well, because several may share a kernel: their names are what no launcher of MPI programs
/// changes, while some pass the variables of the first node on to all.
pub(super) fn of_ranks(token: &str) -> String {
    let host = rustix::system::uname();
    format!("bpfassay-ranks-{token}-{}", host.nodename().to_string_lossy())
}

/// A socket by a name that no file system has: nothing of it is left, whatever becomes of its
/// process.
///
/// # Errors
/// Those of the system: the name is too long.
pub(super) fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

/// What the agent starts in the place of IOR: the program of its relay.
pub(super) fn program_of_stand(relay: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{relay}/exe"))
}

/// The relay in whose name this program was started as `program`, where it stands in the place of
/// IOR ([`stand`]).
#[must_use]
pub fn relay_of(program: &Path) -> Option<u32> {
    let parts: Vec<&str> = program.to_str()?.split('/').collect();
    match parts.as_slice() {
        ["", "proc", relay, "exe"] if relay.bytes().all(|byte| byte.is_ascii_digit()) => relay.parse().ok(),
        _ => None,
    }
}

/// Stands in the place of IOR, which was to have `arguments`, until that has ended on all nodes.
///
/// # Errors
/// [`NodeError`]; [`NodeError::Problem`] where IOR has failed.
pub fn stand(relay: u32, arguments: impl Iterator<Item = OsString>) -> Result<(), NodeError> {
    let arguments: Vec<String> = arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let summary = arguments.iter().find_map(|argument| argument.strip_prefix(SUMMARY)).map(PathBuf::from);
    let failed = |source| NodeError::Relay(source);
    let cgroup = own_cgroup().map_err(failed)?;
    let directory = std::env::current_dir().map_err(failed)?;
    let name = of_stand(relay);
    // IOR may take as long as it takes; the end of the relay ends this, too.
    match ask(&name, &ToRelay::Stand { arguments, directory, cgroup }, None)? {
        FromRelay::Over { problem: Some(problem), .. } => Err(NodeError::Problem(problem)),
        FromRelay::Over { problem: None, is_first: true } => Ok(()),
        FromRelay::Over { problem: None, is_first: false } => {
            // The agent of each node passes a summary on; the only one is on the first node.
            let Some(path) = summary else { return Ok(()) };
            File::create_new(&path).map(drop).map_err(|source| NodeError::Summary { path, source })
        }
        FromRelay::Join { .. } | FromRelay::NoRun => {
            Err(NodeError::Relay(io::Error::new(io::ErrorKind::InvalidData, "an answer to a rank")))
        }
    }
}

/// Becomes a rank of IOR on this node: joins the cgroup of the run there, enters `directory` and
/// executes `program` with `arguments`. Returns only where that fails.
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

/// Sends `question` to the relay at `name`, and waits for its answer, for ever or for so long.
fn ask(name: &str, question: &ToRelay, patience: Option<Duration>) -> Result<FromRelay, NodeError> {
    let connected = address(name).and_then(|address| UnixStream::connect_addr(&address)).and_then(of_this_user);
    let mut stream = connected.map_err(|source| NodeError::NoRelay { name: name.to_owned(), source })?;
    let answer =
        stream.set_read_timeout(patience).and_then(|()| stream.write_all(&wire::line(question)?)).and_then(|()| {
            let mut line = Vec::new();
            BufReader::new(stream).take(MAX_LOCAL as u64).read_until(b'\n', &mut line)?;
            wire::message(&line)
        });
    answer.map_err(NodeError::Relay)
}

/// `stream`, if it leads to a process of this user: whoever comes first has such a name.
fn of_this_user(stream: UnixStream) -> io::Result<UnixStream> {
    let own = rustix::process::geteuid();
    match rustix::net::sockopt::socket_peercred(&stream)?.uid == own {
        true => Ok(stream),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, "another user has a socket of that name")),
    }
}

/// The cgroup (v2) of this process, from the root of the hierarchy.
fn own_cgroup() -> io::Result<String> {
    let text = std::fs::read_to_string("/proc/self/cgroup")?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::")).filter(|path| path.starts_with('/'));
    own.map(str::to_owned).ok_or_else(|| io::Error::other("this process is in no cgroup of version 2"))
}

/// Moves this process to `cgroup`. Where the hierarchy is mounted nowhere, it is mounted for that,
/// in no mount table, as the agent does.
fn enter(cgroup: &str) -> io::Result<()> {
    let below = Path::new(cgroup.trim_start_matches('/'));
    if !below.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it lies outside of the cgroups of this process"));
    }
    let door = below.join("cgroup.procs");
    for mounted in hierarchies(&std::fs::read_to_string("/proc/self/mountinfo")?) {
        // Another mount may cover it, or be of another cgroup namespace: the cgroup is not there
        // then.
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

/// Where the whole hierarchy of cgroups (v2) is mounted, by `text`, a mountinfo.
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
