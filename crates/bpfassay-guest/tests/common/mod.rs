// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the agent as `bpfassay-guest here` on this machine, with a separate file system, cgroups
//! and `/run`. They are in a mount namespace, which only root can make.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints what it skips")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use bpfassay_protocol::{
    frame::Decoder,
    job::{FileSystem, Job, Program, RunSpec, SummarySource, Task, Workload},
    message::{GuestMessage, RunOutcome},
};

/// User id of the attacker, a user without any rights.
pub(crate) const NOBODY: u32 = 65_534;

/// Returns whether this test can run. Prints a message if it cannot.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("SKIPPED: needs root, to mount file systems in a namespace of its own and to act as other users");
    }
    root
}

/// A directory with everything that an agent needs: `mnt` is the mount point, `bin` contains
/// programs.
pub(crate) struct Stage {
    directory: tempfile::TempDir,
    /// Options of the tmpfs under test.
    pub options: String,
}

impl Stage {
    /// Creates a stage with runs that each execute `script`, a line of shell. In `script`,
    /// `{directory}` stands for the run's directory and `{stage}` for the stage's.
    pub(crate) fn new(options: &str, runs: &[&str], script: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("bpfassay-test-").tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let stage = Self { directory, options: options.to_owned() };
        for name in ["mnt", "bin"] {
            fs::create_dir(stage.at(name)).unwrap();
        }
        // The page cache of the machine is left alone, because others use it, too.
        fs::write(stage.at("drop_caches"), "").unwrap();
        for name in ["bin/bpfassay-tracer", "bin/bpfassay-ior"] {
            fs::write(stage.at(name), "#!/bin/sh\n").unwrap();
            fs::set_permissions(stage.at(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let script = script.replace("{stage}", &stage.path().display().to_string());
        let spec = |id: &&str| RunSpec {
            id: (*id).to_owned(),
            probe: "none".parse().unwrap(),
            sampling_interval_ms: None,
            bpf_stats: false,
            tracer_arguments: Vec::new(),
            tool: None,
            until_steady: None,
            workload: Workload {
                program: Program::Path { path: "/bin/sh".to_owned() },
                arguments: vec!["-c".to_owned(), script.clone()],
                summary: SummarySource::Output,
                deadline_ms: Some(600_000),
                ..Workload::default()
            },
        };
        let task = Task::Runs { runs: runs.iter().map(spec).collect() };
        let job = Job::new(FileSystem::Tmpfs { size_mib: 64 }, task);
        fs::write(stage.at("job"), serde_json::to_vec(&job).unwrap()).unwrap();
        stage
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Returns a shell that executes `script` after the mounts have been made. `$agent` in it
    /// starts the agent.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let prologue = r#"set -eu
mount -t tmpfs -o "$options" tmpfs "$stage/mnt"
mount -t tmpfs -o mode=755 tmpfs /run
mount --bind "$stage/drop_caches" /proc/sys/vm/drop_caches
mount -t cgroup2 cgroup2 /sys/fs/cgroup
export PATH="$stage/bin:$PATH"
cgroup=/sys/fs/cgroup/bpfassay-test-$$
mkdir "$cgroup"
# In a cgroup of its own, for all agents of this machine see the same ones.
cat >"$stage/agent" <<END
echo \$\$ >"$cgroup/cgroup.procs"
exec "$program" here --job "$stage/job" --mount "$stage/mnt"
END
agent="sh $stage/agent"
"#;
        let epilogue = r#"
find "$cgroup" -mindepth 1 -type d >"$stage/left-cgroups"
find "$cgroup" -depth -type d -exec rmdir {} \;
"#;
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "/bin/sh", "-c"])
            .arg(format!("{prologue}{script}{epilogue}"))
            .env("stage", self.path())
            .env("options", &self.options)
            .env("program", env!("CARGO_BIN_EXE_bpfassay-guest"))
            .stdin(Stdio::null());
        command
    }

    /// Starts `script` as [`Stage::shell`] describes.
    pub(crate) fn start(&self, script: &str) -> Child {
        self.shell(script).spawn().unwrap()
    }

    /// Asserts that no cgroup is left.
    pub(crate) fn no_cgroup_is_left(&self) {
        assert_eq!(fs::read_to_string(self.at("left-cgroups")).unwrap(), "");
    }

    /// Reads the messages that the agent wrote to `frames`.
    pub(crate) fn messages(&self) -> Vec<GuestMessage> {
        let mut decoder = Decoder::default();
        decoder.push(&fs::read(self.at("frames")).unwrap());
        let mut messages = Vec::new();
        while let Some(message) = decoder.next().unwrap() {
            messages.push(message);
        }
        messages
    }

    pub(crate) fn outcomes(&self) -> Vec<(String, RunOutcome)> {
        let ended = |message| match message {
            GuestMessage::RunEnded { run, outcome } => Some((run, *outcome)),
            _ => None,
        };
        self.messages().into_iter().filter_map(ended).collect()
    }
}
