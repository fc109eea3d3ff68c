//! Another tool under test as a child process: starting it, waiting until its programs are loaded, ending it.

use std::{
    collections::BTreeSet,
    fs::File,
    os::fd::OwnedFd,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use bpfassay_protocol::{job::Tool, tracer::ProgramStatistics};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};

use crate::{
    children::{Children, ended_how, last_words, pid_of},
    error::{Error, Result},
    programs,
    workload::PATH,
};

/// How long a tool may take until its programs are loaded.
const LOADING: Duration = Duration::from_secs(300);

/// How long no further program may appear before a tool counts as loaded: it attaches them meanwhile.
const QUIET: Duration = Duration::from_secs(2);

/// How often to look.
const PERIOD: Duration = Duration::from_millis(100);

/// How long it may take to detach before it is killed.
const DETACHING: Duration = Duration::from_secs(30);

/// A running tool.
pub(crate) struct Running {
    pid: Pid,
    name: String,
    output: File,
    /// Ids of the programs that there were before.
    before: BTreeSet<u32>,
    /// Open for as long as the kernel is to keep statistics.
    statistics: Option<OwnedFd>,
}

impl Running {
    /// Starts `tool` and waits until it has loaded as many programs as it must. What it prints goes to `output`.
    /// `statistics`: whether the kernel is to keep statistics of programs meanwhile.
    pub(crate) fn start(tool: &Tool, statistics: bool, output: File, children: &mut Children) -> Result<Self> {
        let program = tool.command.first().ok_or_else(|| Error::Order("a tool without a command".to_owned()))?;
        let spawn_error = |source| Error::Spawn { program: program.clone(), source };
        let before = programs::loaded()?;
        let statistics = statistics.then(programs::enable_statistics).transpose()?;
        let child = Command::new(program)
            .args(tool.command.iter().skip(1))
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", "/run")
            .env("LC_ALL", "C")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(spawn_error)?)
            .stderr(output.try_clone().map_err(spawn_error)?)
            .spawn()
            .map_err(spawn_error)?;
        let pid = pid_of(&child)?;
        children.expect(pid);
        let mut running = Self { pid, name: tool.name.clone(), output, before, statistics };
        let deadline = Instant::now() + LOADING;
        let (mut last, mut since) = (0, Instant::now());
        loop {
            thread::sleep(PERIOD);
            children.reap()?;
            if let Some(status) = children.end_of(pid) {
                return Err(running.failure(format!("{} before its programs were loaded", ended_how(status))));
            }
            let now = running.own_programs()?.len();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if now >= tool.programs as usize && since.elapsed() >= QUIET {
                return Ok(running);
            }
            if Instant::now() >= deadline {
                children.kill(pid, DETACHING)?;
                return Err(running.failure(format!("loaded {now} programs in time, not {}", tool.programs)));
            }
        }
    }

    /// Ids of the programs that came since it was started.
    fn own_programs(&self) -> Result<Vec<u32>> {
        Ok(programs::loaded()?.difference(&self.before).copied().collect())
    }

    fn failure(&mut self, problem: String) -> Error {
        Error::Program { program: self.name.clone(), problem, output: last_words(&mut self.output) }
    }

    /// Interrupts it, as Ctrl-C does, and waits for its end; returns the statistics of its programs, if there are to be
    /// any. An error where it had ended before it was told to.
    pub(crate) fn stop(mut self, children: &mut Children) -> Result<Vec<ProgramStatistics>> {
        children.reap()?;
        if let Some(status) = children.end_of(self.pid) {
            return Err(self.failure(format!("{} while it should count", ended_how(status))));
        }
        let statistics = match self.statistics {
            Some(_) => programs::statistics(self.own_programs()?)?,
            None => Vec::new(),
        };
        match kill_process(self.pid, Signal::INT) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(Error::system("interrupt a tool")(error)),
        }
        if children.wait_for(self.pid, DETACHING)?.is_none() {
            children.kill(self.pid, DETACHING)?;
        }
        Ok(statistics)
    }
}
