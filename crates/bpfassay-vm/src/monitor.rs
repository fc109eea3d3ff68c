// SPDX-License-Identifier: MIT OR Apache-2.0
//! QMP: the life cycle of the guest as QEMU sees it.

use std::{
    io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof},
    time::Duration,
};

use futures_util::StreamExt;
use qapi::{
    futures::{QapiService, QmpStreamTokio},
    qmp::{self, Event as QmpEvent, RunState, ShutdownCause},
};
use tokio::{io::WriteHalf, net::UnixStream, sync::mpsc, time::timeout};

use crate::{QemuVersion, VmError};

/// How long QEMU may take from exec to the answer of its monitor. It loads the kernel before; a loaded host is slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the monitor reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// QEMU shuts the machine down.
    Shutdown(Shutdown),
    /// The guest reported a panic through a device.
    GuestPanicked,
    /// QEMU stopped the guest.
    Paused,
}

/// Why QEMU shuts a machine down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shutdown {
    /// The guest powered off.
    GuestPowerOff,
    /// The guest reset itself, panics with `panic=-1` included.
    GuestReset,
    /// The guest reported a panic.
    GuestPanic,
    /// The host asked for it.
    Host,
    /// QEMU gave up by itself.
    Error,
}

impl From<ShutdownCause> for Shutdown {
    fn from(cause: ShutdownCause) -> Self {
        match cause {
            ShutdownCause::guest_shutdown => Self::GuestPowerOff,
            ShutdownCause::guest_reset | ShutdownCause::subsystem_reset => Self::GuestReset,
            ShutdownCause::guest_panic => Self::GuestPanic,
            ShutdownCause::host_error => Self::Error,
            _ => Self::Host,
        }
    }
}

/// The monitor of one QEMU.
pub(crate) struct Monitor {
    service: QapiService<QmpStreamTokio<WriteHalf<UnixStream>>>,
    /// The version that QEMU reports.
    pub(crate) version: QemuVersion,
}

impl Monitor {
    /// Greets, negotiates, and starts to listen. `Ok(None)`: QEMU closed the connection, it is about to exit.
    pub(crate) async fn connect(
        stream: UnixStream,
    ) -> Result<Option<(Self, mpsc::UnboundedReceiver<Notice>)>, VmError> {
        let connect = async {
            let negotiation = QmpStreamTokio::open(stream).await.map_err(|error| ("the greeting", error))?;
            let qmp::VersionTriple { major, minor, micro } = negotiation.capabilities.QMP.version.qemu;
            let number = |value: i64| u32::try_from(value).unwrap_or_default();
            let version = QemuVersion { major: number(major), minor: number(minor), micro: number(micro) };
            let stream = negotiation.negotiate().await.map_err(|error| ("the negotiation", error))?;
            Ok((version, stream))
        };
        let (version, stream) = match timeout(PATIENCE, connect).await {
            Err(_) => return Err(VmError::MonitorSilent { seconds: PATIENCE.as_secs() }),
            Ok(Err((step, error))) => {
                return match error.kind() {
                    UnexpectedEof | ConnectionReset | BrokenPipe => Ok(None),
                    _ => Err(VmError::Monitor { step, message: error.to_string() }),
                };
            }
            Ok(Ok(connected)) => connected,
        };
        let (service, mut events) = stream.into_parts();
        let (sender, notices) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                let notice = match event {
                    Ok(QmpEvent::SHUTDOWN { data, .. }) => Notice::Shutdown(data.reason.into()),
                    Ok(QmpEvent::GUEST_PANICKED { .. }) => Notice::GuestPanicked,
                    Ok(QmpEvent::STOP { .. }) => Notice::Paused,
                    Ok(_) => continue,
                    // QEMU is gone, by itself or killed: its exit is reported elsewhere.
                    Err(error) if matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe) => break,
                    Err(error) => {
                        // An event that the QMP library does not know (a newer QEMU) ends its stream. The guest goes on; how
                        // it ended then follows from console, agent and exit status alone.
                        tracing::warn!(%error, "the monitor of a guest cannot be understood any more");
                        break;
                    }
                };
                if sender.send(notice).is_err() {
                    break;
                }
            }
        });
        Ok(Some((Self { service, version }, notices)))
    }

    /// The state of the guest as QEMU names it, such as `running` or `internal-error`.
    pub(crate) async fn state(&self) -> Result<RunState, VmError> {
        let status = self.service.execute(qmp::query_status {}).await;
        status
            .map(|status| status.status)
            .map_err(|error| VmError::Monitor { step: "query-status", message: error.to_string() })
    }

    /// Asks QEMU to quit, without waiting for it.
    pub(crate) fn quit(&self) {
        let quit = self.service.execute(qmp::quit {});
        // QEMU may close the connection before it answers; its exit is the answer that counts.
        tokio::spawn(async move { quit.await.map(drop).map_err(drop) });
    }
}
