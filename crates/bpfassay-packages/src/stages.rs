// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stages of set-up and measurement, which run in parallel: progress, durations and overlaps.

mod time_left;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

pub use self::time_left::{YIELDING, yield_from_now};

/// The task of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum StageKind {
    /// Debian packages of the host are installed.
    HostPackages,
    /// The cross toolchain is built.
    Toolchain,
    /// The crates that the guest's programs need are collected.
    Sources,
    /// A kernel is found, or downloaded and unpacked. The subject is its architecture and name.
    Kernel,
    /// The guest's programs are built. The subject is the architecture.
    Programs,
    /// Guests are assembled from kernels, programs and tools. The subject is the architecture.
    Guests,
    /// QEMU is unpacked (subject: origin), or an accelerator is chosen (subject: architecture).
    Qemu,
    /// Guests are booted and measured.
    Measuring,
    /// The results are derived, written and printed.
    Reporting,
}

impl StageKind {
    /// Returns the name in events, in lower case with underscores.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostPackages => "host_packages",
            Self::Toolchain => "toolchain",
            Self::Sources => "sources",
            Self::Kernel => "kernel",
            Self::Programs => "programs",
            Self::Guests => "guests",
            Self::Qemu => "qemu",
            Self::Measuring => "measuring",
            Self::Reporting => "reporting",
        }
    }

    /// Returns the name for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::HostPackages => "host packages",
            Self::Toolchain => "cross toolchain",
            Self::Sources => "crates",
            Self::Kernel => "kernel",
            Self::Programs => "guest programs",
            Self::Guests => "guests",
            Self::Qemu => "QEMU",
            Self::Measuring => "measuring",
            Self::Reporting => "reporting",
        }
    }
}

/// The current activity of a stage, and the unit of its progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgressStep {
    /// A package index is fetched. Not counted.
    Index,
    /// Downloads wait for those that everything else needs. Not counted.
    AwaitTurn,
    /// Packages are downloaded, in bytes.
    Download,
    /// Packages are unpacked, in packages.
    Unpack,
    /// The unpacked files are hashed and stored. Not counted.
    Store,
    /// The crates are collected from cargo's cache or the registry. Not counted.
    Collect,
    /// The tracer's eBPF programs are compiled, in cargo's units.
    CompileEbpf,
    /// The guest's programs are compiled, in cargo's units.
    Compile,
    /// Packages are installed on the host. Not counted.
    Install,
    /// A guest is booted to try an accelerator. Not counted.
    TrialBoot,
}

impl ProgressStep {
    /// Returns the name in events, in lower case with underscores.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::AwaitTurn => "await_turn",
            Self::Download => "download",
            Self::Unpack => "unpack",
            Self::Store => "store",
            Self::Collect => "collect",
            Self::CompileEbpf => "compile_ebpf",
            Self::Compile => "compile",
            Self::Install => "install",
            Self::TrialBoot => "trial_boot",
        }
    }

    /// Returns a description for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Index => "fetching the package index",
            Self::AwaitTurn => "waiting for other downloads",
            Self::Download => "downloading",
            Self::Unpack => "unpacking",
            Self::Store => "storing",
            Self::Collect => "collecting sources",
            Self::CompileEbpf => "compiling the eBPF programs",
            Self::Compile => "compiling",
            Self::Install => "installing",
            Self::TrialBoot => "trying KVM by booting",
        }
    }

    /// Returns the unit of the progress, or `None` if it is not counted.
    #[must_use]
    pub const fn unit(self) -> Option<ProgressUnit> {
        match self {
            Self::Download => Some(ProgressUnit::Bytes),
            Self::Unpack => Some(ProgressUnit::Packages),
            Self::CompileEbpf | Self::Compile => Some(ProgressUnit::Units),
            Self::Index | Self::AwaitTurn | Self::Store | Self::Collect | Self::Install | Self::TrialBoot => None,
        }
    }
}

/// Unit of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressUnit {
    /// Bytes.
    Bytes,
    /// Debian packages.
    Packages,
    /// Compilation units, as cargo counts them.
    Units,
}

impl ProgressUnit {
    /// Returns the name in events and for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Packages => "packages",
            Self::Units => "units",
        }
    }
}

/// Progress of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepProgress {
    /// The current step.
    pub step: ProgressStep,
    /// The amount done, in the unit of the step.
    pub done: u64,
    /// The total amount. It is 0 if the step is not counted.
    pub of: u64,
    /// Estimated seconds until the end of the step, if they can be estimated.
    pub seconds_left: Option<f64>,
}

/// The state of a stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ProgressState {
    /// The stage has begun.
    Begun,
    /// The stage has progressed.
    At(StepProgress),
    /// The stage has ended.
    Ended {
        /// Whether the work of the stage succeeded.
        succeeded: bool,
    },
}

