// SPDX-License-Identifier: MIT OR Apache-2.0
//! Integers as tools print them.

/// Parses a decimal integer exactly: `12`, `+12`, `12.0`, `1.5e+03` (as Prometheus client libraries
/// print). `None` if `text` is not a number, not an integer, negative, or at least 2^64.
pub(super) fn whole(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text.strip_prefix('+').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (integer.is_empty() && fraction.is_empty()) || !is_digits(integer) || !is_digits(fraction) {
        return None;
    }
    let digits = format!("{integer}{fraction}");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    // The last digit has this power of ten.
    let power = i64::from(exponent) - i64::try_from(fraction.len()).ok()?;
    if power < 0 {
        let places = usize::try_from(power.unsigned_abs()).ok()?;
        let (kept, dropped) = digits.split_at_checked(digits.len().checked_sub(places)?)?;
        return if dropped.bytes().all(|byte| byte == b'0') && !kept.is_empty() { kept.parse().ok() } else { None };
    }
    digits.parse::<u64>().ok()?.checked_mul(10_u64.checked_pow(u32::try_from(power).ok()?)?)
}

/// Parses a decimal integer and multiplies it by `scale`. A negative result is in two's complement;
/// see [`negative`]. `None` if `text` is not an integer, or the result exceeds 64 bits.
pub(super) fn scaled(text: &str, scale: u64) -> Option<u64> {
    match text.trim().strip_prefix('-') {
        None => whole(text)?.checked_mul(scale),
        Some(_) if text.contains("-+") => None,
        Some(amount) => {
            let amount = whole(amount)?.checked_mul(scale)?;
            (amount <= i64::MIN.unsigned_abs()).then(|| amount.wrapping_neg())
        }
    }
}

/// Interprets `value` in two's complement, and returns it if negative. No counter reaches 2^63.
#[must_use]
pub fn negative(value: u64) -> Option<i64> {
    Some(value.cast_signed()).filter(|value| *value < 0)
}

/// Prints `value` in decimal, with a sign if it is negative.
#[must_use]
pub fn shown(value: u64) -> String {
    negative(value).map_or_else(|| value.to_string(), |value| value.to_string())
}

/// Adds `a` and `b`, saturating if both are positive.
pub(crate) fn sum(a: u64, b: u64) -> u64 {
    if negative(a).is_some() || negative(b).is_some() { a.wrapping_add(b) } else { a.saturating_add(b) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn negative_numbers_are_read_in_twos_complement() {
        let minus = |amount: u64| Some(amount.wrapping_neg());
        for (text, scale, value) in [
            ("-28207", 1, minus(28_207)),
            (" -2.0 ", 1024, minus(2048)),
            ("-0", 1, Some(0)),
            ("12", 10, Some(120)),
            ("-9223372036854775808", 1, Some(1 << 63)),
            ("-9223372036854775809", 1, None),
            ("-9223372036854775807", 2, None),
            ("--1", 1, None),
            ("-+1", 1, None),
            ("-", 1, None),
        ] {
            assert_eq!(scaled(text, scale), value, "{text}");
        }
        assert_eq!((shown(28_207_u64.wrapping_neg()), shown(7)), ("-28207".to_owned(), "7".to_owned()));
        assert_eq!(
            (sum(5, 7_u64.wrapping_neg()), sum(u64::MAX >> 1, u64::MAX >> 1)),
            (2_u64.wrapping_neg(), u64::MAX - 1)
        );
    }

    #[test]
    fn only_whole_numbers_are_read_and_those_exactly() {
        for (text, value) in [
            ("0", Some(0)),
            (" 12 ", Some(12)),
            ("+7", Some(7)),
            ("12.0", Some(12)),
            ("1.5e+03", Some(1500)),
            ("2.097152e+06", Some(2_097_152)),
            ("120e-1", Some(12)),
            ("0e999999999", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("1e20", None),
            ("1e999999999999", None),
            ("12.5", None),
            ("1e-1", None),
            ("-1", None),
            ("", None),
            (".", None),
            ("e5", None),
            ("NaN", None),
            ("+Inf", None),
            ("0x10", None),
            ("1_000", None),
        ] {
            assert_eq!(whole(text), value, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_number_is_read_back_however_it_is_written(value: u64, zeros in 0usize..5) {
            prop_assert_eq!(whole(&value.to_string()), Some(value));
            let fraction = "0".repeat(zeros);
            prop_assert_eq!(whole(&format!("{value}.{fraction}")), Some(value));
            let digits = value.to_string();
            let (head, tail) = digits.split_at(1);
            prop_assert_eq!(whole(&format!("{head}.{tail}e+{:02}", tail.len())), Some(value));
        }

        #[test]
        fn no_text_makes_it_panic(text: String) {
            let _ = whole(&text);
        }
    }
}
