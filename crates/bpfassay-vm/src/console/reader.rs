// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a guest's console in a task.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::mpsc;

use super::{ConsoleLog, KernelIncident, LineCutter, Watch};
use crate::bounded_output::OutputFile;

pub(crate) struct ConsoleReport {
    pub(crate) incidents: Vec<KernelIncident>,
    pub(crate) tail: Vec<String>,
    pub(crate) problem: Option<String>,
}

/// Reads the console to its end, or until `enough` is set.
pub(crate) async fn watch(
    mut console: OutputFile,
    mut log: ConsoleLog,
    mut output: Option<mpsc::Sender<Vec<u8>>>,
    incidents: mpsc::UnboundedSender<KernelIncident>,
    enough: Arc<AtomicBool>,
) -> ConsoleReport {
    let mut lines = LineCutter::default();
    let mut incidents_seen = Watch::default();
    // An interactive user has already seen the output.
    let is_logged = output.is_none();
    let mut look = |line: &str, log: &mut ConsoleLog| {
        if is_logged {
            // Removes characters that a terminal interprets.
            let line = line.replace(char::is_control, " ");
            tracing::debug!(target: "bpfassay_vm::console", "{}: {line}", log.name());
        }
        log.line(line);
        if let Some(incident) = incidents_seen.line(line) {
            // The receiver is dropped only with the whole supervisor.
            let _ = incidents.send(incident);
        }
    };
    let mut buffer = vec![0; 16 << 10];
    // A reset connection means that QEMU died. Its exit status tells more than this error.
    while let Ok(count @ 1..) = console.read(&mut buffer).await {
        let bytes = &buffer[..count];
        log.bytes(bytes);
        lines.push(bytes, |line| look(&line, &mut log));
        if let Some(terminal) = &output
            && terminal.send(bytes.to_vec()).await.is_err()
        {
            output = None;
        }
        if enough.load(Ordering::Relaxed) {
            log.left_unread();
            break;
        }
    }
    if let Some(line) = lines.finish() {
        look(&line, &mut log);
    }
    let (tail, problem) = log.finish();
    ConsoleReport { incidents: incidents_seen.incidents().to_vec(), tail, problem }
}
