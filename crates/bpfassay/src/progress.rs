//! What is reported while a plan is executed: events, for people ([`shown`]) or as JSON for programs.

mod left;
mod shown;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use bpfassay_report::derive::of_run;
use bpfassay_results::{
    Event, Outcome, RunRecord, ToDo,
    event::{EVENTS_VERSION, Ending, RunEnded, Started},
    plain,
};
use bpfassay_runner::{Observer, Progress};
use bpfassay_study::{Block, Plan};

use crate::{cli::MessageFormat, commands, exit::Failure, output};
use left::Left;

/// Takes events in, from several tasks at once.
trait Sink: Send + Sync {
    fn take(&self, event: &Event);
    /// There will be no more.
    fn finish(&self);
}

/// A JSON object per event on standard output.
struct Json;

impl Sink for Json {
    fn take(&self, event: &Event) {
        // A reader that has gone away must not end the measurement, nor must a full disk; that is reported at the end, when the
        // last event cannot be written either.
        if let Some(line) = json(event) {
            let _ = output::stdout().write_all(line.as_bytes());
        }
    }

    fn finish(&self) {}
}

/// `event` on a line of its own.
fn json(event: &Event) -> Option<String> {
    let text = serde_json::to_string(event).ok()?;
    Some(plain::json(&text).into_owned() + "\n")
}

/// Tells programs that everything is over.
///
/// # Errors
/// An infrastructure failure where it cannot be written.
pub(crate) fn conclude(event: &Event) -> Result<(), Failure> {
    json(event).map_or(Ok(()), |line| commands::print(&line))
}

/// Makes events of what the runner reports.
pub(crate) struct Watcher<'a> {
    plan: &'a Plan,
    directory: PathBuf,
    /// [`Reporting::study`]
    study: Option<String>,
    /// [`Reporting::here`]
    here: Option<PathBuf>,
    /// What else a command needs to find the same guests.
    overlays: Vec<String>,
    /// Cells whose refusals the study expects, by id.
    refusals: BTreeSet<&'a str>,
    of: u64,
    state: Mutex<State>,
    sink: Box<dyn Sink>,
}

struct State {
    /// Runs that have ended, by name: one that is done again does not count twice.
    done: BTreeSet<String>,
    /// Runs that are left to do of each cell.
    cells: BTreeMap<String, u64>,
    left: Left,
}

/// How to report what happens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reporting<'a> {
    /// The study, as the user named it: an argument. `None` where nobody knows where its file lies, as of a
    /// run that is resumed: then there is no command that finds it.
    pub(crate) study: Option<&'a str>,
    /// Options that say where kernels, testbed and cache are, where the user did: arguments.
    pub(crate) overlays: &'a [String],
    /// In which form.
    pub(crate) format: MessageFormat,
    /// The mount of this machine that is measured on, where there are no guests.
    pub(crate) here: Option<&'a Path>,
}

/// The study of a plan that was read back, for [`Reporting::study`]: results have its name, which finds bundled ones only.
pub(crate) fn bundled(plan: &Plan) -> Option<&str> {
    let name = plan.study.name.as_str();
    bpfassay_study::bundled::study(name)?;
    let study = bpfassay_study::load(name).ok()?;
    // Anybody's file may have that name.
    (study.workloads == plan.study.workloads && study.targets == plan.study.targets).then_some(name)
}

