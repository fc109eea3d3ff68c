// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks between concurrent processes and threads, with messages that name the holder.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::OFlags;

use crate::error::{PackagesError, Result};

/// How often a waiting process reports the holder.
const NOTICE: Duration = Duration::from_secs(30);

/// A lock on one name in the cache, held until dropped.
#[derive(Debug)]
pub struct NameLock {
    /// `None` in a read-only cache without this lock.
    file: Option<File>,
}

impl NameLock {
    /// Makes a shared lock exclusive if it has no other holder. Returns whether it did.
    ///
    /// # Errors
    /// The errors of flock(2).
    pub(super) fn be_alone(&self) -> io::Result<bool> {
        let Some(file) = &self.file else { return Ok(true) };
        match file.try_lock() {
            Ok(()) => Ok(true),
            Err(fs::TryLockError::WouldBlock) => self.share().map(|()| false),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// Makes it a shared lock.
    ///
    /// # Errors
    /// The errors of flock(2).
    pub(super) fn share(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), File::lock_shared)
    }
}

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// One holder.
    Exclusive,
    /// Any number of holders.
    Shared,
}

/// Waits for the lock `path` and takes it, in a cache that can be written to.
///
/// # Errors
/// [`PackagesError::Io`] if the file cannot be created, opened or locked.
pub(super) fn take(path: &Path, mode: Mode) -> Result<NameLock> {
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true);
    let mut file = open(&mut options, path).map_err(PackagesError::io("open the lock", path))?;
    wait(&file, mode, NOTICE, |holder, waited| report(path, holder, waited))
        .map_err(PackagesError::io("lock", path))?;
    if mode == Mode::Exclusive {
        // Tells waiting processes who holds the lock. A full disk must not stop this process.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{} {}", std::process::id(), started(std::process::id())));
    }
    Ok(NameLock { file: Some(file) })
}

/// Waits until the lock `path` is free, in a read-only cache. A lock that does not exist is free.
pub(super) fn await_maker(path: &Path) -> NameLock {
    let Ok(file) = open(File::options().read(true), path) else { return NameLock { file: None } };
    match wait(&file, Mode::Shared, NOTICE, |holder, waited| report(path, holder, waited)) {
        Ok(()) => NameLock { file: Some(file) },
        Err(error) => {
            tracing::debug!("cannot lock {}: {error}", path.display());
            NameLock { file: None }
        }
    }
}

fn open(options: &mut fs::OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32).open(path)
}

fn report(path: &Path, holder: &Holder, waited: Duration) {
    let name = path.file_name().unwrap_or_default().display();
    match holder {
        // The other thread of this process reports its own work.
        Holder::Us => {}
        holder if waited < NOTICE => tracing::info!("waiting for the lock `{name}` of the cache: {holder} has it"),
        holder => {
            tracing::info!(
                "still waiting for the lock {}, for {} s now: {holder} has it",
                path.display(),
                waited.as_secs()
            );
        }
    }
}

/// Locks `file`. While another process or thread holds it, `report` is called with the holder: at
/// once, and every `interval`.
fn wait(file: &File, mode: Mode, interval: Duration, report: impl Fn(&Holder, Duration) + Send) -> io::Result<()> {
    let attempt = match mode {
        Mode::Exclusive => file.try_lock(),
        Mode::Shared => file.try_lock_shared(),
    };
    match attempt {
        Ok(()) => return Ok(()),
        Err(fs::TryLockError::WouldBlock) => {}
        Err(fs::TryLockError::Error(error)) => return Err(error),
    }
    let begun = Instant::now();
    thread::scope(|scope| {
        let (done, waiting) = mpsc::channel::<()>();
        scope.spawn(move || {
            loop {
                report(&Holder::of(file), begun.elapsed());
                if waiting.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        let locked = loop {
            let locked = match mode {
                Mode::Exclusive => file.lock(),
                Mode::Shared => file.lock_shared(),
            };
            match locked {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                locked => break locked,
            }
        };
        drop(done);
        locked
    })
}

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Holder {
    /// Another thread of this process.
    Us,
    /// A process of this machine.
    Process { pid: u32, name: String },
    /// A process in another container or on another machine, or one that the system does not name.
    Unknown,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Us => f.write_str("this process"),
            Self::Process { pid, name } => write!(f, "process {pid} ({name})"),
            Self::Unknown => f.write_str("a process that cannot be named"),
        }
    }
}

impl Holder {
    /// Finds the holder in /proc/locks, or else in the file, if the process that wrote there runs.
    fn of(file: &File) -> Self {
        let written = || {
            let text = bpfassay_input::read_file(file.try_clone().ok()?, 100).ok()?;
            let text = String::from_utf8(text).ok()?;
            let (pid, start) = text.trim_end().split_once(' ')?;
            let pid = pid.parse().ok()?;
            (start.parse() == Ok(started(pid)) && started(pid) != 0).then_some(pid)
        };
        match listed(file).or_else(written) {
            None => Self::Unknown,
            Some(pid) if pid == std::process::id() => Self::Us,
            Some(pid) => {
                let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
                let name = String::from_utf8_lossy(&name).trim_end().to_owned();
                // The holder chose its name: replace control characters.
                let name = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
                Self::Process { pid, name }
            }
        }
    }
}

/// Finds the process that holds a lock on `file` in /proc/locks.
fn listed(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    holder_in(&fs::read_to_string("/proc/locks").ok()?, &place)
}

/// Searches lines such as `1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF`. Lines of waiting
/// processes have `->` before the kind.
fn holder_in(locks: &str, place: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (kind, pid, at) = (fields.next()?, fields.nth(2)?, fields.next()?);
        // 0 means a process of another container.
        (kind == "FLOCK" && at == place).then(|| pid.parse().ok().filter(|&pid| pid > 0))?
    })
}

