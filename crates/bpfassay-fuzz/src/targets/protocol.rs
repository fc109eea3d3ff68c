// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between host, guest, tracer and workload.

use bpfassay_protocol::{
    Arch, Operation, ProbeConfiguration,
    control::PhaseEvent,
    frame::{Decoder, encode},
    job::Job,
    loaded_object::{MapPage, ObjectLine},
    mangle,
    message::{GuestMessage, HostMessage, RunFigures},
    tracer_messages::TracerLine,
};
use serde::{Serialize, de::DeserializeOwned};

/// A stream of frames in pieces. A message that was received must survive a round trip.
pub(super) fn frames(bytes: &[u8]) {
    stream::<GuestMessage>(bytes);
    stream::<HostMessage>(bytes);
}

fn stream<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let mut decoder = Decoder::default();
    for piece in bytes.chunks(1009) {
        decoder.push(piece);
        loop {
            match decoder.next::<T>() {
                Ok(Some(message)) => comes_back(&message),
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

fn comes_back<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(message: &T) {
    // Encoding fails if the message is too large or has a number that JSON does not have.
    let Ok(frame) = encode(message) else { return };
    let mut decoder = Decoder::default();
    decoder.push(&frame);
    let again = decoder.next::<T>();
    assert!(matches!(&again, Ok(Some(again)) if again == message), "{message:?} became {again:?}");
}

/// Messages without a frame, because few mutations leave a frame intact.
pub(super) fn messages(bytes: &[u8]) {
    if let Some(message) = read::<GuestMessage>(bytes) {
        comes_back(&message);
    }
    if let Some(figures) = read::<RunFigures>(bytes) {
        comes_back(&figures);
    }
    if let Some(job) = read::<Job>(bytes) {
        comes_back(&job);
    }
}

/// JSON lines of the tracer, its loader of bare objects, and workloads, and pages of maps.
pub(super) fn lines(bytes: &[u8]) {
    for line in bytes.split(|&byte| byte == b'\n') {
        let _ = read::<TracerLine>(line).inspect(comes_back);
        let _ = read::<ObjectLine>(line).inspect(comes_back);
        let _ = read::<PhaseEvent>(line).inspect(comes_back);
        let _ = read::<MapPage>(line).inspect(comes_back);
    }
}

fn read<T: DeserializeOwned>(text: &[u8]) -> Option<T> {
    serde_json::from_slice(text).ok()
}

/// Names, and the kernel's escapes.
pub(super) fn names(text: &str) {
    for name in text.split(['\n', ',']).take(100) {
        if let Ok(probe) = name.parse::<ProbeConfiguration>() {
            assert_eq!(probe.to_string().parse::<ProbeConfiguration>().ok(), Some(probe));
        }
        if let Ok(arch) = name.parse::<Arch>() {
            assert_eq!(arch.name(), name);
        }
        let _ = name.parse::<Operation>();
        assert!(mangle::unescape(name).len() <= 3 * name.len());
    }
}
