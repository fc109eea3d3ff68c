// SPDX-License-Identifier: MIT OR Apache-2.0
//! Faulty agents: messages that a correct agent does not send.

use bpfassay_protocol::{
    PROTOCOL_VERSION,
    frame::MAX_PAYLOAD,
    message::{GuestFacts, GuestMessage, Phase, RunFigures, RunOutcome},
    tracer_messages::{Refusal, Step as RefusedStep},
};

use super::{Draw, FaultKind};
use crate::{
    agent::{
        lying_figures::{FigureState, facts},
        player::{FIRST, OTHER, THIS},
    },
    chaos_study::TrialClock,
    script::{Action, BootPoint, Moment, Rule, RunStep, SentPiece, Then},
    trial::FaultTrial,
};

/// Messages are missing or out of order.
const PROTOCOL_ERROR: &[&str] = &["protocol_error"];
const VERSION: &[&str] = &["protocol_version"];
/// An agent that gives up before its first message sends that report out of order.
const AGENT: &[&str] = &["agent", "protocol_error"];
/// A truncated message counts as either.
const CUT: &[&str] = &["protocol_error", "early_exit"];
/// An agent exceeds the boot timeout before its first message, and a phase timeout later.
const LATE: &[&str] = &["phase_timeout", "boot_timeout"];
/// A flood ends the guest as a flood, or it blocks the other messages.
const FLOOD: &[&str] = &["protocol_error", "flood", "phase_timeout"];

/// Control characters that must not reach a terminal.
const ESCAPES: &str = "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m red \r\u{8}\u{7f}\u{202e}";

