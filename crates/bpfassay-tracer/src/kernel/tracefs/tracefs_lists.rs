// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's lists of functions in tracefs and debugfs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, BufRead, BufReader},
};

use crate::kernel::unread::{Unread, first, unread};

const TRACEABLE: [&str; 2] =
    ["/sys/kernel/tracing/available_filter_functions", "/sys/kernel/debug/tracing/available_filter_functions"];
const ENABLED: [&str; 2] = ["/sys/kernel/tracing/enabled_functions", "/sys/kernel/debug/tracing/enabled_functions"];
const BLACKLIST: [&str; 1] = ["/sys/kernel/debug/kprobes/blacklist"];
const KPROBES: [&str; 1] = ["/sys/kernel/debug/kprobes/list"];

/// Returns which of `wanted` ftrace can hook.
///
/// # Errors
/// [`Unread`] if tracefs is not mounted, or the list cannot be read.
pub(crate) fn read_traceable<'a>(wanted: &BTreeSet<&'a str>) -> Result<BTreeSet<&'a str>, Unread> {
    let lines = first(&TRACEABLE, File::open)?;
    traceable(BufReader::with_capacity(1 << 16, lines), wanted).map_err(unread(TRACEABLE[0]))
}

/// Reads the text for [`blacklist`].
///
/// # Errors
/// [`Unread`] if debugfs is not mounted, or the list cannot be read.
pub(crate) fn read_blacklist() -> Result<String, Unread> {
    first(&BLACKLIST, fs::read_to_string)
}

/// Reads the text for [`enabled`].
///
/// # Errors
/// [`Unread`] if tracefs is not mounted, or the list cannot be read.
pub(crate) fn read_enabled() -> Result<String, Unread> {
    first(&ENABLED, fs::read_to_string)
}

/// Reads the text for [`kprobes`].
///
/// # Errors
/// [`Unread`] if debugfs is not mounted, or the list cannot be read.
pub(crate) fn read_kprobes() -> Result<String, Unread> {
    first(&KPROBES, fs::read_to_string)
}

/// Returns which of `wanted` are in `available_filter_functions`. Each line has one name, then a
/// blank and the function's module.
///
/// # Errors
/// The reader's error, if a line cannot be read.
pub(crate) fn traceable<'a>(mut lines: impl BufRead, wanted: &BTreeSet<&'a str>) -> io::Result<BTreeSet<&'a str>> {
    let mut found = BTreeSet::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(found);
        }
        let name = line.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
        if let Some(name) = str::from_utf8(name).ok().and_then(|name| wanted.get(name)) {
            found.insert(*name);
        }
    }
}

/// Returns the names in `kprobes/blacklist`, whose lines are `START-END NAME` (kernel/kprobes.c).
pub(crate) fn blacklist(text: &str) -> BTreeSet<&str> {
    text.lines().filter_map(|line| line.split_ascii_whitespace().nth(1)).collect()
}

/// How ftrace hooks one function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Enabled {
    /// Number of callbacks on the function.
    pub(crate) count: u64,
    /// Flags, as letters (`t_show` in kernel/trace/ftrace.c). R saves all registers, I changes the
    /// instruction pointer, D calls directly (a BPF trampoline), O has its own trampoline, M was
    /// modified once.
    pub(crate) flags: String,
}

impl std::fmt::Display for Enabled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} callback{}", self.count, if self.count == 1 { "" } else { "s" })?;
        if !self.flags.is_empty() {
            write!(f, ", flags {}", self.flags)?;
        }
        Ok(())
    }
}

/// Returns the functions in `enabled_functions`. Lines are `NAME [\[MODULE\]] (COUNT) FLAGS…
/// ADDITIONS`. Continuation lines of the previous function begin with a blank.
pub(crate) fn enabled(text: &str) -> BTreeMap<&str, Enabled> {
    let mut found = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with([' ', '\t'])) {
        let Some(name) = line.split_ascii_whitespace().next() else { continue };
        let Some((count, rest)) = line.split_once('(').and_then(|(_, rest)| rest.split_once(')')) else { continue };
        let Ok(count) = count.trim().parse() else { continue };
        let flags =
            rest.split_ascii_whitespace().take_while(|field| matches!(field.as_bytes(), [b'A'..=b'Z'])).collect();
        found.insert(name, Enabled { count, flags });
    }
    found
}

/// Returns the number of kprobes per function in `kprobes/list`. Lines are `ADDRESS TYPE
/// NAME+OFFSET [MODULE] [FLAG]…` (`report_probe` in kernel/kprobes.c). Kprobes that are marked as
/// gone are left out.
pub(crate) fn kprobes(text: &str) -> BTreeMap<&str, u64> {
    let mut found = BTreeMap::new();
    for line in text.lines().filter(|line| !line.contains("[GONE]")) {
        let mut fields = line.split_ascii_whitespace();
        if let Some(place) = fields.nth(2) {
            let name = place.split_once('+').map_or(place, |(name, _)| name);
            *found.entry(name).or_default() += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn traceable_functions_are_found_with_and_without_module() {
        let text = "vfs_read\nnfs_file_read [nfs]\nvfs_readv_not\n\n";
        let wanted = BTreeSet::from(["vfs_read", "nfs_file_read", "vfs_readv", "nfs"]);
        assert_eq!(traceable(text.as_bytes(), &wanted).unwrap(), BTreeSet::from(["vfs_read", "nfs_file_read"]));
    }

    #[test]
    fn the_blacklist_is_read() {
        // Linux 6.12, x86_64.
        let text =
            "0xffffffff810a3e90-0xffffffff810a3ee0\tnmi_handle\n0xffffffff81c00000-0xffffffff81c00010\tdo_int3\n";
        assert_eq!(blacklist(text), BTreeSet::from(["nmi_handle", "do_int3"]));
    }

    #[test]
    fn enabled_functions_are_read_with_count_and_flags() {
        let text = "\
vfs_read (2) R   D   M \ttramp: 0xffffffffc0200000 (ftrace_regs_caller+0x0/0x6c)
\tdirect(jmp)-->bpf_trampoline_6442487721+0x0/0x10
nfs_file_read [nfs] (1)    \ttramp: 0xffffffffc0201000 (arch_ftrace_ops_list_func+0x0/0x1e0)
nonsense
";
        let found = enabled(text);
        assert_eq!(found["vfs_read"], Enabled { count: 2, flags: "RDM".to_owned() });
        assert_eq!(found["vfs_read"].to_string(), "2 callbacks, flags RDM");
        assert_eq!(found["nfs_file_read"].to_string(), "1 callback");
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn kprobes_are_counted_by_function() {
        let text = "\
ffffffff8135d3f0  k  vfs_read+0x0    [FTRACE]
ffffffff8135d3f0  r  vfs_read+0x0    [DISABLED][FTRACE]
ffffffff8135d500  k  vfs_write+0x8
ffffffffc0100000  k  nfs_file_read+0x0  nfs [GONE]
";
        assert_eq!(kprobes(text), BTreeMap::from([("vfs_read", 2), ("vfs_write", 1)]));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text: String) {
            blacklist(&text);
            enabled(&text);
            kprobes(&text);
            traceable(text.as_bytes(), &BTreeSet::new()).unwrap();
        }
    }
}
