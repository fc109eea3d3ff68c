// SPDX-License-Identifier: MIT OR Apache-2.0
//! One block: its boots, one after the other, until nothing of it is left to do.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bpfassay_protocol::{
    message::{GuestMessage, HostMessage},
    with_causes,
};
use bpfassay_results::ToDo;
use bpfassay_study::{Block, Study};
use bpfassay_vm::{BootOptions, EndReason, Ending, Event, Guest, KernelIncident, Severity, VmError};

use crate::{
    HostSetup, HostSetupError, Progress,
    attempt::Attempt,
    blame::{BootEnd, HostFailure},
    boot::{Boot, Tally},
    context::{BlockError, Context},
    counting::Counting,
    failure,
    host_setup::{deadlines, whole_boot_seconds},
};

/// Most notes kept of one boot.
const MAX_NOTES: usize = 50;

/// From a line that reports an incident to the end of the guest: the rest of the report comes in that time.
const OUTPUT_TAIL: Duration = Duration::from_secs(1);

/// How often what QEMU's plugin writes is read: it takes memory until then.
const COUNTS: Duration = Duration::from_millis(100);

/// Executes `todo` with guests of `host_setup`. Returns how the attempt at the block ended.
///
/// # Errors
/// [`BlockError`] where the journal cannot be written or a guest cannot be assembled. A guest that fails is no error but a record.
pub(crate) async fn execute(
    context: &Context<'_>,
    host_setup: &HostSetup,
    todo: &ToDo,
    tally: &mut Tally,
) -> Result<Attempt, BlockError> {
    let mut attempt = Attempt::new(todo);
    while let Some((plan, pause)) = attempt.next() {
        if !pause.is_zero() {
            context.report(&Progress::Waiting(&todo.block, pause));
        }
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
        let mut boot = Boot::new(context, &todo.block, plan, tally);
        let (end, notes) = once(&mut boot, host_setup).await?;
        let conclusion = attempt.ended(&boot.plan, &boot.seen, &end, boot.now());
        boot.concluded(conclusion, notes)?;
    }
    Ok(attempt)
}

/// QEMU's command line for `block`, one argument each.
///
/// # Errors
/// [`HostSetupError`] where something that it needs was not prepared.
pub(crate) fn command(host_setup: &HostSetup, study: &Study, block: &Block) -> Result<Vec<String>, HostSetupError> {
    let (qemu, _) = host_setup.qemu(block.target.arch)?;
    let all = qemu.command_line().into_iter().chain(host_setup.machine(study, block)?.arguments());
    Ok(all.map(|argument| argument.to_string_lossy().into_owned()).collect())
}

/// One boot: how it ended, and lines of its console worth keeping.
async fn once(boot: &mut Boot<'_>, host_setup: &HostSetup) -> Result<(BootEnd, Vec<String>), BlockError> {
    let (context, block) = (boot.context, boot.block);
    let study = context.study;
    let log = boot.log.clone();
    let machine = host_setup.machine(study, block)?;
    let (qemu, _) = host_setup.qemu(block.target.arch)?;
    boot.started(command(host_setup, study, block)?)?;
    let failed = |error: &dyn std::error::Error, class| Ok((host_failure(error, class), Vec::new()));

    let job = match host_setup.job(study, block, &boot.plan.runs) {
        // One kernel that cannot serve the file system is no reason to stop the others.
        Err(error @ HostSetupError::Modules { .. }) => return failed(&error, HostFailure::Lacking),
        job => job?,
    };
    let initramfs = match host_setup.initramfs(&block.target, &job) {
        Err(error @ HostSetupError::Initramfs { .. }) => return failed(&error, HostFailure::Initramfs),
        initramfs => initramfs?,
    };
    let mut options = BootOptions::new(context.directory.join(&log));
    options.deadlines = deadlines(study);
    options.deadlines.whole_boot = Some(whole_boot_seconds(study, boot.plan.runs.len() as u64));
    options.initramfs = Some(Arc::new(initramfs));
    options.plugin = host_setup.plugin(study, block.target.arch).map(|plugin| plugin.code);
    boot.counting = options.plugin.map(|_| Counting::default());
    boot.since = Instant::now();
    let mut guest = match Guest::boot(qemu, &machine, options).await {
        Ok(guest) => guest,
        Err(error) => return failed(&error, class_of(&error)),
    };
    let Watched { cut_short, died_ms, notes } = watch(boot, &mut guest).await?;
    // One that was cut short is ended here; of one that ended by itself this gives the end again.
    guest.request_stop(Duration::ZERO);
    let ending = guest.end().await;
    Ok((end_of(boot, cut_short, died_ms, &ending), notes))
}

/// Why a guest is watched no longer although it has not ended.
enum CutShort {
    /// Everything is to stop.
    Cancelled,
    /// The agent violated the protocol.
    ProtocolError(String),
    /// The kernel reported an incident that spoils runs.
    KernelIncident(KernelIncident),
}

/// What was found while a guest ran.
struct Watched {
    cut_short: Option<CutShort>,
    /// When the first sign of it came, in milliseconds since the boot began.
    died_ms: u64,
    notes: Vec<String>,
}