/// Returns when the process `pid` started, in clock ticks since boot; 0 if it does not exist.
fn started(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The process name can hold anything but ends at the last bracket. The start is the 22nd field.
    let start = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(19)?.parse().ok());
    start.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Command, Stdio},
        sync::Mutex,
    };

    use super::*;

    fn file() -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        (directory, path)
    }

    #[test]
    fn a_process_that_waits_reports_the_holder_at_intervals() {
        let (_directory, path) = file();
        File::create(&path).unwrap();
        let mut other = Command::new("flock")
            .arg(&path)
            .args(["sh", "-c", "echo held; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        io::BufRead::read_line(&mut io::BufReader::new(other.stdout.take().unwrap()), &mut String::new()).unwrap();
        let pid = other.id();
        let (reported, stdin) = (Mutex::new(Vec::new()), Mutex::new(other.stdin.take()));
        let file = File::open(&path).unwrap();
        wait(&file, Mode::Exclusive, Duration::from_millis(20), |holder, waited| {
            let mut reported = reported.lock().unwrap();
            reported.push((holder.clone(), waited));
            if reported.len() == 3 {
                stdin.lock().unwrap().take();
            }
        })
        .unwrap();
        other.wait().unwrap();
        let reported = reported.into_inner().unwrap();
        assert!(reported.len() >= 3);
        assert_eq!(reported[0].0, Holder::Process { pid, name: "flock".to_owned() });
        assert!(reported[2].1 >= Duration::from_millis(40), "{reported:?}");
    }

    #[test]
    fn another_thread_of_ours_is_no_other_bpfassay() {
        let (_directory, path) = file();
        let held = take(&path, Mode::Exclusive).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(&format!("{} ", std::process::id())), "{text}");
        let file = File::open(&path).unwrap();
        assert_eq!(Holder::of(&file), Holder::Us);
        let (reported, held) = (Mutex::new(Vec::new()), Mutex::new(Some(held)));
        wait(&file, Mode::Shared, Duration::from_millis(1), |holder, _| {
            reported.lock().unwrap().push(holder.clone());
            held.lock().unwrap().take();
        })
        .unwrap();
        assert_eq!(reported.into_inner().unwrap()[0], Holder::Us);
    }

    #[test]
    fn what_died_with_the_lock_is_not_named_as_its_holder() {
        let (_directory, path) = file();
        // The process id is ours, but the start is another process's.
        fs::write(&path, format!("{} 1\n", std::process::id())).unwrap();
        assert_eq!(Holder::of(&File::open(&path).unwrap()), Holder::Unknown);
        fs::write(&path, [0xff; 200]).unwrap();
        assert_eq!(Holder::of(&File::open(&path).unwrap()), Holder::Unknown);
        fs::write(&path, format!("{} {}\n", std::process::id(), started(std::process::id()))).unwrap();
        assert_eq!(Holder::of(&File::open(&path).unwrap()), Holder::Us);
    }

    #[test]
    fn locks_of_the_system_are_read_as_it_writes_them() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fe:00:5678 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 99 fe:00:91 0 EOF\n\
                     3: FLOCK  ADVISORY  READ  0 fe:00:92 0 EOF\nnonsense\n";
        assert_eq!(holder_in(locks, "fe:00:5678"), Some(1234));
        assert_eq!(holder_in(locks, "fe:00:91"), None);
        assert_eq!(holder_in(locks, "fe:00:92"), None);
    }
}
