// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capacity for the calls that an fprobe watches until their return.
//!
//! Before Linux 6.14 (4346ba160409), in which fprobe uses the function graph tracer, the kernel
//! reserves this capacity when a link is created. It reserves twice the number of the link's
//! functions on each CPU (`fprobe_init_rethook`, kernel/trace/fprobe.c), and no interface requests
//! more. A link on one function watches two calls at once on one CPU. More tasks than that soon
//! wait in `vfs_write`, and the returns of the others are not observed. On such kernels a link
//! therefore includes further functions, only for the capacity.

use std::{collections::BTreeSet, ffi::CString};

use crate::{
    kernel::btf,
    loader::plan::{
        tracer_options::TracerOptions,
        usual::{self, SYSCALL_PREFIX},
    },
};

/// A function that exists only in kernels that reserve the capacity.
const RESERVES: &str = "fprobe_exit_handler";

/// System calls that are seldom made. They are not made inside another call, so no counted call is
/// pending at their returns: the program detects that and ends.
const SELDOM: [&str; 40] = [
    "acct",
    "add_key",
    "adjtimex",
    "clock_adjtime",
    "delete_module",
    "fanotify_init",
    "fanotify_mark",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "get_mempolicy",
    "init_module",
    "io_cancel",
    "ioprio_get",
    "ioprio_set",
    "kcmp",
    "kexec_load",
    "keyctl",
    "landlock_add_rule",
    "landlock_create_ruleset",
    "mbind",
    "migrate_pages",
    "mount_setattr",
    "move_mount",
    "move_pages",
    "mq_getsetattr",
    "mq_notify",
    "mq_open",
    "mq_unlink",
    "open_tree",
    "pivot_root",
    "quotactl",
    "reboot",
    "request_key",
    "sethostname",
    "settimeofday",
    "swapoff",
    "swapon",
];

/// Returns functions to include in a link on returns, in addition to the intended one. Empty if no
/// capacity is needed, or the kernel has no type information.
pub(super) fn others(options: &TracerOptions) -> Vec<CString> {
    let names: Vec<String> = SELDOM.iter().map(|name| format!("{SYSCALL_PREFIX}sys_{name}")).collect();
    let wanted: BTreeSet<&str> = names.iter().map(String::as_str).chain([RESERVES]).collect();
    let known = btf::prototypes(options.symbol_cache.as_deref(), &wanted, &usual::functions()).unwrap_or_default();
    chosen(known.into_iter().map(|(name, _)| name).collect())
}

fn chosen(mut known: BTreeSet<String>) -> Vec<CString> {
    if !known.remove(RESERVES) {
        return Vec::new();
    }
    known.into_iter().filter_map(|name| CString::new(name).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_added_where_the_kernel_reserves_capacity() {
        let known = |names: &[&str]| chosen(names.iter().map(|name| (*name).to_owned()).collect());
        assert!(known(&["__x64_sys_acct", "__x64_sys_swapon"]).is_empty());
        assert_eq!(known(&["__x64_sys_acct", RESERVES]), [CString::new("__x64_sys_acct").unwrap()]);
        assert!(known(&[RESERVES]).is_empty());
    }

    #[test]
    fn none_of_them_is_counted() {
        for name in SELDOM {
            assert!(!crate::loader::plan::probes::SYSCALLS.contains(&name), "{name}");
        }
        assert!(SELDOM.is_sorted());
    }
}
