// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths on the machine that measures: the guest in which this agent is process 1, or a running
//! system.

use std::{
    env,
    ffi::CString,
    fs,
    fs::File,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use bpfassay_protocol::{job_nodes::Node, layout, message::MountFacts, with_causes};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{
    cgroup,
    error::{Error, Result},
    hierarchy::{self, CgroupHierarchy},
    made::{Made, Record},
    nfs::remove_tree,
    stop_request,
    test_dir::{self, TestDir},
};

/// Holds all files of runs on a running system that are not on the file system under test. It is
/// locked while an agent measures. No other user can write to it ([`test_dir::private`]), so names
/// in it can be trusted.
const WORK_HERE: &str = "/run/bpfassay-here";

/// Paths of programs and directories.
#[derive(Debug)]
pub(crate) struct Environment {
    /// Mount point of the file system under test.
    pub mount: String,
    /// Directory for runs in the mount. Its contents are removed before each run.
    pub test_dir: TestDir,
    /// Directory for all other files of runs.
    pub work: String,
    /// File in which the tracers of this boot cache what they read about the kernel's functions.
    pub symbols: String,
    /// Directory of the cgroup in which the cgroups of workloads are created.
    pub cgroups: String,
    /// Path of that cgroup below the root of the hierarchy; empty for the root.
    pub cgroups_path: String,
    /// The bundled tracer.
    pub tracer: String,
    /// The embedded IOR-compatible engine.
    pub ior: String,
    /// The real IOR, if the machine has it.
    pub external_ior: String,
    /// Which of several nodes the guest is; `None` if it is alone.
    pub node: Option<Node>,
    /// The record of what was made on a running system.
    record: Option<Record>,
    /// The lock is held for as long as runs can be executed.
    _lock: Option<File>,
}

impl Environment {
    /// Describes a guest, which exists for measuring only. The file system under test is mounted at
    /// `mount`; `node` is given if the guest is one of several.
    pub(crate) fn guest(mount: &str, node: Option<Node>) -> Self {
        Self {
            mount: mount.to_owned(),
            test_dir: TestDir::Guest { path: mount.to_owned() },
            work: "/run/bpfassay".to_owned(),
            symbols: "/run/bpfassay-symbols".to_owned(),
            cgroups: hierarchy::USUAL.to_owned(),
            cgroups_path: String::new(),
            tracer: layout::TRACER.to_owned(),
            ior: layout::IOR.to_owned(),
            external_ior: layout::EXTERNAL_IOR.to_owned(),
            node,
            record: None,
            _lock: None,
        }
    }

    /// Prepares a running system: finds programs in `PATH`, makes a cgroup below this process's
    /// own, and a directory in the file system `mount`. [`Environment::leave`] removes both.
    /// Whatever a killed agent left is removed first; the returned messages name what could not be
    /// removed.
    ///
    /// # Errors
    /// Another agent measures on this system, a program is missing, or a directory cannot be made.
    pub(crate) fn here(mount: &MountFacts, external_ior: Option<&str>) -> Result<(Self, Vec<String>)> {
        let (lock, record) = alone()?;
        let problems = record.clear();
        let search = env::var("PATH").unwrap_or_default();
        let find = |name: &str| {
            on_path(&search, name).ok_or_else(|| {
                Error::Order(format!(
                    "there is no program {name} in PATH, which is {search}: install it, or name its directory there"
                ))
            })
        };
        let (tracer, ior) = (find("bpfassay-tracer")?, find("bpfassay-ior")?);
        let name = TestDir::draw_name()?;
        let own = hierarchy::own_cgroup()?;
        let cgroups_path = format!("{}/bpfassay-here-{}", own.trim_end_matches('/'), std::process::id());
        let hierarchy = record.hierarchy();
        let cgroups = hierarchy.directory(&cgroups_path);
        let made = Made {
            mount: mount.path.clone(),
            test_dir: name.to_string_lossy().into_owned(),
            test_dir_inode: None,
            cgroup: if hierarchy.is_own() { cgroups_path.clone() } else { cgroups.clone() },
            cgroup_inode: None,
            detached: hierarchy.is_own(),
        };
        // The directory exists now: this function or `leave` must remove it.
        let test_dir = match make(made, &cgroups, mount, name, &record) {
            Ok(test_dir) => test_dir,
            Err(error) => {
                record.clear();
                return Err(error);
            }
        };
        let environment = Self {
            mount: mount.path.clone(),
            test_dir,
            work: work(),
            symbols: symbols(),
            cgroups,
            cgroups_path,
            tracer,
            ior,
            external_ior: external_ior.unwrap_or(layout::EXTERNAL_IOR).to_owned(),
            node: None,
            record: Some(record),
            _lock: Some(lock),
        };
        Ok((environment, problems))
    }

    /// Returns whether this machine exists for measuring only.
    pub(crate) const fn is_guest(&self) -> bool {
        matches!(self.test_dir, TestDir::Guest { .. })
    }

    /// Watches for reasons to stop early ([`crate::stop_request`]).
    pub(crate) fn watch(&self) -> Result<()> {
        self.record.clone().map_or(Ok(()), |record| stop_request::watch(self.cgroups.clone(), record))
    }

    /// Removes what [`Environment::here`] made.
    pub(crate) fn leave(self) -> Result<()> {
        // Removes as much as possible, even if one step fails.
        let left = [
            cgroup::clear(&self.cgroups),
            self.test_dir.leave(),
            remove_tree(&self.work),
            remove_file(&self.symbols),
            self.record
                .as_ref()
                .map_or(Ok(()), |record| record.remove().map_err(Error::file("remove a file in", WORK_HERE))),
        ];
        left.into_iter().collect()
    }
}

/// Locks this system for this agent. Returns the lock, and the record of what a killed agent has
/// left.
fn alone() -> Result<(File, Record)> {
    let lock = test_dir::private(WORK_HERE)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok((lock, Record::new(WORK_HERE, Arc::new(CgroupHierarchy::open()?)))),
        Err(Errno::WOULDBLOCK) => Err(Error::Order(
            "another bpfassay measures on this system: wait until it has ended, because each would disturb the other's figures"
                .to_owned(),
        )),
        Err(error) => Err(Error::file("lock", WORK_HERE)(error)),
    }
}

