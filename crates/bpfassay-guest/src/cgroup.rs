// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cgroup (v2) of a workload. It is created for one run and killed as a whole.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, Write},
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, Instant},
};

use bpfassay_protocol::with_causes;
use rustix::{
    event::{PollFd, PollFlags},
    io::Errno,
    process::{Pid, Signal, kill_process},
};

use crate::{
    agent_link::wait_readable,
    error::{Error, Result},
    power_off,
};

/// The longest time that the processes of a killed cgroup are waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A cgroup. [`Cgroup::remove`] removes a cgroup that [`Cgroup::make`] created. After a failure
/// nothing calls `remove`; the cgroup is then removed with its processes when it is dropped.
#[derive(Debug)]
pub(crate) struct Cgroup {
    path: String,
    id: u64,
    events: File,
    /// Whether `drop` removes the cgroup.
    is_own: bool,
}

impl Cgroup {
    /// Creates a cgroup named `name` (no slashes) in the cgroup whose directory is `parent`.
    pub(crate) fn make(parent: &str, name: &str) -> Result<Self> {
        let path = format!("{parent}/{name}");
        make(&path)?;
        match Self::open(path.clone()) {
            Ok(mut made) => {
                made.is_own = true;
                Ok(made)
            }
            Err(error) => {
                // The error that is returned says more.
                let _ = fs::remove_dir(&path);
                Err(error)
            }
        }
    }

    /// Returns the id that `bpf_get_current_cgroup_id` returns for processes in this cgroup.
    pub(crate) const fn id(&self) -> u64 {
        self.id
    }

    /// Limits the number of processes and threads, if the kernel can count them.
    pub(crate) fn limit_processes(&self, most: u32) -> Result<()> {
        // Boots without a tool under test do not do this: the pids controller slows down every
        // fork.
        let parent = Path::new(&self.path).parent().unwrap_or(Path::new("/"));
        let limit = format!("{}/pids.max", self.path);
        if fs::write(parent.join("cgroup.subtree_control"), "+pids").is_err() {
            // The kernel lacks this controller, or the parent cgroup of a running system contains
            // processes.
            return Ok(());
        }
        fs::write(&limit, most.to_string()).map_err(Error::file("write", &limit))
    }

    /// Returns the text of `file` in the cgroup's directory.
    pub(crate) fn read(&self, file: &str) -> Result<String> {
        let path = format!("{}/{file}", self.path);
        fs::read_to_string(&path).map_err(Error::file("read", path))
    }

    pub(crate) fn processes(&self) -> Result<Vec<Pid>> {
        Ok(processes(&self.read("cgroup.procs")?).collect())
    }

    /// Opens the file to which a process writes `0` to join the cgroup.
    pub(crate) fn door(&self) -> Result<File> {
        let path = format!("{}/cgroup.procs", self.path);
        fs::OpenOptions::new().write(true).open(&path).map_err(Error::file("open", path))
    }

    /// Returns whether the cgroup contains any process.
    pub(crate) fn is_populated(&mut self) -> Result<bool> {
        let mut text = String::new();
        self.events
            .rewind()
            .and_then(|()| self.events.read_to_string(&mut text))
            .map_err(Error::file("read", format!("{}/cgroup.events", self.path)))?;
        populated(&text).ok_or_else(|| Error::unexpected(&self.path, "a line `populated 0` or `populated 1`", &text))
    }

    /// Kills every process in the cgroup and waits until they have exited.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let kill = format!("{}/cgroup.kill", self.path);
        let at_once = Path::new(&kill).exists();
        if at_once {
            write(&kill)?;
        } else if self.is_populated()? {
            // Before Linux 5.14: a frozen process does not fork, and SIGKILL reaches it.
            write(&format!("{}/cgroup.freeze", self.path))?;
        }
        while self.is_populated()? {
            if !at_once {
                self.kill_each()?;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            // kernfs raises POLLPRI and POLLERR on every change since the last read.
            if left.is_zero() || wait_readable(&mut [PollFd::new(&self.events, PollFlags::PRI)], Some(left))? == 0 {
                return Err(Error::Order(format!(
                    "the processes in {} are still alive {} s after they were killed",
                    self.path,
                    PATIENCE.as_secs()
                )));
            }
        }
        Ok(())
    }

    /// Opens an existing cgroup.
    fn open(path: String) -> Result<Self> {
        // The inode number of the directory is the id (kernfs, 5.5 and later).
        let id = fs::metadata(&path).map_err(Error::file("look at", &path))?.ino();
        let events = format!("{path}/cgroup.events");
        let events = File::open(&events).map_err(Error::file("open", &events))?;
        Ok(Self { path, id, events, is_own: false })
    }

