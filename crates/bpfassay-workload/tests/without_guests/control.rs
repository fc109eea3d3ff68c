// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control channel: the engine waits at the beginning and end of every phase and reports what
//! the phase did.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests, to which clippy does not extend what it allows in tests"
)]

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    os::{fd::AsRawFd as _, unix::net::UnixStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use bpfassay_ior::IorSummary;
use bpfassay_protocol::{
    Operation,
    control::{ENVIRONMENT, PhaseEvent, PhaseName},
    operation::Totals,
};

/// The agent's side.
struct Agent {
    engine: Child,
    events: BufReader<UnixStream>,
    answers: UnixStream,
}

impl Agent {
    fn start(directory: &Path, ranks: u32, args: &[&str]) -> Self {
        Self::start_as(directory, ranks, args, "summary")
    }

    /// Starts the engine with a summary of this name.
    fn start_as(directory: &Path, ranks: u32, args: &[&str], summary: &str) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        // The engine inherits this end.
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).unwrap();
        let engine = Command::new(env!("CARGO_BIN_EXE_bpfassay-ior"))
            .args(["--ranks", &ranks.to_string(), "-o"])
            .arg(directory.join("t"))
            .args(args)
            .args(["-O", &format!("summaryFormat=JSON,summaryFile={}", directory.join(summary).display())])
            .env(ENVIRONMENT, theirs.as_raw_fd().to_string())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { engine, events: BufReader::new(ours.try_clone().unwrap()), answers: ours }
    }

    /// Returns the next event. The engine waits for an answer.
    fn event(&mut self) -> Option<PhaseEvent> {
        let mut line = String::new();
        self.events.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    fn go_on(&mut self) {
        self.answers.write_all(b"\n").unwrap();
    }
}

fn begin(phase: &str, test: u32, repetition: u32) -> PhaseEvent {
    PhaseEvent::Begin(PhaseName { phase: phase.to_owned(), test, repetition })
}

fn end(phase: &str, test: u32, repetition: u32, moved: &[(Operation, u64, u64)]) -> PhaseEvent {
    let moved =
        moved.iter().map(|&(operation, calls, bytes)| (operation, Totals { calls, bytes, errors: 0 })).collect();
    PhaseEvent::End {
        phase: PhaseName { phase: phase.to_owned(), test, repetition },
        moved,
        events: Default::default(),
        mount: None,
    }
}

#[test]
fn every_phase_is_announced_with_what_it_did() {
    let directory = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(directory.path(), 2, &["-b", "64k", "-t", "16k", "-s", "2", "-i", "2", "-wWrR"]);
    let mut events = Vec::new();
    while let Some(event) = agent.event() {
        events.push(event);
        agent.go_on();
    }
    assert!(agent.engine.wait().unwrap().success());
    let all = 2 * 2 * (64 << 10);
    // The call times of a phase whose time counts follow right after its end.
    let mut timed = Vec::new();
    let mut ended = None;
    events.retain(|event| {
        match event {
            PhaseEvent::Calls { phase, calls } => {
                assert_eq!(ended.take().as_ref(), Some(phase));
                timed.push((phase.phase.clone(), phase.repetition, *calls));
            }
            PhaseEvent::End { phase, .. } => ended = Some(phase.clone()),
            PhaseEvent::Begin(_) | PhaseEvent::Meet => ended = None,
        }
        !matches!(event, PhaseEvent::Calls { .. })
    });
    let phases: Vec<_> = timed.iter().map(|(phase, repetition, _)| (phase.as_str(), *repetition)).collect();
    assert_eq!(phases, [("write", 0), ("readcheck", 0), ("write", 1), ("readcheck", 1)]);
    for (_, _, calls) in &timed {
        assert_eq!((calls.ranks, calls.calls), (2, 16));
        assert!(calls.distribution.unwrap().median_ns > 0);
        assert_eq!(calls.check(calls.sum_ns + calls.tail_ns, 16), Ok(()));
    }
    let expected: Vec<_> = (0..2)
        .flat_map(|repetition| {
            [("write", Operation::Write), ("writecheck", Operation::Read), ("readcheck", Operation::Read)]
                .into_iter()
                .flat_map(move |(phase, operation)| {
                    [begin(phase, 0, repetition), end(phase, 0, repetition, &[(operation, 16, all)])]
                })
        })
        .collect();
    assert_eq!(events, expected);
}

#[test]
fn nothing_happens_and_no_time_counts_while_the_engine_waits() {
    const PAUSE: Duration = Duration::from_millis(400);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("t");
    let mut agent = Agent::start(directory.path(), 2, &["-b", "64k", "-t", "16k"]);
    let sizes: Vec<_> = std::iter::from_fn(|| {
        let event = agent.event()?;
        let before = fs::metadata(&file).ok().map(|data| data.len());
        thread::sleep(PAUSE);
        let after = fs::metadata(&file).ok().map(|data| data.len());
        assert_eq!(before, after, "{event:?}");
        agent.go_on();
        Some(after)
    })
    .collect();
    assert!(agent.engine.wait().unwrap().success());
    let whole = Some(128 << 10);
    assert_eq!(sizes, [None, whole, whole, whole, whole, whole]);
    let summary = IorSummary::parse(&fs::read(directory.path().join("summary")).unwrap()).unwrap();
    for result in &summary.tests[0].results {
        assert!(result.total_s.unwrap() < PAUSE.as_secs_f64(), "{result:?}");
    }
}

