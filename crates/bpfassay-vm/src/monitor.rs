// SPDX-License-Identifier: MIT OR Apache-2.0
//! QMP: the life cycle of the guest as reported by QEMU.

use std::{
    collections::VecDeque,
    io::{
        self,
        ErrorKind::{BrokenPipe, ConnectionReset, InvalidData, UnexpectedEof},
    },
    time::Duration,
};

use futures_util::{SinkExt as _, StreamExt as _};
use qapi::{Any, Command, Empty, Execute};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::codec::{Framed, LinesCodec, LinesCodecError};

use crate::{error::VmError, qemu_version::QemuVersion};

/// Longest time from exec until QEMU's monitor replies. QEMU first loads the kernel, and a busy
/// host is slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// Longest line that is read from the monitor, in bytes. Relevant lines have a few hundred.
const MAX_LINE: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// QEMU shuts the machine down.
    Shutdown(Shutdown),
    /// The guest reported a panic through a device.
    GuestPanicked,
    /// QEMU stopped the guest.
    Paused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shutdown {
    GuestPowerOff,
    /// The guest reset itself. Panics with `panic=-1` also do that.
    GuestReset,
    /// The guest reported a panic.
    GuestPanic,
    /// The host requested the shutdown.
    Host,
    /// QEMU failed.
    Error,
}

impl Shutdown {
    /// Parses `reason` of the event `SHUTDOWN` (QEMU's qapi/run-state.json, `ShutdownCause`).
    fn of_reason(reason: &str) -> Self {
        match reason {
            "guest-shutdown" => Self::GuestPowerOff,
            "guest-reset" | "subsystem-reset" => Self::GuestReset,
            "guest-panic" => Self::GuestPanic,
            "host-error" => Self::Error,
            _ => Self::Host,
        }
    }
}

