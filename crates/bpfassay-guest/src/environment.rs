// SPDX-License-Identifier: MIT OR Apache-2.0
//! The paths on the machine that measures: the guest in which this agent is process 1, or a running system.

use std::{
    env,
    ffi::CString,
    fs,
    fs::File,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use bpfassay_protocol::{layout, message::MountFacts};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{
    cgroup,
    error::{Error, Result},
    made::{Made, Record},
    nfs::remove_tree,
    stop, system,
    test_dir::{self, TestDir},
};

/// Where cgroup2 is mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// All files of runs on a running system that are not on the file system under test; locked while an agent measures. Only this user
/// can write there ([`test_dir::private`]), so names in it can be trusted.
const WORK_HERE: &str = "/run/bpfassay-here";

/// Paths of programs and directories.
#[derive(Debug)]
pub(crate) struct Environment {
    /// Mount point of the file system under test.
    pub mount: String,
    /// Directory in it for runs alone: its contents are removed before each run.
    pub test_dir: TestDir,
    /// Directory for everything else of runs.
    pub work: String,
    /// Where tracers of this boot cache what they read about the kernel's functions.
    pub symbols: String,
    /// Directory of the cgroup in which those of workloads are created.
    pub cgroups: String,
    /// The bundled tracer.
    pub tracer: String,
    /// The embedded IOR-compatible engine.
    pub ior: String,
    /// The real IOR, where there is one.
    pub external_ior: String,
    /// The record of what was made on a running system.
    record: Option<Record>,
    /// Held for as long as runs may be executed.
    _lock: Option<File>,
}

impl Environment {
    /// A guest that exists for measuring alone, with the file system under test at `mount`.
    pub(crate) fn guest(mount: &str) -> Self {
        Self {
            mount: mount.to_owned(),
            test_dir: TestDir::Guest { path: mount.to_owned() },
            work: "/run/bpfassay".to_owned(),
            symbols: "/run/bpfassay-symbols".to_owned(),
            cgroups: CGROUPS.to_owned(),
            tracer: layout::TRACER.to_owned(),
            ior: layout::IOR.to_owned(),
            external_ior: layout::EXTERNAL_IOR.to_owned(),
            record: None,
            _lock: None,
        }
    }

    /// A running system: programs as `PATH` finds them, a cgroup below this process's own, and a directory in the file
    /// system `mount`. [`Environment::leave`] removes what was made. What a killed agent left is removed first; the text that is
    /// returned names what could not be removed of that.
    ///
    /// # Errors
    /// Another agent measures on this system, a program is missing, or a directory cannot be made.
    pub(crate) fn here(mount: &MountFacts, external_ior: Option<&str>) -> Result<(Self, Vec<String>)> {
        let lock = test_dir::private(WORK_HERE)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::Order(
                    "another bpfassay measures on this system: wait until it has ended, because each would disturb the other's figures"
                        .to_owned(),
                ));
            }
            Err(error) => return Err(Error::file("lock", WORK_HERE)(error)),
        }
        let record = Record::new(WORK_HERE);
        let problems = record.clear();
        let search = env::var("PATH").unwrap_or_default();
        let find = |name: &str| {
            on_path(&search, name).ok_or_else(|| {
                Error::Order(format!(
                    "there is no program {name} in PATH, which is {search}: install it, or name its directory there"
                ))
            })
        };
        let own = system::read("/proc/self/cgroup")?;
        let own = own_cgroup(&own).ok_or_else(|| {
            Error::unexpected("/proc/self/cgroup", "a line `0::/…`, as where cgroup v2 is mounted", &own)
        })?;
        let (tracer, ior) = (find("bpfassay-tracer")?, find("bpfassay-ior")?);
        let name = TestDir::draw_name()?;
        let cgroups = format!("{CGROUPS}{}/bpfassay-here-{}", own.trim_end_matches('/'), std::process::id());
        let made = Made {
            mount: mount.path.clone(),
            test_dir: name.to_string_lossy().into_owned(),
            test_dir_inode: None,
            cgroup: cgroups.clone(),
            cgroup_inode: None,
        };
        // From here on, `leave` must remove it, or this function.
        let test_dir = match make(made, mount, name, &record) {
            Ok(test_dir) => test_dir,
            Err(error) => {
                record.clear();
                return Err(error);
            }
        };
        let environment = Self {
            mount: mount.path.clone(),
            test_dir,
            work: format!("{WORK_HERE}/runs"),
            symbols: format!("{WORK_HERE}/symbols"),
            cgroups,
            tracer,
            ior,
            external_ior: external_ior.unwrap_or(layout::EXTERNAL_IOR).to_owned(),
            record: Some(record),
            _lock: Some(lock),
        };
        Ok((environment, problems))
    }

    /// Whether this machine exists for measuring alone.
    pub(crate) const fn is_guest(&self) -> bool {
        matches!(self.test_dir, TestDir::Guest { .. })
    }

    /// Watches for reasons to stop early ([`crate::stop`]).
    pub(crate) fn watch(&self) -> Result<()> {
        self.record.clone().map_or(Ok(()), |record| stop::watch(self.cgroups.clone(), record))
    }

    /// Removes what [`Environment::here`] made.
    pub(crate) fn leave(self) -> Result<()> {
        // As much as possible, even where a step fails.
        let left = [
            cgroup::clear(&self.cgroups),
            self.test_dir.leave(),
            remove_tree(&self.work),
            remove_tree(&self.symbols),
            self.record
                .as_ref()
                .map_or(Ok(()), |record| record.remove().map_err(Error::file("remove a file in", WORK_HERE))),
        ];
        left.into_iter().collect()
    }
}

/// Makes the directory of runs and the cgroup as `made` names them, and records them before and after.
fn make(mut made: Made, mount: &MountFacts, name: CString, record: &Record) -> Result<TestDir> {
    let write = |made: &Made| record.write(made).map_err(Error::file("record what is made in", WORK_HERE));
    write(&made)?;
    let test_dir = TestDir::here(mount, name)?;
    made.test_dir_inode = test_dir.inode();
    made.cgroup_inode = Some(cgroup::make(&made.cgroup)?);
    write(&made)?;
    Ok(test_dir)
}

/// The first executable file `name` in the directories of `search`, which are separated by colons.
fn on_path(search: &str, name: &str) -> Option<String> {
    let is_program = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
    };
    let directories = search.split(':').filter(|directory| directory.starts_with('/'));
    directories.map(|directory| Path::new(directory).join(name)).find(is_program).map(|path| path.display().to_string())
}

/// The cgroup (v2) in `/proc/self/cgroup`.
pub(crate) fn own_cgroup(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::")).filter(|path| path.starts_with('/'))
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

    #[test]
    fn the_own_cgroup_is_read_from_the_line_of_version_2() {
        assert_eq!(own_cgroup("0::/system.slice/x.service\n"), Some("/system.slice/x.service"));
        assert_eq!(own_cgroup("1:name=systemd:/a\n0::/\n"), Some("/"));
        assert_eq!(own_cgroup("1:cpu:/a\n"), None);
    }
}
