// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trials with real guests: tools misbehave in them, the command gets signals, and QEMU is killed
//! or stopped, at drawn times.

mod guest_environment;

use std::{
    io,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use self::guest_environment::GuestEnvironment;
use crate::{
    chaos_random::Random,
    chaos_study::ChaosError,
    outcome_check::{self, RunRecords, StudyStage},
    trial::{AllowedOutcomes, CommandEnd, TrialResult},
};

/// A tool that does something to its guest.
pub struct ToolFault {
    /// Name of the fault.
    pub name: &'static str,
    /// Program in Perl. `ready()` reports that the tool is ready, `sys` makes a system call.
    script: &'static str,
    /// The failure kinds that runs of the tool may have.
    kinds: &'static [&'static str],
    /// Whether at least one run must have failed.
    must: bool,
    /// Number of rounds in which the tool takes part. Two are needed if the time after a run
    /// matters: other runs follow in one of them, none in the other.
    rounds: u32,
}

/// How the death of a guest may be reported.
const DEATH: &[&str] = &["panic", "unsound", "not_tried"];
/// How a kernel that ran out of resources may be reported.
const STARVED: &[&str] = &[
    "out_of_memory",
    "run",
    "phase_timeout",
    "unsound",
    "panic",
    "rcu_stall",
    "lockup",
    "hung_task",
    "agent",
    "not_tried",
    "bug",
];

/// The tools.
pub const TOOLS: &[ToolFault] = &[
    ToolFault {
        name: "guest/panics",
        script: "ready(); sleep 1; crash(); sleep 60;",
        kinds: DEATH,
        must: true,
        rounds: 1,
    },
    ToolFault {
        name: "guest/panics-30ms-after",
        script: "ready(); later(0.03); stay();",
        kinds: DEATH,
        must: true,
        rounds: 2,
    },
    ToolFault {
        name: "guest/panics-600ms-after",
        script: "ready(); later(0.6); stay();",
        kinds: DEATH,
        must: true,
        rounds: 2,
    },
    ToolFault {
        name: "guest/kills-everybody",
        script: "ready(); sleep 1; kill 9, grep { $_ > 2 && $_ != $$ } map { /(\\d+)/ } glob '/proc/[0-9]*'; stay();",
        kinds: &["run", "agent", "unsound", "early_exit", "panic", "not_tried"],
        must: false,
        rounds: 1,
    },
    ToolFault {
        name: "guest/unmounts",
        // Perl passes no constant to a system call, hence the variable.
        script: "my $at = '/mnt/tmpfs'; $SIG{INT} = sub { sys(166, $at, 2); exit 0 }; ready(); stay();",
        kinds: &["unsound", "run", "agent", "not_tried"],
        must: true,
        rounds: 1,
    },
    ToolFault {
        name: "guest/reboots",
        script: "ready(); sleep 1; sys(169, 0xfee1dead, 672274793, 0x1234567, 0); stay();",
        kinds: &["early_exit", "not_tried"],
        must: true,
        rounds: 1,
    },
    ToolFault {
        name: "guest/sets-the-clock",
        script: "ready(); my $t = pack('qq', 4000000000, 0); sys(227, 0, $t); stay();",
        kinds: &["run", "unsound", "not_tried"],
        must: false,
        rounds: 1,
    },
    ToolFault {
        name: "guest/fills-the-file-system",
        script: "open(my $f, '>', '/mnt/tmpfs/filler'); my $b = 'x' x 65536; 1 while syswrite($f, $b); ready(); stay();",
        kinds: &["run", "unsound", "agent", "not_tried"],
        must: true,
        rounds: 1,
    },
    ToolFault {
        name: "guest/forks",
        script: "ready(); $SIG{CHLD} = 'IGNORE'; 1 while defined fork; stay();",
        kinds: STARVED,
        must: false,
        rounds: 1,
    },
    ToolFault {
        name: "guest/leaves-a-process",
        script: "ready(); if (!fork) { away(); sleep 1 while 1 } stay();",
        kinds: &["unsound", "not_tried"],
        must: true,
        rounds: 1,
    },
];

/// A fault of the host.
#[derive(Debug, Clone, Copy, PartialEq)]
enum HostFault {
    /// The command gets this signal.
    Signal(i32),
    /// QEMU gets this signal.
    Qemu(i32),
    /// An object in the cache is damaged before the command begins.
    Object,
}

