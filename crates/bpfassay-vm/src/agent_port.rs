// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the messages of the agent's port, bounded in size and number.
//!
//! The size of a message in memory is estimated before it is decoded. It counts until the guest's
//! owner has the message. Messages between the port and the owner are therefore bounded in bytes,
//! whatever an agent sends.

use std::sync::Arc;

use bpfassay_protocol::{
    PROTOCOL_VERSION,
    frame::{Decoder, FrameError},
    message::GuestMessage,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::{
    bounded_output::{Backlog, OutputFile},
    guest_ending::EndReason,
};

/// Bytes of memory for messages that have not reached the owner of the guest. This is more than the
/// largest single message needs.
const CAPACITY: u32 = 72 << 20;
/// Average memory of a JSON value in addition to its text, in bytes. The largest value that serde
/// keeps while it searches for a tag takes 32 bytes, but decoding drops numbers and names of
/// fields.
const VALUE: usize = 16;

/// Largest number of bytes read at once to catch up with an agent that continues to write. This is
/// more than can be left unread.
const CATCH_UP: usize = 2 * Backlog::LIMIT as usize;

/// A message and its share of the memory limit.
pub(crate) struct Received {
    pub(crate) message: GuestMessage,
    pub(crate) room: OwnedSemaphorePermit,
}

/// Events that the reader of the port passes on.
pub(crate) enum PortEvent {
    /// The next message.
    Message(Received),
    /// The stream is invalid. Nothing follows.
    Wrong(EndReason),
    /// Everything that the agent wrote before this number was requested has been passed on.
    CaughtUp(u64),
}

/// Reads the agent's frames until the stream ends or is invalid, and replies to each number in
/// `asked`.
///
/// Console and agent's port are read separately. The run in which a console line was written is
/// known only after reading everything that the agent had sent by then.
pub(crate) async fn listen(
    agent: OutputFile,
    events: mpsc::Sender<PortEvent>,
    mut asked: mpsc::UnboundedReceiver<u64>,
) {
    let mut listener = AgentListener {
        agent,
        events,
        capacity: Arc::new(Semaphore::new(CAPACITY as usize)),
        decoder: Decoder::default(),
    };
    let mut buffer = vec![0; 64 << 10];
    let mut asked_open = true;
    loop {
        tokio::select! {
            number = asked.recv(), if asked_open => match number {
                Some(number) => {
                    if listener.catch_up(&mut buffer).await.is_none() || listener.give(PortEvent::CaughtUp(number)).await.is_none() {
                        return;
                    }
                }
                None => asked_open = false,
            },
            count = listener.agent.read(&mut buffer) => {
                let Ok(count @ 1..) = count else { return };
                if listener.take(&buffer[..count]).await.is_none() {
                    return;
                }
            }
        }
    }
}

struct AgentListener {
    agent: OutputFile,
    events: mpsc::Sender<PortEvent>,
    capacity: Arc<Semaphore>,
    decoder: Decoder,
}

impl AgentListener {
    /// Processes `bytes`. Returns `None` if reading must stop.
    async fn take(&mut self, bytes: &[u8]) -> Option<()> {
        self.decoder.push(bytes);
        loop {
            let weight = match self.decoder.payload() {
                Ok(None) => return Some(()),
                Ok(Some(payload)) => weight(payload),
                Err(error) => {
                    self.give(PortEvent::Wrong(protocol_error(&error))).await;
                    return None;
                }
            };
            // The semaphore is never closed.
            let room = Arc::clone(&self.capacity).acquire_many_owned(weight).await.ok()?;
            match self.decoder.next() {
                Ok(None) => return Some(()),
                Ok(Some(message)) => self.give(PortEvent::Message(Received { message, room })).await?,
                Err(error) => {
                    self.give(PortEvent::Wrong(protocol_error(&error))).await;
                    return None;
                }
            }
        }
    }

    /// Reads the bytes that are available now.
    async fn catch_up(&mut self, buffer: &mut [u8]) -> Option<()> {
        let mut left = CATCH_UP;
        while left > 0 {
            // The next ordinary read reports an error.
            let Ok(count @ 1..) = self.agent.read_now(buffer) else { break };
            left = left.saturating_sub(count);
            self.take(&buffer[..count]).await?;
        }
        Some(())
    }

    async fn give(&self, event: PortEvent) -> Option<()> {
        self.events.send(event).await.ok()
    }
}

/// Estimates the memory of the decoded message, in bytes.
fn weight(payload: &[u8]) -> u32 {
    let mut values = 1usize;
    let (mut quoted, mut escaped) = (false, false);
    for &byte in payload {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' | b':' | b'[' | b'{' if !quoted => values += 1,
            _ => {}
        }
    }
    let weight = payload.len().saturating_add(values.saturating_mul(VALUE));
    u32::try_from(weight).unwrap_or(CAPACITY).min(CAPACITY)
}

/// Returns the guest's end that an invalid stream causes.
fn protocol_error(error: &FrameError) -> EndReason {
    match error {
        FrameError::Version { theirs } => {
            EndReason::ProtocolVersion { theirs: u32::from(*theirs), ours: PROTOCOL_VERSION }
        }
        FrameError::Payload { source, .. } => EndReason::ProtocolError { message: format!("{error}: {source}") },
        error => EndReason::ProtocolError { message: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::frame::{MAX_PAYLOAD, encode};
    use tokio::{io::AsyncWriteExt, net::UnixStream};

    use super::*;

    #[test]
    fn values_weigh_more_than_their_text_and_strings_do_not() {
        assert_eq!(weight(b"0"), 1 + 16);
        assert_eq!(weight(br#"[0,0]"#), 5 + 3 * 16);
        assert_eq!(weight(br#""[,\",,{""#), 9 + 16);
        assert_eq!(weight(&vec![b','; MAX_PAYLOAD]), CAPACITY, "the heaviest can be taken by itself");
    }

    #[tokio::test]
    async fn messages_wait_at_the_port_while_those_before_them_take_all_the_room() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let (sender, mut received) = mpsc::channel(1000);
        let (read, _write) = ours.into_split();
        tokio::spawn(listen(OutputFile::Socket(read), sender, mpsc::unbounded_channel().1));
        let text = "x".repeat(4 << 20);
        let frame = encode(&GuestMessage::Log { text }).unwrap();
        let writer = tokio::spawn(async move {
            for _ in 0..40 {
                theirs.write_all(&frame).await.unwrap();
            }
        });
        let first = received.recv().await.unwrap();
        // Messages arrive only while there is room for them, however long the test waits.
        let mut waiting = vec![first];
        while let Ok(next) = tokio::time::timeout(std::time::Duration::from_secs(2), received.recv()).await {
            waiting.push(next.unwrap());
        }
        assert_eq!(waiting.len(), (CAPACITY >> 22) as usize - 1, "each is a little heavier than 4 MiB");
        assert!(!writer.is_finished());
        waiting.clear();
        for _ in 17..40 {
            assert!(matches!(received.recv().await, Some(PortEvent::Message(_))));
        }
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn what_is_wrong_with_a_message_is_reported() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let (sender, mut received) = mpsc::channel(1);
        let (read, _write) = ours.into_split();
        tokio::spawn(listen(OutputFile::Socket(read), sender, mpsc::unbounded_channel().1));
        theirs.write_all(&encode(&serde_json::json!({ "type": "phase", "phase": "lunch" })).unwrap()).await.unwrap();
        let Some(PortEvent::Wrong(EndReason::ProtocolError { message })) = received.recv().await else {
            unreachable!()
        };
        assert!(message.contains("lunch"), "{message}");
    }

    /// A number that is requested after the agent wrote two frames must follow both, no matter
    /// which read returns them.
    async fn catches_up(agent: OutputFile, mut write: impl FnMut(&[u8])) {
        let (sender, mut received) = mpsc::channel(16);
        let (ask, asked) = mpsc::unbounded_channel();
        tokio::spawn(listen(agent, sender, asked));
        for number in 0..50 {
            let frame = encode(&GuestMessage::Log { text: format!("{number}") }).unwrap();
            write(&frame);
            write(&frame);
            ask.send(number).unwrap();
            let mut before = 0;
            loop {
                match received.recv().await.unwrap() {
                    PortEvent::Message(_) => before += 1,
                    PortEvent::CaughtUp(answered) => break assert_eq!(answered, number),
                    PortEvent::Wrong(reason) => panic!("{reason}"),
                }
            }
            assert_eq!(before, 2, "{number}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_written_before_a_question_comes_before_its_answer() {
        use std::io::Write;
        let (theirs, ours) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let (read, _write) = UnixStream::from_std(ours).unwrap().into_split();
        catches_up(OutputFile::Socket(read), |bytes| (&theirs).write_all(bytes).unwrap()).await;

        let (file, other) = crate::bounded_output::file_in_memory("test").unwrap();
        let (_ended, gone) = tokio::sync::watch::channel(false);
        let mut other = std::fs::File::from(other);
        let tail = crate::bounded_output::Tail::new(file, gone);
        catches_up(OutputFile::File(tail), move |bytes| other.write_all(bytes).unwrap()).await;
    }
}
