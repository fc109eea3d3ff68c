// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes one block: one boot after the other until nothing of the block is left to do.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bpfassay_protocol::{job_nodes::Node, message::GuestMessage, with_causes};
use bpfassay_results::{RunFailure, ToDo};
use bpfassay_study::{Block, Study};
use bpfassay_vm::{
    BootOptions, EndReason, Guest, GuestEnding, KernelIncident, Machine, Qemu, Severity, VmError, VmEvent,
};

use crate::{
    boot::{
        boot_nodes::{Booted, GroupEnding, GroupEvent, Guests, NotBooted},
        counting::BootCounting,
        host_setup::{HostSetup, HostSetupError, deadlines, whole_boot_seconds},
        run_context::{BlockError, RunContext},
        running_boot::RunningBoot,
        study_nodes,
        tally::Tally,
    },
    decisions::{
        asked::AskedGuest,
        attempt::Attempt,
        blame::{BootEnd, HostFailure},
        failure,
    },
    observer::Happening,
};

/// Highest number of notes that are kept for one boot.
const MAX_NOTES: usize = 50;

/// Time between a line that reports an incident and the end of the guest. The rest of the report
/// arrives in that time.
const OUTPUT_TAIL: Duration = Duration::from_secs(1);

/// Interval at which the output of QEMU's plugin is read. The output occupies memory until then.
const COUNTS: Duration = Duration::from_millis(100);

/// Executes `todo` with guests of `host_setup`, and returns how the attempt at the block ended.
///
/// # Errors
/// [`BlockError`] if the journal cannot be written or a guest cannot be assembled. The failure of a
/// guest is not an error but a record.
pub(crate) async fn execute(
    context: &RunContext<'_>,
    host_setup: &HostSetup,
    todo: &ToDo,
    tally: &mut Tally,
) -> Result<Attempt, BlockError> {
    let mut attempt = Attempt::new(todo);
    while let Some((plan, pause)) = attempt.next() {
        if !pause.is_zero() {
            context.report(&Happening::Waiting(&todo.block, pause));
        }
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
        let mut boot = RunningBoot::new(context, &todo.block, plan, tally);
        let (end, notes) = once(&mut boot, host_setup).await?;
        let conclusion = attempt.ended(&boot.plan, &boot.seen, &end, boot.now());
        boot.concluded(conclusion, notes)?;
    }
    Ok(attempt)
}

/// Returns QEMU's command line for `block`, one element per argument. If the block has several
/// nodes, it is the first node's.
///
/// # Errors
/// [`HostSetupError`] if something that the command line needs was not prepared.
pub(crate) fn command(host_setup: &HostSetup, study: &Study, block: &Block) -> Result<Vec<String>, HostSetupError> {
    let (qemu, _) = host_setup.qemu(block.target.arch)?;
    let all =
        qemu.command_line().into_iter().chain(host_setup.machine(study, block, study_nodes::first(study))?.arguments());
    Ok(all.map(|argument| argument.to_string_lossy().into_owned()).collect())
}

