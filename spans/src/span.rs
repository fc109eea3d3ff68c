// SPDX-License-Identifier: MIT OR Apache-2.0
//! A span and its identifiers.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// A number.
    Number(i64),
    /// A text.
    Text(Cow<'static, str>),
    /// A Boolean.
    Flag(bool),
}

impl AttributeValue {
    /// Converts a number such as a count of bytes. Numbers that are too large, which no file has,
    /// become the largest one.
    #[must_use]
    pub fn unsigned(value: u64) -> Self {
        Self::Number(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

/// A span in the sense of OpenTelemetry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The trace: everything between the opening and closing of a file in one process.
    pub trace: [u8; 16],
    /// The identifier of the span.
    pub id: [u8; 8],
    /// The span that contains this one.
    pub parent: Option<[u8; 8]>,
    /// The function's name, or `MPI file` for the time in which a file is open.
    pub name: &'static str,
    /// Start, in nanoseconds since 1970.
    pub begin: u64,
    /// End, in nanoseconds since 1970.
    pub end: u64,
    /// Whether the function reported an error.
    pub failed: bool,
    /// Attributes with unique names.
    pub attributes: Vec<(&'static str, AttributeValue)>,
}

/// The kind of thing that an identifier names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Trace,
    File,
    Call,
    SystemCall,
}

/// Makes identifiers. They are derived from the named things, so a span can name a parent whose
/// record comes later.
#[derive(Debug, Clone)]
pub(crate) struct Identifiers {
    seed: [u8; 16],
}

impl Identifiers {
    /// A generator whose identifiers differ from those of any other `seed`, with high probability.
    pub(crate) fn new(seed: [u8; 16]) -> Self {
        Self { seed }
    }

    /// Returns the identifier of the thing that a thread began at `begin`.
    pub(crate) fn of(&self, what: Of, process: u32, thread: u32, begin: u64) -> [u8; 16] {
        let mut hasher = Sha256::new();
        hasher.update(self.seed);
        hasher.update([what as u8]);
        hasher.update(process.to_le_bytes());
        hasher.update(thread.to_le_bytes());
        hasher.update(begin.to_le_bytes());
        let digest = hasher.finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        // Identifiers must not be all zero. Span identifiers are the first eight bytes.
        id[0] |= 1;
        id
    }

    /// Returns the identifier of a span.
    pub(crate) fn span(&self, what: Of, process: u32, thread: u32, begin: u64) -> [u8; 8] {
        let [a, b, c, d, e, f, g, h, ..] = self.of(what, process, thread, begin);
        [a, b, c, d, e, f, g, h]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn identifiers_differ_by_all_that_they_are_made_of() {
        let (one, two) = (Identifiers::new([1; 16]), Identifiers::new([2; 16]));
        let all = [
            one.of(Of::Trace, 1, 2, 3),
            one.of(Of::File, 1, 2, 3),
            one.of(Of::Call, 1, 2, 3),
            one.of(Of::SystemCall, 1, 2, 3),
            one.of(Of::Trace, 2, 2, 3),
            one.of(Of::Trace, 1, 1, 3),
            one.of(Of::Trace, 1, 2, 4),
            two.of(Of::Trace, 1, 2, 3),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(all[0], one.of(Of::Trace, 1, 2, 3));
        assert_eq!(one.span(Of::Call, 1, 2, 3)[..], all[2][..8]);
    }

    #[test]
    fn large_numbers_are_the_largest() {
        assert_eq!(AttributeValue::unsigned(7), AttributeValue::Number(7));
        assert_eq!(AttributeValue::unsigned(u64::MAX), AttributeValue::Number(i64::MAX));
    }
}
