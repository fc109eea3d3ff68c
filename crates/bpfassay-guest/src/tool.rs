//! Another tool under test as a child process: starting it, waiting until its programs are loaded, ending it.

use std::{
    fs::File,
    io,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use bpfassay_protocol::job::Tool;
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process},
};

use crate::{
    children::{Children, ended_how, last_words, pid_of},
    error::{Error, Result},
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

/// `BPF_PROG_GET_NEXT_ID` (include/uapi/linux/bpf.h).
const PROG_GET_NEXT_ID: libc::c_long = 11;

/// A running tool.
pub(crate) struct Running {
    pid: Pid,
    name: String,
    output: File,
}

impl Running {
    /// Starts `tool` and waits until it has loaded as many programs as it must. What it prints goes to `output`.
    pub(crate) fn start(tool: &Tool, output: File, children: &mut Children) -> Result<Self> {
        let program = tool.command.first().ok_or_else(|| Error::Order("a tool without a command".to_owned()))?;
        let spawn_error = |source| Error::Spawn { program: program.clone(), source };
        let before = loaded_programs()?;
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
        let mut running = Self { pid, name: tool.name.clone(), output };
        let wanted = before.saturating_add(tool.programs);
        let deadline = Instant::now() + LOADING;
        let (mut last, mut since) = (before, Instant::now());
        loop {
            thread::sleep(PERIOD);
            children.reap()?;
            if let Some(status) = children.end_of(pid) {
                return Err(running.failure(format!("{} before its programs were loaded", ended_how(status))));
            }
            let now = loaded_programs()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if now >= wanted && since.elapsed() >= QUIET {
                return Ok(running);
            }
            if Instant::now() >= deadline {
                children.kill(pid, DETACHING)?;
                let loaded = now.saturating_sub(before);
                return Err(running.failure(format!("loaded {loaded} programs in time, not {}", tool.programs)));
            }
        }
    }

    fn failure(&mut self, problem: String) -> Error {
        Error::Program { program: self.name.clone(), problem, output: last_words(&mut self.output) }
    }

    /// Interrupts it, as Ctrl-C does, and waits for its end. An error where it had ended before it was told to.
    pub(crate) fn stop(mut self, children: &mut Children) -> Result<()> {
        children.reap()?;
        if let Some(status) = children.end_of(self.pid) {
            return Err(self.failure(format!("{} while it should count", ended_how(status))));
        }
        match kill_process(self.pid, Signal::INT) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(Error::system("interrupt a tool")(error)),
        }
        if children.wait_for(self.pid, DETACHING)?.is_none() {
            children.kill(self.pid, DETACHING)?;
        }
        Ok(())
    }
}

/// How many BPF programs the kernel holds.
fn loaded_programs() -> Result<u32> {
    /// The part of `union bpf_attr` for walking over ids.
    #[repr(C)]
    struct Walk {
        start_id: u32,
        next_id: u32,
        open_flags: u32,
    }
    let mut walk = Walk { start_id: 0, next_id: 0, open_flags: 0 };
    let mut count = 0;
    loop {
        // SAFETY: the kernel reads and writes within the structure, whose size goes with it.
        let status = unsafe { libc::syscall(libc::SYS_bpf, PROG_GET_NEXT_ID, &raw mut walk, size_of::<Walk>()) };
        if status < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ENOENT) => Ok(count),
                _ => Err(Error::system("count BPF programs")(error)),
            };
        }
        count += 1;
        walk.start_id = walk.next_id;
    }
}
