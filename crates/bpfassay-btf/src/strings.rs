// SPDX-License-Identifier: MIT OR Apache-2.0
//! The strings of BTF without the types; line records refer to them.

use std::borrow::Cow;

use crate::{BtfError, sections};

/// The strings of BTF. Types are ignored, so an unknown kind is not an error.
#[derive(Debug, Clone, Copy)]
pub struct Strings<'a> {
    bytes: &'a [u8],
}

impl<'a> Strings<'a> {
    /// Finds the strings in `bytes`, which are BTF.
    ///
    /// # Errors
    /// [`BtfError::Header`] if the bytes do not begin with a BTF header, [`BtfError::Bounds`] if a
    /// section exceeds them.
    pub fn of(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let (_, bytes) = sections(bytes)?;
        Ok(Self { bytes })
    }

    /// Returns the string at `offset`, with invalid UTF-8 replaced; `None` without start or end.
    #[must_use]
    pub fn at(&self, offset: u32) -> Option<Cow<'a, str>> {
        let rest = self.bytes.get(usize::try_from(offset).ok()?..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        Some(String::from_utf8_lossy(&rest[..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn btf(strings: &[u8]) -> Vec<u8> {
        // Magic, version, flags, header length; offset and length of types and of strings.
        let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for number in [24_u32, 0, 0, 0, strings.len() as u32] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn strings_are_found_by_their_offsets_and_nothing_outside() {
        let bytes = btf(b"\0a.c\0\xffx\0open");
        let strings = Strings::of(&bytes).unwrap();
        let at = |offset| strings.at(offset).map(Cow::into_owned);
        assert_eq!(at(0).as_deref(), Some(""));
        assert_eq!(at(1).as_deref(), Some("a.c"));
        assert_eq!(at(3).as_deref(), Some("c"));
        assert_eq!(at(5).as_deref(), Some("\u{fffd}x"));
        assert_eq!((at(8), at(1000), at(u32::MAX)), (None, None, None));
        assert!(Strings::of(&bytes[..bytes.len() - 1]).is_err());
        assert!(Strings::of(b"\x7fELF").is_err());
    }
}