pub(super) const FAULTS: &[FaultKind] = &[
    FaultKind::new("agent/bytes", |draw| {
        broken(draw, SentPiece::Bytes(b"\n[    0.0] no frame".to_vec()), PROTOCOL_ERROR)
    }),
    FaultKind::new("agent/other-version", |draw| broken(draw, SentPiece::Bytes(version(1)), VERSION)),
    FaultKind::new("agent/older-version", |draw| broken(draw, SentPiece::Bytes(version(-1)), VERSION)),
    FaultKind::new("agent/frame-too-large", |draw| {
        broken(draw, SentPiece::Bytes(header(MAX_PAYLOAD + 1)), PROTOCOL_ERROR)
    }),
    FaultKind::new("agent/no-json", |draw| broken(draw, SentPiece::Payload(vec![0xff; 100]), PROTOCOL_ERROR)),
    FaultKind::new("agent/other-json", |draw| broken(draw, SentPiece::Payload(b"[1,{}]".to_vec()), PROTOCOL_ERROR)),
    FaultKind::new("agent/deep-json", |draw| broken(draw, SentPiece::Payload(vec![b'['; 100_000]), PROTOCOL_ERROR)),
    FaultKind::new("agent/unknown-message", |draw| {
        broken(draw, SentPiece::Payload(br#"{"type":"reboot"}"#.to_vec()), PROTOCOL_ERROR)
    }),
    FaultKind::new("agent/empty-frame", |draw| broken(draw, SentPiece::Payload(Vec::new()), PROTOCOL_ERROR)),
    FaultKind::new("agent/forged-phase", |draw| broken(draw, phase(Phase::Workload, "no_such_run"), PROTOCOL_ERROR)),
    FaultKind::new("agent/forged-end", |draw| {
        broken(draw, SentPiece::Measured("no_such_run".to_owned()), PROTOCOL_ERROR)
    }),
    FaultKind::new("agent/endless-name", |draw| {
        broken(draw, phase(Phase::Workload, &"r".repeat(1 << 20)), PROTOCOL_ERROR)
    }),
    FaultKind::new("agent/end-out-of-turn", |draw| broken(draw, SentPiece::Measured(OTHER.to_owned()), PROTOCOL_ERROR)),
    FaultKind::new("agent/phase-out-of-turn", |draw| broken(draw, phase(Phase::TearDown, OTHER), PROTOCOL_ERROR)),
    FaultKind::new("agent/phase-without-run", |draw| broken(draw, no_run(Phase::Workload), PROTOCOL_ERROR)),
    FaultKind::new("agent/set-up-again", |draw| in_flight(draw, no_run(Phase::SetUp), PROTOCOL_ERROR)),
    FaultKind::new("agent/boot-phase", |draw| broken(draw, no_run(Phase::Boot), PROTOCOL_ERROR)),
    FaultKind::new("agent/hello-again", |draw| in_flight(draw, hello(), PROTOCOL_ERROR)),
    FaultKind::new("agent/ready-again", |draw| {
        in_flight(draw, SentPiece::Message(GuestMessage::Ready(Box::new(facts("")))), PROTOCOL_ERROR)
    }),
    FaultKind::new("agent/phase-again", |draw| in_flight(draw, phase(Phase::Workload, THIS), PROTOCOL_ERROR)),
    FaultKind::new("agent/phase-for-ever", |draw| {
        in_flight(draw, SentPiece::Repeated(1000, 300, Box::new(phase(Phase::Workload, THIS))), PROTOCOL_ERROR)
    }),
    FaultKind::new("agent/shell", |draw| broken_so(draw, no_run(Phase::Shell), Then::Hangs, PROTOCOL_ERROR)),
    FaultKind::new("agent/done-too-early", |draw| {
        let action = Action::Send(vec![SentPiece::Message(GuestMessage::Done)], Then::PowersOff);
        draw.broken_run(action, CUT)
    }),
    FaultKind::new("agent/gives-up", |draw| {
        let message = format!("mount: no such device {ESCAPES}");
        broken_so(draw, SentPiece::Message(GuestMessage::Failed { message }), Then::PowersOff, AGENT)
    }),
    FaultKind::new("agent/unsound-baseline", |draw| broken_so(draw, unsound(FIRST), Then::PowersOff, PROTOCOL_ERROR)),
    FaultKind::new("agent/unsound-forged", |draw| {
        broken_so(draw, unsound("no_such_run"), Then::PowersOff, PROTOCOL_ERROR)
    }),
    FaultKind::new("agent/late-end", |draw| late(draw, |run| SentPiece::Measured(run.to_owned()))),
    FaultKind::new("agent/late-phase", |draw| late(draw, |run| phase(Phase::TearDown, run))),
    FaultKind::new("agent/after-done", after_done),
    FaultKind::new("agent/silence", |draw| draw.broken_guest(Action::Send(Vec::new(), Then::Hangs), LATE, true)).rare(),
    FaultKind::new("agent/half-a-frame", |draw| {
        let half = SentPiece::Truncated(20, Box::new(SentPiece::Large(1000)));
        draw.broken_guest(Action::Send(vec![half], Then::Hangs), LATE, true)
    })
    .rare(),
    FaultKind::new("agent/cut-off", |draw| {
        broken_so(draw, SentPiece::Truncated(20, Box::new(SentPiece::Large(1000))), Then::PowersOff, CUT)
    }),
    FaultKind::new("agent/lingers", never_powers_off).rare().by(TrialClock::Wall),
    FaultKind::new("agent/flood", |draw| flood(draw, SentPiece::AgentFlood(400))).rare(),
    FaultKind::new("agent/console-flood", |draw| flood(draw, SentPiece::ConsoleFlood(400))).rare(),
    FaultKind::new("agent/largest-frame", |draw| harmless(draw, SentPiece::Large(MAX_PAYLOAD))),
    FaultKind::new("agent/slow", |draw| harmless(draw, SentPiece::ByteByByte(2, Box::new(SentPiece::Large(200))))),
    FaultKind::new("agent/talkative", |draw| {
        harmless(draw, SentPiece::Repeated(3000, 0, Box::new(SentPiece::Large(100))))
    }),
    FaultKind::new("agent/escapes", |draw| {
        harmless(draw, SentPiece::Message(GuestMessage::Log { text: ESCAPES.to_owned() }))
    }),
    FaultKind::new("agent/console-escapes", |draw| {
        harmless(draw, SentPiece::Console(vec![format!("WARN {ESCAPES}"); 3]))
    }),
    FaultKind::new("agent/endless-line", |draw| harmless(draw, SentPiece::Console(vec!["x".repeat(4 << 20)]))),
    FaultKind::new("agent/absurd-facts", absurd_facts),
    FaultKind::new("agent/absurd-figures", absurd_figures),
    FaultKind::new("agent/refuses", |draw| {
        let refusal = Refusal {
            program: Some(ESCAPES.to_owned()),
            errno: Some(i32::MIN),
            verifier: Some(ESCAPES.repeat(1000)),
            ..Refusal::new(RefusedStep::Attach, format!("no\nsuch\tthing {ESCAPES}"))
        };
        lies(draw, |_| RunOutcome::Refused(refusal.clone()))
    }),
    FaultKind::new("agent/run-fails", |draw| {
        let mut trial = draw.trial();
        let position = draw.run(|_| true);
        trial.expected.fails_in_guest(position.id(), &["run"]);
        trial.expected.lasts = true;
        trial.parameters = format!("always in {}", position.id());
        let message = format!("the workload failed {ESCAPES} {}", "x".repeat(1 << 20));
        let action = Action::Outcome(Box::new(RunOutcome::Failed { message }));
        let points = vec![BootPoint::Run(position.id().to_owned(), RunStep::End)];
        trial.rules.push(Rule { when: Moment::always(None, points), action });
        trial
    }),
];

/// A guest that sends `piece` and continues normally.
fn broken(draw: &mut Draw<'_>, piece: SentPiece, kinds: &[&'static str]) -> FaultTrial {
    broken_so(draw, piece, Then::GoesOn, kinds)
}

fn broken_so(draw: &mut Draw<'_>, piece: SentPiece, then: Then, kinds: &[&'static str]) -> FaultTrial {
    draw.broken_guest(Action::Send(vec![piece], then), kinds, false)
}

