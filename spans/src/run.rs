// SPDX-License-Identifier: MIT OR Apache-2.0
//! The main flow of the program: attach, read, send, report.

use std::{
    cell::RefCell,
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use clap::Parser as _;
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    assemble::{Assembler, ClockOffset, Seen},
    attach::{MissingEvents, Programs, Refused, Way},
    cli::{Command, SpansArguments},
    darshan::{self, DarshanError},
    export::{Exporter, Sent},
    library::{self, Library, LibraryError},
    otlp, process,
    witness::{self, SpansError},
};

/// Interval for checking whether the end has come, if there are no events.
const PAUSE: Duration = Duration::from_millis(100);

/// The reason why the program ended early.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Library(#[from] LibraryError),
    #[error("{0} files are named by --library, more than {most}", most = library::MOST)]
    TooMany(usize),
    #[error("the receiver: {0}")]
    Target(String),
    #[error(transparent)]
    Refused(#[from] Box<Refused>),
    #[error("{}", path.display())]
    Spans {
        path: PathBuf,
        #[source]
        source: SpansError,
    },
    #[error("{}", path.display())]
    Darshan {
        path: PathBuf,
        #[source]
        source: DarshanError,
    },
    #[error("cannot {action}")]
    System {
        action: &'static str,
        #[source]
        source: io::Error,
    },
}

fn system(action: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |source| RunError::System { action, source }
}

/// A line of the output.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum OutputLine<'a> {
    /// Calls are traced from now on.
    Attached { functions: usize, uprobes: Way, libraries: Vec<Named<'a>> },
    /// The counts of what was seen, and the fate of the spans.
    Finished { complete: bool, seen: Seen, lost: MissingEvents, sent: Sent, waited: u64 },
}

#[derive(Debug, Serialize)]
struct Named<'a> {
    path: std::borrow::Cow<'a, str>,
    family: &'static str,
    functions: usize,
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = SpansArguments::parse();
    let outcome = match &arguments.command {
        Some(Command::Darshan { spans, parsed }) => compare(spans, parsed),
        None => run(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(4),
        Err(error) => {
            let mut text = format!("bpfassay-spans: {error}");
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                text.push_str(&format!(": {cause}"));
                source = cause.source();
            }
            // File names may contain anything, and this may be a terminal.
            let text: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
            let _ = writeln!(io::stderr(), "{text}");
            ExitCode::from(if matches!(error, RunError::Refused(_)) { 3 } else { 1 })
        }
    }
}

/// Prints a comparison of spans with Darshan's record. Returns whether they are equal.
fn compare(spans: &Path, parsed: &Path) -> Result<bool, RunError> {
    let of_spans = |source| RunError::Spans { path: spans.to_owned(), source };
    let of_darshan = |source| RunError::Darshan { path: parsed.to_owned(), source };
    let text = witness::open(spans).map_err(SpansError::Read).map_err(of_spans)?;
    let calls = witness::read(text).map_err(of_spans)?;
    let text = witness::open(parsed).map_err(DarshanError::Read).map_err(of_darshan)?;
    let log = darshan::read(text).map_err(of_darshan)?;
    let mut outcome = false;
    for line in witness::compare(&calls, &log) {
        if let witness::Line::Compared { equal, .. } = line {
            outcome = equal;
        }
        print(&line)?;
    }
    Ok(outcome)
}

/// Traces until a signal arrives. Returns whether nothing was lost.
fn run(arguments: &SpansArguments) -> Result<bool, RunError> {
    if arguments.libraries.len() > library::MOST {
        return Err(RunError::TooMany(arguments.libraries.len()));
    }
    let mut libraries: Vec<Library> = Vec::new();
    for path in &arguments.libraries {
        let library = Library::open(path)?;
        // A library under two names would make each call two spans.
        if !libraries.contains(&library) {
            libraries.push(library);
        }
    }
    let target = arguments.target().map_err(RunError::Target)?;
    let exporter = Exporter::start(arguments.limits(), move || otlp::Receiver::new(target))
        .map_err(system("prepare to send spans"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let hurry = exporter.hurry();
    watch_signals(&stop, exporter.hurry()).map_err(system("watch for signals"))?;

    let clock = clock();
    let seed = seed().map_err(system("read /dev/urandom"))?;
    let families = libraries.iter().map(|library| library.family).collect();
    let assembler = RefCell::new(Assembler::new(seed, clock, families, process::rank));
    let mut programs =
        Programs::attach(&libraries, !arguments.no_system_calls, arguments.ring_bytes, arguments.uprobes)
            .map_err(Box::new)?;
    let records = programs
        .records(|record| assembler.borrow_mut().take(record, &mut |span| exporter.put(span)))
        .map_err(system("map the ring buffer"))?;
    let named = libraries.iter().map(|library| Named {
        path: library.path.to_string_lossy(),
        family: library.family.name(),
        functions: library.places.len(),
    });
    print(&OutputLine::Attached {
        functions: programs.functions(),
        uprobes: programs.way(),
        libraries: named.collect(),
    })?;

    let read = system("read the ring buffer");
    let mut outcome = Ok(());
    while outcome.is_ok() && !stop.load(Ordering::Relaxed) {
        outcome = records.wait(PAUSE);
    }
    // Detaching takes seconds. The queue may drain in that time.
    hurry.not_yet();
    programs.detach();
    hurry.now();
    outcome.and_then(|()| records.rest()).map_err(read)?;
    drop(records);
    let lost = programs.lost().map_err(system("read the counts of lost events"))?;
    let mut assembler = assembler.into_inner();
    assembler.finish(&mut |span| exporter.put(span));
    let (seen, waited) = (assembler.seen(), exporter.waited());
    let sent = exporter.finish().map_err(system("send the rest"))?;
    let complete = lost.is_nothing() && seen.malformed == 0 && sent.rejected == 0 && sent.unsent == 0;
    print(&OutputLine::Finished { complete, seen, lost, sent, waited })?;
    Ok(complete)
}

fn print(line: &impl Serialize) -> Result<(), RunError> {
    let write = || {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    };
    write().map_err(system("write to standard output"))
}

/// Sets `stop` on SIGINT or SIGTERM.
fn watch_signals(stop: &Arc<AtomicBool>, hurry: crate::export::Hurry) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let stop = Arc::clone(stop);
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        stop.store(true, Ordering::Relaxed);
        // If the receiver accepts nothing, `stop` is only checked when the queue has room.
        hurry.now();
    })?;
    Ok(())
}

/// Returns the current difference between the time of day and the clock of events. Later changes of
/// the time of day do not affect it, so all spans of a run share one clock.
fn clock() -> ClockOffset {
    let nanoseconds = |time: Timespec| {
        u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000) + u64::try_from(time.tv_nsec).unwrap_or(0)
    };
    let monotonic = nanoseconds(clock_gettime(ClockId::Monotonic));
    ClockOffset { offset: nanoseconds(clock_gettime(ClockId::Realtime)).saturating_sub(monotonic) }
}

fn seed() -> io::Result<[u8; 16]> {
    let mut seed = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut seed)?;
    Ok(seed)
}
