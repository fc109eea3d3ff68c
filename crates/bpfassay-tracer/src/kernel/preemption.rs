// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether tasks can be preempted inside the kernel, and therefore inside programs on a BPF
//! trampoline.

use std::fs;

/// The mode of kernels with `CONFIG_PREEMPT_DYNAMIC`. The file lists all modes, with the active one
/// in parentheses (`sched_dynamic_show`, kernel/sched/debug.c).
const DYNAMIC: &str = "/sys/kernel/debug/sched/preempt";

/// Returns whether this kernel is preemptible, and true if the kernel does not report it: a wrong
/// yes costs instructions, a wrong no could lose counts.
pub(crate) fn is_preemptible() -> bool {
    let version = rustix::system::uname();
    decide(fs::read_to_string(DYNAMIC).ok().as_deref(), &version.version().to_string_lossy())
}

pub(crate) fn decide(dynamic: Option<&str>, version: &str) -> bool {
    let mode = dynamic.and_then(|text| text.split_once('(')?.1.split_once(')')).map(|(mode, _)| mode);
    match mode {
        Some(mode) => matches!(mode, "full" | "lazy"),
        // `UTS_VERSION` (init/Makefile) contains PREEMPT, PREEMPT_DYNAMIC, PREEMPT_RT,
        // PREEMPT(lazy), or none of them.
        None => {
            !version.contains("PREEMPT(none)") && !version.contains("PREEMPT(voluntary)") && version.contains("PREEMPT")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_in_use_decides_and_else_the_version() {
        const DEBIAN: &str = "#1 SMP PREEMPT_DYNAMIC Debian 6.12.107-1";
        assert!(!decide(Some("none (voluntary) full \n"), DEBIAN));
        assert!(decide(Some("none voluntary (full) \n"), DEBIAN));
        assert!(decide(Some("none voluntary full (lazy) \n"), DEBIAN));
        assert!(decide(Some("(full) lazy\n"), DEBIAN));
        assert!(decide(None, DEBIAN));
        assert!(decide(None, "#1 SMP PREEMPT(lazy) Debian"));
        assert!(!decide(None, "#1 SMP PREEMPT(voluntary) Debian"));
        assert!(!decide(None, "#1 SMP Debian 5.10.251-3"));
    }
}