/// Takes in what the guest does until it ends, or must be ended.
async fn watch(boot: &mut Boot<'_>, guest: &mut Guest) -> Result<Watched, BlockError> {
    let cancel = boot.context.cancel;
    let mut notes = guest.unconfined().to_vec();
    let mut note = |incident: &KernelIncident| {
        if notes.len() < MAX_NOTES {
            notes.push(incident.to_string());
        }
    };
    let mut died_ms = None;
    let mut counts = tokio::time::interval(COUNTS);
    let cut_short = loop {
        let event = tokio::select! {
            event = guest.next_event() => Some(event),
            () = cancel.cancelled() => break Some(CutShort::Cancelled),
            _ = counts.tick(), if boot.counting.is_some() => None,
        };
        if let Some(counting) = &mut boot.counting {
            counting.take(guest.read_counts());
        }
        let Some(event) = event else { continue };
        match event {
            Event::Message(message) => {
                if matches!(message, GuestMessage::Done | GuestMessage::Failed { .. } | GuestMessage::Unsound { .. }) {
                    // The guest cannot see whether its last message arrived: it waits for a shutdown request. One that has gone already
                    // needs no answer, and one that takes no input (the instruction clock) waits in vain, in its own time,
                    // which passes at once.
                    let _ = guest.send(&HostMessage::PowerOff);
                }
                if matches!(message, GuestMessage::Failed { .. } | GuestMessage::Unsound { .. }) {
                    died_ms.get_or_insert(boot.now().boot_ms);
                }
                if let Some(violation) = boot.handle_message(message)? {
                    break Some(CutShort::ProtocolError(violation));
                }
            }
            Event::KernelIncident(incident) => match incident.kind.severity() {
                Severity::Note => note(&incident),
                // Before the first run there is nothing to spoil, after the last nothing is left to.
                Severity::SpoilsRun if boot.is_spoilt_by_incident() => {
                    died_ms.get_or_insert(boot.now().boot_ms);
                    // What a run measured under it cannot be trusted, nor the guest that any other would be measured in. The
                    // details follow the line.
                    let _ = tokio::time::timeout(OUTPUT_TAIL, guest.end()).await;
                    break Some(CutShort::KernelIncident(incident));
                }
                Severity::SpoilsRun => note(&incident),
                // These end the guest, and its ending reports them.
                Severity::Fatal => {
                    died_ms.get_or_insert(boot.now().boot_ms);
                }
            },
            Event::Ended(_) => break None,
        }
    };
    Ok(Watched { cut_short, died_ms: died_ms.unwrap_or(boot.now().boot_ms), notes })
}

/// How the boot ended, out of how the guest did.
fn end_of(boot: &mut Boot<'_>, cut_short: Option<CutShort>, at_ms: u64, ending: &Ending) -> BootEnd {
    let log = boot.log.clone();
    let is_cancelled = boot.context.cancel.is_cancelled();
    let is_dead = matches!(ending.reason, EndReason::KernelDied { .. });
    // A kernel that dies although everything is done still died of something: of what the last tool left behind, where one ran.
    if boot.is_done() && !(is_dead && boot.seen.last_tool(&boot.plan).is_some()) {
        if !ending.reason.is_done() && !is_cancelled {
            boot.after_done = Some(failure::of_ending(ending, &log));
        }
        return BootEnd::Done;
    }
    let failure = failure::of_ending(ending, &log);
    match (cut_short, &ending.reason) {
        // What the guest did from then on was not looked at, so nothing follows from how it ended.
        (Some(CutShort::Cancelled), _) => BootEnd::Interrupted,
        (Some(CutShort::ProtocolError(message)), _) => {
            BootEnd::Broken { failure: failure::of_protocol_error(message, Some(ending.phase), &log), at_ms }
        }
        (Some(CutShort::KernelIncident(incident)), EndReason::KernelDied { .. }) => {
            tracing::debug!("the kernel died after {incident}");
            BootEnd::Broken { failure, at_ms }
        }
        (Some(CutShort::KernelIncident(incident)), _) => {
            // With the details that came after it was reported.
            let is_same = |full: &&KernelIncident| full.line == incident.line && full.time_us == incident.time_us;
            let full = ending.incidents.iter().find(is_same).unwrap_or(&incident);
            BootEnd::Broken { failure: failure::of_incident(full, ending.phase, &log), at_ms }
        }
        // A signal to all processes of a terminal reaches QEMU, too.
        (_, EndReason::Stopped | EndReason::QemuExited { .. }) if is_cancelled => BootEnd::Interrupted,
        (_, reason) if failure::is_of_host(reason) => BootEnd::Host { failure, class: HostFailure::Exit },
        (_, EndReason::Unsound { run, .. }) => BootEnd::Unsound { run: run.clone(), failure, at_ms },
        _ => BootEnd::Broken { failure, at_ms },
    }
}

/// The host could not even start the guest.
fn host_failure(error: &dyn std::error::Error, class: HostFailure) -> BootEnd {
    BootEnd::Host { failure: failure::of_host(with_causes(error)), class }
}

const fn class_of(error: &VmError) -> HostFailure {
    match error {
        VmError::Input { .. } => HostFailure::Initramfs,
        _ => HostFailure::Start,
    }
}