/// Makes one boot. Returns how it ended, and lines of its console worth keeping.
async fn once(boot: &mut RunningBoot<'_>, host_setup: &HostSetup) -> Result<(BootEnd, Vec<String>), BlockError> {
    let (context, block) = (boot.context, boot.block);
    let study = context.study;
    boot.started(command(host_setup, study, block)?)?;
    let failed = |error: &dyn std::error::Error, class| Ok((host_failure(error, class), Vec::new()));
    let mut prepared = Vec::new();
    for node in study_nodes::server(study).map(Some).into_iter().chain(study_nodes::of(study)) {
        prepared.push(match prepare(boot, host_setup, node) {
            // A kernel that cannot serve the file system does not stop the other blocks.
            Err(error @ HostSetupError::Modules { .. }) => return failed(&error, HostFailure::Lacking),
            Err(error @ HostSetupError::Log { .. }) => return failed(&error, HostFailure::Start),
            Err(error @ HostSetupError::Initramfs { .. }) => return failed(&error, HostFailure::Initramfs),
            prepared => prepared?,
        });
    }
    let (qemu, _) = host_setup.qemu(block.target.arch)?;
    boot.counting = host_setup.plugin(study, block.target.arch).map(|_| BootCounting::default());
    boot.since = Instant::now();
    let mut left = prepared.into_iter();
    let booted = async {
        match study_nodes::server(study) {
            None => {
                let Some(prepared) = left.next() else { unreachable!("a boot has a guest") };
                Guests::one(prepared.boot(qemu)).await
            }
            Some(server) => {
                let nodes = study_nodes::of(study).into_iter().flatten().collect();
                let ranks = study_nodes::ranks(study, &block.case);
                // The nodes boot in the order in which they were prepared.
                let boot = async |_, network| {
                    let Some(mut prepared) = left.next() else { unreachable!("a guest for each node") };
                    prepared.options.network = network;
                    prepared.boot(qemu).await
                };
                Guests::several((server, nodes, ranks), boot).await
            }
        }
    };
    let booted = tokio::select! {
        booted = booted => booted,
        // Dropping `booted` kills the guests that were started.
        () = context.cancel.cancelled() => return Ok((BootEnd::Interrupted, Vec::new())),
    };
    let mut guests = match booted {
        Ok(guests) => guests,
        Err(NotBooted::Vm(error)) => return failed(&error, class_of(&error)),
        Err(NotBooted::Server(ending)) => {
            let at_ms = boot.now().boot_ms;
            return Ok((end_of(boot, None, at_ms, &ending), Vec::new()));
        }
        Err(NotBooted::Differs { difference, log }) => return Ok((differs(difference, &log), Vec::new())),
    };
    let Watched { cut_short, died_ms, notes } = watch(boot, &mut guests).await?;
    // This ends guests that were cut short, and returns the ending of guests that have ended.
    let ending = guests.end().await;
    Ok((end_of(boot, cut_short, died_ms, &ending), notes))
}

/// A guest with everything that it needs to boot.
struct PreparedGuest {
    machine: Machine,
    options: BootOptions,
    /// The console log, relative to the results directory.
    log: String,
    asked: AskedGuest,
}

impl PreparedGuest {
    async fn boot(self, qemu: &Qemu) -> Result<Booted, VmError> {
        let Self { machine, options, log, asked } = self;
        Ok(Booted { guest: Guest::boot(qemu, &machine, options).await?, log, asked })
    }
}

/// Prepares the guest for `node`, or the only guest if `node` is `None`.
///
/// # Errors
/// [`HostSetupError`] if something that the guest needs was not prepared, does not exist for its
/// kernel, or cannot be written.
fn prepare(
    boot: &RunningBoot<'_>,
    host_setup: &HostSetup,
    node: Option<Node>,
) -> Result<PreparedGuest, HostSetupError> {
    let (context, block) = (boot.context, boot.block);
    let study = context.study;
    let log = boot.log_of(node);
    let machine = host_setup.machine(study, block, node)?;
    let job = host_setup.job(study, block, &boot.plan.runs, node)?;
    let asked = AskedGuest::new(host_setup.image(&block.target)?.release(), &machine, &job);
    let initramfs = host_setup.initramfs(&block.target, &job)?;
    let file = boot.make_log(&log).map_err(|source| HostSetupError::Log { log: log.clone(), source })?;
    let mut options = BootOptions::new(&log);
    options.log = Some(Arc::new(file));
    options.deadlines = deadlines(study);
    options.deadlines.whole_boot = Some(whole_boot_seconds(study, boot.plan.runs.len() as u64));
    if node.is_some_and(Node::is_server) {
        // The server boots before the nodes, and serves them in its last phase.
        options.deadlines.whole_boot = options.deadlines.whole_boot.map(|seconds| seconds.saturating_mul(2));
        options.deadlines.set_up = options.deadlines.whole_boot;
    }
    options.initramfs = Some(Arc::new(initramfs));
    options.plugin = host_setup.plugins.get(&block.target.arch).map(|loaded| loaded.plugin.code);
    Ok(PreparedGuest { machine, options, log, asked })
}