/// Like [`broken`], but a run must be in flight.
fn in_flight(draw: &mut Draw<'_>, piece: SentPiece, kinds: &[&'static str]) -> FaultTrial {
    draw.broken_run(Action::Send(vec![piece], Then::GoesOn), kinds)
}

fn harmless(draw: &mut Draw<'_>, piece: SentPiece) -> FaultTrial {
    draw.harmless(Action::Send(vec![piece], Then::GoesOn))
}

/// Sends a false report about a tool run after the run has ended. No run is in flight, and this
/// tool run was the last one.
fn late(draw: &mut Draw<'_>, piece: fn(&str) -> SentPiece) -> FaultTrial {
    let mut trial = draw.trial();
    let position = draw.run(|position| position.is_tool() && position.next().is_some());
    trial.expected.blame(position.id(), PROTOCOL_ERROR, true);
    trial.expected.lasts = true;
    trial.parameters = format!("always after {}", position.id());
    let points = vec![BootPoint::After(position.id().to_owned())];
    trial.rules.push(Rule {
        when: Moment::always(None, points),
        action: Action::Send(vec![piece(position.id())], Then::GoesOn),
    });
    trial
}

/// Sends the piece after everything was done. The boot ends well, or its last tool run is blamed.
fn after_done(draw: &mut Draw<'_>) -> FaultTrial {
    let mut trial = draw.trial();
    let block = draw.block();
    let last = super::RunPosition { block, index: block.runs.len() }.tool_before();
    if let Some(last) = last {
        trial.expected.blame(last.id(), PROTOCOL_ERROR, false);
    }
    trial.parameters = format!("once in {}", block.id);
    trial.rules.push(Rule {
        when: Moment::once(&block.id, BootPoint::Done),
        action: Action::Send(vec![SentPiece::Measured(block.runs[0].spec.id.clone())], Then::GoesOn),
    });
    trial
}

/// The guest never powers off, but everything was done.
fn never_powers_off(draw: &mut Draw<'_>) -> FaultTrial {
    let mut trial = draw.trial();
    let block = draw.block();
    trial.expected.hangs = 4;
    trial.parameters = format!("once in {}", block.id);
    trial
        .rules
        .push(Rule { when: Moment::once(&block.id, BootPoint::Done), action: Action::Send(Vec::new(), Then::Hangs) });
    trial
}

/// A flood is either absorbed or ends the guest. The memory that it took is checked in any case.
fn flood(draw: &mut Draw<'_>, piece: SentPiece) -> FaultTrial {
    let mut trial = draw.trial();
    let position = draw.tool_run();
    trial.expected.blame(position.id(), FLOOD, false);
    trial.expected.lasts = true;
    trial.expected.hangs = 4;
    trial.parameters = format!("always in {}", position.id());
    let points = vec![BootPoint::Run(position.id().to_owned(), RunStep::Workload)];
    trial.rules.push(Rule { when: Moment::always(None, points), action: Action::Send(vec![piece], Then::GoesOn) });
    trial
}

fn absurd_facts(draw: &mut Draw<'_>) -> FaultTrial {
    let mut trial = draw.trial();
    let block = draw.block();
    let absurd = GuestFacts {
        kernel_release: ESCAPES.repeat(1000),
        cpus: u32::MAX,
        memory_kib: u64::MAX,
        page_size: 0,
        mitigations: (0..10_000).map(|number| (format!("{number}{ESCAPES}"), ESCAPES.to_owned())).collect(),
        steps: (0..10_000).map(|number| (ESCAPES.to_owned(), u64::MAX - number)).collect(),
        ..GuestFacts::default()
    };
    // These facts differ from the facts that the job requested.
    super::host_of(&mut trial.expected, block.runs.iter().map(|run| &run.spec.id));
    trial.parameters = format!("once in {}", block.id);
    trial.rules.push(Rule { when: Moment::once(&block.id, BootPoint::SetUp), action: Action::Facts(Box::new(absurd)) });
    trial
}

