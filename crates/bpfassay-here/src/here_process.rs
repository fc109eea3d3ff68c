// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent as a process of this system: starts the agent, sends the job, and stops the agent.

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use bpfassay_protocol::job::{Job, RunSpec, Task};
use bpfassay_runner::boot::host_setup;
use bpfassay_study::{Block, Study};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process, kill_process_group},
};
use tokio::process::{Child, Command};

use super::{here_reason::MachineLimits, here_tools::ToolPlaces};

/// The agent, and the programs that it starts.
pub(super) const AGENT: &str = "bpfassay-guest";
pub(super) const PAYLOAD: [&str; 2] = ["bpfassay-tracer", "bpfassay-ior"];

/// The agent reads its job from an unnamed file, which disappears when all processes have closed
/// it.
const JOB: &str = "/dev/stdin";

/// Time limit for removing what an agent left, such as processes of a cgroup and files.
const CLEARING: Duration = Duration::from_secs(120);

/// The agent as a program of this system.
#[derive(Debug)]
pub(crate) struct Agent {
    /// The program `bpfassay-guest`.
    pub(crate) program: PathBuf,
    /// The mount point of the file system under test.
    pub(crate) mount: PathBuf,
    /// The program of a real IOR, if there is one.
    pub(crate) external_ior: Option<PathBuf>,
    /// The places of tools under test.
    pub(crate) tools: ToolPlaces,
    /// Limits that explain why this kernel refuses a tool.
    pub(crate) limits: MachineLimits,
}

/// Creates the job for `block`, which `agent` executes.
pub(super) fn job(agent: &Agent, study: &Study, block: &Block) -> Job {
    let spec = |run| {
        let spec = host_setup::spec(study, block, run);
        RunSpec { tool: spec.tool.as_ref().map(|tool| agent.tools.here(tool)), ..spec }
    };
    // A study with mounts is refused, because this machine also serves other purposes.
    Job::new(block.file_system.clone(), Task::Runs { runs: block.runs.iter().map(spec).collect() })
}

pub(super) fn arguments(agent: &Agent) -> Vec<String> {
    let mut args = vec!["here".to_owned(), "--job".to_owned(), JOB.to_owned()];
    args.extend(["--mount".to_owned(), agent.mount.display().to_string()]);
    if let Some(ior) = &agent.external_ior {
        args.extend(["--external-ior".to_owned(), ior.display().to_string()]);
    }
    args
}

/// Writes the job to an unnamed file.
///
/// # Errors
/// The system's error if the file cannot be created or written.
pub(super) fn unnamed(job: &Job) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(&serde_json::to_vec(job)?)?;
    file.rewind()?;
    Ok(file)
}

/// Starts the agent as the leader of a process group for everything that it starts. The agent
/// cleans up and ends when its output is closed, so it is not killed if the command ends early.
///
/// # Errors
/// The system's error if the agent cannot be started.
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

/// Kills the agent and everything that it started and that still runs.
pub(super) fn kill(group: Option<Pid>) {
    // Usually nothing is left. The group's number stays taken as long as the group has a process.
    match group.map(|group| kill_process_group(group, Signal::KILL)) {
        None | Some(Ok(()) | Err(Errno::SRCH)) => {}
        Some(Err(error)) => tracing::warn!("could not kill what the agent started: {error}"),
    }
}

/// Runs the agent's program to remove what a killed agent left: its directory of runs, its cgroups
/// with their processes, its files. The program reports in `log` what it cannot remove. Returns
/// whether everything is removed.
///
/// # Errors
/// The system's error if the program cannot be started.
pub(super) async fn clear(agent: &Agent, log: Stdio) -> io::Result<bool> {
    let mut command = Command::new(&agent.program);
    command.arg("clear").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0).kill_on_drop(true);
    let mut child = command.spawn()?;
    match tokio::time::timeout(CLEARING, child.wait()).await {
        Ok(status) => Ok(status?.success()),
        Err(_) => Ok(false),
    }
}