/// Why a guest is not watched any more although it has not ended.
enum CutShort {
    /// The run is cancelled.
    Cancelled,
    /// The agent violated the protocol.
    ProtocolError(String),
    /// The guest differs from the request.
    Differs(String),
    /// The kernel reported an incident that spoils runs.
    KernelIncident(KernelIncident),
}

/// The findings while a guest ran.
struct Watched {
    cut_short: Option<CutShort>,
    /// Time of the first sign of a failure, in milliseconds since the boot began.
    died_ms: u64,
    notes: Vec<String>,
}

/// Handles the guest's events until the guest ends or must be killed.
async fn watch(boot: &mut RunningBoot<'_>, guests: &mut Guests) -> Result<Watched, BlockError> {
    let cancel = boot.context.cancel;
    let mut notes = guests.unconfined();
    let mut note = |incident: &KernelIncident| {
        if notes.len() < MAX_NOTES {
            notes.push(incident.to_string());
        }
    };
    let mut died_ms = None;
    let mut counts = tokio::time::interval(COUNTS);
    let cut_short = loop {
        let event = tokio::select! {
            event = guests.next_event() => Some(event),
            () = cancel.cancelled() => break Some(CutShort::Cancelled),
            _ = counts.tick(), if boot.counting.is_some() => None,
        };
        if let Some(counting) = &mut boot.counting {
            counting.take(guests.read_counts());
        }
        let event = match event {
            None => continue,
            Some(GroupEvent::Violation(violation)) => break Some(CutShort::ProtocolError(violation)),
            Some(GroupEvent::Differs(difference)) => break Some(CutShort::Differs(difference)),
            Some(GroupEvent::Event(event)) => event,
            Some(GroupEvent::Together(together)) => VmEvent::Message(boot.message_of(together)),
        };
        match event {
            VmEvent::Message(message) => {
                if matches!(message, GuestMessage::Done | GuestMessage::Failed { .. } | GuestMessage::Unsound { .. }) {
                    // The guest cannot see whether its last message arrived, so it waits for a
                    // shutdown request. An ended guest needs none. A guest without input (the
                    // instruction clock) waits without an answer, but its own time passes at once.
                    guests.power_off();
                }
                if matches!(message, GuestMessage::Failed { .. } | GuestMessage::Unsound { .. }) {
                    died_ms.get_or_insert(boot.now().boot_ms);
                }
                if let Some(violation) = boot.handle_message(message)? {
                    break Some(CutShort::ProtocolError(violation));
                }
            }
            VmEvent::KernelIncident(incident) => match incident.kind.severity() {
                Severity::Note => note(&incident),
                // Nothing can be spoilt before the first run, or after the last one of an ordinary
                // boot.
                Severity::SpoilsRun if boot.is_spoilt_by_incident() => {
                    died_ms.get_or_insert(boot.now().boot_ms);
                    // Neither this run's figures nor the guest can be trusted any more. The details
                    // of the report follow the line.
                    guests.linger(OUTPUT_TAIL).await;
                    break Some(CutShort::KernelIncident(incident));
                }
                Severity::SpoilsRun => note(&incident),
                // The guest ends because of these messages, and its ending reports them.
                Severity::Fatal => {
                    died_ms.get_or_insert(boot.now().boot_ms);
                }
            },
            VmEvent::Ended(_) => break None,
        }
    };
    Ok(Watched { cut_short, died_ms: died_ms.unwrap_or(boot.now().boot_ms), notes })
}

