// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's NFS server exporting a tmpfs, and a mount of that export, over the loopback
//! interface or by the nodes of a job. No user-space daemons are needed.

pub(crate) mod channel;
pub(crate) mod localio;
pub(crate) mod rpc;
mod services;
pub(crate) mod upcall;

use std::{
    fs::{self, OpenOptions},
    io::{Read, Write},
    net::Ipv4Addr,
    thread,
    time::Duration,
};

use bpfassay_protocol::{
    job::{Nfs, NfsVersion},
    job_nodes::Node,
};
use channel::Export;
use rpc::Exported;
use services::{MOUNT_PORT, Services};

use crate::{
    agent_link::Link,
    error::{Error, Result},
    steps::{Steps, boottime_ns},
    system::{mount_with, read, write},
};

/// The directory that the server exports.
pub(crate) const EXPORT: Export<'static> = Export { path: "/srv" };

pub(crate) const MOUNT_POINT: &str = "/mnt/nfs";

const PORT: u16 = 2049;

/// Largest transfer, in bytes. It is the same on every kernel and memory size, because figures
/// would not be comparable otherwise.
const BLOCK_SIZE: u32 = 1 << 20;

/// Largest NFSv3 file handle, in bytes.
const HANDLE_SIZE: usize = 64;

/// The earliest time at which a server of NFSv4 can meet its first client, in nanoseconds since
/// boot. `cl_time` is the second since boot, as of the last tick, at which the server last heard of
/// a client; 0 marks an expired client (`is_client_expired`, fs/nfsd/nfs4state.c). A client of the
/// first second would therefore count as expired for good, and mounting would never end.
const FIRST_CLIENT_NS: u64 = 1_100_000_000;

/// Starts the server and mounts the export at [`MOUNT_POINT`]. Returns whether LOCALIO is in use;
/// `None` if this kernel has no LOCALIO.
pub(crate) fn bring_up(nfs: &Nfs, link: &Link, steps: &mut Steps) -> Result<Option<bool>> {
    serve(nfs, Ipv4Addr::LOCALHOST, steps)?;
    localio::set(nfs.localio, link)?;
    mount(&NfsMount::of(nfs.version, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST), "alone", steps)
}

/// Starts the server for clients that reach it at `address`.
pub(crate) fn serve(nfs: &Nfs, address: Ipv4Addr, steps: &mut Steps) -> Result<()> {
    mount_with("tmpfs", EXPORT.path, "tmpfs", &format!("size={}m,mode=0777", nfs.size_mib))?;
    mount_with("nfsd", "/proc/fs/nfsd", "nfsd", "")?;
    mount_with("rpc_pipefs", upcall::PIPES, "rpc_pipefs", "")?;
    upcall::start(EXPORT)?;
    steps.ended("nfs caches")?;
    // The services must start before nfsd and lockd create their listeners, which both register
    // with the port mapper.
    let services = (nfs.version == NfsVersion::V3).then(|| Services::start(address)).transpose()?;
    write("/proc/fs/nfsd/max_block_size", &format!("{BLOCK_SIZE}\n"))?;
    choose_version(nfs.version)?;
    write("/proc/fs/nfsd/portlist", &format!("tcp {PORT}\n"))?;
    steps.ended("nfs listeners")?;
    write("/proc/fs/nfsd/threads", &format!("{}\n", nfs.threads))?;
    steps.ended("nfs server")?;
    if nfs.version != NfsVersion::V3 {
        end_grace()?;
        thread::sleep(until_first_client(boottime_ns()?));
        steps.ended("nfs first second")?;
    }
    if let Some(services) = services {
        services.export(Exported { path: EXPORT.path.to_owned(), handle: root_handle()? });
    }
    Ok(())
}

/// Mounts the export of another guest at [`MOUNT_POINT`], on `node`. Returns the same as
/// [`bring_up`].
pub(crate) fn mount_of_server(nfs: &Nfs, node: Node, steps: &mut Steps) -> Result<Option<bool>> {
    mount_with("rpc_pipefs", upcall::PIPES, "rpc_pipefs", "")?;
    let server = Node::server(node.count).address();
    mount(&NfsMount::of(nfs.version, server, node.address()), &node.host_name(), steps)
}

/// Mounts, and makes the first write as `client`.
fn mount(mount: &NfsMount, client: &str, steps: &mut Steps) -> Result<Option<bool>> {
    mount_with(&mount.source, MOUNT_POINT, mount.file_system, &mount.options)?;
    steps.ended("nfs mount")?;
    let localio = localio::in_use(MOUNT_POINT, client)?;
    steps.ended("nfs first write")?;
    Ok(localio)
}

/// Returns how long a server of NFSv4 still has to wait, `now` nanoseconds after boot.
const fn until_first_client(now: u64) -> Duration {
    Duration::from_nanos(FIRST_CLIENT_NS.saturating_sub(now))
}

/// Ends the server's grace period for clients of an earlier instance. If the client tracker has
/// reported no clients, the kernel has usually ended the grace period already, and refuses to end
/// it twice.
fn end_grace() -> Result<()> {
    const PATH: &str = "/proc/fs/nfsd/v4_end_grace";
    if read(PATH)? == "Y" { Ok(()) } else { write(PATH, "Y\n") }
}

/// Makes the server serve exactly the protocol under test.
fn choose_version(version: NfsVersion) -> Result<()> {
    const PATH: &str = "/proc/fs/nfsd/versions";
    write(PATH, &versions(&read(PATH)?, version))
}

