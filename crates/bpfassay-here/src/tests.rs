// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use bpfassay_protocol::{
    Arch, ProbeConfiguration, frame,
    job::{Job, Task},
    message::{GuestMessage, Phase, RunOutcome},
    probe::Probe,
    tracer_messages::{Refusal, Step},
};
use bpfassay_results::{
    FailureKind, JOURNAL_VERSION, Journal, JournalContents, JournalEntry, JournalHeader, OpenDirectory, Outcome,
    Provenance, RunFailure,
};
use bpfassay_runner::{Happening, Observer, PoolSummary, RunnerError, boot::run_context};
use bpfassay_study::{Available, Narrowing, Plan, WarmUp};

use tokio_util::sync::CancellationToken;

use super::{
    execute_here::{HereConfig, execute_here},
    here_process::Agent,
    here_reason::MachineLimits,
    here_tools::ToolPlaces,
};

/// A plan with one boot of the baseline and fexit.
fn plan() -> Plan {
    let mut study = bpfassay_study::load("quick").unwrap();
    study.clock = bpfassay_study::Clock::Wall;
    study.design.rounds = 1;
    study.design.warm_up = WarmUp::Runs(0);
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
    fn progress(&self, _: &Happening<'_>) {}
}

/// Executes the plan with an agent that writes `frames` and then runs the shell line `end`. Returns
/// what the journal has, and the directory of the results.
fn executed(plan: &Plan, frames: &[u8], end: &str) -> (PoolSummary, JournalContents, tempfile::TempDir) {
    executed_until(plan, frames, end, &CancellationToken::new())
}

/// Like [`executed`], with a token that the test can cancel.
fn executed_until(
    plan: &Plan,
    frames: &[u8],
    end: &str,
    cancel: &CancellationToken,
) -> (PoolSummary, JournalContents, tempfile::TempDir) {
    executed_in(tempfile::tempdir().unwrap(), plan, frames, end, cancel)
}

/// Like [`executed_until`], in the directory `results` of `directory`.
fn executed_in(
    directory: tempfile::TempDir,
    plan: &Plan,
    frames: &[u8],
    end: &str,
    cancel: &CancellationToken,
) -> (PoolSummary, JournalContents, tempfile::TempDir) {
    let results = directory.path().join("results");
    let header = JournalHeader {
        journal: JOURNAL_VERSION,
        started_unix_ms: 0,
        plan: plan.clone(),
        provenance: Provenance::default(),
    };
    let journal = Journal::create(&results, &header).unwrap();
    fs::write(directory.path().join("frames"), frames).unwrap();
    let program = directory.path().join("agent");
    let root = directory.path().display();
    // The script keeps its arguments, and the job that they name.
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = clear ] && {{ echo cleared >>{root}/cleared; exit 0; }}\necho \"$*\" >{root}/arguments; cp \"$3\" {root}/job; cat {root}/frames\n{end}\n"
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let agent = Agent {
        program,
        mount: "/mnt/nfs".into(),
        external_ior: Some("/opt/ior".into()),
        tools: ToolPlaces::default(),
        limits: MachineLimits::default(),
    };
    let (study, blocks) = (&plan.study, plan.blocks.clone());
    let order = HereConfig { study, blocks, agent: &agent, cluster: None };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let summary = runtime.block_on(execute_here(order, journal, &Nobody, cancel)).unwrap();
    (summary, JournalContents::read(&results).unwrap(), directory)
}

fn ended(run: &str) -> Vec<u8> {
    let refusal = Refusal { errno: Some(524), ..Refusal::new(Step::Attach, "no".to_owned()) };
    let outcome = Box::new(RunOutcome::Refused(refusal));
    frame::encode(&GuestMessage::RunEnded { run: run.to_owned(), outcome }).unwrap()
}

/// Selects the failures of runs.
fn failures(contents: &JournalContents) -> Vec<RunFailure> {
    let of = |entry: &JournalEntry| match entry {
        JournalEntry::Run(record) => match &record.outcome {
            Outcome::Failed(failure) => Some(failure.clone()),
            _ => None,
        },
        _ => None,
    };
    contents.entries.iter().filter_map(of).collect()
}

