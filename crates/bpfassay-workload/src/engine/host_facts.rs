// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parts of a report that describe the machine and the time.

use std::ffi::CStr;

/// Names of the machine, as uname(2) returns them.
pub(crate) struct Host {
    system: String,
    node: String,
    release: String,
    version: String,
    machine: String,
}

impl Host {
    pub(crate) fn get() -> Self {
        let names = rustix::system::uname();
        let text = |name: &CStr| name.to_string_lossy().into_owned();
        Self {
            system: text(names.sysname()),
            node: text(names.nodename()),
            release: text(names.release()),
            version: text(names.version()),
            machine: text(names.machine()),
        }
    }

    /// Returns system and node, or all names if `full`.
    pub(crate) fn machine(&self, full: bool) -> String {
        let Self { system, node, release, version, machine } = self;
        if full { format!("{system} {node} {release} {version} {machine}") } else { format!("{system} {node}") }
    }

    /// Returns the node without its trailing number, and the system.
    pub(crate) fn platform(&self) -> String {
        let name = self.node.trim_end_matches(|letter: char| letter.is_ascii_digit());
        // A name that consists of digits keeps all of them.
        let name = if name.is_empty() { &self.node } else { name };
        format!("{name}({})", self.system)
    }
}

/// Returns the local time in the format of C's `ctime`: `Sat Nov 21 03:56:36 2026`.
pub(crate) fn local_time() -> String {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec as libc::time_t;
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are to live local variables; the all-zero structure stays valid if the
    // call fails.
    let parts = unsafe {
        libc::localtime_r(&raw const now, parts.as_mut_ptr());
        parts.assume_init()
    };
    const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let name = |names: &[&'static str], index: i32| {
        usize::try_from(index).ok().and_then(|index| names.get(index)).copied().unwrap_or("???")
    };
    format!(
        "{} {} {:2} {:02}:{:02}:{:02} {}",
        name(&DAYS, parts.tm_wday),
        name(&MONTHS, parts.tm_mon),
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec,
        parts.tm_year + 1900
    )
}

/// Formats a size in bytes, MiB, GiB or TiB, as IOR does.
pub(crate) fn human(bytes: u64) -> String {
    for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20)] {
        let size = 1u64 << shift;
        if bytes >= size {
            return if bytes.is_multiple_of(size) {
                format!("{} {unit}", bytes / size)
            } else {
                format!("{:.2} {unit}", bytes as f64 / size as f64)
            };
        }
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_as_ior_does() {
        let shown = [0, 262_144, 1 << 20, 3 << 19, 1 << 30, 5 << 40].map(human);
        assert_eq!(shown, ["0 bytes", "262144 bytes", "1 MiB", "1.50 MiB", "1 GiB", "5 TiB"]);
    }

    #[test]
    fn a_platform_has_no_node_number() {
        let host = |node: &str| Host {
            system: "Linux".to_owned(),
            node: node.to_owned(),
            release: String::new(),
            version: String::new(),
            machine: String::new(),
        };
        assert_eq!(host("node12").platform(), "node(Linux)");
        assert_eq!(host("vm").platform(), "vm(Linux)");
        assert_eq!(host("12").platform(), "12(Linux)");
    }
}
