// SPDX-License-Identifier: MIT OR Apache-2.0
//! The chain of checksums over the lines of a journal.
//!
//! Every line is a JSON object whose first key is `sum`, a SHA-256 in hexadecimal. It covers two
//! texts: the sum of the previous line (nothing for the first line), and the line's object without
//! that key. The beginning of a line is fixed to the byte, so every byte of a line counts, and so
//! does its position. A line that was changed, removed, repeated, swapped or copied from another
//! journal does not fit. Missing lines at the end are not detected; results record the number of
//! lines ([`JournalDigest`]).
//!
//! The sums detect damage, not malice: anybody can compute new sums. The meaning of entries is
//! checked separately.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Every line begins with this text. The sum follows.
const HEAD: &[u8] = b"{\"sum\":\"";

/// Text between the sum and the rest of the object.
const AFTER: &[u8] = b"\",";

/// Hexadecimal digits of a sum.
const DIGITS: usize = 64;

/// The digest of a journal: its number of lines and the last line's sum, which covers all lines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JournalDigest {
    /// Number of whole lines, including the header.
    pub lines: u64,
    /// Sum of the last line, in hexadecimal.
    pub sum: String,
}

impl JournalDigest {
    /// Returns the next sum for an object whose text is `{` and `rest`.
    fn next(&self, rest: &[u8]) -> String {
        let mut hash = Sha256::new();
        hash.update(self.sum.as_bytes());
        hash.update(b"{");
        hash.update(rest);
        hex(&hash.finalize())
    }

    fn advance(&mut self, sum: String) {
        self.lines = self.lines.saturating_add(1);
        self.sum = sum;
    }

    /// Makes the next line of `object`, with its newline. `object` is the text of a non-empty JSON
    /// object.
    pub(super) fn seal(&mut self, object: &[u8]) -> Vec<u8> {
        let rest = object.get(1..).unwrap_or_default();
        let sum = self.next(rest);
        let mut line = Vec::with_capacity(HEAD.len() + DIGITS + AFTER.len() + object.len());
        line.extend_from_slice(HEAD);
        line.extend_from_slice(sum.as_bytes());
        line.extend_from_slice(AFTER);
        line.extend_from_slice(rest);
        line.push(b'\n');
        self.advance(sum);
        line
    }

    /// Checks the next line, without its newline, and returns the object in it. An error leaves
    /// `line` unchanged.
    ///
    /// # Errors
    /// The reason why it is not the next line.
    pub(super) fn open<'a>(&mut self, line: &'a mut [u8]) -> Result<&'a [u8], &'static str> {
        let (sum, rest) = parts(line).ok_or("it does not begin with its sum")?;
        let found = self.next(rest);
        if found.as_bytes() != sum {
            return Err("its sum does not fit to it and to the lines before it");
        }
        self.advance(found);
        Ok(object(line))
    }
}

/// Splits `line` into its sum and the rest; `None` if it does not begin like a journal line.
fn parts(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let (sum, rest) = line.strip_prefix(HEAD)?.split_at_checked(DIGITS)?;
    Some((sum, rest.strip_prefix(AFTER)?))
}

/// Returns the object of a line that has [`parts`]. Overwrites the comma after the sum with the
/// object's brace.
fn object(line: &mut [u8]) -> &[u8] {
    let comma = HEAD.len() + DIGITS + AFTER.len() - 1;
    if let Some(place) = line.get_mut(comma) {
        *place = b'{';
    }
    line.get(comma..).unwrap_or_default()
}

/// Returns the object in `line` without checking the sum, or else the line itself. Serves to find
/// the version.
pub(super) fn unchecked(line: &mut [u8]) -> &[u8] {
    match parts(line).is_some() {
        true => object(line),
        false => line,
    }
}

/// Prints `bytes` in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_opened_in_its_order_only() {
        let mut chain = JournalDigest::default();
        let lines: Vec<Vec<u8>> = [r#"{"a":1}"#, r#"{"a":2}"#].map(|object| chain.seal(object.as_bytes())).into();
        assert_eq!(chain.lines, 2);
        // sha256sum of `{"a":1}`.
        let first = "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862";
        assert_eq!(lines[0], format!("{{\"sum\":\"{first}\",\"a\":1}}\n").into_bytes());
        for line in &lines {
            assert!(serde_json::from_slice::<serde_json::Value>(line).is_ok());
        }
        let open = |chain: &mut JournalDigest, line: &[u8]| {
            let mut line = line.strip_suffix(b"\n").unwrap().to_vec();
            chain.open(&mut line).map(<[u8]>::to_vec)
        };
        let mut read = JournalDigest::default();
        assert!(open(&mut read, &lines[1]).is_err());
        assert_eq!(open(&mut read, &lines[0]).unwrap(), br#"{"a":1}"#);
        assert!(open(&mut read, &lines[0]).is_err());
        assert_eq!(open(&mut read, &lines[1]).unwrap(), br#"{"a":2}"#);
        assert_eq!(read, chain);
    }

    #[test]
    fn every_bit_counts() {
        let line = JournalDigest::default().seal(br#"{"entry":"x", "n":1.50}"#);
        let whole = &line[..line.len() - 1];
        for bit in 0..whole.len() * 8 {
            let mut changed = whole.to_vec();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(JournalDigest::default().open(&mut changed).is_err(), "bit {bit}");
        }
    }
}
