// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/proc/meminfo` (proc_meminfo(5)).

pub(crate) const PATH: &str = "/proc/meminfo";

/// Returns the value of `name`, such as `MemFree`, in KiB.
pub(crate) fn kib(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_whole_name() {
        let text = "MemTotal:         998476 kB\nMemFree:         904332 kB\nMemAvailable: 1 kB\n";
        assert_eq!(kib(text, "MemTotal"), Some(998_476));
        assert_eq!(kib(text, "MemFree"), Some(904_332));
        assert_eq!((kib(text, "Mem"), kib(text, "Cached")), (None, None));
        for text in ["", "MemFree: 12 MB\n", "MemFree: x kB\n", "MemFree: 18446744073709551616 kB\n", "MemFree\n"] {
            assert_eq!(kib(text, "MemFree"), None, "{text}");
        }
    }
}
