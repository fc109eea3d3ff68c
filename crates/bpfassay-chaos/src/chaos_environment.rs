// SPDX-License-Identifier: MIT OR Apache-2.0
//! The environment of a trial: directories, guests, a `PATH` with the stand-in for QEMU, and
//! actions of the host.

use std::{
    fs::{self, Permissions},
    io::{self, Write},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    mount::{MountFlags, UnmountFlags, mount, unmount},
    process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit},
};

use crate::{
    chaos_control::ControlListener,
    chaos_study::{ArtificialTestbed, ChaosError, TrialStudy},
    command_process::signal,
    script::{AgentScript, Rule},
    trial::{Damage, HostAction, WrittenDirectory},
};

/// The name of QEMU's program.
const QEMU: &str = "qemu-system-x86_64";

/// The environment of a trial.
#[derive(Debug)]
pub struct TrialEnvironment {
    directory: tempfile::TempDir,
    testbed: ArtificialTestbed,
    listener: ControlListener,
    qemu: PathBuf,
    stand_in: PathBuf,
    small: Option<PathBuf>,
    filler: Option<PathBuf>,
}

impl TrialEnvironment {
    /// An environment for `study`. `stand_in` is a copy of this program that any user can execute.
    /// `qemu` is the real QEMU.
    ///
    /// # Errors
    /// [`ChaosError`] if a directory, a file or the small file system of the study cannot be
    /// created.
    pub fn new(
        study: &TrialStudy,
        stand_in: &Path,
        qemu: &Path,
        small: Option<WrittenDirectory>,
    ) -> Result<Self, ChaosError> {
        let directory = tempfile::Builder::new().prefix("chaos-").tempdir()?;
        let root = directory.path();
        // QEMU can run as another user.
        fs::set_permissions(root, Permissions::from_mode(0o755))?;
        for (name, mode) in [("bin", 0o755), ("state", 0o1777), ("testbed", 0o755), ("home", 0o700)] {
            fs::create_dir(root.join(name))?;
            fs::set_permissions(root.join(name), Permissions::from_mode(mode))?;
        }
        fs::write(root.join("study.toml"), &study.text)?;
        let testbed = ArtificialTestbed::make(&root.join("testbed"))?;
        let listener = ControlListener::bind(&root.join("state"))?;
        let mut environment = Self {
            testbed,
            listener,
            qemu: qemu.to_owned(),
            stand_in: stand_in.to_owned(),
            small: None,
            filler: None,
            directory,
        };
        for directory in [WrittenDirectory::Output, WrittenDirectory::Temporary, WrittenDirectory::Cache] {
            fs::create_dir(environment.directory(directory))?;
        }
        if let Some(directory) = small {
            let path = environment.directory(directory);
            mount("chaos", &path, "tmpfs", MountFlags::empty(), Some(c"size=8m")).map_err(io::Error::from)?;
            environment.small = Some(path);
        }
        symlink(&environment.stand_in, environment.path("bin").join(QEMU))?;
        Ok(environment)
    }

    /// The root directory, which no other environment uses.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// A directory that the command writes to.
    #[must_use]
    pub fn directory(&self, directory: WrittenDirectory) -> PathBuf {
        self.path(match directory {
            WrittenDirectory::Output => "results",
            WrittenDirectory::Temporary => "tmp",
            WrittenDirectory::Cache => "cache",
        })
    }

    /// The results directory.
    #[must_use]
    pub fn output(&self) -> PathBuf {
        self.directory(WrittenDirectory::Output).join("out")
    }

    /// Sets what the guests do from now on.
    ///
    /// # Errors
    /// The system's error if the script cannot be written.
    pub fn script(&self, rules: &[Rule]) -> io::Result<()> {
        let script = AgentScript { qemu: self.qemu.clone(), state: self.path("state"), rules: rules.to_vec() };
        script.write(&self.path("bin"))
    }

