// SPDX-License-Identifier: MIT OR Apache-2.0
//! The script of the stand-in for QEMU: what to do, and when. The driver writes the script to a
//! file next to the stand-in before each command.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use bpfassay_protocol::message::{GuestFacts, GuestMessage, RunOutcome};
use serde::{Deserialize, Serialize};

/// Name of the script, in the directory of the stand-in.
pub const FILE_NAME: &str = "script.json";

/// The instructions of the stand-in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentScript {
    /// The real QEMU.
    pub qemu: PathBuf,
    /// Directory for the counts of actions and the driver's socket. Any user can write to it.
    pub state: PathBuf,
    /// Actions of the guest in addition to those of a correct guest.
    pub rules: Vec<Rule>,
}

/// An action at a moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rule {
    /// When the action is done.
    pub when: Moment,
    /// The action.
    pub action: Action,
}

/// A moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Restricts the rule to boots of this block; `None` is any boot.
    pub block: Option<String>,
    /// The points in a boot at which the action is done.
    pub points: Vec<BootPoint>,
    /// The maximum number of times; `None` is every time.
    pub times: Option<u32>,
}

/// A point in a boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BootPoint {
    /// QEMU was started and has done nothing yet.
    Launch,
    /// Before the agent's first message.
    Boot,
    /// After the agent's first message.
    Hello,
    /// In the phase set-up.
    SetUp,
    /// After the guest reported that it is ready.
    Ready,
    /// In a run, just after the step's phase began; for [`RunStep::End`], just before the report.
    Run(String, RunStep),
    /// Between this run and the next.
    After(String),
    /// In the workload of the next run.
    DuringNext(String),
    /// After the agent's final message, before the guest powers off.
    Done,
}

/// A step of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunStep {
    /// The phase attach; baselines have none.
    Attach,
    /// The phase workload.
    Workload,
    /// The phase tear-down.
    TearDown,
    /// Just before the run's end is reported.
    End,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// The driver does the host's action with this number. The guest waits until it is done.
    Host(usize),
    /// QEMU exits before it opens its monitor.
    Refuse {
        /// The exit status.
        status: u8,
        /// The message on standard error.
        message: String,
    },
    /// QEMU gets this signal.
    Kill(i32),
    /// QEMU and the guest are stopped, for this many milliseconds if `Some`.
    Stop(Option<u64>),
    /// The guest sends the pieces, then continues as given.
    Send(Vec<SentPiece>, Then),
    /// The guest reports these facts about itself when it is ready (at [`BootPoint::SetUp`]).
    Facts(Box<GuestFacts>),
    /// The run that ends now ends with this outcome.
    Outcome(Box<RunOutcome>),
}

/// The guest's behaviour after it has sent something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Then {
    /// It continues normally.
    GoesOn,
    /// It does nothing more, for ever.
    Hangs,
    /// It powers off.
    PowersOff,
    /// It resets itself.
    Resets,
}

/// Part of what a guest sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum SentPiece {
    /// A message in its frame. Its run may be a placeholder ([`crate::agent::player::THIS`]).
    Message(GuestMessage),
    /// The end of a run, with the figures that it would have.
    Measured(String),
    /// These bytes.
    Bytes(Vec<u8>),
    /// A frame with this payload.
    Payload(Vec<u8>),
    /// A message for the log, in a frame with a payload of so many bytes.
    Large(usize),
    /// Lines on the console.
    Console(Vec<String>),
    /// This many MiB of lines on the console.
    ConsoleFlood(u64),
    /// This many MiB of messages for the log.
    AgentFlood(u64),
    /// A pause in milliseconds.
    Pause(u64),
    /// A piece so many times, with a pause in milliseconds after each.
    Repeated(u32, u64, Box<SentPiece>),
    /// The bytes of a piece one by one, with a pause in milliseconds after each.
    ByteByByte(u64, Box<SentPiece>),
    /// The first so many bytes of a piece.
    Truncated(usize, Box<SentPiece>),
}

impl AgentScript {
    /// Reads the script in `directory`.
    ///
    /// # Errors
    /// The system's error if the file cannot be read; `InvalidData` if it is not a script.
    pub fn read(directory: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(directory.join(FILE_NAME))?)?)
    }

    /// Writes the script into `directory` and replaces another one.
    ///
    /// # Errors
    /// The system's error if the file cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let new = directory.join("script.new");
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(new, directory.join(FILE_NAME))
    }

    /// Returns the action due at `point` of a boot that does `runs`. It then counts as done.
    #[must_use]
    pub fn action(&self, point: &BootPoint, runs: &[&str]) -> Option<&Action> {
        self.rules.iter().enumerate().find_map(|(index, act)| {
            let is_of = |block: &String| {
                let prefix = format!("{block}_");
                runs.iter().any(|run| run.starts_with(&prefix))
            };
            let here = act.when.points.contains(point) && act.when.block.as_ref().is_none_or(is_of);
            (here && self.counts(index, act.when.times)).then_some(&act.action)
        })
    }

    /// Whether the rule `index` can act once more. All guests' boots share one count.
    fn counts(&self, index: usize, times: Option<u32>) -> bool {
        let Some(times) = times else { return true };
        (0..times).any(|time| {
            let path = self.state.join(format!("done-{index}-{time}"));
            fs::File::options().write(true).create_new(true).open(path).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_act_is_done_at_its_point_and_so_often() {
        let state = tempfile::tempdir().unwrap();
        let when = Moment { block: Some("b_1".to_owned()), points: vec![BootPoint::Ready], times: Some(2) };
        let script = AgentScript {
            qemu: PathBuf::new(),
            state: state.path().to_owned(),
            rules: vec![Rule { when, action: Action::Kill(9) }],
        };
        script.write(state.path()).unwrap();
        let script = AgentScript::read(state.path()).unwrap();
        assert_eq!(script.action(&BootPoint::Boot, &["b_1_r1"]), None);
        assert_eq!(script.action(&BootPoint::Ready, &["b_10_r1"]), None, "another block");
        assert_eq!(script.action(&BootPoint::Ready, &["b_1_r1"]), Some(&Action::Kill(9)));
        assert!(script.action(&BootPoint::Ready, &["b_1_r1"]).is_some());
        assert_eq!(script.action(&BootPoint::Ready, &["b_1_r1"]), None, "twice is enough");
    }
}
