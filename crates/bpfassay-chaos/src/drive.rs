// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs one trial from its start to the fingerprint of the study without faults.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::{fs::MetadataExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::{
    chaos_environment::TrialEnvironment,
    chaos_study::{ChaosError, StudyShape, TrialStudy},
    command_process::peak_kib,
    fault::Drawn,
    leftovers::{StateBefore, files},
    outcome_check::{self, RunRecords, StudyStage},
    stranger::workshop::Workshop,
    trial::{AllowedOutcomes, CommandEnd, FaultTrial, HostAction, TrialResult, WrittenDirectory},
};
use bpfassay_results::JournalContents;

/// How long a command can take if it does not wait for anything.
const PATIENCE: Duration = Duration::from_secs(90);
/// Additional time for each guest that hangs: the longest deadline of the study and 10 s.
const PER_HANG: Duration = Duration::from_secs(22);
/// How often the driver polls.
const PERIOD: Duration = Duration::from_millis(5);
/// Memory of the host that a guest can use in addition to its QEMU process, in KiB.
const PER_GUEST: u64 = 256 << 10;
/// Memory that the command itself can use, in KiB.
const ITSELF: u64 = 96 << 10;
/// How often a study is resumed before it must be complete.
const RESUMES: usize = 4;

/// The programs of trials, and the records of studies without faults.
#[derive(Debug)]
pub struct Driver {
    workshop: Workshop,
    /// Why no file system can be mounted; `None` if mounting works.
    pub cannot_mount: Option<String>,
    references: Mutex<BTreeMap<StudyShape, RunRecords>>,
}

impl Driver {
    /// A driver that uses the programs in `workshop`.
    #[must_use]
    pub fn new(workshop: Workshop, cannot_mount: Option<String>) -> Self {
        Self { workshop, cannot_mount, references: Mutex::default() }
    }

    /// Runs the trial that was drawn.
    ///
    /// # Errors
    /// If the environment cannot be created, the command cannot be started or supervised, or the
    /// study without faults has violations.
    pub fn run(&self, drawn: &Drawn) -> Result<TrialResult, ChaosError> {
        if drawn.fault.mounts
            && let Some(reason) = &self.cannot_mount
        {
            return Ok(TrialResult { skipped: Some(reason.clone()), ..TrialResult::default() });
        }
        if let Some(course) = drawn.fault.course {
            return course(&self.workshop, drawn.trial.choice);
        }
        let reference = self.reference(&drawn.study)?;
        RunningTrial::new(self, &drawn.study, &drawn.trial)?.whole(&reference)
    }

    /// Returns the records of the study without faults.
    ///
    /// # Errors
    /// If the environment cannot be created, the command cannot be started, or the study without
    /// faults has violations.
    fn reference(&self, study: &TrialStudy) -> Result<RunRecords, ChaosError> {
        // Other trials that need the reference wait for the lock.
        let mut references = self.references.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reference) = references.get(&study.shape) {
            return Ok(reference.clone());
        }
        let trial = FaultTrial::quiet(study.shape);
        let mut course = RunningTrial::new(self, study, &trial)?;
        let args = course.environment.begin(1);
        course.command(&args)?;
        let records = course.after("without faults", &AllowedOutcomes::default(), false);
        let result = course.result;
        if !result.violations.is_empty() {
            let text =
                format!("the study without faults went wrong: {}\n{}", result.violations.join("; "), result.printed);
            return Err(ChaosError::Io(io::Error::other(text)));
        }
        references.insert(study.shape, records.clone());
        Ok(records)
    }
}

/// A trial under way.
struct RunningTrial<'a> {
    driver: &'a Driver,
    study: &'a TrialStudy,
    trial: &'a FaultTrial,
    environment: TrialEnvironment,
    before: StateBefore,
    result: TrialResult,
    process: u32,
}

impl<'a> RunningTrial<'a> {
    fn new(driver: &'a Driver, study: &'a TrialStudy, trial: &'a FaultTrial) -> Result<Self, ChaosError> {
        let small = trial.small.map(|(place, _)| place);
        let workshop = &driver.workshop;
        let mut environment = TrialEnvironment::new(study, &workshop.stand_in, &workshop.qemu, small)?;
        environment.script(&trial.rules)?;
        if let Some((_, true)) = trial.small {
            environment.perform(&HostAction::Fill, 0)?;
        }
        let before = StateBefore::now(environment.root());
        Ok(Self { driver, study, trial, environment, before, result: TrialResult::default(), process: 0 })
    }

