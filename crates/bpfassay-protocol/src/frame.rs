// SPDX-License-Identifier: MIT OR Apache-2.0
//! Framing of messages on a byte stream: magic, length, payload.
//!
//! A frame consists of the bytes `BPA`, one byte with the protocol version, the payload's length as
//! a little-endian `u32`, and the payload, a JSON value. A reader that finds anything else cannot
//! find the next frame. So every [`FrameError`] is final for the connection.

use serde::{Serialize, de::DeserializeOwned};

use crate::PROTOCOL_VERSION;

/// Largest payload of a frame, in bytes.
pub const MAX_PAYLOAD: usize = 8 << 20;

const PREFIX: [u8; 3] = *b"BPA";
const HEADER: usize = 8;

/// The byte stream is not a sequence of frames.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The stream has no frame where one must begin.
    #[error("expected a frame, found bytes {found:02x?}: the peer does not use this protocol")]
    NotAFrame {
        /// The bytes found in place of the header.
        found: Vec<u8>,
    },
    /// The peer has another protocol version.
    #[error("the peer has protocol version {theirs}, this side {PROTOCOL_VERSION}: rebuild the guest payload")]
    Version {
        /// The version announced.
        theirs: u8,
    },
    /// The announced payload is larger than allowed.
    #[error("a frame announces {announced} bytes, more than the {MAX_PAYLOAD} allowed")]
    TooLarge {
        /// The length announced.
        announced: usize,
    },
    /// The payload is not the message expected.
    #[error("a frame of {length} bytes does not hold a valid message")]
    Payload {
        /// The payload's length.
        length: usize,
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
}

/// Encodes `message` as one frame.
///
/// # Errors
/// [`FrameError::TooLarge`] if the message is longer than [`MAX_PAYLOAD`]; [`FrameError::Payload`]
/// if it cannot be written as JSON.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; HEADER];
    serde_json::to_writer(&mut frame, message).map_err(|source| FrameError::Payload { length: 0, source })?;
    let length = frame.len() - HEADER;
    if length > MAX_PAYLOAD {
        return Err(FrameError::TooLarge { announced: length });
    }
    frame[..3].copy_from_slice(&PREFIX);
    frame[3] = PROTOCOL_VERSION as u8;
    frame[4..HEADER].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(frame)
}

/// A decoder that accepts bytes in pieces and returns whole messages.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Position in the buffer where the next frame begins.
    start: usize,
}

impl Decoder {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        // Draining here, and not after each frame, avoids moving the rest for every frame.
        self.buffer.drain(..std::mem::take(&mut self.start));
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether a frame has begun but not ended.
    #[must_use]
    pub fn is_mid_frame(&self) -> bool {
        self.start < self.buffer.len()
    }

    /// Returns the payload of the next frame once it is complete, for inspection before
    /// [`Self::next`] consumes it.
    ///
    /// # Errors
    /// [`FrameError::NotAFrame`] if no frame begins here, [`FrameError::Version`] for another
    /// version, [`FrameError::TooLarge`] for more than [`MAX_PAYLOAD`] bytes. The rest of the
    /// stream is unreadable then.
    pub fn payload(&self) -> Result<Option<&[u8]>, FrameError> {
        let buffer = self.buffer.get(self.start..).unwrap_or_default();
        let known = buffer.len().min(PREFIX.len());
        if buffer[..known] != PREFIX[..known] {
            return Err(FrameError::NotAFrame { found: buffer[..buffer.len().min(16)].to_vec() });
        }
        if let Some(&theirs) = buffer.get(3)
            && u32::from(theirs) != PROTOCOL_VERSION
        {
            return Err(FrameError::Version { theirs });
        }
        let Some(length) = buffer.get(4..HEADER) else { return Ok(None) };
        let length = length.iter().rev().fold(0usize, |value, &byte| value << 8 | usize::from(byte));
        if length > MAX_PAYLOAD {
            return Err(FrameError::TooLarge { announced: length });
        }
        Ok(buffer.get(HEADER..HEADER + length))
    }

    /// Returns the next whole message, or `None` until more bytes arrive.
    ///
    /// # Errors
    /// The errors of [`Self::payload`], and [`FrameError::Payload`] if the frame does not contain a
    /// `T`. The rest of the stream is unreadable then.
    #[expect(
        clippy::should_implement_trait,
        reason = "the type of the message is chosen call by call, which no iterator can"
    )]
    pub fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let Some(payload) = self.payload()? else { return Ok(None) };
        let length = payload.len();
        let message = serde_json::from_slice(payload).map_err(|source| FrameError::Payload { length, source })?;
        self.start += HEADER + length;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn other_bytes_are_refused_at_the_first_byte() {
        let mut decoder = Decoder::default();
        decoder.push(b"\n[    0.0");
        assert!(matches!(decoder.next::<u32>(), Err(FrameError::NotAFrame { .. })));
    }

    #[test]
    fn another_version_is_named() {
        let mut frame = encode(&1).unwrap();
        frame[3] += 1;
        let mut decoder = Decoder::default();
        decoder.push(&frame);
        let other = PROTOCOL_VERSION + 1;
        assert!(matches!(decoder.next::<u32>(), Err(FrameError::Version { theirs }) if u32::from(theirs) == other));
    }

    #[test]
    fn oversized_frames_are_refused_before_their_payload_arrives() {
        let mut decoder = Decoder::default();
        let mut header = encode(&1).unwrap();
        header.truncate(4);
        decoder.push(&header);
        decoder.push(&[0xff; 4]);
        assert!(matches!(decoder.next::<u32>(), Err(FrameError::TooLarge { announced: 0xffff_ffff })));
    }

    #[test]
    fn a_valid_frame_with_another_message_is_an_error() {
        let mut decoder = Decoder::default();
        decoder.push(&encode(&"text").unwrap());
        assert!(matches!(decoder.next::<u32>(), Err(FrameError::Payload { length: 6, .. })));
    }

    proptest! {
        #[test]
        fn messages_survive_any_fragmentation(messages: Vec<String>, cuts: Vec<u8>) {
            let stream: Vec<u8> = messages.iter().flat_map(|m| encode(m).unwrap()).collect();
            let mut decoder = Decoder::default();
            let mut received = Vec::new();
            let (mut rest, mut cuts) = (&stream[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let step = usize::from(cuts.next().copied().unwrap_or(7)).clamp(1, rest.len());
                decoder.push(&rest[..step]);
                rest = &rest[step..];
                while let Some(message) = decoder.next::<String>().unwrap() {
                    received.push(message);
                }
            }
            prop_assert_eq!(received, messages);
            prop_assert!(!decoder.is_mid_frame());
        }

        #[test]
        fn any_bytes_end_in_a_message_an_error_or_a_wait(bytes: Vec<u8>) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            let _ = decoder.next::<serde_json::Value>();
        }
    }
}
