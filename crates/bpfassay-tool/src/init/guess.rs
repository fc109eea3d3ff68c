// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guesses from names. They are uncertain and used only for proposals.

use bpfassay_protocol::Operation;

use crate::file::{CountedUnit, Whose};

/// Splits a name into words: `readBytes_total` gives `read`, `bytes`, `total`.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && was_lower) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_lowercase());
        }
        was_lower = c.is_ascii_lowercase() || c.is_ascii_digit();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The operation that one of `words` names.
pub(super) fn operation(words: &[String]) -> Option<Operation> {
    let named = |word: &String| {
        let singular = word.strip_suffix('s').unwrap_or(word);
        let known = match singular {
            "pread" | "pread64" => "read",
            "pwrite" | "pwrite64" => "write",
            "preadv" | "preadv2" => "readv",
            "pwritev" | "pwritev2" => "writev",
            "openat" | "openat2" => "open",
            "unlinkat" => "unlink",
            "mkdirat" => "mkdir",
            "renameat" | "renameat2" => "rename",
            "fdatasync" => "fsync",
            other => other,
        };
        known.parse().ok()
    };
    words.iter().find_map(named)
}

/// The unit that one of `words` names, and its scale.
pub(super) fn unit(words: &[String]) -> (Option<CountedUnit>, u64) {
    let has = |any: &[&str]| words.iter().any(|word| any.contains(&word.as_str()));
    match () {
        () if has(&["error", "errors", "errs", "failed", "failures"]) => (Some(CountedUnit::Errors), 1),
        () if has(&["kib", "kb", "kbytes"]) => (Some(CountedUnit::BytesReturned), 1 << 10),
        () if has(&["mib", "mb", "mbytes"]) => (Some(CountedUnit::BytesReturned), 1 << 20),
        () if has(&["bytes", "byte"]) => (Some(CountedUnit::BytesReturned), 1),
        () if has(&["calls", "count", "ops", "operations", "requests", "reqs", "reads", "writes", "opens"]) => {
            (Some(CountedUnit::Calls), 1)
        }
        () => (None, 1),
    }
}

/// The label in `labels` that names a subject, with the kind of subject.
pub(super) fn subject<'a>(labels: impl IntoIterator<Item = &'a str>) -> (Whose, Option<String>) {
    const KNOWN: [(Whose, &[&str]); 3] = [
        (Whose::Cgroup, &["cgroup", "cgroupid", "cgid", "cg", "job", "pod", "container"]),
        (Whose::Mount, &["mount", "mountpoint", "mnt", "mntid", "path", "dev", "device"]),
        (Whose::Process, &["pid", "tgid", "tid", "comm", "process", "thread"]),
    ];
    let labels: Vec<&str> = labels.into_iter().collect();
    for (whose, names) in KNOWN {
        let is_one = |label: &&&str| words(label).iter().any(|word| names.contains(&word.as_str()));
        if let Some(label) = labels.iter().find(is_one) {
            return (whose, Some((*label).to_owned()));
        }
    }
    (Whose::System, None)
}
