// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time of each stage, as a table of 80 columns.

use std::{collections::BTreeMap, time::Duration};

use bpfassay_packages::stages::{StageKind, Timing};

/// Width of the table in columns.
const WIDTH: usize = 80;

/// Formats `timings` of a program that has run for `all`: when each stage began, how long it took,
/// and what ran in parallel.
pub(crate) fn table(timings: &[Timing], all: Duration) -> String {
    let title = |timing: &Timing| format!("{} {}", timing.kind.title(), timing.subject).trim_end().to_owned();
    let first = timings.iter().map(|timing| title(timing).chars().count()).chain(["stage".len()]).max().unwrap_or(0);
    let mut text = format!("{:first$}  {:>9}  {:>9}  beside\n", "stage", "began", "took");
    for (index, timing) in timings.iter().enumerate() {
        let mut beside = BTreeMap::<StageKind, usize>::new();
        for (other, timed) in timings.iter().enumerate() {
            if other != index && timing.overlaps(timed) {
                *beside.entry(timed.kind).or_default() += 1;
            }
        }
        let beside: Vec<String> = beside
            .iter()
            .map(|(kind, count)| match count {
                1 => kind.title().to_owned(),
                count => format!("{} ({count})", kind.title()),
            })
            .collect();
        let start = format!("{:first$}  {:>9}  {:>9}  ", title(timing), seconds(timing.began), seconds(timing.took));
        text.push_str(&wrapped(&start, &beside));
    }
    let covered = covered(timings);
    let rest = all.saturating_sub(covered);
    text.push_str(&format!("{:first$}  {:>9}  {:>9}\n", "no stage", "", seconds(rest)));
    text.push_str(&format!("{:first$}  {:>9}  {:>9}\n", "all", "", seconds(all)));
    text
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// Appends `items` to `start`, on as many lines as they need.
fn wrapped(start: &str, items: &[String]) -> String {
    let indent = start.chars().count();
    let mut text = start.to_owned();
    let mut column = indent;
    for (index, item) in items.iter().enumerate() {
        let item = if index + 1 < items.len() { format!("{item}, ") } else { item.clone() };
        let length = item.trim_end().chars().count();
        if column > indent && column + length > WIDTH {
            text.truncate(text.trim_end().len());
            text.push_str(&format!("\n{:indent$}", ""));
            column = indent;
        }
        column += item.chars().count();
        text.push_str(&item);
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

/// Returns how long at least one of `timings`, sorted by their beginnings, was under way.
fn covered(timings: &[Timing]) -> Duration {
    let mut end = Duration::ZERO;
    timings.iter().fold(Duration::ZERO, |sum, timing| {
        let (from, to) = (timing.began.max(end), timing.began + timing.took);
        end = end.max(to);
        sum + to.saturating_sub(from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(kind: StageKind, subject: &str, began: u64, took: u64) -> Timing {
        let (began, took) = (Duration::from_secs(began), Duration::from_secs(took));
        Timing { kind, subject: subject.to_owned(), began, took }
    }

    #[test]
    fn stages_are_listed_with_what_ran_beside_them() {
        let timings = [
            timing(StageKind::Toolchain, "", 0, 60),
            timing(StageKind::Sources, "", 0, 10),
            timing(StageKind::Kernel, "x86_64 6.12", 0, 20),
            timing(StageKind::Kernel, "aarch64 6.12", 20, 30),
            timing(StageKind::Programs, "x86_64", 60, 100),
            timing(StageKind::Guests, "x86_64", 160, 1),
            timing(StageKind::Qemu, "x86_64", 162, 2),
            timing(StageKind::Measuring, "", 164, 200),
            timing(StageKind::Programs, "aarch64", 161, 90),
            timing(StageKind::Reporting, "", 364, 1),
        ];
        let mut sorted = timings.to_vec();
        sorted.sort_by_key(|timing| timing.began);
        let text = table(&sorted, Duration::from_millis(365_500));
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        insta::assert_snapshot!("timings", text);
    }
}
