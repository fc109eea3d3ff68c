// SPDX-License-Identifier: MIT OR Apache-2.0
//! The directory that apt downloads to if root runs it. The user under which apt uses the network
//! can write to it. It is outside the cache, which this user may be unable to enter.
//!
//! That user parses what a mirror sends. Root copies it into the cache once its hash or signature
//! was checked.

#![allow(
    clippy::disallowed_methods,
    reason = "makes a scratch directory that another user of this machine may write into"
)]

use std::{
    env, fs, io,
    os::{
        fd::AsFd,
        unix::fs::{PermissionsExt, chown},
    },
    path::{Path, PathBuf},
    process::Command,
};

use rustix::fs::{Mode, OFlags};

use crate::{
    cache::{Cache, CacheSession, free_space, sweep},
    error::{PackagesError, Result},
};

/// The prefix of these directories' names.
const PREFIX: &str = "bpfassay-apt-";
const PASSWD: &str = "/etc/passwd";
/// Limit on the user list, in bytes.
const MAX_PASSWD: u64 = 16 << 20;

/// A directory in which apt downloads as another user. It is removed when dropped, or by the next
/// sandbox if this process is killed.
#[derive(Debug)]
pub(super) struct AptSandbox {
    user: String,
    session: CacheSession,
}

impl AptSandbox {
    /// Creates a sandbox for `user` with room for `needed` bytes of `what`. Returns `None` if this
    /// process cannot become another user, or if the host's apt is configured not to use one.
    ///
    /// # Errors
    /// - [`PackagesError::DiskFull`]: no directory for temporary files has the room.
    /// - [`PackagesError::Io`]: the sandbox cannot be made.
    pub(super) fn make(cache: &Cache, user: &str, what: &str, needed: u64) -> Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() || user == "root" || user.is_empty() {
            return Ok(None);
        }
        let Some(id) = id_of(user) else {
            tracing::warn!(
                "apt downloads as root: this host has no user {user}, as whom it should (APT::Sandbox::User)"
            );
            return Ok(None);
        };
        let base = base(what, needed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&base, flags, Mode::empty());
        let directory = directory.map_err(|error| PackagesError::io("open", &base)(error.into()))?;
        sweep(directory.as_fd(), &base, PREFIX, false, |dead| cache.keep_abandoned(&files_of(dead)))?;
        let sandbox = Self { user: user.to_owned(), session: CacheSession::begin(directory, &base, PREFIX)? };
        let root = sandbox.session.path();
        let prepare = || {
            fs::set_permissions(root, fs::Permissions::from_mode(0o711))?;
            for (directory, mode) in [(sandbox.files(), 0o700), (sandbox.lists(), 0o755)] {
                fs::create_dir(&directory)?;
                fs::set_permissions(&directory, fs::Permissions::from_mode(mode))?;
            }
            // apt itself gives `lists` to the user, except for the lists that it has checked.
            chown(sandbox.files(), Some(id), None)
        };
        prepare().map_err(PackagesError::io("prepare", root))?;
        Ok(Some(sandbox))
    }

    /// Returns the directory for package files. Only the user can read or write it.
    pub(super) fn files(&self) -> PathBuf {
        files_of(self.session.path())
    }

    /// Gives `file`, which is in the directory for package files, to the user.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if that is not permitted.
    pub(super) fn give(&self, file: &Path) -> Result<()> {
        let given = id_of(&self.user).map_or(Ok(()), |id| chown(file, Some(id), None));
        given.map_err(PackagesError::io("give away", file))
    }

    /// Returns the directory for package indexes.
    pub(super) fn lists(&self) -> PathBuf {
        self.session.path().join("lists")
    }

    /// Makes `command`, an apt program, use the network as the user.
    pub(super) fn confine_download(&self, command: &mut Command) {
        command.args(["-o", &format!("APT::Sandbox::User={}", self.user)]);
    }

    /// Makes `command` use the network as the user, and keep its indexes in the sandbox.
    pub(super) fn confine_update(&self, command: &mut Command) {
        self.confine_download(command);
        command.args(["-o", &format!("Dir::State::lists={}", self.lists().display())]);
    }

    /// Copies the indexes in `known` into the sandbox. apt then downloads only changed ones.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if an index cannot be copied.
    pub(super) fn put_lists(&self, known: &Path) -> Result<()> {
        copy_files(known, &self.lists()).map_err(PackagesError::io("copy", known))
    }

    /// Replaces the indexes in `known`, a directory of the cache, by those of the sandbox.
    ///
    /// # Errors
    /// - [`PackagesError::DiskFull`]: the cache has no space.
    /// - [`PackagesError::Io`]: an index cannot be copied or renamed.
    pub(super) fn take_lists(&self, cache: &Cache, known: &Path) -> Result<()> {
        let new = cache.scratch()?;
        let old = cache.scratch()?;
        let failed = |error| cache.write_error("a package index", 0, known, error);
        copy_files(&self.lists(), new.path()).map_err(failed)?;
        fs::create_dir(new.path().join("partial")).map_err(failed)?;
        fs::set_permissions(new.path(), fs::Permissions::from_mode(0o755)).map_err(failed)?;
        if known.exists() {
            fs::rename(known, old.path().join("lists")).map_err(failed)?;
        }
        fs::rename(new.path(), known).map_err(failed)
    }
}

/// Returns the directory for package files in a sandbox.
fn files_of(sandbox: &Path) -> PathBuf {
    sandbox.join("files")
}

