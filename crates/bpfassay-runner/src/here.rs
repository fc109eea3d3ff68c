//! Carrying out a plan on a running system, this one, without guests: by the agent as a program (`bpfassay-guest here`).

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
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
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
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
    failure,
    host_setup::{self, deadlines},
    pool,
    seen::BootPlan,
};

/// How long an agent may take to end after its last message, and to remove what it made when it is to stop: longer than it takes
/// until it loses its own patience.
const ENDING: Duration = Duration::from_secs(30);

/// Where the agent reads its job from: a file without a name, of which nothing is left whatever becomes of anybody.
const JOB: &str = "/dev/stdin";

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
pub struct HereConfig<'a> {
    /// The study that the blocks come from; its clock is the wall clock.
    pub study: &'a Study,
    /// The blocks to do, one after the other.
    pub blocks: Vec<Block>,
    /// What does them.
    pub agent: &'a Agent,
    /// The results directory; what the agent prints to standard error goes to [`crate::block::LOGS`] in it.
    pub directory: &'a Path,
}

/// Carries out `order` and writes everything that comes of it to `journal`, as [`crate::execute`] does with guests. An agent
/// that does not come to its end fails the run in flight and the rest of its block; the next block gets another one.
///
/// # Errors
/// [`RunnerError`]
pub async fn carry_out_here(
    order: HereConfig<'_>,
    journal: Journal,
    observer: &dyn Observer,
    cancel: &CancellationToken,
) -> Result<Summary, RunnerError> {
    let HereConfig { study, blocks, agent, directory } = order;
    pool::make_logs(directory)?;
    let journal = Mutex::new(journal);
    let context = Context { study, directory, journal: &journal, observer, cancel };
    let mut summary = Summary::default();
    for block in &blocks {
        if cancel.is_cancelled() {
            break;
        }
        let mut tally = Tally::default();
        let plan = BootPlan { boot: 1, attempt: 1, runs: block.runs.clone(), confirming: None };
        let mut boot = Boot::new(&context, block, plan, &mut tally);
        let is_sound = boot.here(agent).await?;
        let name = boot.name();
        summary.add(&tally.summary());
        if !is_sound {
            // Another guest would be as before; this machine is what it is.
            tracing::error!("no further block is begun: restore what the log of {name} names, and begin again");
            break;
        }
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
        task: Task::Runs { runs: block.runs.iter().map(|run| host_setup::spec(study, block, run)).collect() },
    }
}

/// Why an agent is no longer listened to.
enum End {
    /// It closed its output.
    Closed,
    /// It was told to stop.
    Cancelled,
    /// It did something that it must not, or too slowly.
    KernelIncident(FailureKind, String),
}