    fn whole(mut self, reference: &RunRecords) -> Result<TrialResult, ChaosError> {
        let expected = self.trial.expected.clone();
        let args = self.environment.begin(self.trial.jobs);
        self.command(&args)?;
        let mut records = self.after("first", &expected, true);
        self.environment.mend()?;
        if let Some(damage) = self.trial.damage {
            records = self.damaged(damage, &records)?;
        }
        // The host works again. Guests that were to blame continue to fail.
        let lasts = expected.lasts && !expected.interrupted.is_empty();
        if lasts {
            // Rules of the host are left out, so the signal is not sent again.
            let rules: Vec<_> = self.trial.rules.iter().filter(|act| !is_of_host(act)).cloned().collect();
            self.environment.script(&rules)?;
        } else {
            self.environment.script(&[])?;
        }
        let undone = |records: &RunRecords| {
            self.study.plan.runs().any(|(_, run)| {
                let record = records.get(&run.spec.id);
                record.is_none_or(|record| outcome_check::kind(&record.outcome).as_deref() == Some("host"))
            })
        };
        let was_interrupted = self.result.ends.first().is_some_and(|end| expected.interrupted.contains(end));
        if was_interrupted || undone(&records) {
            let resumed = AllowedOutcomes {
                interrupted: Vec::new(),
                may_give_up: false,
                by_host: BTreeSet::new(),
                ..expected.clone()
            };
            self.go_on(false)?;
            records = self.after("resumed", &resumed, false);
        }
        self.environment.script(&[])?;
        for _ in 0..RESUMES {
            if !records.values().any(|record| outcome_check::kind(&record.outcome).is_some()) {
                break;
            }
            let whole = AllowedOutcomes { lies: expected.lies.clone(), ..AllowedOutcomes::default() };
            self.go_on(true)?;
            records = self.after("again", &whole, false);
            if self.result.ends.last() != Some(&CommandEnd::Code(0)) {
                break;
            }
        }
        if outcome_check::fingerprint(&records, &expected.lies) != outcome_check::fingerprint(reference, &expected.lies)
        {
            self.result.violations.push("in the end: not the fingerprint of the study without faults".to_owned());
        }
        Ok(self.result)
    }

    /// Resumes the study, or starts it if nothing was started.
    ///
    /// # Errors
    /// If the remains of a study that had not started cannot be removed; otherwise the errors of
    /// [`Self::command`].
    fn go_on(&mut self, again_failed: bool) -> Result<(), ChaosError> {
        let output = self.environment.output();
        let begun = fs::read(output.join("journal.jsonl")).is_ok_and(|text| text.contains(&b'\n'));
        let args = if begun {
            self.environment.resume(self.trial.jobs, again_failed)
        } else {
            if output.exists() {
                fs::remove_dir_all(&output)?;
            }
            self.environment.begin(self.trial.jobs)
        };
        self.command(&args)
    }

    /// Damages a file. The command must report it or continue correctly. Then the file is repaired.
    ///
    /// # Errors
    /// If the file to damage cannot be read, written or repaired, or the script cannot be written;
    /// otherwise the errors of [`Self::command`].
    fn damaged(&mut self, damage: crate::trial::Damage, before: &RunRecords) -> Result<RunRecords, ChaosError> {
        if !self.environment.output().join("journal.jsonl").exists() {
            return Ok(before.clone());
        }
        let Some((path, whole)) = self.environment.damage(damage)? else { return Ok(before.clone()) };
        self.environment.script(&[])?;
        self.go_on(false)?;
        let end = self.result.ends.last().copied();
        if !matches!(end, Some(CommandEnd::Code(2 | 3))) {
            self.result.violations.push(format!("damaged: the command ended with {end:?} and not with 2 or 3"));
        }
        let after = self.left_and_printed("damaged");
        if after.len() > before.len() {
            self.result.violations.push("damaged: something was measured with a damaged guest".to_owned());
        }
        fs::write(path, whole)?;
        Ok(after)
    }

    /// Runs the command to its end.
    ///
    /// # Errors
    /// If the output files cannot be created, or the command cannot be started, waited for or
    /// killed.
    fn command(&mut self, args: &[PathBuf]) -> Result<(), ChaosError> {
        let mut child = self.environment.command(&self.driver.workshop.bpfassay)?.args(args).spawn()?;
        self.process = child.id();
        let since = Instant::now();
        let limit = PATIENCE + PER_HANG * self.trial.expected.hangs;
        let mut timed = self.trial.timed.clone().filter(|_| self.result.ends.is_empty());
        let mut looked = since;
        let end = loop {
            if let Some(status) = child.try_wait()? {
                break status
                    .code()
                    .map_or_else(|| CommandEnd::Signal(status.signal().unwrap_or_default()), CommandEnd::Code);
            }
            let mut done = vec![self.environment.serve(&self.trial.host, self.process)];
            if let Some((_, action)) = timed.take_if(|(ms, _)| since.elapsed() >= Duration::from_millis(*ms)) {
                done.push(self.environment.perform(&action, self.process));
            }
            let failed = done.into_iter().filter_map(Result::err).filter(|error| !is_too_late(error));
            self.result.violations.extend(failed.map(|error| format!("the host did not do its part: {error}")));
            if looked.elapsed() > 10 * PERIOD {
                looked = Instant::now();
                self.result.peak_kib = self.result.peak_kib.max(memory(self.process));
            }
            if since.elapsed() > limit {
                child.kill()?;
                child.wait()?;
                break CommandEnd::Never;
            }
            thread::sleep(PERIOD);
        };
        self.result.resumes += u32::from(!self.result.ends.is_empty());
        self.result.ends.push(end);
        Ok(())
    }

