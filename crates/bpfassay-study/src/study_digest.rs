// SPDX-License-Identifier: MIT OR Apache-2.0
//! The digest of a study's or plan's JSON form, computed without holding that form in memory.

use std::io::{self, BufWriter, Write};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// A writer that hashes and counts the bytes.
#[derive(Default)]
struct Digesting {
    hash: Sha256,
    bytes: u64,
}

impl Write for Digesting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hash.update(bytes);
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the SHA-256 of the JSON form of `value` in hexadecimal, and the length of that form in
/// bytes.
pub(crate) fn digest_and_length<T: Serialize>(value: &T) -> (String, u64) {
    let mut writer = BufWriter::with_capacity(64 << 10, Digesting::default());
    let written = serde_json::to_writer(&mut writer, value).map_err(|error| error.to_string());
    let done = match writer.into_inner() {
        Ok(done) => done,
        Err(error) => error.into_parts().1.into_parts().0,
    };
    // Serializing cannot fail: these types have string keys only and no failing `Serialize`, and
    // nothing is written to a file. If that changes, the error text replaces the digest and a test
    // notices.
    match written {
        Ok(()) => (done.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect(), done.bytes),
        Err(error) => (error, done.bytes),
    }
}