impl Boot<'_> {
    /// Does the block by one agent. Whether this system is fit for another one.
    async fn here(&mut self, agent: &Agent) -> Result<bool, crate::block::BlockError> {
        let arguments = arguments(agent);
        let command = std::iter::once(&agent.program).map(|path| path.display().to_string());
        self.started(command.chain(arguments.iter().cloned()).collect())?;
        let job = job(self.context.study, self.block);
        let log = self.context.directory.join(&self.log);
        let started = unnamed(&job).and_then(|job| start(agent, &arguments, job, &log));
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                let message = format!("could not start {}: {error}", agent.program.display());
                self.over_here(Some(failure::of_host(message)), None)?;
                return Ok(true);
            }
        };

        let mut reported = Reported { phase: Phase::Boot, failed: None, unsound: None };
        let group = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let end = self.listen(&mut child, &mut reported).await;
        if !matches!(end, Ok(End::Closed)) {
            ask_to_stop(group);
        }
        let status = tokio::time::timeout(ENDING, child.wait()).await;
        kill(group);
        // Only of a run that has a tool and has ended: `handle_message` protests against any other.
        if let (Ok(End::Closed), Some((run, differences))) = (&end, reported.unsound.take()) {
            self.unsound(&run, differences)?;
            return Ok(false);
        }
        let end = end?;
        let failure = match (end, reported.failed) {
            (End::Cancelled, _) => None,
            (End::KernelIncident(kind, message), _) => Some((kind, message)),
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
        let failure = failure.map(|(kind, message)| RunFailure {
            kind,
            phase: Some(reported.phase),
            excerpt: vec![message],
            log,
            after: None,
        });
        self.over_here(failure, None)?;
        Ok(true)
    }

    /// The agent is gone. This system cannot be booted anew: what was measured before stands, but for the run at `spoilt`, after which
    /// the system was another; the run in flight failed, and so did those that the agent owes.
    fn over_here(
        &mut self,
        failure: Option<RunFailure>,
        spoilt: Option<(usize, RunFailure)>,
    ) -> Result<(), crate::block::BlockError> {
        let now = self.now();
        let ended = self.seen.ended();
        let in_flight = self.seen.in_flight();
        let owed = failure.iter().flat_map(|failure| (ended..self.plan.runs.len()).map(move |at| (at, failure)));
        let to_judge: Vec<_> = spoilt.iter().map(|(at, failure)| (*at, failure)).chain(owed).collect();
        let mut judged = Vec::new();
        for (at, failure) in to_judge {
            let Some(run) = self.plan.runs.get(at) else { continue };
            let seen = self.seen.runs.get(at);
            judged.push(Judged {
                run: run.clone(),
                boot: self.plan.boot,
                started_unix_ms: seen.map_or(now.unix_ms, |seen| seen.started_unix_ms),
                duration_ms: seen.map_or(0, |seen| seen.duration_ms(now.boot_ms)),
                failure: failure.clone(),
            });
        }
        let guilty = spoilt.as_ref().map(|(at, _)| *at).or(in_flight);
        let verdict = match (&failure, guilty.and_then(|at| self.plan.runs.get(at))) {
            (None, _) if self.is_done() => BootVerdict::Complete,
            (None, _) => BootVerdict::Interrupted,
            (Some(failure), _) if failure.kind == FailureKind::Host => BootVerdict::Host,
            (Some(_), Some(run)) => BootVerdict::Blamed { run: run.spec.id.clone() },
            (Some(_), None) => BootVerdict::Nobody,
        };
        let kept = self.plan.ids().into_iter().take(ended).collect();
        self.concluded_with(Conclusion { verdict, failure, judged }, Vec::new(), kept)
    }

    /// After the last run that ended, which is `run`, this system is not as it was before: that run is to blame, and those that are
    /// left cannot be measured.
    fn unsound(&mut self, run: &str, differences: Vec<String>) -> Result<(), crate::block::BlockError> {
        let kind = FailureKind::Unsound;
        let log = Some(self.log.clone());
        let first = format!("not run: after {run} this machine was not as it was before");
        let excerpt = std::iter::once(first).chain(differences.iter().cloned()).collect();
        let failure = RunFailure { kind, phase: None, excerpt, log: log.clone(), after: None };
        let last = self.seen.last_tool(&self.plan);
        let spoilt = last.map(|at| (at, RunFailure { kind, phase: None, excerpt: differences, log, after: None }));
        self.over_here(Some(failure), spoilt)
    }

    /// Takes in what the agent says until it says no more, or must be stopped.
    async fn listen(&mut self, child: &mut Child, reported: &mut Reported) -> Result<End, crate::block::BlockError> {
        let Some(mut stdout) = child.stdout.take() else {
            return Ok(End::KernelIncident(FailureKind::Host, "the agent was started without a pipe".to_owned()));
        };
        self.since = std::time::Instant::now();
        let limits = deadlines(self.context.study);
        let limit = |phase: Phase| limits.of(phase).map_or_else(far, |limit| Instant::now() + limit);
        let mut deadline = limit(reported.phase);
        let mut decoder = Decoder::default();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = tokio::select! {
                read = timeout_at(deadline, stdout.read(&mut buffer)) => read,
                () = self.context.cancel.cancelled() => return Ok(End::Cancelled),
            };
            let length = match read {
                Err(_) => {
                    return Ok(End::KernelIncident(
                        FailureKind::PhaseTimeout,
                        format!("the phase {} took too long", reported.phase),
                    ));
                }
                Ok(Err(error)) => {
                    return Ok(End::KernelIncident(FailureKind::Host, format!("cannot read from the agent: {error}")));
                }
                Ok(Ok(0)) if decoder.is_mid_frame() => {
                    return Ok(End::KernelIncident(
                        FailureKind::ProtocolError,
                        "the agent ended within a message".to_owned(),
                    ));
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
                            _ => FailureKind::ProtocolError,
                        };
                        return Ok(End::KernelIncident(kind, chain(&error)));
                    }
                };
                match &message {
                    GuestMessage::Phase { phase, .. } => {
                        reported.phase = *phase;
                        deadline = limit(*phase);
                    }
                    GuestMessage::Unsound { run, differences } => {
                        reported.unsound = Some((run.clone(), differences.clone()));
                    }
                    GuestMessage::Failed { message } => reported.failed = Some(message.clone()),
                    _ => {}
                }
                if let Some(protest) = self.handle_message(message)? {
                    return Ok(End::KernelIncident(FailureKind::ProtocolError, protest));
                }
            }
        }
    }
}