/// A report on a stage.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressReport {
    /// Unique number of the stage.
    pub id: u32,
    /// The task of the stage.
    pub kind: StageKind,
    /// Details of the task. Empty if there is only one such stage.
    pub subject: String,
    /// Its state.
    pub state: ProgressState,
    /// Time since the stage began.
    pub elapsed: Duration,
}

/// Start and duration of a stage that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// The task of the stage.
    pub kind: StageKind,
    /// Details of the task. Empty if there was only one such stage.
    pub subject: String,
    /// When the stage began, relative to the creation of [`Stages`].
    pub began: Duration,
    /// Duration of the stage.
    pub took: Duration,
}

impl Timing {
    /// Returns whether both stages ran at the same time for a while.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.began < other.began + other.took && other.began < self.began + self.took
    }
}

/// Receives reports, from several threads at once.
pub trait Watcher: Send + Sync {
    /// Receives one report.
    fn report(&self, report: &ProgressReport);
}

/// The stages of one execution of the program, shared by all threads and tasks.
#[derive(Clone, Default)]
pub struct Stages(Arc<SharedStages>);
struct SharedStages {
    zero: Instant,
    watcher: Option<Arc<dyn Watcher>>,
    known: Mutex<KnownSize>,
}
#[derive(Default)]
struct KnownSize {
    begun: u32,
    timings: Vec<Timing>,
}
impl Default for SharedStages {
    fn default() -> Self {
        Self { zero: Instant::now(), watcher: None, known: Mutex::default() }
    }
}

impl fmt::Debug for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stages").field("watched", &self.0.watcher.is_some()).finish_non_exhaustive()
    }
}

impl Stages {
    /// Creates stages that are reported to `watcher`. The default has no watcher.
    #[must_use]
    pub fn watched(watcher: Arc<dyn Watcher>) -> Self {
        Self(Arc::new(SharedStages { watcher: Some(watcher), ..SharedStages::default() }))
    }

    /// Begins a stage. Dropping it before [`RunningStage::end`] means that it failed.
    #[must_use]
    pub fn begin(&self, kind: StageKind, subject: impl Into<String>) -> RunningStage {
        let id = {
            let mut known = locked(&self.0.known);
            known.begun += 1;
            known.begun
        };
        let running = RunningInner {
            id,
            kind,
            subject: subject.into(),
            began: Instant::now(),
            stages: self.clone(),
            yields: time_left::yields(),
            now: Mutex::default(),
        };
        running.report(ProgressState::Begun);
        RunningStage(Some(Arc::new(running)))
    }

    /// Runs `work` as a stage, which fails with the error of `work`.
    pub fn during<T, E>(
        &self,
        kind: StageKind,
        subject: impl Into<String>,
        work: impl FnOnce(&RunningStage) -> Result<T, E>,
    ) -> Result<T, E> {
        let stage = self.begin(kind, subject);
        let done = work(&stage);
        stage.end(done.is_ok());
        done
    }

    /// Returns the time since the stages were created.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.zero.elapsed()
    }

    /// Returns the durations of the stages that ended, in the order in which they began.
    #[must_use]
    pub fn timings(&self) -> Vec<Timing> {
        let mut timings = locked(&self.0.known).timings.clone();
        timings.sort_by_key(|timing| timing.began);
        timings
    }
}

/// A running stage. The default is a stage that is not reported.
#[derive(Debug, Clone, Default)]
pub struct RunningStage(Option<Arc<RunningInner>>);

#[derive(Debug)]
struct RunningInner {
    id: u32,
    kind: StageKind,
    subject: String,
    began: Instant,
    stages: Stages,
    yields: bool,
    now: Mutex<StageNow>,
}
#[derive(Debug, Default)]
struct StageNow {
    step: Option<(ProgressStep, Instant, u64, u64)>,
    reported: Option<Instant>,
    has_ended: bool,
}

/// Shortest time between two reports of progress.
const RATE: Duration = Duration::from_millis(250);

impl RunningStage {
    /// Begins a step of `of` units, or 0 if they are not counted.
    pub fn step(&self, step: ProgressStep, of: u64) {
        let Some(running) = &self.0 else { return };
        running.change(|now| now.step = Some((step, Instant::now(), 0, of)), true);
    }

    /// Sets the number of `done` units of the current step.
    pub fn at(&self, done: u64) {
        let Some(running) = &self.0 else { return };
        let set = |now: &mut StageNow| {
            if let Some((_, _, at, of)) = &mut now.step {
                *at = done.min(*of);
            }
        };
        running.change(set, false);
    }

    /// Adds one unit to the current step.
    pub fn one_more(&self) {
        let Some(running) = &self.0 else { return };
        let add = |now: &mut StageNow| {
            if let Some((_, _, at, of)) = &mut now.step {
                *at = (*at + 1).min(*of);
            }
        };
        running.change(add, false);
    }