/// Removes what a killed agent has left. Returns a message for each part that could not be removed.
///
/// # Errors
/// An agent measures on this system, or the hierarchy of cgroups cannot be reached.
pub(crate) fn clear() -> Result<Vec<String>> {
    let (_lock, record) = alone()?;
    let mut problems = record.clear();
    let removed = [remove_tree(&work()), remove_file(&symbols())];
    problems.extend(removed.into_iter().filter_map(|removed| removed.err().map(|error| with_causes(&error))));
    Ok(problems)
}

/// Returns the directory for files of runs on a running system that are not on the file system
/// under test.
fn work() -> String {
    format!("{WORK_HERE}/runs")
}

/// Returns the file in which tracers on a running system cache what they read about the kernel's
/// functions.
fn symbols() -> String {
    format!("{WORK_HERE}/symbols")
}

/// Removes a file, if it exists.
fn remove_file(path: &str) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Creates the directory of runs and the cgroup, named as in `made`, and records them before and
/// after. `cgroups` is the directory of the cgroup.
fn make(mut made: Made, cgroups: &str, mount: &MountFacts, name: CString, record: &Record) -> Result<TestDir> {
    let write = |made: &Made| record.write(made).map_err(Error::file("record what is made in", WORK_HERE));
    write(&made)?;
    let test_dir = TestDir::here(mount, name)?;
    made.test_dir_inode = test_dir.inode();
    made.cgroup_inode = Some(cgroup::make(cgroups)?);
    write(&made)?;
    Ok(test_dir)
}

/// Returns the first executable file `name` in the directories of `search`, which are separated by
/// colons.
fn on_path(search: &str, name: &str) -> Option<String> {
    let is_program = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
    };
    let directories = search.split(':').filter(|directory| directory.starts_with('/'));
    directories.map(|directory| Path::new(directory).join(name)).find(is_program).map(|path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_where_path_points_and_only_if_they_can_be_executed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("a/tool")).unwrap();
        for (name, mode) in [("b/tool", 0o644), ("c/tool", 0o755), ("d/tool", 0o755)] {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), "").unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let root = directory.path().display();
        let search = format!("relative::{root}/a:{root}/b:{root}/c:{root}/d");
        assert_eq!(on_path(&search, "tool"), Some(format!("{root}/c/tool")));
        assert_eq!(on_path(&search, "other"), None);
    }
}