/// Returns the text to write to `/proc/fs/nfsd/versions`, given the text that it shows (`-2 +3 +4
/// -4.0 +4.1 +4.2`): every version that the kernel has, switched on or off. Without versions 2 and
/// 3 the server needs no lockd, which would need a port mapper.
pub(crate) fn versions(shown: &str, version: NfsVersion) -> String {
    let wanted: &[&str] = match version {
        NfsVersion::V3 => &["3"],
        NfsVersion::V41 => &["4", "4.1"],
        NfsVersion::V42 => &["4", "4.1", "4.2"],
    };
    let versions = shown.split_whitespace().filter_map(|field| {
        let name = field.strip_prefix(['+', '-'])?;
        // `4` switches the minor versions that are still on. No study uses `4.0` alone.
        Some(format!("{}{name}", if wanted.contains(&name) { '+' } else { '-' }))
    });
    let mut line = versions.collect::<Vec<_>>().join(" ");
    line.push('\n');
    line
}

/// The arguments of mount(2).
#[derive(Debug, PartialEq, Eq)]
struct NfsMount {
    source: String,
    file_system: &'static str,
    options: String,
}

impl NfsMount {
    /// Returns the arguments that mount `server`'s export on `client`.
    fn of(version: NfsVersion, server: Ipv4Addr, client: Ipv4Addr) -> Self {
        match version {
            // There is no file locking (`nolock`): IOR takes no locks, and the lock manager's
            // client would need a status daemon. The mount's options show it as `local_lock=all`.
            NfsVersion::V3 => Self {
                source: format!("{server}:{}", EXPORT.path),
                file_system: "nfs",
                options: format!(
                    "vers=3,addr={server},proto=tcp,port={PORT},mountaddr={server},mountproto=tcp,mountvers=3,\
                     mountport={MOUNT_PORT},nolock,hard,rsize={BLOCK_SIZE},wsize={BLOCK_SIZE}"
                ),
            },
            NfsVersion::V41 | NfsVersion::V42 => Self {
                source: format!("{server}:/"),
                file_system: "nfs4",
                options: format!(
                    "vers={version},addr={server},clientaddr={client},proto=tcp,port={PORT},sec=sys,hard,\
                     rsize={BLOCK_SIZE},wsize={BLOCK_SIZE}"
                ),
            },
        }
    }
}

/// Asks the server for the file handle of the export's root.
fn root_handle() -> Result<Vec<u8>> {
    const PATH: &str = "/proc/fs/nfsd/filehandle";
    let question = format!("{} {} {HANDLE_SIZE}\n", channel::DOMAIN, EXPORT.path);
    let mut answer = String::new();
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(PATH)
        .and_then(|mut file| {
            file.write_all(question.as_bytes())?;
            file.read_to_string(&mut answer)
        })
        .map_err(Error::file("ask for a file handle at", PATH))?;
    channel::decode(answer.trim_end().as_bytes())
        .filter(|handle| !handle.is_empty() && handle.len() <= HANDLE_SIZE)
        .ok_or_else(|| Error::unexpected(PATH, format!("a file handle of 1 to {HANDLE_SIZE} bytes"), &answer))
}

/// Removes `path` and everything in it, if it exists.
pub(crate) fn remove_tree(path: &str) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::file("remove", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_name_version_ports_and_sizes() {
        let own = Ipv4Addr::LOCALHOST;
        let v42 = NfsMount::of(NfsVersion::V42, own, own);
        assert_eq!((v42.source.as_str(), v42.file_system), ("127.0.0.1:/", "nfs4"));
        assert_eq!(
            v42.options,
            "vers=4.2,addr=127.0.0.1,clientaddr=127.0.0.1,proto=tcp,port=2049,sec=sys,hard,rsize=1048576,wsize=1048576"
        );
        let v3 = NfsMount::of(NfsVersion::V3, own, own);
        assert_eq!((v3.source.as_str(), v3.file_system), ("127.0.0.1:/srv", "nfs"));
        assert!(v3.options.contains("mountport=20048,nolock"), "{}", v3.options);
        let node = Node { number: 2, count: 4 };
        let of_node = NfsMount::of(NfsVersion::V42, Node::server(4).address(), node.address());
        assert_eq!(of_node.source, "192.0.2.1:/");
        assert!(of_node.options.starts_with("vers=4.2,addr=192.0.2.1,clientaddr=192.0.2.3,"), "{}", of_node.options);
    }

    #[test]
    fn no_client_comes_in_the_first_second() {
        for now in [0, 700_000_000, 999_999_999] {
            let met = Duration::from_nanos(now) + until_first_client(now);
            assert!(met > Duration::from_secs(1) && met < Duration::from_secs(2), "{now}");
        }
        assert_eq!(until_first_client(3_000_000_000), Duration::ZERO);
    }

    #[test]
    fn exactly_the_version_under_test_is_served() {
        let old = "-2 +3 +4 +4.0 +4.1 +4.2";
        assert_eq!(versions(old, NfsVersion::V42), "-2 -3 +4 -4.0 +4.1 +4.2\n");
        assert_eq!(versions(old, NfsVersion::V41), "-2 -3 +4 -4.0 +4.1 -4.2\n");
        assert_eq!(versions(old, NfsVersion::V3), "-2 +3 -4 -4.0 -4.1 -4.2\n");
        assert_eq!(versions("+3 +4 +4.1 +4.2", NfsVersion::V42), "-3 +4 +4.1 +4.2\n");
    }
}