/// Declares the QMP commands used here, which have no arguments. The crate `qapi-qmp` has all
/// commands, but takes longer to build than the rest of this crate.
macro_rules! commands {
    ($($(#[$doc:meta])* $command:ident = $name:literal -> $answer:ty;)+) => {$(
        $(#[$doc])*
        #[derive(Serialize)]
        struct $command {}

        impl Command for $command {
            type Ok = $answer;

            const NAME: &'static str = $name;
            const ALLOW_OOB: bool = false;
        }
    )+};
}

commands! {
    /// Ends the negotiation.
    Capabilities = "qmp_capabilities" -> Empty;
    /// Requests the state of the guest.
    QueryStatus = "query-status" -> QemuStatus;
    /// Requests QEMU to exit.
    Quit = "quit" -> Empty;
}

#[derive(Deserialize)]
struct QemuStatus {
    status: String,
}

#[derive(Deserialize)]
struct Greeting {
    #[serde(rename = "QMP")]
    qmp: Capable,
}

#[derive(Deserialize)]
struct Capable {
    version: QemuVersionReply,
}

#[derive(Deserialize)]
struct QemuVersionReply {
    qemu: QemuVersion,
}

/// Any later line: a reply, an error or an event. Unknown keys and events come from newer versions
/// and are ignored.
#[derive(Deserialize)]
struct MonitorLine {
    #[serde(rename = "return")]
    answer: Option<Any>,
    error: Option<QemuRefusal>,
    event: Option<String>,
    #[serde(default)]
    data: Any,
}

#[derive(Deserialize)]
struct QemuRefusal {
    desc: String,
}

impl MonitorLine {
    /// Returns the event that the line reports, if it matters here.
    fn notice(&self) -> Option<Notice> {
        Some(match self.event.as_deref()? {
            "SHUTDOWN" => {
                Notice::Shutdown(Shutdown::of_reason(self.data.get("reason").and_then(Any::as_str).unwrap_or_default()))
            }
            "GUEST_PANICKED" => Notice::GuestPanicked,
            "STOP" => Notice::Paused,
            _ => return None,
        })
    }

    /// Returns the reply to a command, if the line is one.
    fn answer(self) -> Option<CommandAnswer> {
        match (self.error, self.answer) {
            (Some(error), _) => Some(Err(error.desc)),
            (None, Some(answer)) => Some(Ok(answer)),
            (None, None) => None,
        }
    }
}

/// The result of a command, or QEMU's reason for refusing it.
type CommandAnswer = Result<Any, String>;

struct MonitorLines(Framed<UnixStream, LinesCodec>);

impl MonitorLines {
    fn new(stream: UnixStream) -> Self {
        Self(Framed::new(stream, LinesCodec::new_with_max_length(MAX_LINE)))
    }

    async fn send<C: Command>(&mut self, command: C) -> io::Result<()> {
        let line = serde_json::to_string(&Execute::<C, u32>::new(command, None))?;
        self.0.send(line).await.map_err(into_io)
    }

    /// Reads the next line. Returns [`UnexpectedEof`] if QEMU closed the connection. Dropping the
    /// future loses nothing.
    async fn next<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let line = self.0.next().await.ok_or(UnexpectedEof)?.map_err(into_io)?;
        Ok(serde_json::from_str(&line)?)
    }
}

fn into_io(error: LinesCodecError) -> io::Error {
    match error {
        LinesCodecError::Io(error) => error,
        LinesCodecError::MaxLineLengthExceeded => io::Error::new(InvalidData, "a line is too long"),
    }
}

/// Returns whether QEMU has exited or was killed. The supervisor reports its exit.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}

enum MonitorRequest {
    QueryStatus(oneshot::Sender<CommandAnswer>),
    Quit,
}

pub(crate) struct MonitorClient {
    requests: mpsc::UnboundedSender<MonitorRequest>,
    /// The version that QEMU reports.
    pub(crate) version: QemuVersion,
}

impl MonitorClient {
    /// Greets, negotiates, and starts to receive. Returns `Ok(None)` if QEMU closed the connection,
    /// because it is then about to exit.
    ///
    /// # Errors
    /// [`VmError::MonitorSilent`] if QEMU does not answer in time, [`VmError::Monitor`] if its
    /// answer is not QMP.
    pub(crate) async fn connect(
        stream: UnixStream,
    ) -> Result<Option<(Self, mpsc::UnboundedReceiver<Notice>)>, VmError> {
        let mut lines = MonitorLines::new(stream);
        let connect = async {
            let greeting: Greeting = lines.next().await.map_err(|error| ("the greeting", error))?;
            negotiate(&mut lines).await.map_err(|error| ("the negotiation", error))?;
            Ok((greeting.qmp.version.qemu, lines))
        };
        let (version, lines) = match timeout(PATIENCE, connect).await {
            Err(_) => return Err(VmError::MonitorSilent { seconds: PATIENCE.as_secs() }),
            Ok(Err((_, error))) if is_gone(&error) => return Ok(None),
            Ok(Err((step, error))) => return Err(VmError::Monitor { step, message: error.to_string() }),
            Ok(Ok(connected)) => connected,
        };
        let (requests, received) = mpsc::unbounded_channel();
        let (sender, notices) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            match serve(lines, received, sender).await {
                Err(error) if !is_gone(&error) => {
                    // The guest continues. Its ending then follows only from console, agent and
                    // exit status.
                    tracing::warn!(%error, "the monitor of a guest cannot be parsed any more");
                }
                Ok(()) | Err(_) => {}
            }
        });
        Ok(Some((Self { requests, version }, notices)))
    }

    /// Returns the state of the guest as QEMU names it, such as `running` or `internal-error`.
    ///
    /// # Errors
    /// [`VmError::Monitor`] if QEMU has exited, or returns no state.
    pub(crate) async fn state(&self) -> Result<String, VmError> {
        let failed = |message| VmError::Monitor { step: QueryStatus::NAME, message };
        let (sender, answer) = oneshot::channel();
        let gone = || failed("qemu closed the connection".to_owned());
        self.requests.send(MonitorRequest::QueryStatus(sender)).map_err(|_| gone())?;
        let answer = answer.await.map_err(|_| gone())?.map_err(failed)?;
        let QemuStatus { status } = serde_json::from_value(answer).map_err(|error| failed(error.to_string()))?;
        Ok(status)
    }

    /// Requests QEMU to quit, without waiting for it.
    pub(crate) fn quit(&self) {
        // QEMU may have exited already, and its exit is the result that counts.
        let _ = self.requests.send(MonitorRequest::Quit);
    }
}

async fn negotiate(lines: &mut MonitorLines) -> io::Result<()> {
    lines.send(Capabilities {}).await?;
    loop {
        match lines.next::<MonitorLine>().await?.answer() {
            None => {}
            Some(Ok(_)) => return Ok(()),
            Some(Err(why)) => return Err(io::Error::other(why)),
        }
    }
}

