// SPDX-License-Identifier: MIT OR Apache-2.0
//! Differences between two readings of the same sources, as messages.

use std::collections::BTreeMap;

/// The largest number of differences that are named.
const MAX_DIFFERENCES: usize = 20;

/// The largest number of characters of a difference.
const MAX_LENGTH: usize = 240;

/// Values of a source by name, or an error message if the source cannot be read.
pub(crate) type Facts = Result<BTreeMap<String, String>, String>;

/// How far values of a source can differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tolerance {
    /// No difference is tolerated.
    None,
    /// Numbers can be higher or lower by this much.
    Within(u64),
    /// Numbers can be lower by this much, and higher by any amount.
    AtMostLower(u64),
}

/// Appends to `differences` what differs between `before` and `now` in the source `what`. A source
/// that could not be read before is not compared.
pub(crate) fn compare(what: &str, tolerance: Tolerance, before: &Facts, now: &Facts, differences: &mut Vec<String>) {
    let Ok(before) = before else { return };
    let now = match now {
        Ok(now) => now,
        Err(error) => {
            differences.push(format!("{what}: cannot be read any more: {error}"));
            return;
        }
    };
    for (name, value) in before {
        match now.get(name) {
            None => differences.push(format!("{what}: {} is gone", described(name, value))),
            Some(found) if differs(tolerance, value, found) => {
                differences.push(format!("{what}: {name} was {value} and is {found}"));
            }
            Some(_) => {}
        }
    }
    for (name, value) in now.iter().filter(|(name, _)| !before.contains_key(*name)) {
        differences.push(format!("{what}: {} was not there before", described(name, value)));
    }
}

/// Limits the number of differences and their length.
pub(crate) fn bounded(mut differences: Vec<String>) -> Vec<String> {
    let more = differences.len().saturating_sub(MAX_DIFFERENCES);
    differences.truncate(MAX_DIFFERENCES);
    for difference in &mut differences {
        if difference.chars().count() > MAX_LENGTH {
            *difference = difference.chars().take(MAX_LENGTH - 1).chain(['…']).collect();
        }
    }
    if more > 0 {
        differences.push(format!("and {more} more differences"));
    }
    differences
}

fn described(name: &str, value: &str) -> String {
    if value.is_empty() { name.to_owned() } else { format!("{name} ({value})") }
}

fn differs(tolerance: Tolerance, before: &str, now: &str) -> bool {
    if before == now {
        return false;
    }
    let (Ok(before), Ok(now)) = (before.parse::<i128>(), now.parse::<i128>()) else { return true };
    match tolerance {
        Tolerance::None => true,
        Tolerance::Within(most) => before.abs_diff(now) > u128::from(most),
        Tolerance::AtMostLower(most) => before.saturating_sub(now) > i128::from(most),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn facts(of: &[(&str, &str)]) -> Facts {
        Ok(of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    fn differences(tolerance: Tolerance, before: &Facts, now: &Facts) -> Vec<String> {
        let mut found = Vec::new();
        compare("mounts", tolerance, before, now, &mut found);
        found
    }

    #[test]
    fn what_came_went_and_changed_is_named() {
        let before = facts(&[("/a", "rw"), ("/b", "rw"), ("/c", "")]);
        let now = facts(&[("/b", "ro"), ("/c", ""), ("/d", "")]);
        assert_eq!(
            differences(Tolerance::None, &before, &now),
            ["mounts: /a (rw) is gone", "mounts: /b was rw and is ro", "mounts: /d was not there before"]
        );
        assert!(differences(Tolerance::None, &before, &before).is_empty());
    }

    #[test]
    fn numbers_may_differ_within_a_tolerance() {
        let at = |value: &str| facts(&[("free", value)]);
        let within = |before: &str, now: &str| differences(Tolerance::Within(10), &at(before), &at(now)).is_empty();
        assert!(within("100", "110") && within("100", "90") && within("-5", "5"));
        assert!(!within("100", "111") && !within("100", "89") && !within("-9", "9") && !within("100", "none"));
        let lower = |before: &str, now: &str| differences(Tolerance::AtMostLower(10), &at(before), &at(now)).is_empty();
        assert!(lower("100", "90") && lower("100", "1000000") && !lower("100", "89"));
        assert!(lower(&i128::MAX.to_string(), "x") == lower("x", "y"));
    }

    #[test]
    fn a_source_counts_from_when_it_could_be_read() {
        let none: Facts = Err("no such file".to_owned());
        let some = facts(&[("x", "1")]);
        assert!(differences(Tolerance::None, &none, &some).is_empty());
        assert!(differences(Tolerance::None, &none, &none).is_empty());
        assert_eq!(differences(Tolerance::None, &some, &none), ["mounts: cannot be read any more: no such file"]);
    }

    #[test]
    fn differences_are_bounded_in_number_and_length() {
        let many = bounded(vec!["ü".repeat(1000); 500]);
        assert_eq!(many.len(), 21);
        assert!(many.iter().all(|text| text.chars().count() <= 240));
        assert_eq!(many[20], "and 480 more differences");
        assert_eq!(bounded(vec!["one".to_owned()]), ["one"]);
    }

    proptest! {
        #[test]
        fn the_same_is_never_different(values: BTreeMap<String, String>) {
            let values = Ok(values);
            prop_assert!(differences(Tolerance::None, &values, &values).is_empty());
        }

        #[test]
        fn any_numbers_are_survived(before: i128, now: i128, most: u64) {
            for tolerance in [Tolerance::None, Tolerance::Within(most), Tolerance::AtMostLower(most)] {
                let _ = differs(tolerance, &before.to_string(), &now.to_string());
            }
        }
    }
}