    /// Ends the stage.
    pub fn end(&self, succeeded: bool) {
        if let Some(running) = &self.0 {
            running.end(succeeded);
        }
    }
}

impl RunningInner {
    fn change(&self, change: impl FnOnce(&mut StageNow), is_new: bool) {
        let progress = {
            let mut now = locked(&self.now);
            change(&mut now);
            let is_late = now.reported.is_none_or(|last| last.elapsed() >= RATE);
            let Some((step, began, done, of)) = now.step else { return };
            if now.has_ended || !(is_new || is_late || (done == of && of > 0)) {
                return;
            }
            now.reported = Some(Instant::now());
            let elapsed = began.elapsed().as_secs_f64();
            let left = if self.yields { None } else { time_left::seconds_left(step, elapsed, done, of) };
            StepProgress { step, done, of, seconds_left: left }
        };
        self.report(ProgressState::At(progress));
    }

    fn end(&self, succeeded: bool) {
        {
            let mut now = locked(&self.now);
            if now.has_ended {
                return;
            }
            now.has_ended = true;
        }
        let began = self.began.saturating_duration_since(self.stages.0.zero);
        let timing = Timing { kind: self.kind, subject: self.subject.clone(), began, took: self.began.elapsed() };
        locked(&self.stages.0.known).timings.push(timing);
        self.report(ProgressState::Ended { succeeded });
    }

    fn report(&self, state: ProgressState) {
        if let Some(watcher) = &self.stages.0.watcher {
            let (subject, elapsed) = (self.subject.clone(), self.began.elapsed());
            watcher.report(&ProgressReport { id: self.id, kind: self.kind, subject, state, elapsed });
        }
    }
}

impl Drop for RunningInner {
    fn drop(&mut self) {
        self.end(false);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct KeptReports(Mutex<Vec<ProgressReport>>);
    impl Watcher for KeptReports {
        fn report(&self, report: &ProgressReport) {
            self.0.lock().unwrap().push(report.clone());
        }
    }

    #[test]
    fn a_stage_is_reported_from_its_beginning_to_its_end() {
        let kept = Arc::new(KeptReports::default());
        let stages = Stages::watched(kept.clone());
        let done: Result<u8, ()> = stages.during(StageKind::Kernel, "x86_64 6.12", |stage| {
            stage.step(ProgressStep::Unpack, 2);
            stage.one_more();
            stage.one_more();
            stage.one_more();
            Ok(7)
        });
        assert_eq!(done, Ok(7));
        let failed: Result<(), u8> = stages.during(StageKind::Programs, "riscv64", |_| Err(1));
        assert_eq!(failed, Err(1));
        drop(stages.begin(StageKind::Toolchain, ""));
        let reports = kept.0.lock().unwrap();
        let states: Vec<ProgressState> = reports.iter().map(|report| report.state).collect();
        let at = |done| ProgressState::At(StepProgress { step: ProgressStep::Unpack, done, of: 2, seconds_left: None });
        assert_eq!(states[..3], [ProgressState::Begun, at(0), at(2)]);
        let ended = |succeeded| ProgressState::Ended { succeeded };
        assert_eq!(states.last(), Some(&ended(false)), "dropped");
        let ends: Vec<ProgressState> =
            states.into_iter().filter(|state| matches!(state, ProgressState::Ended { .. })).collect();
        assert_eq!(ends, [ended(true), ended(false), ended(false)]);
        let timings = stages.timings();
        let kinds: Vec<StageKind> = timings.iter().map(|timing| timing.kind).collect();
        assert_eq!(kinds, [StageKind::Kernel, StageKind::Programs, StageKind::Toolchain]);
        assert_eq!((reports[0].id, reports[0].subject.as_str()), (1, "x86_64 6.12"));
    }

    #[test]
    fn of_what_yields_no_time_is_told() {
        let kept = Arc::new(KeptReports::default());
        let stages = Stages::watched(kept.clone());
        std::thread::spawn(move || {
            yield_from_now();
            let stage = stages.begin(StageKind::Programs, "riscv64");
            let Some(running) = &stage.0 else { unreachable!("it is watched") };
            let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
            running.change(|now| now.step = Some((ProgressStep::Compile, long_ago, 50, 112)), true);
        })
        .join()
        .unwrap();
        let reports = kept.0.lock().unwrap();
        let told = reports.iter().find_map(|report| match report.state {
            ProgressState::At(progress) => Some(progress),
            _ => None,
        });
        assert_eq!(told, Some(StepProgress { step: ProgressStep::Compile, done: 50, of: 112, seconds_left: None }));
    }

    #[test]
    fn what_nobody_watches_is_silent() {
        let stage = RunningStage::default();
        stage.step(ProgressStep::Index, 0);
        stage.at(1);
        stage.end(true);
    }
}