/// Warns if apt used the network as root all the same.
pub(super) fn warn_of_root(stderr: &[u8]) {
    if let Some(line) = String::from_utf8_lossy(stderr).lines().find(|line| line.contains(UNSANDBOXED)) {
        tracing::warn!("apt: {}", line.escape_debug());
    }
}

/// The part of apt's message that tells so.
pub(super) const UNSANDBOXED: &str = "performed unsandboxed as root";

/// Copies the files of a directory, without subdirectories, to another.
fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && entry.file_name() != "lock" {
            let target = to.join(entry.file_name());
            let mut file = fs::File::create_new(&target)?;
            let source = bpfassay_input::open_unlinked(&from.canonicalize()?.join(entry.file_name()))?;
            // apt asks the mirror only for files newer than this.
            let modified = source.metadata()?.modified()?;
            io::copy(&mut &source, &mut file)?;
            file.set_modified(modified)?;
            file.set_permissions(fs::Permissions::from_mode(0o644))?;
        }
    }
    Ok(())
}

/// Returns the first place for temporary files that has room and that every user can reach.
fn base(what: &str, needed: u64) -> Result<PathBuf> {
    let mut fullest: Option<(PathBuf, u64)> = None;
    let places = env::var_os("TMPDIR").map(PathBuf::from).into_iter().chain(["/var/tmp".into(), "/tmp".into()]);
    for place in places {
        let Ok(place) = place.canonicalize() else { continue };
        if !place.ancestors().all(is_open) {
            continue;
        }
        let free = free_space(&place)?;
        if free >= needed {
            return Ok(place);
        }
        if fullest.as_ref().is_none_or(|(_, most)| *most < free) {
            fullest = Some((place, free));
        }
    }
    match fullest {
        Some((path, free)) => Err(PackagesError::DiskFull { what: what.to_owned(), path, needed, free }),
        None => {
            let error = io::Error::new(io::ErrorKind::PermissionDenied, "no place is open to every user");
            Err(PackagesError::io("download to", env::temp_dir())(error))
        }
    }
}

/// Whether every user can pass through the directory.
fn is_open(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0)
}

fn id_of(user: &str) -> Option<u32> {
    let text = bpfassay_input::read_text(Path::new(PASSWD), MAX_PASSWD).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(user)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn root() -> bool {
        let root = rustix::process::geteuid().is_root();
        if !root {
            eprintln!("skipped: only root downloads as another user; run this test as root");
        }
        root
    }

    #[test]
    fn the_user_can_write_where_it_downloads_and_nowhere_else() {
        if !root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("cache")).unwrap();
        let sandbox = AptSandbox::make(&cache, "nobody", "a package", 1).unwrap().unwrap();
        let (files, top) = (sandbox.files(), sandbox.session.path().to_owned());
        assert_eq!(fs::metadata(&files).unwrap().uid(), id_of("nobody").unwrap());
        assert_eq!(fs::metadata(&files).unwrap().mode() & 0o777, 0o700);
        let touch = |path: PathBuf| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=nobody", "--regid=65534", "--clear-groups", "--", "touch"]).arg(path);
            command.output().unwrap().status.success()
        };
        assert!(touch(files.join("x")));
        assert!(!touch(top.join("x")) && !touch(sandbox.lists().join("x")) && !touch(top.join("owner")));
        // Another sandbox spares this one while its owner lives, and removes one without an owner.
        let gone = top.parent().unwrap().join(format!("{PREFIX}gone-{}", std::process::id()));
        fs::create_dir(&gone).unwrap();
        fs::write(gone.join("owner"), "").unwrap();
        let other = AptSandbox::make(&cache, "nobody", "a package", 1).unwrap().unwrap();
        assert!(top.exists() && !gone.exists());
        drop((sandbox, other));
        assert!(!top.exists());
    }

    #[test]
    fn a_host_without_the_user_is_served_as_before() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("cache")).unwrap();
        assert!(AptSandbox::make(&cache, "no-such-user", "a package", 1).unwrap().is_none());
        assert!(AptSandbox::make(&cache, "root", "a package", 1).unwrap().is_none());
        if root() {
            let error = AptSandbox::make(&cache, "nobody", "a package", u64::MAX).unwrap_err();
            assert!(matches!(error, PackagesError::DiskFull { needed: u64::MAX, .. }), "{error}");
        }
    }

    #[test]
    fn indexes_are_exchanged_whole() {
        if !root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("cache")).unwrap();
        let known = cache.root().join("apt/lists");
        fs::create_dir_all(known.join("partial")).unwrap();
        fs::write(known.join("same"), "same").unwrap();
        fs::write(known.join("gone"), "gone").unwrap();
        fs::write(known.join("lock"), "").unwrap();
        let sandbox = AptSandbox::make(&cache, "nobody", "an index", 1).unwrap().unwrap();
        sandbox.put_lists(&known).unwrap();
        let modified = |path: PathBuf| fs::metadata(path).unwrap().modified().unwrap();
        assert_eq!(modified(sandbox.lists().join("same")), modified(known.join("same")));
        fs::remove_file(sandbox.lists().join("gone")).unwrap();
        fs::write(sandbox.lists().join("new"), "new").unwrap();
        // A method of apt could leave a symbolic link.
        std::os::unix::fs::symlink("/etc/shadow", sandbox.lists().join("link")).unwrap();
        sandbox.take_lists(&cache, &known).unwrap();
        let mut names: Vec<_> = fs::read_dir(&known).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["new", "partial", "same"]);
        assert_eq!(fs::read_to_string(known.join("new")).unwrap(), "new");
    }
}
