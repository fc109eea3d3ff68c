//! Carrying out a plan on a running system, this one, without guests: by the agent as a program (`bpfassay-guest here`).

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Mutex,
    time::Duration,
};

use bpfassay_protocol::{
    PROTOCOL_VERSION,
    frame::{Decoder, FrameError},
    job::{Job, Task},
    message::{GuestMessage, Phase},
};
use bpfassay_report::{BootVerdict, FailureKind, Journal, RunFailure};
use bpfassay_study::{Block, Study};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::AsyncReadExt,
    process::{Child, Command},
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Observer, RunnerError, Summary,
    attempt::{Conclusion, Judged},
    block::{Context, chain},
    boot::{Boot, Tally},
    failure, pool,
    rig::{self, deadlines},
    seen::BootPlan,
};

/// How long an agent may take to end after its last message.
const ENDING: Duration = Duration::from_secs(30);

/// The agent as a program of this system.
#[derive(Debug)]
pub struct Agent {
    /// `bpfassay-guest`.
    pub program: PathBuf,
    /// Where the file system under test is mounted.
    pub mount: PathBuf,
    /// The real IOR, where there is one.
    pub external_ior: Option<PathBuf>,
}

/// What is to be carried out on this system.
#[derive(Debug)]
pub struct HereOrder<'a> {
    /// The study that the blocks come from; its clock is the wall clock.
    pub study: &'a Study,
    /// The blocks to do, one after the other.
    pub blocks: Vec<Block>,
    /// What does them.
    pub agent: &'a Agent,
    /// The results directory; what the agent prints to standard error goes to [`crate::block::LOGS`] in it.
    pub directory: &'a Path,
}

/// Carries out `order` and writes everything that comes of it to `journal`, as [`crate::carry_out`] does with guests. An agent
/// that does not come to its end fails the run in flight and the rest of its block; the next block gets another one.
///
/// # Errors
/// [`RunnerError`]
pub async fn carry_out_here(
    order: HereOrder<'_>,
    journal: Journal,
    observer: &dyn Observer,
    cancel: &CancellationToken,
) -> Result<Summary, RunnerError> {
    let HereOrder { study, blocks, agent, directory } = order;
    let runtime = pool::directories(directory)?;
    let journal = Mutex::new(journal);
    let context = Context { study, directory, journal: &journal, observer, cancel };
    let mut summary = Summary::default();
    for block in &blocks {
        if cancel.is_cancelled() {
            break;
        }
        let mut tally = Tally::default();
        let plan = BootPlan { boot: 1, attempt: 1, runs: block.runs.clone(), confirming: None };
        Boot::new(&context, block, plan, &mut tally).here(agent, runtime.path()).await?;
        summary.add(&tally.summary());
    }
    summary.cancelled = cancel.is_cancelled();
    Ok(summary)
}

/// The job for `block`.
fn job(study: &Study, block: &Block) -> Job {
    Job {
        protocol: PROTOCOL_VERSION,
        modules: Vec::new(),
        file_system: block.file_system.clone(),
        settle_ms: 0,
        task: Task::Runs { runs: block.runs.iter().map(|run| rig::order(study, block, run)).collect() },
    }
}

/// Why an agent is no longer listened to.
enum End {
    /// It closed its output.
    Closed,
    /// It was told to stop.
    Cancelled,
    /// It did something that it must not, or too slowly.
    Trouble(FailureKind, String),
}

