// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time stamps of snapshots. An archive of snapshots keeps every state of another archive, and
//! names each state by its time.

use std::{fmt, str::FromStr};

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The time format of archives of snapshots.
const FORM: &str = "%Y%m%dT%H%M%SZ";

/// Seconds between the date of a release file and the snapshot from which its packages are
/// requested. A snapshot is taken some hours after that date. A package stays in the pool for more
/// than a day after a release file stops listing it.
const SETTLED: u64 = 12 * 3600;

/// Seconds since 1970, UTC. An archive answers with its last snapshot before this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotTime(i64);

/// Why a text is not a time stamp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected the time stamp of a snapshot, in UTC and in the form 20251101T000000Z")]
pub struct NotASnapshot;

impl SnapshotTime {
    /// Returns a time whose snapshot has what an index lists. `date` is the date of the release
    /// file. `fetched` is the time when it was read. Both are seconds since 1970.
    ///
    /// The date counts, not the time of reading: an outdated mirror can list packages that the
    /// archive has dropped since.
    #[must_use]
    pub fn of_index(date: u64, fetched: u64) -> Option<Self> {
        let seconds = i64::try_from(date.saturating_add(SETTLED).min(fetched)).ok()?;
        Timestamp::from_second(seconds).ok().map(|_| Self(seconds))
    }
}

impl FromStr for SnapshotTime {
    type Err = NotASnapshot;

    fn from_str(text: &str) -> Result<Self, NotASnapshot> {
        let time = DateTime::strptime(FORM, text).map_err(|_| NotASnapshot)?;
        let time = time.to_zoned(TimeZone::UTC).map_err(|_| NotASnapshot)?;
        let snapshot = Self(time.timestamp().as_second());
        // The text becomes part of a path: accept one form only.
        if snapshot.to_string() == text { Ok(snapshot) } else { Err(NotASnapshot) }
    }
}

impl fmt::Display for SnapshotTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = Timestamp::from_second(self.0).map_err(|_| fmt::Error)?;
        write!(f, "{}", time.strftime(FORM))
    }
}

impl Serialize for SnapshotTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SnapshotTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(|error| serde::de::Error::custom(format!("`{text}`: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_stamp_has_one_form() {
        // The value is from `date -u -d '2025-11-01 00:00:00' +%s`.
        assert_eq!("20251101T000000Z".parse(), Ok(SnapshotTime(1_761_955_200)));
        for wrong in [
            "",
            "20251101",
            "20251101T000000",
            "2025-11-01T00:00:00Z",
            "20251301T000000Z",
            "../etc",
            " 20251101T000000Z",
        ] {
            assert_eq!(wrong.parse::<SnapshotTime>(), Err(NotASnapshot), "{wrong}");
        }
    }

    #[test]
    fn the_snapshot_of_an_index_is_not_after_it_was_read_nor_long_after_its_date() {
        let date = 1_793_347_681;
        assert_eq!(SnapshotTime::of_index(date, date + 60), Some(SnapshotTime(1_793_347_741)));
        assert_eq!(SnapshotTime::of_index(date, date + 30 * 86_400), Some(SnapshotTime(1_793_347_681 + 43_200)));
        assert_eq!(SnapshotTime::of_index(u64::MAX, u64::MAX), None);
    }

    proptest! {
        #[test]
        fn what_was_read_is_written_as_it_was(seconds in 0_i64..253_402_207_200) {
            let snapshot = SnapshotTime(seconds);
            prop_assert_eq!(snapshot.to_string().parse(), Ok(snapshot));
        }

        #[test]
        fn any_text_is_a_time_stamp_or_none(text in "\\PC{0,20}|[0-9]{7,9}T[0-9]{5,7}Z") {
            if let Ok(snapshot) = text.parse::<SnapshotTime>() {
                prop_assert_eq!(snapshot.to_string(), text);
            }
        }
    }
}
