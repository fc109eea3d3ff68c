// SPDX-License-Identifier: MIT OR Apache-2.0
//! SHA-256 digests, which name everything in the cache.

use std::{
    borrow::Cow,
    fmt,
    io::{self, BufReader, Read, Write},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// Why a text is not a SHA-256 digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a SHA-256 digest (64 hexadecimal digits)")]
pub struct NotADigest(String);

impl Digest {
    /// Hashes bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Hashes a sequence of texts, for keys made of several facts. Different sequences never give
    /// the same input to the hash.
    pub fn of_parts<T: AsRef<[u8]>>(parts: impl IntoIterator<Item = T>) -> Self {
        let mut hasher = Hasher::default();
        for part in parts {
            let part = part.as_ref();
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.finish()
    }

    /// Hashes everything that `reader` yields.
    ///
    /// # Errors
    /// The error of `reader`.
    pub fn of_reader(reader: impl Read) -> io::Result<Self> {
        let mut hasher = Hasher::default();
        io::copy(&mut BufReader::with_capacity(256 << 10, reader), &mut hasher)?;
        Ok(hasher.finish())
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// Hashes bytes that come in pieces.
#[derive(Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of everything that was added.
    #[must_use]
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

impl Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || NotADigest(text.chars().take(80).collect());
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return Err(refuse()) };
        if pairs.len() != 32 {
            return Err(refuse());
        }
        let mut digest = [0; 32];
        for (byte, pair) in digest.iter_mut().zip(pairs) {
            for &digit in pair {
                let value = char::from(digit).to_digit(16).ok_or_else(refuse)?;
                *byte = *byte << 4 | value as u8;
            }
        }
        Ok(Self(digest))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'_, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Digest {
    fn schema_name() -> Cow<'static, str> {
        "Digest".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "SHA-256, hexadecimal",
            "pattern": "^[0-9a-f]{64}$",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_digest_of_nothing_is_the_published_one() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(Digest::of_reader(&b""[..]).unwrap().to_string(), empty);
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        assert_ne!(Digest::of_parts(["ab", "c"]), Digest::of_parts(["a", "bc"]));
    }

    proptest! {
        #[test]
        fn digests_read_back_as_written(bytes: Vec<u8>) {
            let digest = Digest::of(&bytes);
            prop_assert_eq!(digest.to_string().parse::<Digest>(), Ok(digest));
            prop_assert_eq!(digest.to_string().to_uppercase().parse::<Digest>(), Ok(digest));
        }

        #[test]
        fn other_texts_are_refused(text in "\\PC{0,63}|[0-9a-f]{65,70}|[0-9a-f]{63}[g-z€]") {
            prop_assert!(text.parse::<Digest>().is_err());
        }
    }
}