    fn kill_each(&self) -> Result<()> {
        for pid in self.processes()? {
            match kill_process(pid, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(Error::system(format!("kill process {pid:?}"))(error)),
            }
        }
        Ok(())
    }

    /// Removes the cgroup, which must not contain processes any more.
    pub(crate) fn remove(mut self) -> Result<()> {
        self.is_own = false;
        fs::remove_dir(&self.path).map_err(Error::file("remove cgroup", &self.path))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if !self.is_own {
            return;
        }
        let path = self.path.clone();
        let removed = self.kill().and_then(|()| fs::remove_dir(&path).map_err(Error::file("remove cgroup", path)));
        if let Err(error) = removed {
            power_off::say(&with_causes(&error));
        }
    }
}

/// Creates the cgroup whose directory is `path`. Returns the id.
pub(crate) fn make(path: &str) -> Result<u64> {
    make_anew(path).map_err(Error::file("make cgroup", path))?;
    Ok(fs::metadata(path).map_err(Error::file("look at", path))?.ino())
}

/// Kills all processes in the cgroup at `path` and in those below it, the deepest first.
pub(crate) fn kill_tree(path: &str) -> Result<()> {
    below(path)?.into_iter().try_for_each(|path| Cgroup::open(path)?.kill())
}

/// Removes the cgroup at `path` and those below it, and kills their processes.
pub(crate) fn clear(path: &str) -> Result<()> {
    below(path)?.into_iter().try_for_each(|path| {
        let mut cgroup = Cgroup::open(path)?;
        cgroup.kill()?;
        cgroup.remove()
    })
}

/// Returns the directories of the cgroup at `path` and of those below it, the deepest first.
pub(crate) fn below(path: &str) -> Result<Vec<String>> {
    let mut found = vec![path.to_owned()];
    let mut next = 0;
    while let Some(directory) = found.get(next).cloned() {
        for entry in fs::read_dir(&directory).map_err(Error::file("list", &directory))? {
            let entry = entry.map_err(Error::file("list", &directory))?;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.push(entry.path().display().to_string());
            }
        }
        next += 1;
    }
    found.reverse();
    Ok(found)
}

/// Makes the directory `path`. An empty directory that a killed agent left is removed first.
fn make_anew(path: &str) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_dir(path)?;
            fs::create_dir(path)
        }
        made => made,
    }
}

fn write(path: &str) -> Result<()> {
    File::options().write(true).open(path).and_then(|mut file| file.write_all(b"1")).map_err(Error::file("write", path))
}

/// Returns the value of the line `populated 0|1` of `cgroup.events`.
pub(crate) fn populated(events: &str) -> Option<bool> {
    events.lines().find_map(|line| match line.strip_prefix("populated ") {
        Some("0") => Some(false),
        Some("1") => Some(true),
        _ => None,
    })
}

/// Returns the processes in `cgroup.procs`, except those of other pid namespaces (0).
pub(crate) fn processes(procs: &str) -> impl Iterator<Item = Pid> {
    procs.lines().filter_map(|line| Pid::from_raw(line.parse().ok().filter(|&process| process > 0)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cgroup_of_a_killed_agent_is_made_anew_unless_it_has_processes() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run-1").display().to_string();
        make_anew(&path).unwrap();
        make_anew(&path).unwrap();
        assert!(fs::read_dir(&path).unwrap().next().is_none());
        fs::create_dir(format!("{path}/child")).unwrap();
        assert!(make_anew(&path).is_err());
    }

    /// The directory of this test is not in cgroupfs, so the files of a cgroup are missing.
    #[test]
    fn one_that_cannot_be_used_is_not_left_behind() {
        let parent = tempfile::tempdir().unwrap();
        Cgroup::make(parent.path().to_str().unwrap(), "run-1").unwrap_err();
        assert!(fs::read_dir(parent.path()).unwrap().next().is_none());
    }

    #[test]
    fn whether_it_has_processes_is_read_from_its_events() {
        assert_eq!(populated("populated 1\nfrozen 0\n"), Some(true));
        assert_eq!(populated("frozen 1\npopulated 0\n"), Some(false));
        assert_eq!(populated("frozen 1\n"), None);
    }

    #[test]
    fn processes_are_numbers_above_zero() {
        let pids: Vec<i32> = processes("12\n0\n-1\n345\n").map(|pid| pid.as_raw_nonzero().get()).collect();
        assert_eq!(pids, [12, 345]);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text: String) {
            let _ = populated(&text);
            prop_assert!(processes(&text).count() <= text.lines().count());
        }
    }
}
