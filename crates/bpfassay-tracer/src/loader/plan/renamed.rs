// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that have different names in different kernels. The programs use one of the names.

use std::collections::BTreeSet;

use super::{
    tracer_options::TracerOptions,
    usual::{self, NEWER, SYSCALL_PREFIX, SYSCALLS},
};
use crate::kernel::btf;

/// Returns `options` with the names of the running kernel. If the kernel's type information cannot
/// be read, the older names remain, and loading or attaching reports what is missing.
pub(crate) fn for_this_kernel(options: &TracerOptions) -> TracerOptions {
    let all: BTreeSet<&str> = NEWER.iter().flat_map(|&(name, newer)| [name, newer]).collect();
    let known = btf::prototypes(options.symbol_cache.as_deref(), &all, &usual::functions()).unwrap_or_default();
    choose(options, |function| known.iter().any(|(name, _)| name == function))
}

/// Chooses names. Functions that the user set remain.
fn choose(options: &TracerOptions, has: impl Fn(&str) -> bool) -> TracerOptions {
    let renamed = NEWER.into_iter().filter(|(name, newer)| !has(name) && has(newer));
    let renamed = renamed.map(|(name, newer)| (name, newer.to_owned()));
    let mut options = options.clone();
    for (name, here) in renamed.chain(SYSCALLS.map(|name| (name, format!("{SYSCALL_PREFIX}{name}")))) {
        options.functions.entry(name.to_owned()).or_insert(here);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_kernel() {
        let old = choose(&TracerOptions::default(), |name| name.starts_with("do_"));
        assert_eq!((old.function("do_filp_open"), old.function("do_rmdir")), ("do_filp_open", "do_rmdir"));
        let new = choose(&TracerOptions::default(), |name| name == "do_file_open" || name.starts_with("filename_"));
        assert_eq!((new.function("do_filp_open"), new.function("do_rmdir")), ("do_file_open", "filename_rmdir"));
        // Nothing is assumed about a kernel without type information.
        assert_eq!(choose(&TracerOptions::default(), |_| false).function("do_rmdir"), "do_rmdir");
        assert!(old.function("sys_fsync").ends_with("_sys_fsync"));
    }

    #[test]
    fn names_that_the_user_set_remain() {
        let functions = [("do_filp_open", "mine"), ("sys_fsync", "mine_too")];
        let functions = functions.map(|(name, other)| (name.to_owned(), other.to_owned())).into();
        let chosen = choose(&TracerOptions { functions, ..TracerOptions::default() }, |name| name == "do_file_open");
        assert_eq!((chosen.function("do_filp_open"), chosen.function("sys_fsync")), ("mine", "mine_too"));
    }
}
