// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patterns of kernel releases.

use std::fmt;

use serde::{Deserialize, Deserializer};

/// A kernel release with placeholders: `@` matches the flavour, and `*` matches one or more
/// characters other than a hyphen.
#[derive(Clone, PartialEq, Eq)]
pub struct ReleasePattern(String);

impl ReleasePattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// A message about what is wrong. A pattern must end in `-@`, and have only letters, digits,
    /// `.`, `-`, `+`, `~` and `*` before.
    pub fn new(text: &str) -> Result<Self, String> {
        let body = text.strip_suffix("-@").ok_or_else(|| format!("release `{text}` must end in `-@`"))?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '~' | '*');
        if body.is_empty() || !body.chars().all(plain) || body.contains("**") {
            return Err(format!("release `{text}` may hold letters, digits, `.`, `-`, `+`, `~` and single `*` only"));
        }
        Ok(Self(text.to_owned()))
    }

    /// Whether `release` matches the pattern for `flavour`.
    #[must_use]
    pub fn matches(&self, release: &str, flavour: &str) -> bool {
        fits(&self.0.replace('@', flavour), release)
    }
}

/// Whether `text` matches `pattern`. Backtracks over `*`: patterns are short and have few of them.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((literal, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(literal) else { return false };
    text.char_indices().take_while(|&(_, c)| c != '-').any(|(at, c)| fits(rest, &text[at + c.len_utf8()..]))
}

impl fmt::Display for ReleasePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ReleasePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)
    }
}

impl<'de> Deserialize<'de> for ReleasePattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_plain_flavour_fits() {
        let pattern = ReleasePattern::new("6.12.*-@").unwrap();
        assert!(pattern.matches("6.12.107+deb13-amd64", "amd64"));
        assert!(pattern.matches("6.12.90+deb12.1-arm64", "arm64"));
        for other in [
            "6.12.107+deb13-cloud-amd64",
            "6.12.107+deb13-rt-amd64",
            "6.12.107+deb13-amd64-unsigned",
            "6.12.107+deb13-amd64-dbg",
            "6.12.-amd64",
            "6.1.107-amd64",
        ] {
            assert!(!pattern.matches(other, "amd64"), "{other}");
        }
        assert!(!pattern.matches("6.12.107+deb13-arm64-16k", "arm64"));
        assert!(ReleasePattern::new("6.1.0-*-@").unwrap().matches("6.1.0-50-arm64", "arm64"));
    }

    #[test]
    fn bad_patterns_are_refused() {
        for text in ["", "@", "-@", "6.1", "6.1 -@", "6.**-@", "6.1-@-dbg", "6.1/../-@", "@6-@"] {
            assert!(ReleasePattern::new(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_fills_the_holes_fits(parts in prop::collection::vec(("[a-z0-9.+]{1,4}-?", "[a-z0-9.+~]{1,6}"), 1..4)) {
            let pattern: String = parts.iter().map(|(literal, _)| format!("{literal}*")).collect();
            let release: String = parts.iter().map(|(literal, filling)| format!("{literal}{filling}")).collect();
            let pattern = ReleasePattern::new(&format!("{pattern}-@")).unwrap();
            let full = format!("{release}-amd64");
            prop_assert!(pattern.matches(&full, "amd64"));
            let other_flavour = format!("{release}-rt-amd64");
            prop_assert!(!pattern.matches(&other_flavour, "amd64"));
        }
    }
}