    /// Checks the command that has just ended.
    fn after(&mut self, stage: &str, expected: &AllowedOutcomes, may_be_interrupted: bool) -> RunRecords {
        let records = self.left_and_printed(stage);
        let end = self.result.ends.last().copied().unwrap_or(CommandEnd::Never);
        let interrupted = may_be_interrupted && expected.interrupted.contains(&end);
        let gave_up = expected.may_give_up && end == CommandEnd::Code(3);
        let how_far = if interrupted || gave_up { StudyStage::Interrupted } else { StudyStage::Ended };
        let mut wrong = outcome_check::records(self.study, expected, &records, how_far);
        wrong.extend(outcome_check::end(self.study, expected, end, &records, may_be_interrupted));
        self.wrong(stage, wrong);
        records
    }

    /// Checks what the command left behind and what it printed. Returns the journal's records.
    fn left_and_printed(&mut self, stage: &str) -> RunRecords {
        let mut wrong = self.before.left(
            self.environment.root(),
            &self.environment.directory(WrittenDirectory::Temporary),
            self.process,
        );
        let small = self.environment.directory(WrittenDirectory::Temporary).join("filler");
        wrong.retain(|text| !text.ends_with(&small.display().to_string()));
        let output = self.environment.output();
        let unfinished = |path: &Path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            name.starts_with('.') || name.ends_with(".tmp") || name.ends_with(".new")
        };
        let unfinished = files(&output).into_iter().filter(|path| unfinished(path));
        wrong.extend(unfinished.map(|path| format!("left behind: half a file {}", path.display())));
        let printed = self.environment.printed();
        if let Some(place) = outcome_check::control_character(&printed) {
            wrong.push(format!("a control character for the terminal: {place}"));
        }
        let limit = ITSELF + PER_GUEST * u64::from(self.trial.jobs);
        if self.result.peak_kib > limit {
            wrong.push(format!("{} MiB of memory, more than {}", self.result.peak_kib >> 10, limit >> 10));
        }
        let records = match read(&output) {
            Ok(records) => records,
            Err(error) => {
                wrong.push(format!("the journal cannot be read: {error}"));
                RunRecords::new()
            }
        };
        self.wrong(stage, wrong);
        records
    }

    fn wrong(&mut self, stage: &str, wrong: Vec<String>) {
        if wrong.is_empty() {
            return;
        }
        let end = self.result.ends.last();
        let printed = String::from_utf8_lossy(&self.environment.printed()).chars().take(4000).collect::<String>();
        self.result.printed.push_str(&format!(
            "--- {stage}, {end:?}\n{}\n",
            printed.replace(|c: char| c.is_control() && c != '\n', "?")
        ));
        self.result.violations.extend(wrong.into_iter().map(|text| format!("{stage}: {text}")));
    }
}

/// Whether `error` says that the target of the action no longer exists.
fn is_too_late(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

const fn is_of_host(act: &crate::script::Rule) -> bool {
    matches!(act.action, crate::script::Action::Host(_))
}

/// Returns the valid records in the journal of `directory`, or none if nothing was started.
///
/// # Errors
/// If the journal is damaged or cannot be read.
fn read(directory: &Path) -> Result<RunRecords, bpfassay_results::JournalError> {
    let text = fs::read(directory.join("journal.jsonl")).unwrap_or_default();
    if !text.contains(&b'\n') {
        return Ok(RunRecords::new());
    }
    let contents = JournalContents::read(directory)?;
    let results = bpfassay_report::derive(&contents);
    Ok(results.runs.into_iter().map(|result| (result.record.run.clone(), *result.record)).collect())
}

/// Returns the peak memory of a process plus the size of its current memfd files, in KiB.
fn memory(process: u32) -> u64 {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let mut files = BTreeMap::new();
    for entry in descriptors {
        if fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().starts_with("/memfd:"))
            && let Ok(metadata) = fs::metadata(entry.path())
        {
            files.insert(metadata.ino(), metadata.blocks() / 2);
        }
    }
    peak_kib(process).unwrap_or_default() + files.values().sum::<u64>()
}
