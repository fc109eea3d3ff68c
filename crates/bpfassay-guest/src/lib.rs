// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent inside the guest: process 1 of its initramfs, from the first mount to power-off. As
//! `bpfassay-guest here` it is a program on a running system, which measures on a file system that
//! is mounted there (`here_agent`).
//!
//! The agent prepares the guest as the job describes (modules, loopback NFS), executes the job's
//! runs one after the other, and reports to the host what happened. Other crates do the rest:
//!
//! - `bpfassay-protocol`: what names and messages mean.
//! - `bpfassay-tracer`: counting.
//! - `bpfassay-workload`: I/O.
//! - The crates of the host: evaluating figures.

mod agent_link;
mod agent_run;
mod bpf;
mod capture;
mod cgroup;
mod children;
mod conditions;
mod credentials;
mod environment;
mod error;
mod facts;
mod free_memory;
#[doc(hidden)]
pub mod fuzz;
mod guest_shell;
mod here_agent;
mod hierarchy;
mod line_buffer;
mod made;
mod meetings;
mod modules;
mod namespace_mounts;
mod network;
mod nfs;
mod output_tail;
mod phases;
mod power_off;
mod proc;
mod program_lines;
mod ranks;
mod run_figures;
mod sent_symbols;
mod short_turns;
mod signals;
mod silence;
mod soundness;
mod steps;
mod stop_request;
mod system;
mod test_dir;
mod threads;
mod tool;
mod tracer;
mod tree;
mod uevent;
mod user_code;
mod window_marker;
mod workload;

use std::{fs, process::ExitCode};

use agent_link::Link;
use bpfassay_protocol::{
    JOB_PATH, PROTOCOL_VERSION,
    job::{FileSystem, Job, Task},
    message::{GuestFacts, GuestMessage, Phase},
};
use children::Children;
use conditions::Conditions;
use environment::Environment;
use error::{Error, Result};
use proc::mountinfo;
use steps::Steps;
use uevent::Listener;

/// Mount point of a file system other than NFS.
const TMPFS_MOUNT_POINT: &str = "/mnt/tmpfs";

/// Runs the program: process 1 of a guest, `bpfassay-guest here`, or a process for ranks on several
/// nodes (`ranks`).
#[must_use]
pub fn main() -> ExitCode {
    if std::process::id() != 1 {
        let args: Vec<String> = std::env::args().skip(1).collect();
        return ranks::main(&args).unwrap_or_else(|| here_agent::main(args.into_iter()));
    }
    agent_link::report_panics();
    match live() {
        Ok(()) => power_off::off(),
        Err(error) => agent_link::fail(&error),
    }
}

/// Does everything from the kernel's start of this process to power-off.
fn live() -> Result<()> {
    signals::block()?;
    let mut steps = Steps::default();
    steps.ended("kernel")?;
    system::mount_first()?;
    let job = read_job(JOB_PATH)?;
    let events = Listener::new()?;
    let mut children = Children::watch()?;
    for module in &job.modules {
        modules::insert(module)?;
        if Link::get().is_none() {
            Link::try_open()?;
        }
    }
    steps.ended("modules")?;
    let link = Link::open(&events)?;
    drop(events);
    steps.ended("port")?;
    link.phase(Phase::SetUp, None)?;
    let missing = system::mount_rest()?;
    if !missing.is_empty() {
        link.log(format!("this kernel does not have {}", missing.join(", ")))?;
    }
    system::name(job.node)?;
    system::make_usual_files(job.node)?;
    network::loopback_up()?;
    job.node.map_or(Ok(()), network::bring_up)?;
    steps.ended("system")?;
    let (mount, localio) = match &job.file_system {
        FileSystem::Nfs(nfs) => match job.node {
            None => (nfs::MOUNT_POINT, nfs::bring_up(nfs, link, &mut steps)?),
            Some(node) if node.is_server() => {
                nfs::serve(nfs, node.address(), &mut steps)?;
                (nfs::EXPORT.path, None)
            }
            Some(node) => (nfs::MOUNT_POINT, nfs::mount_of_server(nfs, node, &mut steps)?),
        },
        FileSystem::Tmpfs { size_mib } => {
            system::mount_with("tmpfs", TMPFS_MOUNT_POINT, "tmpfs", &format!("size={size_mib}m,mode=0777"))?;
            steps.ended("tmpfs mount")?;
            (TMPFS_MOUNT_POINT, None)
        }
        FileSystem::Mounted { file_system } => {
            return Err(Error::Order(format!(
                "the job runs on {file_system} that is mounted, and a guest mounts its own file systems"
            )));
        }
    };
    namespace_mounts::make(&job.mounts, mount)?;
    steps.ended("ready")?;
    let mut conditions = Conditions::of(&job);
    let fixed_threads = conditions.fix()?;
    let facts = facts::collect(mountinfo::read(mount)?, localio, steps.take())?;
    let facts = facts::with_parameters(GuestFacts { fixed_threads, ..facts })?;
    link.send(&GuestMessage::Ready(Box::new(facts.clone())))?;
    match &job.task {
        Task::Runs { runs } => {
            let environment = Environment::guest(mount, job.node);
            if job.symbols {
                sent_symbols::send_functions(link)?;
            }
            if let Some(last) = agent_run::execute_all(runs, &environment, &mut conditions, link, &mut children)? {
                return link.send_last(&last);
            }
        }
        Task::Shell => guest_shell::run(&facts, link, &mut children)?,
        // The thread that receives the host's messages powers the guest off.
        Task::Serve => loop {
            std::thread::park();
        },
    }
    link.send_last(&GuestMessage::Done)
}

fn read_job(path: &str) -> Result<Job> {
    let text = fs::read(path).map_err(Error::file("read the job from", path))?;
    let invalid = |source| Error::Job { path: path.to_owned(), source };
    // Reads the version first: a job of another version can have another form.
    #[derive(serde::Deserialize)]
    struct Version {
        protocol: u32,
    }
    let Version { protocol } = serde_json::from_slice(&text).map_err(invalid)?;
    if protocol != PROTOCOL_VERSION {
        return Err(Error::JobVersion { theirs: protocol, ours: PROTOCOL_VERSION });
    }
    serde_json::from_slice(&text).map_err(invalid)
}