#[test]
fn mapped_files_have_an_empty_ledger_and_tests_are_numbered() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script");
    fs::write(&script, "IOR START\napi=MMAP\nblockSize=64k,transferSize=16k\nRUN\nRUN\nIOR STOP\n").unwrap();
    let mut agent = Agent::start(directory.path(), 1, &["-f", script.to_str().unwrap()]);
    let mut events = Vec::new();
    while let Some(event) = agent.event() {
        events.push(event);
        agent.go_on();
    }
    assert!(agent.engine.wait().unwrap().success());
    let expected: Vec<_> = (0..2)
        .flat_map(|test| {
            ["write", "read"].into_iter().flat_map(move |phase| [begin(phase, test, 0), end(phase, test, 0, &[])])
        })
        .collect();
    assert_eq!(events, expected);
}

#[test]
fn without_an_answer_the_engine_gives_up() {
    let directory = tempfile::tempdir().unwrap();
    let Agent { engine, mut events, answers } = Agent::start(directory.path(), 2, &["-b", "64k", "-t", "16k"]);
    let mut line = String::new();
    events.read_line(&mut line).unwrap();
    answers.shutdown(std::net::Shutdown::Both).unwrap();
    let output = engine.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("the agent did not answer"), "{message}");
}

#[test]
fn a_channel_that_is_none_is_refused() {
    for (value, expected) in [("3,4", "expected the number of a descriptor"), ("198", "the descriptor is not open")] {
        let output = Command::new(env!("CARGO_BIN_EXE_bpfassay-ior"))
            .env(ENVIRONMENT, value)
            .args(["-b", "1m"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(5));
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected), "{output:?}");
    }
}

/// Runs `args` as two nodes of two ranks each, which meet at the agents' barriers. Returns the
/// events, which are the same on both nodes, and the errors that each printed.
fn two_nodes(directory: &Path, args: &[&str]) -> (Vec<PhaseEvent>, [String; 2]) {
    let mut nodes = ["1/2", "2/2"].map(|node| {
        let args: Vec<&str> = ["--node", node].iter().chain(args).copied().collect();
        Agent::start_as(directory, 2, &args, &format!("summary{}", &node[..1]))
    });
    let mut events = Vec::new();
    loop {
        let [first, second] = nodes.each_mut().map(|node| {
            loop {
                // Call times differ between nodes.
                match node.event() {
                    Some(PhaseEvent::Calls { .. }) => node.go_on(),
                    event => break event,
                }
            }
        });
        assert_eq!(first, second);
        let Some(event) = first else { break };
        events.push(event);
        // No node continues before both have arrived.
        nodes.iter_mut().for_each(Agent::go_on);
    }
    let errors = nodes.map(|node| {
        let output = node.engine.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stderr).into_owned()
    });
    (events, errors)
}

#[test]
fn ranks_of_two_nodes_share_a_file_and_read_what_the_other_node_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let args = ["-b", "64k", "-t", "16k", "-s", "2", "-w", "-R", "-C", "-G", "7", "-g", "-i", "2"];
    let (events, errors) = two_nodes(directory.path(), &args);
    // The data are at the positions for ranks numbered over both nodes. Otherwise the check would
    // find errors. No warning about sizes is printed.
    assert_eq!(errors, ["", ""]);
    // 2 ranks · 2 segments · 64 KiB on each node.
    let share = 2 * 2 * (64 << 10);
    let phase = |name: &str, repetition, operation| {
        vec![
            begin(name, 0, repetition),
            // Barriers of -g: after opening, and before closing.
            PhaseEvent::Meet,
            PhaseEvent::Meet,
            end(name, 0, repetition, &[(operation, 16, share)]),
        ]
    };
    let expected: Vec<_> = (0..2)
        .flat_map(|repetition| {
            let phases =
                [phase("write", repetition, Operation::Write), phase("readcheck", repetition, Operation::Read)];
            // Barriers before and after the removal of the file.
            phases.into_iter().flatten().chain([PhaseEvent::Meet, PhaseEvent::Meet])
        })
        .collect();
    assert_eq!(events, expected);
    assert!(!directory.path().join("t").exists());
}

#[test]
fn nodes_have_files_of_their_ranks_own() {
    let directory = tempfile::tempdir().unwrap();
    let (_, errors) = two_nodes(directory.path(), &["-b", "32k", "-t", "32k", "-w", "-F", "-k"]);
    assert_eq!(errors, ["", ""]);
    let mut files: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["summary1", "summary2", "t.00000000", "t.00000001", "t.00000002", "t.00000003"]);
}

#[test]
fn what_nodes_cannot_agree_on_is_refused_before_any_file_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let agent = Agent::start(directory.path(), 2, &["--node", "1/2", "-b", "64k", "-t", "16k", "-w", "-D", "1"]);
    let output = agent.engine.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("leave it out with several nodes"));
    let alone = Command::new(env!("CARGO_BIN_EXE_bpfassay-ior")).args(["--node", "1/2", "-w"]).output().unwrap();
    assert_eq!(alone.status.code(), Some(2));
}