/// A run reports impossible figures. No check looks at them, but they must not affect another run.
fn absurd_figures(draw: &mut Draw<'_>) -> FaultTrial {
    let which = draw.random.below(ABSURD.len() as u64);
    let spoil = usize::try_from(which).ok().and_then(|which| ABSURD.get(which)).map_or(ABSURD[0], |spoil| *spoil);
    let mut trial = lies(draw, |spec| {
        let mut figures = FigureState::new(1).figures(spec);
        spoil(&mut figures);
        RunOutcome::Measured(Box::new(figures))
    });
    trial.parameters = format!("way {which}, {}", trial.parameters);
    trial
}

/// The kinds of impossible figures.
const ABSURD: &[fn(&mut RunFigures)] = &[
    |figures| figures.phases.iter_mut().for_each(|phase| phase.interval.after.monotonic_ns = 0),
    |figures| figures.whole.before.monotonic_ns = u64::MAX,
    |figures| {
        for phase in &mut figures.phases {
            for totals in phase.moved.values_mut() {
                totals.bytes = u64::MAX;
                totals.calls = 0;
            }
        }
    },
    |figures| figures.summary = ESCAPES.repeat(10_000),
    |figures| figures.summary = figures.summary.replace("\"bwMiB\":", "\"bwMiB\":-1e308,\"was\":"),
    |figures| figures.summary = figures.summary.replace("\"totalTime\":", "\"totalTime\":0,\"was\":"),
    |figures| figures.phases.clear(),
    |figures| {
        let phases = figures.phases.clone();
        figures.phases.extend((0..2000).flat_map(|_| phases.clone()));
    },
    |figures| figures.tracer = None,
    |figures| figures.phases.iter_mut().for_each(|phase| phase.name = ESCAPES.to_owned()),
    |figures| {
        for phase in &mut figures.phases {
            phase.repetition = u32::MAX;
            phase.test = u32::MAX;
        }
    },
    |figures| {
        for reading in
            figures.phases.iter_mut().flat_map(|phase| [&mut phase.interval.before, &mut phase.interval.after])
        {
            reading.idle_ns = Some(u64::MAX);
            for row in reading.tracer.iter_mut().flat_map(|sample| &mut sample.rows) {
                row.totals.bytes = u64::MAX - row.totals.bytes;
            }
        }
    },
    // The guest's clock was set during the run: time went backwards.
    |figures| {
        figures.phases.reverse();
        std::mem::swap(&mut figures.whole.before, &mut figures.whole.after);
    },
];

/// A tool run ends with an outcome that the guest invents.
fn lies(draw: &mut Draw<'_>, outcome: impl Fn(&bpfassay_protocol::job::RunSpec) -> RunOutcome) -> FaultTrial {
    let mut trial = draw.trial();
    let position = draw.tool_run();
    trial.expected.lies.insert(position.id().to_owned());
    trial.expected.lasts = true;
    trial.parameters = format!("always in {}", position.id());
    let action = Action::Outcome(Box::new(outcome(&position.block.runs[position.index].spec)));
    let points = vec![BootPoint::Run(position.id().to_owned(), RunStep::End)];
    trial.rules.push(Rule { when: Moment::always(None, points), action });
    trial
}

fn phase(phase: Phase, run: &str) -> SentPiece {
    SentPiece::Message(GuestMessage::Phase { phase, run: Some(run.to_owned()) })
}

const fn no_run(phase: Phase) -> SentPiece {
    SentPiece::Message(GuestMessage::Phase { phase, run: None })
}

fn hello() -> SentPiece {
    SentPiece::Message(GuestMessage::Hello { agent: ESCAPES.to_owned() })
}

fn unsound(run: &str) -> SentPiece {
    SentPiece::Message(GuestMessage::Unsound { run: run.to_owned(), differences: vec![ESCAPES.to_owned()] })
}

/// Returns the header of a frame that announces `length` bytes.
fn header(length: usize) -> Vec<u8> {
    let mut bytes = version(0);
    bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    bytes
}

/// Returns the first bytes of a frame whose version is `step` away from the current one.
fn version(step: i64) -> Vec<u8> {
    let version = i64::from(PROTOCOL_VERSION) + step;
    vec![b'B', b'P', b'A', u8::try_from(version).unwrap_or_default()]
}