#[test]
fn what_an_agent_reports_of_its_runs_is_recorded() {
    let plan = plan();
    let [first, second] = [&plan.blocks[0].runs[0].spec.id, &plan.blocks[0].runs[1].spec.id];
    let done = frame::encode(&GuestMessage::Done).unwrap();
    let frames = [ended(first), ended(second), done].concat();
    let (summary, contents, directory) = executed(&plan, &frames, "exit 0");
    assert_eq!(summary, PoolSummary { refused: 2, ..PoolSummary::default() });
    assert!(failures(&contents).is_empty());
    let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
    let arguments = read("arguments");
    assert!(
        arguments.starts_with("here --job /dev/stdin ")
            && arguments.ends_with(" --mount /mnt/nfs --external-ior /opt/ior\n"),
        "{arguments}"
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
    let (summary, contents, _) = executed(&plan, &first, "exit 3");
    assert_eq!(summary, PoolSummary { refused: 1, failed: 1, ..PoolSummary::default() });
    let [failure] = failures(&contents).try_into().unwrap();
    assert_eq!(failure.kind, FailureKind::EarlyExit);
    assert!(failure.excerpt[0].ends_with("exit status: 3"), "{failure:?}");

    let failed = GuestMessage::Failed { message: "no mount".to_owned() };
    let (_, contents, _) = executed(&plan, &frame::encode(&failed).unwrap(), "exit 1");
    let all = failures(&contents);
    // No tool is to blame for a machine that is unfit, or on which somebody else measures.
    assert_eq!((all.len(), all[0].kind, all[0].excerpt[0].as_str()), (2, FailureKind::Host, "no mount"));
    let failed = [first, frame::encode(&failed).unwrap()].concat();
    let (_, contents, _) = executed(&plan, &failed, "exit 1");
    let all = failures(&contents);
    assert_eq!((all.len(), all[0].kind, all[0].excerpt[0].as_str()), (1, FailureKind::Agent, "no mount"));
    let (_, contents, _) = executed(&plan, &[], "kill -XFSZ $$");
    let all = failures(&contents);
    assert_eq!((all.len(), all[0].kind), (2, FailureKind::Host));
    assert!(all[0].excerpt[0].contains("ulimit -f"), "{:?}", all[0]);
}

/// The owner of a results directory can plant links and pipes in it.
#[test]
fn logs_are_written_through_no_link_and_into_no_pipe() {
    let plan = plan();
    let log = |directory: &std::path::Path| {
        let logs = directory.join("results/logs");
        fs::create_dir_all(&logs).unwrap();
        logs.join(format!("{}_boot1.log", plan.blocks[0].id))
    };
    let agent = "echo reported >&2\nexit 3";
    let (_, _, directory) = executed(&plan, &[], agent);
    assert_eq!(fs::read_to_string(log(directory.path())).unwrap(), "reported\n");
    let plants: [fn(&std::path::Path, &std::path::Path); 3] = [
        |victim, log| std::os::unix::fs::symlink(victim, log).unwrap(),
        |victim, log| fs::hard_link(victim, log).unwrap(),
        |_, log| rustix::fs::mkfifoat(rustix::fs::CWD, log, rustix::fs::Mode::RWXU).unwrap(),
    ];
    for plant in plants {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        fs::write(&victim, "kept").unwrap();
        plant(&victim, &log(directory.path()));
        if rustix::process::geteuid().is_root() {
            for owned in ["results", "results/logs"] {
                std::os::unix::fs::chown(directory.path().join(owned), Some(1000), Some(1000)).unwrap();
            }
        }
        let (_, _, directory) = executed_in(directory, &plan, &[], agent, &CancellationToken::new());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        assert_eq!(fs::read_to_string(log(directory.path())).unwrap(), "reported\n");
    }
}

#[test]
fn a_directory_of_logs_that_is_a_link_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (out, elsewhere) = (directory.path().join("results"), directory.path().join("elsewhere"));
    fs::create_dir(&elsewhere).unwrap();
    fs::create_dir(&out).unwrap();
    std::os::unix::fs::symlink(&elsewhere, out.join("logs")).unwrap();
    let opened = OpenDirectory::open(&out).unwrap();
    let error = run_context::make_logs(&opened).unwrap_err();
    assert!(matches!(&error, RunnerError::Directory { source, .. } if source.to_string().contains("symbolic link")));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn the_run_after_which_this_machine_is_another_is_to_blame_and_nothing_more_is_begun() {
    let plan = plan();
    // The tool runs first, because no baseline run is believed to change anything.
    let mut blocks = plan.blocks.clone();
    blocks[0].runs.sort_by_key(|run| run.spec.probe.is_baseline());
    let plan = plan.with_blocks(blocks);
    let [first, second] = [&plan.blocks[0].runs[0].spec.id, &plan.blocks[0].runs[1].spec.id];
    let unsound = |run: &String| {
        let differences = vec!["/mnt/nfs is not mounted any more".to_owned()];
        frame::encode(&GuestMessage::Unsound { run: run.clone(), differences }).unwrap()
    };
    let (summary, contents, _) = executed(&plan, &[ended(first), unsound(first)].concat(), "exit 1");
    assert_eq!(summary, PoolSummary { failed: 2, ..PoolSummary::default() });
    let [blamed, left] = failures(&contents).try_into().unwrap();
    assert_eq!((blamed.kind, blamed.excerpt[0].as_str()), (FailureKind::Unsound, "/mnt/nfs is not mounted any more"));
    assert!(left.excerpt[0].starts_with(&format!("not run: after {first} ")), "{left:?}");
    // The last record of a run counts.
    let last = contents.entries.iter().rev().find_map(|entry| match entry {
        JournalEntry::Run(record) if record.run == *first => Some(record.outcome.clone()),
        _ => None,
    });
    assert!(matches!(last, Some(Outcome::Failed(_))), "{last:?}");

    let (_, contents, _) = executed(&plan, &[ended(first), unsound(second)].concat(), "exit 1");
    assert_eq!(failures(&contents)[0].kind, FailureKind::ProtocolError);
}

/// After Ctrl-C the agent is asked to end and waited for, so that it removes what it made.
#[test]
fn an_agent_that_is_to_stop_is_asked_first() {
    let plan = plan();
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        stop.cancel();
    });
    let end = "trap 'sleep 0.5; echo removed >\"$(dirname \"$0\")/removed\"; exit 1' TERM\nwhile :; do sleep 0.1; done";
    let (summary, _, directory) = executed_until(&plan, &[], end, &cancel);
    assert!(summary.cancelled);
    assert_eq!(fs::read_to_string(directory.path().join("removed")).unwrap(), "removed\n");
}