/// What an agent has said of itself.
struct Reported {
    /// The phase announced last.
    phase: Phase,
    /// What it failed at.
    failed: Option<String>,
    /// The run after which this system was not as before, and how.
    unsound: Option<(String, Vec<String>)>,
}

fn arguments(agent: &Agent) -> Vec<String> {
    let mut words = vec!["here".to_owned(), "--job".to_owned(), JOB.to_owned()];
    words.extend(["--mount".to_owned(), agent.mount.display().to_string()]);
    if let Some(ior) = &agent.external_ior {
        words.extend(["--external-ior".to_owned(), ior.display().to_string()]);
    }
    words
}

/// The job in a file without a name.
fn unnamed(job: &Job) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(&serde_json::to_vec(job)?)?;
    file.rewind()?;
    Ok(file)
}

/// Starts the agent as the leader of a process group, which all that it starts belongs to. It ends by itself when its output is
/// closed, and removes what it made; so it is not killed when the command comes to an early end.
fn start(agent: &Agent, arguments: &[String], job: File, log: &Path) -> io::Result<Child> {
    Command::new(&agent.program)
        .args(arguments)
        .stdin(job)
        .stdout(Stdio::piped())
        .stderr(File::create(log)?)
        .process_group(0)
        .spawn()
}

/// Asks the agent to remove what it made and to end.
fn ask_to_stop(agent: Option<Pid>) {
    match agent.map(|agent| kill_process(agent, Signal::TERM)) {
        None | Some(Ok(()) | Err(Errno::SRCH)) => {}
        Some(Err(error)) => tracing::warn!("could not ask the agent to stop: {error}"),
    }
}