impl<'a> Watcher<'a> {
    /// Tells that it begins with `blocks`, the part of `plan` that is to be done now, `jobs` of them side by side, and that the
    /// results will be in `directory`.
    pub(crate) fn new(
        plan: &'a Plan,
        blocks: &[ToDo],
        jobs: NonZeroU32,
        directory: &Path,
        reporting: Reporting<'_>,
    ) -> Self {
        let Reporting { study, overlays, format, here } = reporting;
        let of = blocks.iter().map(|todo| todo.open().count() as u64).sum();
        let mut cells = BTreeMap::new();
        for run in blocks.iter().flat_map(ToDo::open) {
            *cells.entry(run.cell.clone()).or_default() += 1;
        }
        let expects = |cell: &&bpfassay_study::Cell| {
            plan.study.expectations.iter().any(|expected| expected.covers(&cell.target, cell.probe))
        };
        let watcher = Self {
            plan,
            directory: directory.to_owned(),
            study: study.map(str::to_owned),
            here: here.map(Path::to_owned),
            overlays: overlays.to_owned(),
            refusals: plan.cells.iter().filter(expects).map(|cell| cell.id.as_str()).collect(),
            of,
            state: Mutex::new(State { done: BTreeSet::new(), cells, left: Left::new(blocks, jobs) }),
            sink: match format {
                MessageFormat::Human => Box::new(shown::Shown::new(of)),
                MessageFormat::Json => Box::new(Json),
            },
        };
        watcher.sink.take(&Event::Started(Started {
            version: EVENTS_VERSION,
            study: plan.study.name.clone(),
            clock: plan.study.clock,
            directory: directory.to_owned(),
            runs: of,
            jobs: jobs.get(),
        }));
        watcher
    }

    /// Takes away what is shown for the time being.
    pub(crate) fn finish(&self) {
        self.sink.finish();
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn run_ended(&self, record: &RunRecord) -> RunEnded {
        let seconds = seconds(record.duration_ms);
        let is_refusal_expected = self.refusals.contains(record.cell.as_str());
        let (outcome, is_expected, message) = match &record.outcome {
            Outcome::Measured(_) => (Ending::Measured, !is_refusal_expected, None),
            Outcome::Refused(refusal) => (Ending::Refused, is_refusal_expected, Some(refusal.message.clone())),
            // The log is reported by itself.
            Outcome::Failed(failure) => {
                let failure = bpfassay_results::RunFailure { log: None, ..failure.clone() };
                (Ending::Failed, false, Some(failure.to_string()))
            }
        };
        let failure = match &record.outcome {
            Outcome::Failed(failure) => Some(failure),
            Outcome::Measured(_) | Outcome::Refused(_) => None,
        };
        let (done, cells_done, cells_of, seconds_left) = self.change(|state| {
            if state.done.insert(record.run.clone())
                && let Some(left) = state.cells.get_mut(&record.cell)
            {
                *left = left.saturating_sub(1);
            }
            let cells_done = state.cells.values().filter(|left| **left == 0).count() as u64;
            state.left.ended(&record.block, &record.cell, seconds);
            (state.done.len() as u64, cells_done, state.cells.len() as u64, state.left.seconds())
        });
        RunEnded {
            run: record.run.clone(),
            cell: record.cell.clone(),
            outcome,
            is_expected,
            seconds,
            message,
            bytes: of_run(self.plan, record).map(|derived| derived.bytes).unwrap_or_default(),
            log: failure.and_then(|failure| failure.log.as_ref()).map(|log| self.directory.join(log)),
            repeat: failure.and_then(|_| self.repeat(record)),
            shell: failure.filter(|_| self.here.is_none()).and_then(|_| self.shell(record)),
            done,
            of: self.of,
            cells_done,
            cells_of,
            seconds_left,
        }
    }

    /// A boot begins that does `runs` of `block`: those that had ended are to do again.
    fn begun_again(&self, block: &Block, runs: &[String]) {
        self.change(|state| {
            for run in block.runs.iter().filter(|run| runs.contains(&run.spec.id)) {
                if state.done.remove(&run.spec.id) {
                    *state.cells.entry(run.cell.clone()).or_default() += 1;
                    state.left.again(&block.id, &run.cell);
                }
            }
        });
    }

    /// The command that does just the cell of `record` again.
    fn repeat(&self, record: &RunRecord) -> Option<Vec<String>> {
        let study = self.study.as_deref()?;
        if let Some(mount) = &self.here {
            let mount = mount.display().to_string();
            let args = ["bpfassay", "here", study, "--mount", &mount, "--cell", &record.cell];
            return Some(args.map(str::to_owned).to_vec());
        }
        let clock = self.plan.study.clock.to_string();
        Some(self.command(&["run", study, "--cell", &record.cell, "--clock", &clock]))
    }

    /// The command that opens a shell in the guest of `record`.
    fn shell(&self, record: &RunRecord) -> Option<Vec<String>> {
        Some(self.command(&["shell", "--study", self.study.as_deref()?, "--cell", &record.cell]))
    }

    fn command(&self, args: &[&str]) -> Vec<String> {
        let args = args.iter().copied().chain(self.overlays.iter().map(String::as_str));
        ["bpfassay"].into_iter().chain(args).map(str::to_owned).collect()
    }
}

fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}