    /// The command in this environment. Output goes to the files `stdout` and `stderr`.
    ///
    /// # Errors
    /// The system's error if the output files cannot be created.
    pub fn command(&self, bpfassay: &Path) -> io::Result<Command> {
        self.dressed(Command::new(bpfassay), "")
    }

    /// Prepares `command` for this environment; the caller adds the arguments. Output goes to the
    /// files `stdout` and `stderr` with `name` appended.
    ///
    /// # Errors
    /// The system's error if the output files cannot be created.
    pub fn dressed(&self, mut command: Command, name: &str) -> io::Result<Command> {
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .current_dir(self.root())
            .env_clear()
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.directory(WrittenDirectory::Temporary))
            .arg("--cache")
            // The cache is a subdirectory: a file that fills the file system lies in the directory
            // above, which would no longer count as a cache.
            .arg(self.directory(WrittenDirectory::Cache).join("bpfassay"))
            .stdin(Stdio::null())
            .stdout(fs::File::create(self.path(&format!("stdout{name}")))?)
            .stderr(fs::File::create(self.path(&format!("stderr{name}")))?);
        Ok(command)
    }

    /// Arguments that start the study with up to `jobs` guests at once.
    #[must_use]
    pub fn begin(&self, jobs: u32) -> Vec<PathBuf> {
        let mut args = vec![PathBuf::from("run"), self.path("study.toml"), "--output".into(), self.output()];
        args.extend(self.guests(jobs));
        args
    }

    /// Arguments that resume the study.
    #[must_use]
    pub fn resume(&self, jobs: u32, again_failed: bool) -> Vec<PathBuf> {
        let mut args = vec![PathBuf::from("run"), "--resume".into(), self.output()];
        if again_failed {
            args.extend(["--again".into(), "failed".into()]);
        }
        args.extend(self.guests(jobs));
        args
    }

    fn guests(&self, jobs: u32) -> Vec<PathBuf> {
        let manifest = self.testbed.manifest.clone();
        vec![
            "--manifest".into(),
            manifest,
            "--accelerator".into(),
            "tcg".into(),
            "--jobs".into(),
            jobs.to_string().into(),
        ]
    }

    /// Returns what the command printed.
    #[must_use]
    pub fn printed(&self) -> Vec<u8> {
        let names = ["stderr", "stdout", "stderr-2", "stdout-2"];
        names.iter().flat_map(|name| fs::read(self.path(name)).unwrap_or_default()).collect()
    }

    /// Executes the action of the host that a guest requests, if there is a request.
    ///
    /// # Errors
    /// The system's error if an action fails, or no reply can be sent to the stand-in.
    pub fn serve(&mut self, actions: &[HostAction], command: u32) -> io::Result<()> {
        let mut asked = None;
        // The guest continues only when the action is done.
        let this =
            &mut HostActions { small: self.small.as_deref(), root: self.directory.path(), filler: &mut self.filler };
        self.listener.serve(|index| {
            asked = actions.get(index);
            asked.map_or(Ok(()), |action| this.perform(action, command))
        })
    }

    /// Applies `action` to the process `command`.
    ///
    /// # Errors
    /// The system's error if the action, such as a mount or a signal, fails.
    pub fn perform(&mut self, action: &HostAction, command: u32) -> io::Result<()> {
        let mut actions =
            HostActions { small: self.small.as_deref(), root: self.directory.path(), filler: &mut self.filler };
        actions.perform(action, command)
    }

    /// Damages a file. Returns the file and its original contents if the caller has to restore it.
    ///
    /// # Errors
    /// The system's error if the file to damage cannot be read or written.
    pub fn damage(&self, damage: Damage) -> io::Result<Option<(PathBuf, Vec<u8>)>> {
        match damage {
            Damage::Image(image, share) => {
                let Some(path) = self.testbed.images.get(image) else { return Ok(None) };
                let whole = fs::read(path)?;
                let mut bytes = whole.clone();
                let at = bytes.len() as u64 * share / 1000;
                if let Some(byte) = usize::try_from(at).ok().and_then(|at| bytes.get_mut(at)) {
                    *byte ^= 1 << (share % 8);
                }
                fs::write(path, bytes)?;
                Ok(Some((path.clone(), whole)))
            }
            Damage::JournalCut(count) => {
                let path = self.output().join("journal.jsonl");
                let whole = fs::read(&path)?;
                // The header stays: a study without one cannot be resumed.
                let header = whole.iter().position(|byte| *byte == b'\n').map_or(whole.len(), |at| at + 1);
                let kept = usize::try_from(count).map_or(header, |count| whole.len().saturating_sub(count).max(header));
                fs::File::options().write(true).open(&path)?.set_len(kept as u64)?;
                Ok(None)
            }
        }
    }

    /// Restores the host.
    ///
    /// # Errors
    /// The system's error if something that was damaged cannot be restored.
    pub fn mend(&mut self) -> io::Result<()> {
        if let Some(filler) = self.filler.take() {
            fs::remove_file(filler)?;
        }
        let qemu = self.path("bin").join(QEMU);
        if !qemu.is_symlink() {
            symlink(&self.stand_in, qemu)?;
        }
        let (logs, aside) = (self.output().join("logs"), self.output().join("logs-aside"));
        if aside.is_dir() {
            if logs.is_file() {
                fs::remove_file(&logs)?;
            }
            if !logs.exists() {
                fs::rename(aside, logs)?;
            }
        }
        Ok(())
    }
}

