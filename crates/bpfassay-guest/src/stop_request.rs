// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stops early on a running system: on a signal, or when nobody reads the output any more. The
//! measured processes are killed with their cgroups, and what was made is removed.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags};

use crate::{
    agent_link::wait_readable,
    cgroup,
    error::{Error, Result},
    made::Record,
    power_off, signals,
};

/// How long the agent can take to end by itself, once all measured processes have been killed.
const PATIENCE: Duration = Duration::from_secs(15);

/// How often processes that the agent starts in the meantime are killed.
const PERIOD: Duration = Duration::from_millis(50);

/// Why this agent must stop.
static REASON: OnceLock<String> = OnceLock::new();

/// Set when everything has been removed, or could not be.
static OVER: AtomicBool = AtomicBool::new(false);

/// Returns an error if this agent must stop.
pub(crate) fn check() -> Result<()> {
    match REASON.get() {
        None => Ok(()),
        Some(reason) => Err(Error::Order(format!("stopped: {reason}"))),
    }
}

/// Watches for reasons to stop, for as long as this process lives. `cgroups` is the directory of
/// the cgroup that contains everything measured. `record` lists what was made. The signals must be
/// blocked in every thread ([`signals::block_to_end`]).
pub(crate) fn watch(cgroups: String, record: Record) -> Result<()> {
    let output = io::stdout().as_fd().try_clone_to_owned().map_err(Error::system("duplicate standard output"))?;
    let signals = signals::descriptor(&signals::TO_END).map_err(Error::system("watch signals"))?;
    let watch = move || {
        let reason = match await_reason(&output, &signals) {
            Ok(reason) => reason,
            Err(error) => error.to_string(),
        };
        REASON.get_or_init(|| reason);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && !OVER.load(Ordering::SeqCst) {
            // If the cgroup does not exist, the agent's own end has removed it.
            let _ = cgroup::kill_tree(&cgroups);
            thread::sleep(PERIOD);
        }
        if OVER.swap(true, Ordering::SeqCst) {
            return;
        }
        for problem in record.clear() {
            power_off::say(&problem);
        }
        power_off::say("stopped before the last run had ended");
        std::process::exit(1);
    };
    thread::Builder::new().name("stop".to_owned()).spawn(watch).map_err(Error::system("start a thread"))?;
    Ok(())
}

/// Reports that the agent has removed what it made. Returns whether the agent can end. If not, the
/// watching thread is about to end it.
pub(crate) fn over() -> bool {
    !OVER.swap(true, Ordering::SeqCst)
}

/// Waits for a signal, or until nobody reads `output` any more.
fn await_reason(output: &OwnedFd, signals: &OwnedFd) -> Result<String> {
    // Regular files never cause an event, because POLLOUT is not requested.
    let mut waiting = [PollFd::new(signals, PollFlags::IN), PollFd::new(output, PollFlags::empty())];
    wait_readable(&mut waiting, None)?;
    let [signal, _] = &waiting;
    Ok(if signal.revents().is_empty() { "its reader is gone" } else { "by a signal" }.to_owned())
}
