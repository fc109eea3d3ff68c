// SPDX-License-Identifier: MIT OR Apache-2.0
//! A room: the environment of a trial, together with files of a host.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs, io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use super::{
    victims::{MARK, Victims, give},
    whole,
    workshop::Workshop,
};
use crate::{
    chaos_environment::TrialEnvironment,
    chaos_study::ChaosError,
    leftovers::StateBefore,
    outcome_check,
    trial::{CommandEnd, HostAction, TrialResult, WrittenDirectory},
};

/// Time after which a command that is idle is killed. A command that waits for a pipe never ends.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a command must be idle to count as waiting. A busy command on a loaded host can take
/// longer, up to [`MOST`].
const IDLE: Duration = Duration::from_secs(20);
/// How long a command can take in any case.
const MOST: Duration = Duration::from_secs(600);
/// How often the command is polled.
const PERIOD: Duration = Duration::from_millis(5);
/// The user who runs the command if root makes the trial and another user is drawn.
pub const USER: u32 = 1000;

/// Files of the host: the files of a kernel, files next to a results directory, and files in a
/// checkout.
const HOST: &[&str] = &[
    "file",
    "directory/file",
    "directory/journal.jsonl",
    "directory/results.json",
    "lib/modules/6.9.9-host/vmlinuz",
    "lib/modules/6.9.9-host/modules.builtin",
    "lib/modules/6.9.9-host/kernel/fs/victim.ko",
    "boot/vmlinuz-6.9.9-host",
    "boot/config-6.9.9-host",
    "git/config",
];
/// Names that the command can create in the room's directory.
const OWN: &[&str] =
    &["bpfassay-results", "cache", "results", "state", "tmp", "home", "stdout", "stderr", "stdout-2", "stderr-2"];

/// The environment of a trial, with files of a host.
#[derive(Debug)]
pub struct Room<'a> {
    /// The programs.
    pub workshop: &'a Workshop,
    /// Directories, and scripted guests.
    pub environment: TrialEnvironment,
    /// The user who runs the command; `None` is the user of this program.
    pub user: Option<u32>,
    victims: Option<Victims>,
    names: BTreeSet<OsString>,
    before: StateBefore,
    result: TrialResult,
    processes: Vec<u32>,
}

impl<'a> Room<'a> {
    /// A new room in which the command runs as `user`.
    ///
    /// # Errors
    /// If a directory or file of the room cannot be created.
    pub fn new(workshop: &'a Workshop, user: Option<u32>) -> Result<Self, ChaosError> {
        let environment = TrialEnvironment::new(workshop.study(), &workshop.stand_in, &workshop.qemu, None)?;
        environment.script(&[])?;
        let root = environment.root().to_owned();
        for name in ["host", ".git"] {
            fs::create_dir(root.join(name))?;
        }
        Victims::make(&root.join("host"), HOST, user)?;
        Victims::make(&root.join(".git"), &["config"], user)?;
        for name in ["", "host", ".git", "results", "tmp", "cache", "home"] {
            give(&root.join(name), user)?;
        }
        let before = StateBefore::now(&root);
        Ok(Self {
            workshop,
            environment,
            user,
            victims: None,
            names: BTreeSet::new(),
            before,
            result: TrialResult::default(),
            processes: Vec::new(),
        })
    }

    /// The directory with the host's files.
    #[must_use]
    pub fn host(&self) -> PathBuf {
        self.path("host")
    }