/// Kills the agent and all that it started, whatever of it is left.
fn kill(group: Option<Pid>) {
    // Mostly nothing is. The number of a group stays taken for as long as there is something in it.
    match group.map(|group| kill_process_group(group, Signal::KILL)) {
        None | Some(Ok(()) | Err(Errno::SRCH)) => {}
        Some(Err(error)) => tracing::warn!("could not kill what the agent started: {error}"),
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
        carried_out_until(plan, frames, end, &CancellationToken::new())
    }

    /// The same with somebody who may cancel.
    fn carried_out_until(
        plan: &Plan,
        frames: &[u8],
        end: &str,
        cancel: &CancellationToken,
    ) -> (Summary, Contents, tempfile::TempDir) {
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
        let order = HereConfig { study: &plan.study, blocks: plan.blocks.clone(), agent: &agent, directory: &results };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let summary = runtime.block_on(carry_out_here(order, journal, &Nobody, cancel)).unwrap();
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
        let [first, second] = [&plan.blocks[0].runs[0].spec.id, &plan.blocks[0].runs[1].spec.id];
        let done = frame::encode(&GuestMessage::Done).unwrap();
        let frames = [ended(first), ended(second), done].concat();
        let (summary, contents, directory) = carried_out(&plan, &frames, "exit 0");
        assert_eq!(summary, Summary { refused: 2, ..Summary::default() });
        assert!(failures(&contents).is_empty());
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        let told = read("told");
        assert!(
            told.starts_with("here --job /dev/stdin ") && told.ends_with(" --mount /mnt/nfs --external-ior /opt/ior\n"),
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
        let first = ended(&plan.blocks[0].runs[0].spec.id);
        let (summary, contents, _) = carried_out(&plan, &first, "exit 3");
        assert_eq!(summary, Summary { refused: 1, failed: 1, ..Summary::default() });
        let [failure] = failures(&contents).try_into().unwrap();
        assert_eq!(failure.kind, FailureKind::EarlyExit);
        assert!(failure.excerpt[0].ends_with("exit status: 3"), "{failure:?}");

        let failed = GuestMessage::Failed { message: "no mount".to_owned() };
        let (_, contents, _) = carried_out(&plan, &frame::encode(&failed).unwrap(), "exit 1");
        let all = failures(&contents);
        assert_eq!((all.len(), all[0].kind, all[0].excerpt[0].as_str()), (2, FailureKind::Agent, "no mount"));
    }

    #[test]
    fn the_run_after_which_this_machine_is_another_is_to_blame_and_nothing_more_is_begun() {
        let plan = plan();
        // The tool first, since no baseline run is believed to change anything.
        let mut blocks = plan.blocks.clone();
        blocks[0].runs.sort_by_key(|run| run.spec.probe.is_baseline());
        let plan = plan.with_blocks(blocks);
        let [first, second] = [&plan.blocks[0].runs[0].spec.id, &plan.blocks[0].runs[1].spec.id];
        let unsound = |run: &String| {
            let differences = vec!["/mnt/nfs is not mounted any more".to_owned()];
            frame::encode(&GuestMessage::Unsound { run: run.clone(), differences }).unwrap()
        };
        let (summary, contents, _) = carried_out(&plan, &[ended(first), unsound(first)].concat(), "exit 1");
        assert_eq!(summary, Summary { failed: 2, ..Summary::default() });
        let [blamed, left] = failures(&contents).try_into().unwrap();
        assert_eq!(
            (blamed.kind, blamed.excerpt[0].as_str()),
            (FailureKind::Unsound, "/mnt/nfs is not mounted any more")
        );
        assert!(left.excerpt[0].starts_with(&format!("not run: after {first} ")), "{left:?}");
        // The last record of a run is the one that counts.
        let last = contents.entries.iter().rev().find_map(|entry| match entry {
            Entry::Run(record) if record.run == *first => Some(record.outcome.clone()),
            _ => None,
        });
        assert!(matches!(last, Some(Outcome::Failed(_))), "{last:?}");

        let (_, contents, _) = carried_out(&plan, &[ended(first), unsound(second)].concat(), "exit 1");
        assert_eq!(failures(&contents)[0].kind, FailureKind::ProtocolError);
    }

    /// Ctrl-C: the agent is asked to end, and waited for, so that it removes what it made.
    #[test]
    fn an_agent_that_is_to_stop_is_asked_first() {
        let plan = plan();
        let cancel = CancellationToken::new();
        let stop = cancel.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(1));
            stop.cancel();
        });
        let end =
            "trap 'sleep 0.5; echo removed >\"$(dirname \"$0\")/removed\"; exit 1' TERM\nwhile :; do sleep 0.1; done";
        let (summary, _, directory) = carried_out_until(&plan, &[], end, &cancel);
        assert!(summary.cancelled);
        assert_eq!(fs::read_to_string(directory.path().join("removed")).unwrap(), "removed\n");
    }

    #[test]
    fn an_agent_that_says_what_it_must_not_is_killed() {
        let plan = plan();
        let since = std::time::Instant::now();
        let [first, second] = [&plan.blocks[0].runs[0].spec.id, &plan.blocks[0].runs[1].spec.id];
        let done = frame::encode(&GuestMessage::Done).unwrap();
        let phase = |run: &str| GuestMessage::Phase { phase: Phase::Workload, run: Some(run.to_owned()) };
        let phase = |run: &str| frame::encode(&phase(run)).unwrap();
        for (frames, runs, excerpt) in [
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
            assert_eq!((all.len(), all[0].kind), (runs, FailureKind::ProtocolError), "{all:?}");
            assert!(all[0].excerpt[0].contains(&excerpt), "{excerpt}: {all:?}");
        }
        assert!(since.elapsed() < Duration::from_secs(50), "nothing was killed");
    }
}
