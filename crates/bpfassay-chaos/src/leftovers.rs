// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds what a command left behind: processes, files, mounts, cgroups, shared memory.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::command_process::{ProcessLine, marked, signal};

/// How long processes can take to exit after the command, whose death kills them.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many consecutive searches must find no process.
const LOOKS: u32 = 3;
/// How deep cgroups are searched.
const DEPTH: usize = 4;

/// The state before a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateBefore {
    shared_memory: BTreeSet<String>,
    cgroups: BTreeSet<PathBuf>,
    mounts: BTreeSet<String>,
}

impl StateBefore {
    /// Reads what exists now. `root` is the directory of the trial.
    #[must_use]
    pub fn now(root: &Path) -> Self {
        Self { shared_memory: shared_memory(), cgroups: cgroups(), mounts: mounts(root) }
    }

    /// Returns a sentence for each thing that exists now and did not before. `process` is the
    /// command, which has ended. Processes of the trial that still exist are killed.
    #[must_use]
    pub fn left(&self, root: &Path, temporary: &Path, process: u32) -> Vec<String> {
        let mut left: Vec<String> = processes(root).into_iter().map(|found| format!("left behind: {found}")).collect();
        let mut add = |what: &str, name: String| left.push(format!("left behind: {what} {name}"));
        files(temporary).into_iter().for_each(|file| add("the file", file.display().to_string()));
        let now = Self::now(root);
        now.mounts.difference(&self.mounts).for_each(|mount| add("the mount", mount.clone()));
        now.shared_memory.difference(&self.shared_memory).for_each(|name| add("the shared memory", name.clone()));
        // Other users of this machine have cgroups, too, with the numbers of other processes.
        let number = process.to_string();
        let ours = now.cgroups.difference(&self.cgroups).filter(|path| path.to_string_lossy().contains(&number));
        ours.for_each(|path| add("the cgroup", path.display().to_string()));
        left
    }
}

/// Returns the processes of the trial at `root` that do not exit, and kills them.
fn processes(root: &Path) -> Vec<String> {
    let marker = root.display().to_string();
    let since = Instant::now();
    let mut left: Vec<ProcessLine>;
    let mut nobody = 0;
    loop {
        left = marked(&marker);
        // A process in execve(2) has no environment for a moment: the kernel replaces the memory
        // first and writes the strings later. So one search that finds no process proves nothing.
        nobody = if left.is_empty() { nobody + 1 } else { 0 };
        if nobody == LOOKS || since.elapsed() > PATIENCE {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    for process in &left {
        // An error means that the process has exited in the meantime.
        let _ = signal(process.id, rustix::process::Signal::KILL.as_raw());
    }
    let described = |process: ProcessLine| {
        format!("the process {} {}", process.id, process.command.chars().take(120).collect::<String>())
    };
    left.into_iter().map(described).collect()
}

/// Returns every file and directory below `directory`.
#[must_use]
pub fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut all = Vec::new();
    for entry in entries {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.extend(files(&entry.path()));
        }
        all.push(entry.path());
    }
    all
}

fn mounts(root: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let root = root.display().to_string();
    text.lines().filter(|line| line.contains(&root) || line.contains("bpfassay")).map(str::to_owned).collect()
}

fn shared_memory() -> BTreeSet<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("bpfassay") || name.contains("qemu")).collect()
}

fn cgroups() -> BTreeSet<PathBuf> {
    fn below(directory: &Path, depth: usize, found: &mut BTreeSet<PathBuf>) {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry.file_name().to_string_lossy().contains("bpfassay") {
                found.insert(entry.path());
            }
            if depth > 0 {
                below(&entry.path(), depth - 1, found);
            }
        }
    }
    let mut found = BTreeSet::new();
    below(Path::new("/sys/fs/cgroup"), DEPTH, &mut found);
    found
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_planted_process_and_a_planted_file_are_found() {
        let root = tempfile::tempdir().unwrap();
        let temporary = root.path().join("tmp");
        fs::create_dir(&temporary).unwrap();
        let before = StateBefore::now(root.path());
        assert_eq!(before.left(root.path(), &temporary, 1), Vec::<String>::new());
        fs::create_dir(temporary.join("bpfassay-x")).unwrap();
        fs::write(temporary.join("bpfassay-x/initramfs"), "").unwrap();
        let mut child = Command::new("sleep").arg("100").env("TMPDIR", &temporary).spawn().unwrap();
        let left = before.left(root.path(), &temporary, 1).join("\n");
        assert!(left.contains(&format!("the process {} sleep 100", child.id())), "{left}");
        assert!(left.contains("bpfassay-x/initramfs"), "{left}");
        // The child was killed.
        assert!(!child.wait().unwrap().success());
    }
}
