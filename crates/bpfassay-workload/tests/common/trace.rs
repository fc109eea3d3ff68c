// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compact form of one rank's calls.

use std::path::Path;

/// Returns `line` with paths below `data` shortened to `@/…`, and `data` itself to `@`.
pub(crate) fn relative(line: &str, data: &Path) -> String {
    let data = data.to_str().unwrap();
    line.replace(&format!("{data}/"), "@/").replace(data, "@")
}

/// A transfer: `W` or `R`, offset and length of the call after a seek.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Transfer {
    letter: char,
    offset: i64,
    length: i64,
}

/// Turns `seek A`, `write L` into `W A+L`. A series of these at equal distances becomes `W
/// A+L*COUNT/DISTANCE`.
pub(crate) fn compact(lines: impl Iterator<Item = String>) -> Vec<String> {
    let lines: Vec<String> = lines.collect();
    let mut compacted = Vec::new();
    let mut series: Vec<Transfer> = Vec::new();
    let mut rest = lines.as_slice();
    while let Some(first) = rest.first() {
        match rest.get(1).and_then(|second| transfer(first, second)) {
            Some(next) => {
                if !continues(&series, next) {
                    flush(&mut series, &mut compacted);
                }
                series.push(next);
                rest = &rest[2..];
            }
            None => {
                flush(&mut series, &mut compacted);
                compacted.push(first.clone());
                rest = &rest[1..];
            }
        }
    }
    flush(&mut series, &mut compacted);
    compacted
}

fn transfer(seek: &str, call: &str) -> Option<Transfer> {
    let offset = seek.strip_prefix("seek ")?.parse().ok()?;
    let (letter, length) = match call.split_once(' ')? {
        ("write", length) => ('W', length),
        ("read", length) => ('R', length),
        _ => return None,
    };
    Some(Transfer { letter, offset, length: length.parse().ok()? })
}

fn continues(series: &[Transfer], next: Transfer) -> bool {
    let alike = |one: &Transfer| one.letter == next.letter && one.length == next.length;
    match series {
        [] => true,
        [only] => alike(only),
        [.., before, last] => alike(last) && next.offset - last.offset == last.offset - before.offset,
    }
}

fn flush(series: &mut Vec<Transfer>, compacted: &mut Vec<String>) {
    match series.as_slice() {
        [] => {}
        [Transfer { letter, offset, length }] => compacted.push(format!("{letter} {offset}+{length}")),
        [Transfer { letter, offset, length }, second, ..] => {
            let distance = second.offset - offset;
            compacted.push(format!("{letter} {offset}+{length}*{}/{distance}", series.len()));
        }
    }
    series.clear();
}
