// SPDX-License-Identifier: MIT OR Apache-2.0
//! Order of Debian versions (deb-version(7)).

use std::cmp::Ordering;

/// Compares two Debian versions.
#[must_use]
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    let (epoch_a, a) = split_epoch(a);
    let (epoch_b, b) = split_epoch(b);
    let (upstream_a, revision_a) = split_revision(a);
    let (upstream_b, revision_b) = split_revision(b);
    numbers(epoch_a, epoch_b).then_with(|| part(upstream_a, upstream_b)).then_with(|| part(revision_a, revision_b))
}

fn split_epoch(version: &str) -> (&str, &str) {
    version.split_once(':').unwrap_or(("", version))
}

fn split_revision(version: &str) -> (&str, &str) {
    version.rsplit_once('-').unwrap_or((version, ""))
}

/// Compares alternating texts and numbers.
fn part(mut a: &str, mut b: &str) -> Ordering {
    while !a.is_empty() || !b.is_empty() {
        let (text_a, rest_a) = take(a, |byte| !byte.is_ascii_digit());
        let (text_b, rest_b) = take(b, |byte| !byte.is_ascii_digit());
        let (number_a, rest_a) = take(rest_a, |byte| byte.is_ascii_digit());
        let (number_b, rest_b) = take(rest_b, |byte| byte.is_ascii_digit());
        let order = texts(text_a, text_b).then_with(|| numbers(number_a, number_b));
        if order.is_ne() {
            return order;
        }
        (a, b) = (rest_a, rest_b);
    }
    Ordering::Equal
}

fn take(text: &str, keep: impl Fn(u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().position(|byte| !keep(byte)).unwrap_or(text.len()))
}

/// Letters sort before other characters, `~` before everything including the end.
fn texts(a: &str, b: &str) -> Ordering {
    let weight = |byte: Option<u8>| match byte {
        Some(b'~') => -1,
        None => 0,
        Some(byte) if byte.is_ascii_alphabetic() => i32::from(byte),
        Some(byte) => i32::from(byte) + 256,
    };
    let (mut a, mut b) = (a.bytes(), b.bytes());
    loop {
        let (x, y) = (a.next(), b.next());
        let order = weight(x).cmp(&weight(y));
        if order.is_ne() || (x.is_none() && y.is_none()) {
            return order;
        }
    }
}

/// Compares decimal numbers of any length.
fn numbers(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn order_is_that_of_dpkg() {
        // The order was checked with `dpkg --compare-versions`.
        let sorted = [
            "5.10.9-1",
            "5.10.223-1",
            "5.10.234-1",
            "6.12.9-1",
            "6.12.90-1~bpo12+1",
            "6.12.90-1",
            "6.12.90-2~bpo12+1",
            "6.12.107-1",
            "7.3~rc2-1~exp1",
            "7.3~rc7-1~exp1",
            "7.3-1~exp1",
            "7.3-1",
            "7.3.4-1~bpo13+1",
            "7.3.4-1",
            "1:0.1",
        ];
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(compare_versions(a, b), i.cmp(&j), "{a} against {b}");
            }
        }
    }

    #[test]
    fn leading_zeros_and_missing_parts_count_as_nothing() {
        assert_eq!(compare_versions("1.0", "1.00"), Ordering::Equal);
        assert_eq!(compare_versions("0:1", "1"), Ordering::Equal);
        assert_eq!(compare_versions("1.a", "1.+"), Ordering::Less);
    }

    const VERSION: &str = "([0-9]:)?[0-9][0-9a-z.+~]{0,6}(-[0-9a-z.+~]{1,4})?";

    proptest! {
        #[test]
        fn order_is_total(a in VERSION, b in VERSION, c in VERSION) {
            prop_assert_eq!(compare_versions(&a, &b), compare_versions(&b, &a).reverse());
            prop_assert_eq!(compare_versions(&a, &a), Ordering::Equal);
            if compare_versions(&a, &b).is_le() && compare_versions(&b, &c).is_le() {
                prop_assert!(compare_versions(&a, &c).is_le());
            }
        }

        #[test]
        fn any_texts_compare(a in "\\PC{0,20}", b in "\\PC{0,20}") {
            let _ = compare_versions(&a, &b);
        }
    }
}
