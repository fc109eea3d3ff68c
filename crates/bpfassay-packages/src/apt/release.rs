// SPDX-License-Identifier: MIT OR Apache-2.0
//! Release files: they tell how old a mirror's view of a suite is.

use std::{fmt, time::Duration};

use jiff::fmt::rfc2822::DateTimeParser;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The age of a suite, from its release file. Times are seconds since 1970, UTC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseFile {
    /// The suite's code name.
    pub codename: String,
    /// When the release file was made.
    pub date: u64,
    /// The end of validity. Suites that no longer change have none.
    pub valid_until: Option<u64>,
}

impl ReleaseFile {
    /// Parses an `InRelease` or `Release` file. `None`: a field is missing, or a date is invalid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            text.lines()
                .take_while(|line| !line.starts_with("SHA256:"))
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
        };
        Some(Self {
            codename: field("Codename")?.to_owned(),
            date: parse_date(field("Date")?)?,
            valid_until: match field("Valid-Until") {
                Some(date) => Some(parse_date(date)?),
                None => None,
            },
        })
    }

    /// Returns how long before `now` the release file expired.
    #[must_use]
    pub fn expired_since(&self, now: u64) -> Option<Duration> {
        self.valid_until.and_then(|until| now.checked_sub(until)).filter(|&age| age > 0).map(Duration::from_secs)
    }
}

/// A duration in days and hours, for messages.
pub(super) struct Age(pub(super) Duration);

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.0.as_secs() / 3600;
        write!(f, "{}d {}h", hours / 24, hours % 24)
    }
}

/// Converts a date such as `Sat, 07 Nov 2026 02:12:54 UTC` to seconds since 1970.
fn parse_date(text: &str) -> Option<u64> {
    // RFC 2822 treats unknown zones as UTC. Release files use these only: any other is a mistake.
    let local = ["UTC", "GMT", "+0000"].iter().find_map(|zone| text.strip_suffix(zone))?;
    let date = DateTimeParser::new().parse_timestamp(format!("{local}+0000")).ok()?;
    u64::try_from(date.as_second()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dates_are_those_of_date_1() {
        // The values are from `date -u -d '2026-11-07 02:12:54' +%s`, and so on.
        assert_eq!(parse_date("Sat, 07 Nov 2026 02:12:54 UTC"), Some(1_794_017_574));
        assert_eq!(parse_date("Thu, 29 Feb 2024 23:59:59 UTC"), Some(1_709_251_199));
        assert_eq!(parse_date("Thu, 01 Jan 1970 00:00:00 UTC"), Some(0));
        assert_eq!(parse_date("Sat, 07 Nov 2026 02:12:54 CET"), None);
        // RFC 2822 makes seconds optional.
        assert_eq!(parse_date("Sat, 07 Nov 2026 02:12 UTC"), Some(1_794_017_520));
        assert_eq!(parse_date("Sat, 07 Nov 2026 UTC"), None);
        assert_eq!(parse_date("Wed, 31 Dec 1969 23:59:59 UTC"), None);
    }

    #[test]
    fn the_age_follows_from_a_release_file() {
        let text = "-----BEGIN PGP SIGNED MESSAGE-----\nOrigin: Debian\nSuite: testing\nCodename: forky\n\
                    Date: Sat, 31 Oct 2026 08:12:54 UTC\nValid-Until: Sat, 07 Nov 2026 08:12:54 UTC\nSHA256:\n 00 1 x\n";
        let release = ReleaseFile::parse(text).unwrap();
        assert_eq!(release.codename, "forky");
        let until = release.valid_until.unwrap();
        assert_eq!(until - release.date, 7 * 86_400);
        assert_eq!(release.expired_since(until), None);
        assert_eq!(Age(release.expired_since(until + 90_000).unwrap()).to_string(), "1d 1h");
    }

    #[test]
    fn a_release_file_without_date_is_none() {
        assert_eq!(ReleaseFile::parse("Codename: forky\nSHA256:\nDate: Sat, 31 Oct 2026 08:12:54 UTC\n"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_a_date_or_none(text in "([A-Z][a-z]{2}, )?\\PC{0,40}") {
            let _ = parse_date(&text);
            let _ = ReleaseFile::parse(&format!("Codename: x\nDate: {text}\n"));
        }
    }
}