/// The faults of the host, one line each.
const HOST: &[(&str, HostFault)] = &[
    ("guest/interrupted", HostFault::Signal(2)),
    ("guest/terminated", HostFault::Signal(15)),
    ("guest/command-killed", HostFault::Signal(9)),
    ("guest/qemu-killed", HostFault::Qemu(9)),
    ("guest/qemu-crashes", HostFault::Qemu(11)),
    ("guest/qemu-stopped", HostFault::Qemu(19)),
    ("guest/damaged-object", HostFault::Object),
];

/// The fault that a seed draws.
enum DrawnFault {
    Tool(&'static ToolFault),
    Host(HostFault, u64),
}

/// The command and guests of trials with real guests.
#[derive(Debug)]
pub struct GuestDriver {
    /// The command.
    pub bpfassay: PathBuf,
    /// The testbed's manifest.
    pub manifest: PathBuf,
    reference: Mutex<Option<(RunRecords, Duration)>>,
}

/// A trial that was made: name, parameters, result.
pub type MadeTrial = (&'static str, String, TrialResult);

impl GuestDriver {
    /// A driver that uses the guests of a testbed.
    #[must_use]
    pub fn new(bpfassay: PathBuf, manifest: PathBuf) -> Self {
        Self { bpfassay, manifest, reference: Mutex::default() }
    }

    /// Runs the trial of `seed`, among the faults whose name contains `only`.
    ///
    /// # Errors
    /// If the environment cannot be created, the command cannot be started or supervised, or the
    /// study without faults has violations.
    pub fn run(&self, seed: u64, only: &str) -> Result<Option<MadeTrial>, ChaosError> {
        let mut random = Random::new(seed);
        let at = random.below(1000);
        let tools = TOOLS.iter().map(|tool| (tool.name, DrawnFault::Tool(tool)));
        let host = HOST.iter().map(|(name, fault)| (*name, DrawnFault::Host(*fault, at)));
        let all: Vec<_> = tools.chain(host).filter(|(name, _)| name.contains(only)).collect();
        // Trials with guests are few, so consecutive seeds take the faults in turn.
        let Some(count) = u64::try_from(all.len()).ok().filter(|count| *count > 0) else { return Ok(None) };
        let chosen = usize::try_from(seed % count).ok().and_then(|index| all.into_iter().nth(index));
        let Some((name, fault)) = chosen else { return Ok(None) };
        match fault {
            DrawnFault::Tool(tool) => Ok(Some((name, String::new(), self.with_tool(tool)?))),
            DrawnFault::Host(fault, at) => {
                let (reference, took) = self.reference()?;
                let after = took.mul_f64(at as f64 / 1000.0);
                let parameters = format!("{fault:?} after {:.2} s", after.as_secs_f64());
                Ok(Some((name, parameters, self.disturbed(fault, after, &reference)?)))
            }
        }
    }

    fn reference(&self) -> Result<(RunRecords, Duration), ChaosError> {
        let mut reference = self.reference.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = reference.as_ref() {
            return Ok(known.clone());
        }
        let mut environment = GuestEnvironment::new(self, None)?;
        let since = Instant::now();
        environment.command(&environment.begin(), None)?;
        let took = since.elapsed();
        let (_, records) = environment.after("without faults", &AllowedOutcomes::default(), StudyStage::Ended);
        if environment.result.ends != [CommandEnd::Code(0)] || !environment.result.violations.is_empty() {
            let text = format!(
                "the study without faults went wrong: {:?}\n{}",
                environment.result, environment.result.printed
            );
            return Err(ChaosError::Io(io::Error::other(text)));
        }
        *reference = Some((records.clone(), took));
        Ok((records, took))
    }

    /// Runs the study with a misbehaving tool. Its runs can fail; all others must be measured.
    ///
    /// # Errors
    /// If the environment cannot be created, the command cannot be started or supervised, or it
    /// wrote no readable journal.
    fn with_tool(&self, tool: &ToolFault) -> Result<TrialResult, ChaosError> {
        let mut environment = GuestEnvironment::new(self, Some(tool))?;
        environment.command(&environment.begin(), None)?;
        let plan = environment.plan()?;
        let mut expected = AllowedOutcomes::default();
        for (_, run) in plan.runs().filter(|(_, run)| run.spec.tool.is_some()) {
            expected.blame(&run.spec.id, tool.kinds, false);
        }
        let (_, records) = environment.after("first", &expected, StudyStage::Ended);
        let failed = records.values().filter(|record| outcome_check::kind(&record.outcome).is_some()).count();
        if tool.must && failed == 0 {
            environment.wrong("first", vec!["wrong verdict: no run of the tool failed".to_owned()]);
        }
        let code = outcome_check::code(&plan, &records);
        // A tool that is not ready or counts wrongly is a surprise of its own, with exit code 4.
        if !environment.result.ends.iter().all(|end| *end == CommandEnd::Code(code) || *end == CommandEnd::Code(4)) {
            environment.wrong(
                "first",
                vec![format!("the command ended with {:?} where its records mean {code}", environment.result.ends)],
            );
        }
        Ok(environment.result)
    }

    /// Runs the study with a failure of the host.
    ///
    /// # Errors
    /// If the environment or a damaged cache cannot be created, or the command not started or
    /// supervised.
    fn disturbed(&self, fault: HostFault, after: Duration, reference: &RunRecords) -> Result<TrialResult, ChaosError> {
        let mut environment = GuestEnvironment::new(self, None)?;
        if fault == HostFault::Object {
            environment.damage_cache(u64::try_from(after.as_millis()).unwrap_or_default())?;
        }
        environment.command(&environment.begin(), Some((after, fault)))?;
        if fault == HostFault::Object && !environment.has_reported("in the cache is damaged") {
            environment.wrong(
                "first",
                vec!["a damaged object was used, or taken from elsewhere, without a message".to_owned()],
            );
        }
        let end = environment.result.ends.first().copied().unwrap_or(CommandEnd::Never);
        let interrupted = match fault {
            HostFault::Signal(number) => end == CommandEnd::Signal(number) || end == CommandEnd::Code(130),
            HostFault::Qemu(_) | HostFault::Object => false,
        };
        let stage = if interrupted { StudyStage::Interrupted } else { StudyStage::Ended };
        let (plan, mut records) = environment.after("first", &AllowedOutcomes::default(), stage);
        if !interrupted
            && let Some(plan) = &plan
            && end != CommandEnd::Code(outcome_check::code(plan, &records))
        {
            environment.wrong("first", vec![format!("the command ended with {end:?}")]);
        }
        let failed =
            |records: &RunRecords| records.values().any(|record| outcome_check::kind(&record.outcome).is_some());
        if interrupted || failed(&records) {
            let args = if plan.is_none() {
                environment.begin()
            } else if failed(&records) {
                environment.resume(&["--again", "failed"])
            } else {
                environment.resume(&[])
            };
            environment.command(&args, None)?;
            (_, records) = environment.after("resumed", &AllowedOutcomes::default(), StudyStage::Ended);
            if environment.result.ends.last() != Some(&CommandEnd::Code(0)) {
                environment
                    .wrong("resumed", vec![format!("the command ended with {:?}", environment.result.ends.last())]);
            }
        }
        // Nothing is left to do, so a resumption must add nothing.
        let journal = environment.journal();
        environment.command(&environment.resume(&[]), None)?;
        if environment.result.ends.last() != Some(&CommandEnd::Code(0)) || environment.journal() != journal {
            environment.wrong("resumed again", vec!["something was added to a journal that was whole".to_owned()]);
        }
        if bpfassay_results::fingerprint(records.values()) != bpfassay_results::fingerprint(reference.values()) {
            environment.wrong("in the end", vec!["not the fingerprint of the study without faults".to_owned()]);
        }
        Ok(environment.result)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{guest_environment::study, *};
    use crate::chaos_study::TrialClock;

    #[test]
    fn names_are_unique() {
        let names = TOOLS.iter().map(|tool| tool.name).chain(HOST.iter().map(|(name, _)| *name));
        assert_eq!(names.collect::<BTreeSet<_>>().len(), TOOLS.len() + HOST.len());
    }

    #[test]
    fn the_studies_are_studies() {
        for text in [study("x86_64", TrialClock::Wall, 2, 1), study("aarch64", TrialClock::Instructions, 1, 2)] {
            bpfassay_study::Study::parse("chaos.toml", &text, &|_| Ok(None)).unwrap();
        }
    }
}
