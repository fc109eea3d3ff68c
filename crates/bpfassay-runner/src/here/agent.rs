// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent as a process of this system: how it is started, given its job, stopped.

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use bpfassay_protocol::{
    PROTOCOL_VERSION,
    job::{Job, RunSpec, Scheduling, Task},
};
use bpfassay_study::{Block, Study};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process, kill_process_group},
};
use tokio::process::{Child, Command};

use super::{reason::Limits, tools::Places};
use crate::host_setup;

/// Where the agent reads its job from: a file without a name, of which nothing is left whatever
/// becomes of anybody.
const JOB: &str = "/dev/stdin";

/// How long removing what was left may take: the processes of a cgroup are waited for, and files
/// are removed.
const CLEARING: Duration = Duration::from_secs(120);

/// The agent as a program of this system.
#[derive(Debug)]
pub(crate) struct Agent {
    /// `bpfassay-guest`.
    pub(crate) program: PathBuf,
    /// Where the file system under test is mounted.
    pub(crate) mount: PathBuf,
    /// The real IOR, where there is one.
    pub(crate) external_ior: Option<PathBuf>,
    /// Where tools under test lie.
    pub(crate) tools: Places,
    /// What explains a refusal of this kernel.
    pub(crate) limits: Limits,
}

/// The job for `block`, which `agent` is to do.
pub(super) fn job(agent: &Agent, study: &Study, block: &Block) -> Job {
    let spec = |run| {
        let spec = host_setup::spec(study, block, run);
        RunSpec { tool: spec.tool.as_ref().map(|tool| agent.tools.here(tool)), ..spec }
    };
    Job {
        protocol: PROTOCOL_VERSION,
        modules: Vec::new(),
        file_system: block.file_system.clone(),
        // A study that has some is refused: this machine is not there for measuring alone.
        mounts: Vec::new(),
        settle_ms: 0,
        scheduling: Scheduling::Kernel,
        symbols: false,
        node: None,
        task: Task::Runs { runs: block.runs.iter().map(spec).collect() },
    }
}

pub(super) fn arguments(agent: &Agent) -> Vec<String> {
    let mut args = vec!["here".to_owned(), "--job".to_owned(), JOB.to_owned()];
    args.extend(["--mount".to_owned(), agent.mount.display().to_string()]);
    if let Some(ior) = &agent.external_ior {
        args.extend(["--external-ior".to_owned(), ior.display().to_string()]);
    }
    args
}

/// The job in a file without a name.
///
/// # Errors
/// Those of the system, where the file cannot be made or written.
pub(super) fn unnamed(job: &Job) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(&serde_json::to_vec(job)?)?;
    file.rewind()?;
    Ok(file)
}

/// Starts the agent as the leader of a process group, which all that it starts belongs to. It ends
/// by itself when its output is closed, and removes what it made; so it is not killed when the
/// command comes to an early end.
///
/// # Errors
/// Those of the system, where the agent cannot be started.
pub(super) fn start(agent: &Agent, arguments: &[String], job: File, log: Stdio) -> io::Result<Child> {
    Command::new(&agent.program).args(arguments).stdin(job).stdout(Stdio::piped()).stderr(log).process_group(0).spawn()
}

/// Asks the agent to remove what it made and to end.
pub(super) fn ask_to_stop(agent: Option<Pid>) {
    match agent.map(|agent| kill_process(agent, Signal::TERM)) {
        None | Some(Ok(()) | Err(Errno::SRCH)) => {}
        Some(Err(error)) => tracing::warn!("could not ask the agent to stop: {error}"),
    }
}

/// Kills the agent and all that it started, whatever of it is left.
pub(super) fn kill(group: Option<Pid>) {
    // Mostly nothing is. The number of a group stays taken for as long as there is something in it.
    match group.map(|group| kill_process_group(group, Signal::KILL)) {
        None | Some(Ok(()) | Err(Errno::SRCH)) => {}
        Some(Err(error)) => tracing::warn!("could not kill what the agent started: {error}"),
    }
}

/// Has the agent's program remove what an agent that was killed has left: its directory of runs,
/// its cgroups with their processes, its files. What it cannot remove it reports in `log`. Returns
/// whether nothing is left.
///
/// # Errors
/// Those of the system, where the program cannot be started.
pub(super) async fn clear(agent: &Agent, log: Stdio) -> io::Result<bool> {
    let mut command = Command::new(&agent.program);
    command.arg("clear").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0).kill_on_drop(true);
    let mut child = command.spawn()?;
    match tokio::time::timeout(CLEARING, child.wait()).await {
        Ok(status) => Ok(status?.success()),
        Err(_) => Ok(false),
    }
}
