// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pitfalls: what makes a tracer's figures wrong or fragile without any error, searched for before
//! counting begins and after it has ended ([`bpfassay_protocol::finding`]).
//!
//! What can be determined. A function that ftrace cannot hook makes attaching fail, so that list is
//! read only then. `/proc/kallsyms` has the functions that exist as such, and shows which of them
//! the compiler renamed (`.isra`, `.constprop`) or split (`.part`); it does not show whether a
//! function that exists was inlined into *some* of its callers, which only DWARF or the calls
//! themselves would show. A function in the kernel's BTF that has no symbol was inlined everywhere;
//! pahole leaves most such functions out of BTF, so a function that is in neither may be inlined or
//! not exist at all. What could not be checked is a finding, too ([`Pitfall::NotChecked`]).

mod after;
pub(crate) mod before;
mod expected;

pub(crate) use self::{
    after::{ProgramMisses, after},
    before::{When, absent, look_for, look_for_hooks},
};

use bpfassay_protocol::finding::{Finding, Pitfall};

/// Sorts findings and removes duplicates.
fn tidy(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_unstable();
    findings.dedup();
    findings
}

fn finding(pitfall: Pitfall, subject: &str, detail: impl Into<String>) -> Finding {
    Finding { pitfall, subject: subject.to_owned(), detail: detail.into() }
}