    /// A path in the room.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.environment.root().join(name)
    }

    /// The cache.
    #[must_use]
    pub fn cache(&self) -> PathBuf {
        self.environment.directory(WrittenDirectory::Cache).join("bpfassay")
    }

    /// Writes a stranger's file into the room.
    ///
    /// # Errors
    /// The system's error if the file cannot be written.
    pub fn put(&self, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, bytes)?;
        give(&path, self.user)?;
        Ok(path)
    }

    /// Records the host's state. [`Self::start`] does so if it was not done before.
    ///
    /// # Errors
    /// The system's error if a file of the host cannot be read.
    pub fn remember(&mut self) -> io::Result<()> {
        self.victims = Some(Victims::now(vec![self.host(), self.path(".git")])?);
        self.names = self.entries()?;
        Ok(())
    }

    fn entries(&self) -> io::Result<BTreeSet<OsString>> {
        fs::read_dir(self.environment.root())?.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// Returns the command with its cache and directories. Output goes to the files `stdout` and
    /// `stderr` with `name` appended.
    ///
    /// # Errors
    /// The system's error if an output file cannot be created.
    pub fn command(&self, name: &str) -> io::Result<Command> {
        let program = self.workshop.program(self.user)?;
        let command = match self.user {
            Some(user) => {
                let mut command = Command::new("setpriv");
                let [user, group] = [format!("--reuid={user}"), format!("--regid={user}")];
                command.args([&user, &group, "--clear-groups", "--"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        let mut command = self.environment.dressed(command, name)?;
        command.env("CHAOS_SECRET_TOKEN", MARK);
        Ok(command)
    }

    /// Starts the command with `args`.
    ///
    /// # Errors
    /// The system's error if the command cannot be started.
    pub fn start(&mut self, mut command: Command, args: &[PathBuf]) -> io::Result<Child> {
        if self.victims.is_none() {
            self.remember()?;
        }
        let child = command.args(args).spawn()?;
        self.processes.push(child.id());
        Ok(child)
    }

    /// Runs the command with `args` to its end, or until it is killed because it waits or takes too
    /// long. Guests can request `actions`.
    ///
    /// # Errors
    /// If the command cannot be started or waited for.
    pub fn run(&mut self, args: &[PathBuf], actions: &[HostAction]) -> Result<CommandEnd, ChaosError> {
        let command = self.command("")?;
        self.run_command(command, args, actions)
    }

    /// Like [`Self::run`], for a command with a prepared environment.
    ///
    /// # Errors
    /// The errors of [`Self::run`].
    pub fn run_command(
        &mut self,
        command: Command,
        args: &[PathBuf],
        actions: &[HostAction],
    ) -> Result<CommandEnd, ChaosError> {
        let mut child = self.start(command, args)?;
        let mut patience = CommandPatience::new();
        let end = loop {
            if let Some(end) = patience.ended(&mut child)? {
                break end;
            }
            // A guest that was killed does not wait for the answer.
            let _ = self.environment.serve(actions, child.id());
            thread::sleep(PERIOD);
        };
        self.result.ends.push(end);
        Ok(end)
    }

    /// Waits for several commands.
    ///
    /// # Errors
    /// If a command cannot be waited for.
    pub fn wait(&mut self, children: &mut [Child]) -> Result<Vec<CommandEnd>, ChaosError> {
        let mut patience: Vec<_> = children.iter().map(|_| CommandPatience::new()).collect();
        let mut ends = vec![None; children.len()];
        while ends.iter().any(Option::is_none) {
            let left = children.iter_mut().zip(&mut patience).zip(&mut ends).filter(|(_, end)| end.is_none());
            for ((child, patience), end) in left {
                *end = patience.ended(child)?;
            }
            let _ = self.environment.serve(&[], 0);
            thread::sleep(PERIOD);
        }
        let ends: Vec<CommandEnd> = ends.into_iter().flatten().collect();
        self.result.ends.extend(&ends);
        Ok(ends)
    }

    /// Checks the host, the room and the last command. `may` lists how the command may have ended.
    ///
    /// # Errors
    /// The system's error if the room cannot be read.
    pub fn check(&mut self, stage: &str, may: &[CommandEnd]) -> Result<(), ChaosError> {
        let mut wrong = self.harm()?;
        let end = self.result.ends.last().copied().unwrap_or(CommandEnd::Never);
        if !may.contains(&end) {
            wrong.push(format!("the command ended with {end:?}, and not with one of {may:?}"));
        }
        self.wrong(stage, wrong);
        Ok(())
    }

    /// Returns a sentence for each forbidden thing that the commands did, however they ended.
    fn harm(&self) -> Result<Vec<String>, ChaosError> {
        let mut wrong = self.victims.as_ref().map(Victims::changed).unwrap_or_default();
        let is_own = |name: &OsString| OWN.iter().any(|own| name == own);
        let made: Vec<_> = self.entries()?.into_iter().filter(|name| !self.names.contains(name)).collect();
        let beside = made.into_iter().filter(|name| !is_own(name));
        wrong.extend(beside.map(|name| format!("made outside of its directories: {}", name.display())));
        let own = OWN.iter().map(|name| self.path(name));
        let copies =
            own.flat_map(|place| self.victims.as_ref().map(|victims| victims.copies(&place)).unwrap_or_default());
        wrong.extend(copies.map(|path| format!("the host was read into {}", path.display())));
        wrong.extend(whole::damage(&self.cache()));
        let printed = self.environment.printed();
        if let Some(place) = outcome_check::control_character(&printed) {
            wrong.push(format!("a control character for the terminal: {place}"));
        }
        let last = self.processes.last().copied().unwrap_or_default();
        wrong.extend(self.before.left(
            self.environment.root(),
            &self.environment.directory(WrittenDirectory::Temporary),
            last,
        ));
        Ok(wrong)
    }

    /// Adds violations to the result.
    pub fn wrong(&mut self, stage: &str, wrong: Vec<String>) {
        if wrong.is_empty() {
            return;
        }
        let printed = String::from_utf8_lossy(&self.environment.printed()).chars().take(4000).collect::<String>();
        let printed = printed.replace(|c: char| c.is_control() && c != '\n', "?");
        self.result.printed.push_str(&format!("--- {stage}, {:?}\n{printed}\n", self.result.ends));
        self.result.violations.extend(wrong.into_iter().map(|text| format!("{stage}: {text}")));
    }

    /// Returns the result of the trial.
    #[must_use]
    pub fn into_result(self) -> TrialResult {
        self.result
    }
}

/// How long a command has run, and when it last used CPU time.
struct CommandPatience {
    since: Instant,
    /// Ticks of CPU time that the command has used, and since when the number is the same.
    used: (Option<u64>, Instant),
}

impl CommandPatience {
    fn new() -> Self {
        Self { since: Instant::now(), used: (None, Instant::now()) }
    }

    /// Returns how `child` ended, if it has. Kills it if it waits for something or takes too long.
    ///
    /// # Errors
    /// The system's error if the child cannot be waited for or killed.
    fn ended(&mut self, child: &mut Child) -> io::Result<Option<CommandEnd>> {
        let end = |status: ExitStatus| {
            status.code().map_or_else(|| CommandEnd::Signal(status.signal().unwrap_or_default()), CommandEnd::Code)
        };
        if let Some(status) = child.try_wait()? {
            return Ok(Some(end(status)));
        }
        let elapsed = self.since.elapsed();
        if elapsed < PATIENCE.saturating_sub(IDLE) {
            return Ok(None);
        }
        let used = ticks(child.id());
        if used != self.used.0 {
            self.used = (used, Instant::now());
        }
        if elapsed > MOST || elapsed > PATIENCE && self.used.1.elapsed() > IDLE {
            child.kill()?;
            child.wait()?;
            return Ok(Some(CommandEnd::Never));
        }
        Ok(None)
    }
}

/// Returns the ticks of CPU time that `process` and its waited-for children used, if known
/// (`proc_pid_stat(5)`, fields 14 to 17).
fn ticks(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').skip(11).take(4).map(|field| field.parse::<u64>().ok()).sum()
}

/// Returns the user of a trial: [`USER`] if another one was drawn and this process is root.
#[must_use]
pub fn user(is_another: bool) -> Option<u32> {
    (is_another && rustix::process::geteuid().is_root()).then_some(USER)
}

/// Splits a command line into words and replaces names by `paths`.
#[must_use]
pub fn words(line: &str, paths: &[(&str, &Path)]) -> Vec<PathBuf> {
    let word = |word: &str| match paths.iter().find(|(name, _)| *name == word) {
        Some((_, path)) => path.to_path_buf(),
        None => word.into(),
    };
    line.split_whitespace().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ticks of a busy command grow. Ticks of a waiting command do not increase.
    #[test]
    fn a_command_that_waits_uses_no_cpu() {
        for (script, grows) in [("while :; do :; done", true), ("exec sleep 100", false)] {
            let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            thread::sleep(Duration::from_millis(300));
            let before = ticks(child.id()).unwrap();
            let since = Instant::now();
            while ticks(child.id()).unwrap() == before
                && since.elapsed() < Duration::from_secs(if grows { 60 } else { 1 })
            {
                thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(ticks(child.id()).unwrap() > before, grows, "{script}");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
