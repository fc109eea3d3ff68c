// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records what an agent creates on a running system, in a place where only its user can write. The
//! next agent removes what a killed agent left.

use std::{
    ffi::CString,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use bpfassay_protocol::with_causes;

use crate::{cgroup, hierarchy::CgroupHierarchy, tree};

/// Everything that outlives a killed agent. A part without an inode was about to be made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Made {
    /// Mount point of the file system under test.
    pub mount: String,
    /// Name of the directory of runs in the mount.
    pub test_dir: String,
    /// Inode of the directory of runs.
    pub test_dir_inode: Option<u64>,
    /// Directory of the cgroup in which the cgroups of workloads are created.
    pub cgroup: String,
    /// Inode of the cgroup's directory.
    pub cgroup_inode: Option<u64>,
    /// Whether [`Self::cgroup`] is a path from the root of a hierarchy without a mount.
    #[serde(default)]
    pub detached: bool,
}

/// The file that holds the record, and the hierarchy that contains the recorded cgroup.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    file: PathBuf,
    hierarchy: Arc<CgroupHierarchy>,
}

impl Record {
    /// Creates a record in `directory`, which is locked and closed to other users.
    pub(crate) fn new(directory: &str, hierarchy: Arc<CgroupHierarchy>) -> Self {
        Self { file: Path::new(directory).join("made.json"), hierarchy }
    }

    /// Returns the hierarchy in which cgroups are made.
    pub(crate) fn hierarchy(&self) -> &CgroupHierarchy {
        &self.hierarchy
    }

    /// Writes the whole record.
    pub(crate) fn write(&self, made: &Made) -> io::Result<()> {
        let new = self.file.with_extension("new");
        fs::write(&new, serde_json::to_vec(made)?)?;
        fs::rename(&new, &self.file)
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the record, and what the agent that wrote it left. Returns a message for each part
    /// that could not be removed.
    pub(crate) fn clear(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut done = |what: String, result: Result<(), String>| {
            if let Err(error) = result {
                problems.push(format!("could not remove {what}, which an agent left that was killed: {error}"));
            }
        };
        let read = fs::read(&self.file).map(|text| serde_json::from_slice::<Made>(&text));
        match read {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return problems,
            Err(error) => done(format!("what {} names", self.file.display()), Err(error.to_string())),
            Ok(Err(error)) => done(format!("what {} names", self.file.display()), Err(error.to_string())),
            Ok(Ok(made)) => {
                // The cgroup goes first: its processes can write into the directory.
                done(made.cgroup.clone(), self.clear_cgroup(&made));
                let test_dir = format!("{}/{}", made.mount, made.test_dir);
                done(test_dir, clear_test_dir(&made).map_err(|error| error.to_string()));
            }
        }
        if let Err(error) = self.remove() {
            problems.push(format!("could not remove {}: {error}", self.file.display()));
        }
        problems
    }

    fn clear_cgroup(&self, made: &Made) -> Result<(), String> {
        let directory = match made.detached {
            true if made.cgroup.starts_with('/') && !made.cgroup.contains("/../") => {
                self.hierarchy.directory(&made.cgroup)
            }
            true => return Err("that is no path of a cgroup".to_owned()),
            false => made.cgroup.clone(),
        };
        match fs::symlink_metadata(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(facts) if made.cgroup_inode.is_none_or(|inode| inode == facts.ino()) => {
                cgroup::clear(&directory).map_err(|error| with_causes(&error))
            }
            // The cgroup now belongs to somebody else.
            Ok(_) => Ok(()),
        }
    }
}

fn clear_test_dir(made: &Made) -> io::Result<()> {
    let name = CString::new(made.test_dir.as_str())?;
    if made.test_dir.is_empty() || made.test_dir.contains('/') {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "that is no name of a directory"));
    }
    let (parent, directory) = match tree::open(&made.mount).and_then(|parent| {
        let directory = tree::open_at(&parent, &name)?;
        Ok((parent, directory))
    }) {
        // The file system was unmounted or the directory removed since.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let facts = directory.metadata()?;
    match made.test_dir_inode {
        Some(inode) if inode == facts.ino() && facts.uid() == rustix::process::geteuid().as_raw() => {
            tree::empty(&directory)?;
        }
        // This is another directory now, and must not be removed.
        Some(_) => return Ok(()),
        // No run has used the directory.
        None => {}
    }
    tree::remove_at(&parent, &name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_directory(directory: &Path) -> Record {
        Record::new(&directory.display().to_string(), Arc::new(CgroupHierarchy::at(directory)))
    }

    /// Creates a record in a new directory, of a test directory that contains a file.
    fn recorded() -> (tempfile::TempDir, Record, Made) {
        let directory = tempfile::tempdir().unwrap();
        let mount = directory.path().join("mount");
        fs::create_dir_all(mount.join("test_dir/run")).unwrap();
        fs::write(mount.join("test_dir/run/file"), "x").unwrap();
        let made = Made {
            mount: mount.display().to_string(),
            test_dir: "test_dir".to_owned(),
            test_dir_inode: Some(fs::metadata(mount.join("test_dir")).unwrap().ino()),
            cgroup: directory.path().join("none").display().to_string(),
            cgroup_inode: Some(1),
            detached: false,
        };
        let record = in_directory(directory.path());
        (directory, record, made)
    }

    #[test]
    fn what_was_left_goes_with_its_record() {
        let (directory, record, made) = recorded();
        record.write(&made).unwrap();
        assert!(record.clear().is_empty());
        assert!(!directory.path().join("mount/test_dir").exists());
        assert!(!directory.path().join("made.json").exists());
        assert!(record.clear().is_empty());
    }

    #[test]
    fn a_directory_that_took_the_name_is_left_alone() {
        let (directory, record, made) = recorded();
        record.write(&Made { test_dir_inode: made.test_dir_inode.map(|inode| inode + 1), ..made.clone() }).unwrap();
        assert!(record.clear().is_empty());
        assert!(directory.path().join("mount/test_dir/run/file").exists());
        // A directory that was about to be made is only removed if it is empty.
        record.write(&Made { test_dir_inode: None, ..made.clone() }).unwrap();
        assert_eq!(record.clear().len(), 1);
        assert!(directory.path().join("mount/test_dir/run/file").exists());
        record.write(&Made { test_dir: "../mount/test_dir".to_owned(), ..made }).unwrap();
        assert_eq!(record.clear().len(), 1);
        assert!(directory.path().join("mount/test_dir/run/file").exists());
    }

    #[test]
    fn a_record_that_cannot_be_read_is_reported_once() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("made.json"), "{}").unwrap();
        let record = in_directory(directory.path());
        assert_eq!(record.clear().len(), 1);
        assert!(record.clear().is_empty());
    }
}
