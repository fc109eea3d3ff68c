// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stop on a signal.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::INTERRUPTED;

/// The first Ctrl-C (or SIGTERM, or the end of the terminal) stops all guests and keeps what was measured; the second ends
/// the program at once, which kills its guests. The journal is whole either way.
pub(crate) fn on_signals() -> CancellationToken {
    let stop = CancellationToken::new();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        let cancel = stop.clone();
        match signal(kind) {
            Ok(mut signal) => {
                tokio::spawn(async move {
                    signal.recv().await;
                    cancel.cancel();
                    tracing::warn!("stopping all guests; what was measured is kept (once more: end at once)");
                    signal.recv().await;
                    std::process::exit(INTERRUPTED.into());
                });
            }
            Err(error) => tracing::warn!("cannot listen for signals ({error}): Ctrl-C will end bpfassay at once"),
        }
    }
    stop
}
