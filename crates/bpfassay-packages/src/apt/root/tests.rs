// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with a mirror that sees as which user apt asks.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::{MetadataExt, PermissionsExt},
    sync::{Arc, Mutex},
    thread,
};

use super::*;
use crate::{
    apt::{FetchOptions, Located, Mirror, NamedBy, Package, PackageOrigin, host_apt::HostArchive},
    cache::Cache,
};

const DEB: &[u8] = b"what a package holds";

/// The paths that were requested, with the user id of the asking process.
type Asked = Arc<Mutex<Vec<(String, u32)>>>;

/// Serves a repository with one package. Returns its address.
fn serve() -> (SocketAddr, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Asked::default());
    let seen = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, seen) = (stream.unwrap(), Arc::clone(&seen));
            thread::spawn(move || answer(stream, &seen));
        }
    });
    (address, asked)
}

fn answer(stream: TcpStream, seen: &Asked) {
    let user = user_of(stream.peer_addr().unwrap());
    let packages = format!(
        "Package: served\nVersion: 1\nArchitecture: amd64\nMaintainer: x <x@example.org>\nDescription: x\n\
         Filename: ./served_1_amd64.deb\nSize: {}\nSHA256: {}\n",
        DEB.len(),
        Digest::of(DEB)
    );
    let release = format!(
        "Codename: x\nSuite: x\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n {} {} Packages\n",
        Digest::of(packages.as_bytes()),
        packages.len()
    );
    let (mut lines, mut stream) = (BufReader::new(stream.try_clone().unwrap()).lines(), stream);
    while let Some(Ok(request)) = lines.next() {
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        let path = request.split(' ').nth(1).unwrap().trim_start_matches(['/', '.']).to_owned();
        let body: Option<&[u8]> = match path.as_str() {
            "Release" => Some(release.as_bytes()),
            "Packages" => Some(packages.as_bytes()),
            "served_1_amd64.deb" | "pool/main/s/served+x_1%253a2~3_amd64.deb" => Some(DEB),
            _ => None,
        };
        seen.lock().unwrap().push((path, user));
        let status = if body.is_some() { "200 OK" } else { "404 Not Found" };
        let body = body.unwrap_or_default();
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).is_err() {
            return;
        }
    }
}

/// Returns the user of the other end of a connection, from /proc/net/tcp.
fn user_of(peer: SocketAddr) -> u32 {
    let SocketAddr::V4(peer) = peer else { panic!("{peer}") };
    let place = format!("{:08X}:{:04X}", u32::from_ne_bytes(peer.ip().octets()), peer.port());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let line = table.lines().find(|line| line.split_whitespace().nth(1) == Some(&place)).unwrap();
    line.split_whitespace().nth(7).unwrap().parse().unwrap()
}

/// Returns the user that apt should use the network as. Needs root, and a host with apt.
fn other_user(apt: &Apt<'_>) -> Option<u32> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root downloads as another user; run this test as root");
        return None;
    }
    let user = match apt.host() {
        Ok(host) if host.settings.iter().all(|line| !line.contains("Proxy")) => host.user.clone(),
        Ok(_) => {
            eprintln!("skipped: this host's apt goes through a proxy");
            return None;
        }
        Err(error) => {
            eprintln!("skipped: {error}");
            return None;
        }
    };
    let text = fs::read_to_string("/etc/passwd").unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("{user}:")))?;
    line.split(':').nth(2).unwrap().parse().ok()
}

/// Creates a cache below a directory that only root can enter, like /root.
fn closed() -> (tempfile::TempDir, Cache) {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let cache = Cache::open(directory.path().join("cache")).unwrap();
    (directory, cache)
}

#[test]
fn indexes_are_fetched_as_another_user() {
    let (address, asked) = serve();
    let (_directory, cache) = closed();
    let apt = Apt::new(&cache, FetchOptions { mirror: Some(format!("http://{address}")), ..FetchOptions::default() });
    let Some(user) = other_user(&apt) else { return };
    let error = apt.root("trixie", &[Arch::X86_64]).unwrap_err();
    assert!(matches!(error, PackagesError::Apt(AptError::Missing { .. })), "{error}");
    let asked = asked.lock().unwrap();
    assert!(asked.iter().any(|(path, _)| path.ends_with("InRelease")), "{asked:?}");
    assert!(asked.iter().all(|(_, by)| *by == user), "{asked:?}, not by {user}");
}