impl Observer for Watcher<'_> {
    fn progress(&self, progress: &Progress<'_>) {
        let event = match progress {
            Progress::Waiting(block, pause) => Event::Waiting { block: block.id.clone(), seconds: pause.as_secs_f64() },
            Progress::Booting(block, started) => {
                if started.confirming.is_none() {
                    self.begun_again(block, &started.runs);
                }
                Event::Booting {
                    block: block.id.clone(),
                    target: block.target.clone(),
                    boot: started.boot,
                    confirming: started.confirming.clone(),
                }
            }
            Progress::Ready(block, ready) => {
                let seconds = seconds(ready.ready_after_ms);
                self.change(|state| state.left.booted(block, seconds));
                Event::Ready { block: block.id.clone(), seconds, kernel_release: ready.facts.kernel_release.clone() }
            }
            Progress::Phase(block, run, phase) => {
                Event::Phase { block: block.id.clone(), run: (*run).to_owned(), phase: *phase }
            }
            Progress::RunEnded(record) => Event::RunEnded(Box::new(self.run_ended(record))),
            Progress::Ended(block, ended) => Event::GuestEnded {
                block: block.id.clone(),
                failure: ended.failure.clone(),
                verdict: Some(ended.verdict.clone()),
            },
            Progress::Paused(why) => Event::Paused { message: (*why).to_owned() },
            Progress::Log(block, text) => Event::Log { block: block.id.clone(), text: (*text).to_owned() },
        };
        self.sink.take(&event);
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::{Arch, ProbeConfiguration, probe::Probe};
    use bpfassay_results::{FailureKind, RunFailure};
    use bpfassay_study::{Available, Clock, Narrowing};
    use bpfassay_vm::shell_words;

    use super::*;

    /// Two targets, each with one boot of two runs: the baseline and fexit.
    pub(super) fn plan() -> Plan {
        let mut study = bpfassay_study::load("quick").unwrap();
        study.clock = Clock::Wall;
        study.design.rounds = 1;
        study.design.warm_up = 0;
        study.design.control = false;
        let narrowing = Narrowing {
            archs: vec![Arch::X86_64],
            kernels: ["6.12", "7.2"].map(str::to_owned).into(),
            probes: vec![ProbeConfiguration::with_defaults(Probe::Fexit)],
            ..Narrowing::default()
        };
        bpfassay_study::expand(&study, &narrowing, &Available::default()).unwrap()
    }

    #[test]
    fn only_a_bundled_study_is_found_by_its_name() {
        let mut plan = plan();
        assert_eq!(bundled(&plan), Some("quick"));
        plan.study.workloads.clear();
        assert_eq!(bundled(&plan), None);
        "mine".clone_into(&mut plan.study.name);
        assert_eq!(bundled(&plan), None);
    }

    #[test]
    fn words_are_typed_as_a_shell_reads_them() {
        let args = ["bpfassay", "run", "my study.toml", "it's", ""].map(str::to_owned);
        assert_eq!(shell_words(&args), r"bpfassay run 'my study.toml' 'it'\''s' ''");
    }

    #[test]
    fn a_failed_run_names_its_log_and_what_does_it_again() {
        let plan = plan();
        let blocks: Vec<_> = plan.blocks.iter().cloned().map(ToDo::fresh).collect();
        let overlays = ["--kernel", "./bzImage", "--tool", "mine.toml"].map(str::to_owned);
        let reporting =
            Reporting { study: Some("small.toml"), overlays: &overlays, format: MessageFormat::Human, here: None };
        let watcher = Watcher::new(&plan, &blocks, NonZeroU32::MIN, Path::new("out"), reporting);
        let here = Reporting { here: Some(Path::new("/mnt/my nfs")), ..reporting };
        let here = Watcher::new(&plan, &blocks, NonZeroU32::MIN, Path::new("out"), here);
        let block = &plan.blocks[1];
        let failure = RunFailure {
            kind: FailureKind::Panic,
            phase: None,
            excerpt: vec!["Kernel panic - not syncing".to_owned()],
            log: Some("logs/one.log".to_owned()),
            after: None,
        };
        let record = RunRecord::new(block, &block.runs[0], 1, 0, 1500, Outcome::Failed(failure));
        let ended = watcher.run_ended(&record);
        let without_guests = here.run_ended(&record);
        let nobody_knows =
            Watcher::new(&plan, &blocks, NonZeroU32::MIN, Path::new("out"), Reporting { study: None, ..reporting });
        let without_study = nobody_knows.run_ended(&record);
        nobody_knows.finish();
        watcher.finish();
        here.finish();
        assert_eq!((ended.outcome, ended.is_expected, ended.done, ended.of), (Ending::Failed, false, 1, 4));
        assert_eq!(ended.message.unwrap(), "kernel panic: Kernel panic - not syncing");
        assert_eq!(ended.log.unwrap(), Path::new("out/logs/one.log"));
        let cell = &block.runs[0].cell;
        let (repeat, shell) = (ended.repeat.unwrap(), ended.shell.unwrap());
        for args in [&repeat, &shell] {
            crate::cli::Cli::try_parse_from(args).unwrap();
        }
        let repeat = shell_words(&repeat);
        assert_eq!(
            repeat,
            format!("bpfassay run small.toml --cell {cell} --clock wall --kernel ./bzImage --tool mine.toml")
        );
        let shell = shell_words(&shell);
        assert_eq!(
            shell,
            format!("bpfassay shell --study small.toml --cell {cell} --kernel ./bzImage --tool mine.toml")
        );
        assert_eq!(ended.seconds_left, Some(1.5 * 3.0));
        assert_eq!((ended.cells_done, ended.cells_of), (1, 4));
        assert_eq!(without_guests.shell, None);
        assert_eq!((without_study.repeat, without_study.shell), (None, None));
        let again = without_guests.repeat.unwrap();
        assert_eq!(shell_words(&again), format!("bpfassay here small.toml --mount '/mnt/my nfs' --cell {cell}"));
        assert!(crate::cli::Cli::try_parse_from(again).is_ok());
        // Both commands are commands.
        use clap::Parser as _;
        for command in [repeat, shell] {
            assert!(crate::cli::Cli::try_parse_from(command.split(' ')).is_ok(), "{command}");
        }
    }

    /// What is booted again ends again, and is counted once.
    #[test]
    fn runs_that_are_done_again_are_counted_once() {
        let plan = plan();
        let blocks: Vec<_> = plan.blocks.iter().cloned().map(ToDo::fresh).collect();
        let reporting = Reporting { study: None, overlays: &[], format: MessageFormat::Human, here: None };
        let watcher = Watcher::new(&plan, &blocks, NonZeroU32::MIN, Path::new("out"), reporting);
        let block = &plan.blocks[0];
        let host = RunFailure { kind: FailureKind::Host, phase: None, excerpt: Vec::new(), log: None, after: None };
        let record = |run: usize| RunRecord::new(block, &block.runs[run], 1, 0, 1500, Outcome::Failed(host.clone()));
        let counts = |ended: RunEnded| (ended.done, ended.of, ended.cells_done, ended.seconds_left);
        assert_eq!(counts(watcher.run_ended(&record(0))), (1, 4, 1, Some(4.5)));
        // Judged once more, after it had ended.
        assert_eq!(counts(watcher.run_ended(&record(0))), (1, 4, 1, Some(4.5)));
        let ids: Vec<String> = block.runs.iter().map(|run| run.spec.id.clone()).collect();
        watcher.begun_again(block, &ids);
        assert_eq!(counts(watcher.run_ended(&record(1))), (1, 4, 1, Some(4.5)));
        assert_eq!(counts(watcher.run_ended(&record(0))), (2, 4, 2, Some(3.0)));
        watcher.finish();
    }
}
