//! What comes on the agent's port, as messages of bounded size and number.
//!
//! A message is weighed before it is decoded, and its weight stays taken until the guest's owner has the message: whatever an
//! agent sends, what waits between its port and the owner is bounded in bytes.

use std::sync::Arc;

use bpfassay_protocol::{
    PROTOCOL_VERSION,
    frame::{Decoder, FrameError},
    message::GuestMessage,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::{EndReason, output::Output};

/// Bytes that messages may take which have not come to the owner of the guest: more than the heaviest message by itself.
const CAPACITY: u32 = 72 << 20;
/// Bytes that a JSON value takes in memory besides its text, on average: the largest that serde keeps while it looks for a tag takes
/// 32, but numbers and the names of fields are gone once the message is there.
const VALUE: usize = 16;

/// A message and the room that it takes.
pub(crate) struct Received {
    pub(crate) message: GuestMessage,
    pub(crate) room: OwnedSemaphorePermit,
}

/// Reads the agent's frames until the stream ends or is no stream of messages.
pub(crate) async fn listen(mut agent: Output, received: mpsc::Sender<Result<Received, EndReason>>) {
    let capacity = Arc::new(Semaphore::new(CAPACITY as usize));
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let Ok(count @ 1..) = agent.read(&mut buffer).await else { return };
        decoder.push(&buffer[..count]);
        loop {
            let weight = match decoder.payload() {
                Ok(None) => break,
                Ok(Some(payload)) => weight(payload),
                Err(error) => {
                    let _ = received.send(Err(garbage(&error))).await;
                    return;
                }
            };
            // It is never closed.
            let Ok(room) = Arc::clone(&capacity).acquire_many_owned(weight).await else { return };
            let message = match decoder.next() {
                Ok(None) => break,
                Ok(Some(message)) => Ok(Received { message, room }),
                Err(error) => Err(garbage(&error)),
            };
            let lost = message.is_err();
            if received.send(message).await.is_err() || lost {
                return;
            }
        }
    }
}

/// Bytes of memory that the message of this text takes, about.
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

/// What a stream that is none of frames means for the guest.
fn garbage(error: &FrameError) -> EndReason {
    match error {
        FrameError::Version { theirs } => {
            EndReason::ProtocolVersion { theirs: u32::from(*theirs), ours: PROTOCOL_VERSION }
        }
        FrameError::Payload { source, .. } => EndReason::Garbage { message: format!("{error}: {source}") },
        error => EndReason::Garbage { message: error.to_string() },
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
        tokio::spawn(listen(Output::Socket(read), sender));
        let text = "x".repeat(4 << 20);
        let frame = encode(&GuestMessage::Log { text }).unwrap();
        let writer = tokio::spawn(async move {
            for _ in 0..40 {
                theirs.write_all(&frame).await.unwrap();
            }
        });
        let first = received.recv().await.unwrap();
        // As many as there is room for, and no more, however long one waits.
        let mut waiting = vec![first];
        while let Ok(next) = tokio::time::timeout(std::time::Duration::from_secs(2), received.recv()).await {
            waiting.push(next.unwrap());
        }
        assert_eq!(waiting.len(), (CAPACITY >> 22) as usize - 1, "each is a little heavier than 4 MiB");
        assert!(!writer.is_finished());
        waiting.clear();
        for _ in 17..40 {
            received.recv().await.unwrap().ok().unwrap();
        }
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn what_is_wrong_with_a_message_is_said() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let (sender, mut received) = mpsc::channel(1);
        let (read, _write) = ours.into_split();
        tokio::spawn(listen(Output::Socket(read), sender));
        theirs.write_all(&encode(&serde_json::json!({ "type": "phase", "phase": "lunch" })).unwrap()).await.unwrap();
        let Some(Err(EndReason::Garbage { message })) = received.recv().await else { unreachable!() };
        assert!(message.contains("lunch"), "{message}");
    }
}