#[test]
fn an_agent_that_sends_what_it_must_not_is_killed() {
    let plan = plan();
    let since = std::time::Instant::now();
    let [first, second] = [&plan.blocks[0].runs[0].spec.id, &plan.blocks[0].runs[1].spec.id];
    let done = frame::encode(&GuestMessage::Done).unwrap();
    let phase = |run: &str| GuestMessage::Phase { phase: Phase::Workload, run: Some(run.to_owned()) };
    let phase = |run: &str| frame::encode(&phase(run)).unwrap();
    for (frames, runs, excerpt) in [
        (ended("another"), 2, format!("the guest ends another, while {first} is due")),
        (ended(second), 2, format!("the guest ends {second}, while {first} is due")),
        // The message is forged or late, because the first run has ended.
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
        (done, 2, format!("reports that everything is done, while {first} is due")),
        (b"Segmentation fault".to_vec(), 2, "does not use this protocol".to_owned()),
    ] {
        let (_, contents, _) = executed(&plan, &frames, "sleep 100");
        let all = failures(&contents);
        assert_eq!((all.len(), all[0].kind), (runs, FailureKind::ProtocolError), "{all:?}");
        assert!(all[0].excerpt[0].contains(&excerpt), "{excerpt}: {all:?}");
    }
    assert!(since.elapsed() < Duration::from_secs(50), "nothing was killed");
}