impl Boot<'_> {
    /// Does the block by one agent.
    async fn here(&mut self, agent: &Agent, runtime: &Path) -> Result<(), crate::block::BlockError> {
        let path = runtime.join(format!("{}.json", self.name()));
        let arguments = arguments(agent, &path);
        let command = std::iter::once(&agent.program).map(|path| path.display().to_string());
        self.started(command.chain(arguments.iter().cloned()).collect())?;
        let job = job(self.context.study, self.block);
        let started = serde_json::to_vec(&job)
            .map_err(io::Error::from)
            .and_then(|text| std::fs::write(&path, text))
            .and_then(|()| start(agent, &arguments, &self.context.directory.join(&self.log)));
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                let message = format!("could not start {}: {error}", agent.program.display());
                return self.over_here(Some(failure::of_host(message)));
            }
        };

        let mut heard = Heard { phase: Phase::Boot, failed: None };
        let end = self.listen(&mut child, &mut heard).await?;
        if !matches!(end, End::Closed) {
            kill(&child);
        }
        let status = tokio::time::timeout(ENDING, child.wait()).await;
        if status.is_err() {
            kill(&child);
        }
        let trouble = match (end, heard.failed) {
            (End::Cancelled, _) => None,
            (End::Trouble(kind, message), _) => Some((kind, message)),
            (End::Closed, Some(message)) => Some((FailureKind::Agent, message)),
            (End::Closed, None) if self.is_done() => None,
            (End::Closed, None) => {
                let how = match status {
                    Ok(Ok(status)) => status.to_string(),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("it closed its output and went on for more than {} s", ENDING.as_secs()),
                };
                Some((FailureKind::EarlyExit, format!("the agent ended before everything was done: {how}")))
            }
        };
        let log = Some(self.log.clone());
        let trouble = trouble.map(|(kind, message)| RunFailure {
            kind,
            phase: Some(heard.phase),
            telling: vec![message],
            log,
            after: None,
        });
        self.over_here(trouble)
    }

    /// The agent is gone. This system cannot be booted anew: what was measured before stands, the run in flight failed, and so did
    /// those that the agent owes.
    fn over_here(&mut self, trouble: Option<RunFailure>) -> Result<(), crate::block::BlockError> {
        let now = self.now();
        let ended = self.seen.ended();
        let in_flight = self.seen.in_flight();
        let mut judged = Vec::new();
        if let Some(failure) = &trouble {
            for (at, run) in self.plan.runs.iter().enumerate().skip(ended) {
                let seen = self.seen.runs.get(at);
                judged.push(Judged {
                    run: run.clone(),
                    boot: self.plan.boot,
                    started_unix_ms: seen.map_or(now.unix_ms, |seen| seen.started_unix_ms),
                    duration_ms: seen.map_or(0, |seen| seen.duration_ms(now.boot_ms)),
                    failure: failure.clone(),
                });
            }
        }
        let verdict = match (&trouble, in_flight.and_then(|at| self.plan.runs.get(at))) {
            (None, _) if self.is_done() => BootVerdict::Complete,
            (None, _) => BootVerdict::Interrupted,
            (Some(failure), _) if failure.kind == FailureKind::Host => BootVerdict::Host,
            (Some(_), Some(run)) => BootVerdict::Blamed { run: run.order.id.clone() },
            (Some(_), None) => BootVerdict::Nobody,
        };
        let kept = self.plan.ids().into_iter().take(ended).collect();
        self.concluded_with(Conclusion { verdict, trouble, judged }, Vec::new(), kept)
    }

    /// Takes in what the agent says until it says no more, or must be stopped.
    async fn listen(&mut self, child: &mut Child, heard: &mut Heard) -> Result<End, crate::block::BlockError> {
        let Some(mut stdout) = child.stdout.take() else {
            return Ok(End::Trouble(FailureKind::Host, "the agent was started without a pipe".to_owned()));
        };
        self.since = std::time::Instant::now();
        let limits = deadlines(self.context.study);
        let limit = |phase: Phase| limits.of(phase).map_or_else(far, |limit| Instant::now() + limit);
        let mut deadline = limit(heard.phase);
        let mut decoder = Decoder::default();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = tokio::select! {
                read = timeout_at(deadline, stdout.read(&mut buffer)) => read,
                () = self.context.cancel.cancelled() => return Ok(End::Cancelled),
            };
            let length = match read {
                Err(_) => {
                    return Ok(End::Trouble(FailureKind::Deadline, format!("the phase {} took too long", heard.phase)));
                }
                Ok(Err(error)) => {
                    return Ok(End::Trouble(FailureKind::Host, format!("cannot read from the agent: {error}")));
                }
                Ok(Ok(0)) if decoder.is_mid_frame() => {
                    return Ok(End::Trouble(FailureKind::Garbage, "the agent ended within a message".to_owned()));
                }
                Ok(Ok(0)) => return Ok(End::Closed),
                Ok(Ok(length)) => length,
            };
            decoder.push(&buffer[..length]);
            loop {
                let message = match decoder.next::<GuestMessage>() {
                    Ok(Some(message)) => message,
                    Ok(None) => break,
                    Err(error) => {
                        let kind = match error {
                            FrameError::Version { .. } => FailureKind::ProtocolVersion,
                            _ => FailureKind::Garbage,
                        };
                        return Ok(End::Trouble(kind, chain(&error)));
                    }
                };
                match &message {
                    GuestMessage::Phase { phase, .. } => {
                        heard.phase = *phase;
                        deadline = limit(*phase);
                    }
                    GuestMessage::Failed { message } => heard.failed = Some(message.clone()),
                    _ => {}
                }
                if let Some(protest) = self.hear(message)? {
                    return Ok(End::Trouble(FailureKind::Garbage, protest));
                }
            }
        }
    }
}