impl Drop for TrialEnvironment {
    fn drop(&mut self) {
        if let Some(small) = &self.small {
            // A lazy unmount succeeds even if a process still uses the file system.
            let _ = unmount(small, UnmountFlags::DETACH);
        }
    }
}

/// The parts of an environment that actions of the host need.
struct HostActions<'a> {
    small: Option<&'a Path>,
    root: &'a Path,
    filler: &'a mut Option<PathBuf>,
}

impl HostActions<'_> {
    fn perform(&mut self, action: &HostAction, command: u32) -> io::Result<()> {
        let out = self.root.join("results/out");
        match action {
            HostAction::Signal(number, times) => {
                for time in 0..*times {
                    if time > 0 {
                        thread::sleep(Duration::from_millis(50));
                    }
                    signal(command, *number)?;
                }
            }
            HostAction::Pause(ms) => {
                signal(command, Signal::STOP.as_raw())?;
                thread::sleep(Duration::from_millis(*ms));
                signal(command, Signal::CONT.as_raw())?;
            }
            HostAction::Fill => {
                let Some(small) = self.small else { return Ok(()) };
                let path = small.join("filler");
                *self.filler = Some(path.clone());
                let mut file = fs::File::create(path)?;
                let (mut chunk, block) = (vec![0; 64 << 10], 1);
                while chunk.len() >= block {
                    match file.write(&chunk) {
                        Ok(1..) => {}
                        _ => chunk.truncate(chunk.len() / 2),
                    }
                }
            }
            HostAction::Descriptors(most) => {
                let pid = i32::try_from(command).ok().and_then(Pid::from_raw);
                // The hard limit, inherited from this program, stays: not even root can raise it
                // beyond fs.nr_open.
                let limit = Rlimit { current: Some(*most), ..getrlimit(Resource::Nofile) };
                prlimit(pid, Resource::Nofile, limit)?;
            }
            HostAction::NoQemu => fs::remove_file(self.root.join("bin").join(QEMU))?,
            HostAction::NoLogs => {
                fs::rename(out.join("logs"), out.join("logs-aside"))?;
                fs::write(out.join("logs"), "")?;
            }
            HostAction::Plant(place, plant) => plant.put(&out.join(place), &self.root.join("host"))?,
        }
        Ok(())
    }
}
