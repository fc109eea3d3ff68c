// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plays the guest from the agent's first message to the last, with the script's actions.

use std::{ffi::OsString, fs::File, io, os::unix::net::UnixStream, process::ExitCode, thread, time::Duration};

use bpfassay_protocol::{
    job::RunSpec,
    message::{GuestFacts, GuestMessage, Phase, RunOutcome},
};
use rustix::process::{Signal, getppid};

use super::{
    arguments::{home, inherited, job, runs, seed, value},
    lying_figures::{FigureState, facts},
    lying_machine::PlayerMonitor,
    send::AgentLine,
};
use crate::{
    chaos_control,
    script::{Action, AgentScript, BootPoint, RunStep, SentPiece, Then},
};

/// Descriptor numbers from `bpfassay_vm::device::descriptor`.
const CONSOLE: i32 = 900;
const AGENT: i32 = 901;
/// Time between two messages of a correct agent. Real agents take longer.
const PACE: Duration = Duration::from_millis(1);
/// The least time from QEMU's start to the agent's first message. Real guests need seconds.
/// bpfassay needs some time for its first messages to QEMU's monitor, and QEMU must not have ended
/// before.
const BOOT: Duration = Duration::from_millis(500);
/// [`BOOT`] is slept in this many steps. A loaded host stretches each, as it slows bpfassay.
const STEPS: u32 = 50;
/// Placeholder in a script's messages: the run in flight, or the next one.
pub const THIS: &str = "{this}";
/// Placeholder: the last run of the boot, or the first one if the run in flight is the last.
pub const OTHER: &str = "{other}";
/// Placeholder: the first run of the boot.
pub const FIRST: &str = "{first}";

/// Plays the guest of a QEMU with `arguments`.
///
/// # Errors
/// If the script or the job cannot be read, a descriptor is missing, QEMU's monitor does not
/// answer, or a message or console output cannot be written.
pub(crate) fn run(arguments: &[OsString]) -> io::Result<ExitCode> {
    // The guest dies with its QEMU.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let script = AgentScript::read(&home(arguments))?;
    let job = job(arguments)?;
    let monitor = UnixStream::from(inherited(0)?);
    let player = Player {
        script: &script,
        ids: runs(&job).iter().map(|run| run.id.as_str()).collect(),
        runs: runs(&job),
        line: AgentLine { agent: File::from(inherited(AGENT)?), console: File::from(inherited(CONSOLE)?) },
        // Only from now on can QEMU be killed or stopped, because the program that started QEMU
        // watches it now.
        machine: PlayerMonitor::connect(monitor)?,
        past: FigureState::new(seed(arguments)),
        command_line: value(arguments, "-append").map(|line| line.to_string_lossy().into_owned()).unwrap_or_default(),
        at: 0,
    };
    player.play()?;
    Ok(ExitCode::SUCCESS)
}

struct Player<'a> {
    script: &'a AgentScript,
    runs: &'a [RunSpec],
    ids: Vec<&'a str>,
    line: AgentLine,
    machine: PlayerMonitor,
    past: FigureState,
    /// The kernel's command line.
    command_line: String,
    /// Index of the run in flight, or of the next one.
    at: usize,
}

/// Whether the guest continues, and with what.
enum Life {
    GoesOn,
    With(Box<RunOutcome>),
    As(Box<GuestFacts>),
    Over,
}