/// Sends requests and passes on events, until QEMU has exited or the receiver of events is closed.
/// QEMU replies in the order of the commands. Only out-of-band commands, which are not negotiated
/// here, can overtake others (QEMU's docs/interop/qmp-spec).
async fn serve(
    mut lines: MonitorLines,
    mut requests: mpsc::UnboundedReceiver<MonitorRequest>,
    notices: mpsc::UnboundedSender<Notice>,
) -> io::Result<()> {
    let mut waiting: VecDeque<Option<oneshot::Sender<CommandAnswer>>> = VecDeque::new();
    loop {
        tokio::select! {
            Some(request) = requests.recv() => match request {
                MonitorRequest::QueryStatus(sender) => {
                    lines.send(QueryStatus {}).await?;
                    waiting.push_back(Some(sender));
                }
                MonitorRequest::Quit => {
                    lines.send(Quit {}).await?;
                    waiting.push_back(None);
                }
            },
            line = lines.next::<MonitorLine>() => {
                let line = line?;
                if let Some(notice) = line.notice() {
                    if notices.send(notice).is_err() {
                        return Ok(());
                    }
                } else if let Some(answer) = line.answer()
                    && let Some(Some(sender)) = waiting.pop_front()
                {
                    // The requester may have stopped waiting.
                    let _ = sender.send(answer);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    use super::*;

    const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"micro": 3, "minor": 2, "major": 7}, "package": ""}, "capabilities": ["oob"]}}"#;

    /// Plays QEMU: after the greeting, sends one of `replies` for each command that it receives.
    async fn connected(replies: &'static [&'static str]) -> (MonitorClient, mpsc::UnboundedReceiver<Notice>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(async move {
            let (read, mut write) = theirs.into_split();
            write.write_all(format!("{GREETING}\r\n").as_bytes()).await.unwrap();
            let mut commands = BufReader::new(read).lines();
            for reply in replies {
                let command = commands.next_line().await.unwrap().unwrap();
                assert!(serde_json::from_str::<Any>(&command).unwrap()["execute"].is_string(), "{command}");
                write.write_all(format!("{reply}\r\n").as_bytes()).await.unwrap();
            }
        });
        MonitorClient::connect(ours).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn unknown_events_are_skipped() {
        let (monitor, mut notices) = connected(&[
            "{\"event\": \"FROM_THE_FUTURE\", \"data\": [1], \"new\": {}, \"timestamp\": {}}\n{\"return\": {}}",
            "{\"event\": \"ANOTHER\"}\n{\"return\": {\"status\": \"io-error\", \"running\": false}}",
            "{\"return\": {}}\n{\"event\": \"SHUTDOWN\", \"data\": {\"guest\": false, \"reason\": \"host-qmp-quit\"}}",
        ])
        .await;
        assert_eq!(monitor.version, QemuVersion { major: 7, minor: 2, micro: 3 });
        assert_eq!(monitor.state().await.unwrap(), "io-error");
        monitor.quit();
        assert_eq!(notices.recv().await, Some(Notice::Shutdown(Shutdown::Host)));
        assert_eq!(notices.recv().await, None);
    }

    #[tokio::test]
    async fn a_refusal_and_a_lost_connection_are_reported() {
        let (monitor, _notices) =
            connected(&["{\"return\": {}}", "{\"error\": {\"class\": \"GenericError\", \"desc\": \"not now\"}}"]).await;
        assert!(monitor.state().await.unwrap_err().to_string().contains("not now"));
        assert!(monitor.state().await.unwrap_err().to_string().contains("closed the connection"));
    }

    #[tokio::test]
    async fn lines_have_an_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let send = tokio::spawn(async move { theirs.write_all(&vec![b'x'; MAX_LINE + 2]).await.map(|()| theirs) });
        let error = MonitorClient::connect(ours).await.err().unwrap().to_string();
        assert!(error.contains("too long"), "{error}");
        drop(send);
    }

    #[test]
    fn causes_of_a_shutdown() {
        let reasons = ["guest-shutdown", "guest-reset", "subsystem-reset", "guest-panic", "host-error", "host-signal"];
        assert_eq!(
            reasons.map(Shutdown::of_reason),
            [
                Shutdown::GuestPowerOff,
                Shutdown::GuestReset,
                Shutdown::GuestReset,
                Shutdown::GuestPanic,
                Shutdown::Error,
                Shutdown::Host
            ]
        );
    }
}