/// Concludes how the boot ended from how the guest ended.
fn end_of(boot: &mut RunningBoot<'_>, cut_short: Option<CutShort>, at_ms: u64, ended: &GroupEnding) -> BootEnd {
    let GroupEnding { ending, log, name } = ended;
    let is_cancelled = boot.context.cancel.is_cancelled();
    let is_dead = matches!(ending.reason, EndReason::KernelDied { .. });
    // If the kernel dies after everything was done, the last tool run is the cause, if any.
    let is_spoilt = matches!(cut_short, Some(CutShort::KernelIncident(_)));
    if boot.is_done() && !is_spoilt && !(is_dead && boot.seen.last_tool(&boot.plan).is_some()) {
        if !ending.reason.is_done() && !is_cancelled {
            boot.after_done = Some(failure_of(ending, log, name.as_deref()));
        }
        return BootEnd::Done;
    }
    let failure = failure_of(ending, log, name.as_deref());
    match (cut_short, &ending.reason) {
        // Nobody watched the guest after it was cut short, so its ending proves nothing.
        (Some(CutShort::Cancelled), _) => BootEnd::Interrupted,
        (Some(CutShort::ProtocolError(message)), _) => {
            let failure = failure::of_protocol_error(message, Some(ending.phase), log);
            BootEnd::Broken { failure, at_ms, began_ms: at_ms }
        }
        (Some(CutShort::Differs(difference)), _) => differs(difference, log),
        (Some(CutShort::KernelIncident(incident)), EndReason::KernelDied { .. }) => {
            tracing::debug!("the kernel died after {incident}");
            let began_ms = failure::began_ms(in_full(&incident, ending), at_ms);
            BootEnd::Broken { failure, at_ms, began_ms }
        }
        (Some(CutShort::KernelIncident(incident)), _) => {
            let full = in_full(&incident, ending);
            let began_ms = failure::began_ms(full, at_ms);
            BootEnd::Broken { failure: failure::of_incident(full, ending.phase, log), at_ms, began_ms }
        }
        // A signal to all processes of a terminal reaches QEMU, too.
        (_, EndReason::Stopped | EndReason::QemuExited { .. }) if is_cancelled => BootEnd::Interrupted,
        (_, reason) if failure::is_of_host(reason) => BootEnd::Host { failure, class: HostFailure::Exit },
        (_, EndReason::Unsound { run, .. }) => BootEnd::Unsound { run: run.clone(), failure, at_ms },
        _ => BootEnd::Broken { failure, at_ms, began_ms: at_ms },
    }
}

/// Returns `incident` with the details that arrived after it was reported.
fn in_full<'a>(incident: &'a KernelIncident, ending: &'a GuestEnding) -> &'a KernelIncident {
    let is_same = |full: &&KernelIncident| full.line == incident.line && full.time_us == incident.time_us;
    ending.incidents.iter().find(is_same).unwrap_or(incident)
}

/// Describes the end of a guest as a failure, with the guest's `name` if there were several.
fn failure_of(ending: &GuestEnding, log: &str, name: Option<&str>) -> RunFailure {
    let mut failure = failure::of_ending(ending, log);
    if let (Some(name), Some(line)) = (name, failure.excerpt.first_mut()) {
        *line = format!("{name}: {line}");
    }
    failure
}

/// The host could not even start the guest.
fn host_failure(error: &dyn std::error::Error, class: HostFailure) -> BootEnd {
    BootEnd::Host { failure: failure::of_host(with_causes(error)), class }
}

/// The guest with this console log differs from the request. The results would claim something that
/// was not measured.
fn differs(difference: String, log: &str) -> BootEnd {
    let failure = RunFailure { log: Some(log.to_owned()), ..failure::of_host(difference) };
    BootEnd::Host { failure, class: HostFailure::Lacking }
}

const fn class_of(error: &VmError) -> HostFailure {
    match error {
        VmError::Input { .. } => HostFailure::Initramfs,
        _ => HostFailure::Start,
    }
}