/// What an agent has said of itself.
struct Heard {
    /// The phase announced last.
    phase: Phase,
    /// What it failed at.
    failed: Option<String>,
}

fn arguments(agent: &Agent, job: &Path) -> Vec<String> {
    let mut words = vec!["here".to_owned(), "--job".to_owned(), job.display().to_string()];
    words.extend(["--mount".to_owned(), agent.mount.display().to_string()]);
    if let Some(ior) = &agent.external_ior {
        words.extend(["--external-ior".to_owned(), ior.display().to_string()]);
    }
    words
}

/// Starts the agent as the leader of a process group, which all that it starts belongs to.
fn start(agent: &Agent, arguments: &[String], log: &Path) -> io::Result<Child> {
    Command::new(&agent.program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(log)?)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// Kills the agent and all that it started.
fn kill(child: &Child) {
    // One that has been waited for has no number any more, and leaves nothing to kill.
    let Some(group) = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) else { return };
    if let Err(error) = kill_process_group(group, Signal::KILL) {
        tracing::warn!("could not kill the agent and what it started: {error}");
    }
}

/// Farther away than any run takes.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(365 * 24 * 3600)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use bpfassay_protocol::{
        Arch, ProbeConfiguration, frame,
        message::RunOutcome,
        probe::Probe,
        tracer::{Refusal, Step},
    };
    use bpfassay_report::{
        Contents, Entry, Header, JOURNAL_VERSION, Outcome, Provenance,
        provenance::{Artefact, HostFacts},
    };
    use bpfassay_study::{Available, Narrowing, Plan};

    use super::*;
    use crate::Progress;

    /// One boot of the baseline and fexit.
    fn plan() -> Plan {
        let mut study = bpfassay_study::load("quick").unwrap();
        study.clock = bpfassay_study::Clock::Wall;
        study.design.rounds = 1;
        study.design.warm_up = 0;
        study.design.control = false;
        study.design.replicates = 1;
        let narrowing = Narrowing {
            archs: vec![Arch::X86_64],
            kernels: vec!["6.12".to_owned()],
            probes: vec![ProbeConfiguration::with_defaults(Probe::Fexit)],
            ..Narrowing::default()
        };
        bpfassay_study::expand(&study, &narrowing, &Available::default()).unwrap()
    }

    struct Nobody;

    impl Observer for Nobody {
        fn progress(&self, _: &Progress<'_>) {}
    }

    /// What the journal holds after the plan was carried out by an agent that writes `frames` and then does `end`, a line of
    /// shell; and the directory that it lies in.
    fn carried_out(plan: &Plan, frames: &[u8], end: &str) -> (Summary, Contents, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let results = directory.path().join("results");
        let nothing = || Artefact { name: String::new(), version: String::new(), sha256: None };
        let host = HostFacts {
            machine: String::new(),
            kernel_release: String::new(),
            cpu_model: String::new(),
            cpus: 1,
            memory_kib: 1,
            jobs: 1,
        };
        let provenance = Provenance {
            bpfassay: nothing(),
            host,
            qemu: Default::default(),
            targets: Vec::new(),
            manifest: serde_json::Value::Null,
        };
        let header = Header { journal: JOURNAL_VERSION, started_unix_ms: 0, plan: plan.clone(), provenance };
        let journal = Journal::create(&results, &header).unwrap();
        fs::write(directory.path().join("frames"), frames).unwrap();
        let program = directory.path().join("agent");
        let root = directory.path().display();
        // Its arguments are kept, and the job that they name.
        let script = format!("#!/bin/sh\necho \"$*\" >{root}/told; cp \"$3\" {root}/job; cat {root}/frames\n{end}\n");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let agent = Agent { program, mount: "/mnt/nfs".into(), external_ior: Some("/opt/ior".into()) };
        let order = HereOrder { study: &plan.study, blocks: plan.blocks.clone(), agent: &agent, directory: &results };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let summary = runtime.block_on(carry_out_here(order, journal, &Nobody, &CancellationToken::new())).unwrap();
        (summary, Contents::read(&results).unwrap(), directory)
    }

    fn ended(run: &str) -> Vec<u8> {
        let refusal = Refusal {
            step: Step::Attach,
            program: None,
            errno: Some(524),
            message: "no".to_owned(),
            verifier: None,
            findings: Vec::new(),
        };
        let outcome = Box::new(RunOutcome::Refused(refusal));
        frame::encode(&GuestMessage::RunEnded { run: run.to_owned(), outcome }).unwrap()
    }

    /// The failures of runs.
    fn failures(contents: &Contents) -> Vec<RunFailure> {
        let of = |entry: &Entry| match entry {
            Entry::Run(record) => match &record.outcome {
                Outcome::Failed(failure) => Some(failure.clone()),
                _ => None,
            },
            _ => None,
        };
        contents.entries.iter().filter_map(of).collect()
    }

    #[test]
    fn what_an_agent_says_of_its_runs_is_recorded() {
        let plan = plan();
        let [first, second] = [&plan.blocks[0].runs[0].order.id, &plan.blocks[0].runs[1].order.id];
        let done = frame::encode(&GuestMessage::Done).unwrap();
        let frames = [ended(first), ended(second), done].concat();
        let (summary, contents, directory) = carried_out(&plan, &frames, "exit 0");
        assert_eq!(summary, Summary { refused: 2, ..Summary::default() });
        assert!(failures(&contents).is_empty());
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        let told = read("told");
        assert!(
            told.starts_with("here --job ") && told.ends_with(" --mount /mnt/nfs --external-ior /opt/ior\n"),
            "{told}"
        );
        let job: Job = serde_json::from_str(&read("job")).unwrap();
        let Task::Runs { runs } = job.task else { panic!("no runs") };
        assert_eq!(runs.iter().map(|run| &run.id).collect::<Vec<_>>(), [first, second]);
        assert!(job.modules.is_empty());
    }

    #[test]
    fn an_agent_that_does_not_come_to_its_end_fails_the_runs_that_it_owes() {
        let plan = plan();
        let first = ended(&plan.blocks[0].runs[0].order.id);
        let (summary, contents, _) = carried_out(&plan, &first, "exit 3");
        assert_eq!(summary, Summary { refused: 1, failed: 1, ..Summary::default() });
        let [failure] = failures(&contents).try_into().unwrap();
        assert_eq!(failure.kind, FailureKind::EarlyExit);
        assert!(failure.telling[0].ends_with("exit status: 3"), "{failure:?}");

        let failed = GuestMessage::Failed { message: "no mount".to_owned() };
        let (_, contents, _) = carried_out(&plan, &frame::encode(&failed).unwrap(), "exit 1");
        let all = failures(&contents);
        assert_eq!((all.len(), all[0].kind, all[0].telling[0].as_str()), (2, FailureKind::Agent, "no mount"));
    }

    #[test]
    fn an_agent_that_says_what_it_must_not_is_killed() {
        let plan = plan();
        let since = std::time::Instant::now();
        let [first, second] = [&plan.blocks[0].runs[0].order.id, &plan.blocks[0].runs[1].order.id];
        let done = frame::encode(&GuestMessage::Done).unwrap();
        let phase = |run: &str| GuestMessage::Phase { phase: Phase::Workload, run: Some(run.to_owned()) };
        let phase = |run: &str| frame::encode(&phase(run)).unwrap();
        for (frames, runs, telling) in [
            (ended("another"), 2, format!("the guest ends another, while {first} is due")),
            (ended(second), 2, format!("the guest ends {second}, while {first} is due")),
            // Forged, or late: the first run has ended.
            ([ended(first), ended(first)].concat(), 1, format!("the guest ends {first}, while {second} is due")),
            (
                [ended(first), phase(first)].concat(),
                1,
                format!("the guest begins the phase workload of {first}, while {second} is due"),
            ),
            (
                [phase(first), ended(second)].concat(),
                2,
                format!("protocol error: the guest ends {second}, while {first} is due"),
            ),
            (done, 2, format!("says that everything is done, while {first} is due")),
            (b"Segmentation fault".to_vec(), 2, "does not speak this protocol".to_owned()),
        ] {
            let (_, contents, _) = carried_out(&plan, &frames, "sleep 100");
            let all = failures(&contents);
            assert_eq!((all.len(), all[0].kind), (runs, FailureKind::Garbage), "{all:?}");
            assert!(all[0].telling[0].contains(&telling), "{telling}: {all:?}");
        }
        assert!(since.elapsed() < Duration::from_secs(50), "nothing was killed");
    }
}