impl Player<'_> {
    fn play(mut self) -> io::Result<()> {
        for _ in 0..STEPS {
            thread::sleep(BOOT / STEPS);
        }
        let begin = [
            (BootPoint::Boot, Some(GuestMessage::Hello { agent: env!("CARGO_PKG_VERSION").to_owned() })),
            (BootPoint::Hello, Some(GuestMessage::Phase { phase: Phase::SetUp, run: None })),
            (BootPoint::SetUp, Some(GuestMessage::Ready(Box::new(facts(&self.command_line))))),
            (BootPoint::Ready, None),
        ];
        for (point, message) in begin {
            let message = match (self.reach(&point)?, message) {
                (Life::Over, _) => return Ok(()),
                (Life::As(facts), Some(GuestMessage::Ready(_))) => Some(GuestMessage::Ready(facts)),
                (_, message) => message,
            };
            if let Some(message) = message {
                self.send(&message)?;
            }
        }
        let mut before: Option<&str> = None;
        for spec in self.runs {
            if !self.run(spec, before)? {
                return Ok(());
            }
            before = Some(&spec.id);
        }
        self.send(&GuestMessage::Done)?;
        if matches!(self.reach(&BootPoint::Done)?, Life::Over) {
            return Ok(());
        }
        self.machine.power_off()
    }

    /// Plays one run. Returns whether the guest continues.
    ///
    /// # Errors
    /// If a message or console output cannot be written, or the script's action at one of the run's
    /// points fails (see [`Self::reach`]).
    fn run(&mut self, spec: &RunSpec, before: Option<&str>) -> io::Result<bool> {
        let steps = [
            (RunStep::Attach, Phase::Attach),
            (RunStep::Workload, Phase::Workload),
            (RunStep::TearDown, Phase::TearDown),
        ];
        for (step, phase) in steps {
            if step == RunStep::Attach && spec.probe.is_baseline() && spec.tool.is_none() {
                continue;
            }
            self.send(&GuestMessage::Phase { phase, run: Some(spec.id.clone()) })?;
            let next = before.filter(|_| step == RunStep::Workload).map(|run| BootPoint::DuringNext(run.to_owned()));
            for point in next.into_iter().chain([BootPoint::Run(spec.id.clone(), step)]) {
                if matches!(self.reach(&point)?, Life::Over) {
                    return Ok(false);
                }
            }
        }
        let outcome = match self.reach(&BootPoint::Run(spec.id.clone(), RunStep::End))? {
            Life::Over => return Ok(false),
            Life::With(outcome) => outcome,
            Life::GoesOn | Life::As(_) => Box::new(RunOutcome::Measured(Box::new(self.past.figures(spec)))),
        };
        self.past.ran(&spec.id);
        self.at += 1;
        self.send(&GuestMessage::RunEnded { run: spec.id.clone(), outcome })?;
        Ok(!matches!(self.reach(&BootPoint::After(spec.id.clone()))?, Life::Over))
    }

    fn send(&mut self, message: &GuestMessage) -> io::Result<()> {
        thread::sleep(PACE);
        self.line.message(message)
    }

    /// Executes the script's action at `point`.
    ///
    /// # Errors
    /// If the driver does not do the host's part, QEMU cannot be sent a signal, its monitor does
    /// not answer, or a port cannot be written to.
    fn reach(&mut self, point: &BootPoint) -> io::Result<Life> {
        match self.script.action(point, &self.ids) {
            None | Some(Action::Refuse { .. }) => Ok(Life::GoesOn),
            Some(Action::Host(index)) => {
                chaos_control::ask(&self.script.state, *index)?;
                Ok(Life::GoesOn)
            }
            Some(Action::Kill(signal)) => {
                self.to_qemu(*signal)?;
                // QEMU handles a caught signal with a delay. The guest does nothing in the
                // meantime.
                Ok(hang())
            }
            Some(Action::Stop(for_ms)) => {
                self.to_qemu(Signal::STOP.as_raw())?;
                let Some(for_ms) = for_ms else { return Ok(hang()) };
                thread::sleep(Duration::from_millis(*for_ms));
                self.to_qemu(Signal::CONT.as_raw())?;
                Ok(Life::GoesOn)
            }
            Some(Action::Facts(facts)) => Ok(Life::As(facts.clone())),
            Some(Action::Outcome(outcome)) => Ok(Life::With(outcome.clone())),
            Some(Action::Send(pieces, then)) => {
                for piece in pieces {
                    let piece = self.named(piece);
                    let figures = |id: &str| {
                        let spec = self.runs.iter().find(|spec| spec.id == id);
                        spec.map(|spec| self.past.figures(spec))
                    };
                    self.line.piece(&piece, &figures)?;
                }
                match then {
                    Then::GoesOn => return Ok(Life::GoesOn),
                    Then::Hangs => return Ok(hang()),
                    Then::PowersOff => self.machine.power_off()?,
                    Then::Resets => self.machine.reset()?,
                }
                Ok(Life::Over)
            }
        }
    }

    /// Returns `piece` with placeholders replaced by names of runs.
    fn named(&self, piece: &SentPiece) -> SentPiece {
        let of = |index: usize| self.ids.get(index).copied().unwrap_or_default();
        let last = self.ids.len().saturating_sub(1);
        let name = |run: &String| match run.as_str() {
            THIS => of(self.at.min(last)).to_owned(),
            OTHER => of(if self.at >= last { 0 } else { last }).to_owned(),
            FIRST => of(0).to_owned(),
            other => other.to_owned(),
        };
        match piece {
            SentPiece::Message(GuestMessage::Phase { phase, run: Some(run) }) => {
                SentPiece::Message(GuestMessage::Phase { phase: *phase, run: Some(name(run)) })
            }
            SentPiece::Message(GuestMessage::Unsound { run, differences }) => {
                SentPiece::Message(GuestMessage::Unsound { run: name(run), differences: differences.clone() })
            }
            SentPiece::Measured(run) => SentPiece::Measured(name(run)),
            SentPiece::Repeated(count, ms, piece) => SentPiece::Repeated(*count, *ms, Box::new(self.named(piece))),
            piece => piece.clone(),
        }
    }

    fn to_qemu(&self, signal: i32) -> io::Result<()> {
        let qemu = getppid().map_or(0, |pid| pid.as_raw_pid().unsigned_abs());
        crate::command_process::signal(qemu, signal)
    }
}

/// Waits for ever: the kernel kills the player when QEMU has exited.
fn hang() -> Life {
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}