#[test]
fn packages_are_downloaded_as_another_user_and_taken_into_the_cache() {
    let (address, asked) = serve();
    let (_directory, cache) = closed();
    let apt = Apt::new(&cache, FetchOptions::default());
    let Some(user) = other_user(&apt) else { return };
    let directory = cache.root().join("apt/x-amd64");
    let host = HostArchive {
        archive: Mirror { uri: format!("http://{address}/"), by: NamedBy::User },
        ..apt.host().unwrap().clone()
    };
    write_configuration(&directory, "x", &["amd64"], &host).unwrap();
    let sources = format!("deb [trusted=yes arch=amd64] http://{address}/ ./\n");
    fs::write(directory.join("etc/sources.list"), sources).unwrap();
    let output = apt_command(&directory, "apt-get").args(["update", "-q"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    asked.lock().unwrap().clear();

    let release = ReleaseFile::parse("Codename: x\nSuite: x\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n").unwrap();
    let state = IndexState { fetched: 0, release, stale: false, archive: host.archive.uri };
    let root = Root { directory, suite: "x".to_owned(), state };
    let package = |sha256| Package {
        name: "served".parse().unwrap(),
        version: "1".parse().unwrap(),
        architecture: "amd64".parse().unwrap(),
        size: DEB.len() as u64,
        sha256,
    };
    let object = apt.fetch(&root, &[package(Digest::of(DEB))]).unwrap().remove(0);
    assert_eq!(fs::read(&object.path).unwrap(), DEB);
    assert_eq!(fs::metadata(&object.path).unwrap().uid(), 0, "the cache is root's");
    assert_eq!(fs::metadata(&object.path).unwrap().permissions().mode() & 0o777, 0o444);
    let asked = asked.lock().unwrap();
    assert_eq!(*asked, [("served_1_amd64.deb".to_owned(), user)]);
    drop(asked);
    // A file with another hash than asked for is rejected.
    let error = apt.fetch(&root, &[package(Digest::of(b"other"))]).unwrap_err();
    assert!(matches!(error, PackagesError::Mismatch { .. }), "{error}");
    assert!(cache.object(&Digest::of(b"other")).unwrap().is_none());
    assert!(crate::test_support::left_in_tmp(cache.root()).is_empty());
}

/// A package in the served pool, as in a lock file.
fn located(content: &[u8]) -> Located {
    let package = Package {
        name: "served+x".parse().unwrap(),
        version: "1:2~3".parse().unwrap(),
        architecture: "amd64".parse().unwrap(),
        size: content.len() as u64,
        sha256: Digest::of(content),
    };
    Located { path: format!("pool/main/s/{}", package.file_name()), package, snapshot: None }
}

#[test]
fn files_at_known_paths_are_downloaded_without_an_index_and_checked() {
    let (address, asked) = serve();
    let (_directory, cache) = closed();
    let apt = Apt::new(&cache, FetchOptions { mirror: Some(format!("http://{address}")), ..FetchOptions::default() });
    let Some(user) = other_user(&apt) else { return };
    let fetch = |located: Located| {
        let packages = [located];
        let origin = PackageOrigin::Pool { suite: "x", packages: &packages };
        apt.fetch_from(origin, &[packages[0].package.clone()])
    };
    let object = fetch(located(DEB)).unwrap().remove(0);
    assert_eq!(fs::read(&object.path).unwrap(), DEB);
    assert_eq!(*asked.lock().unwrap(), [("pool/main/s/served+x_1%253a2~3_amd64.deb".to_owned(), user)]);
    // The second time, it comes from the cache.
    assert_eq!(fetch(located(DEB)).unwrap().remove(0).path, object.path);
    assert_eq!(asked.lock().unwrap().len(), 1);

    // The mirror's file differs from the locked one: other bytes, or more of them.
    let other = DEB.to_ascii_uppercase();
    for locked in [&other[..], &other[..5]] {
        let error = fetch(located(locked)).unwrap_err();
        assert!(matches!(error, PackagesError::Apt(_)), "{error}");
        assert!(cache.object(&Digest::of(locked)).unwrap().is_none());
    }
    let gone = Located { path: "pool/main/s/gone_1_amd64.deb".to_owned(), ..located(b"gone") };
    let error = fetch(gone).unwrap_err();
    assert!(matches!(error, PackagesError::Apt(AptError::Missing { .. })), "{error}");
    assert!(crate::test_support::left_in_tmp(cache.root()).is_empty());
}
