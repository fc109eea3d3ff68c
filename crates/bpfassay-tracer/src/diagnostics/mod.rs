// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pitfalls: causes of wrong or fragile figures that produce no error. They are searched for before
//! counting begins and after it has ended ([`bpfassay_protocol::finding_name`]).
//!
//! This is what can be determined:
//!
//! - A function that ftrace cannot hook makes attaching fail, so the list of such functions is only
//!   read then.
//! - `/proc/kallsyms` has the functions that exist, and shows which of them the compiler renamed
//!   (`.isra`, `.constprop`) or split (`.part`). It does not show whether an existing function was
//!   inlined into *some* of its callers; only DWARF or the calls themselves would.
//! - A function that is in the kernel's BTF but has no symbol was inlined everywhere.
//! - pahole leaves most such functions out of BTF, so a function that is in neither was inlined or
//!   does not exist.
//! - A check that was not possible is a finding, too ([`Pitfall::NotChecked`]).

mod after;
pub(crate) mod before;
mod expected;

pub(crate) use self::{
    after::{ProgramMisses, after},
    before::{SearchTime, absent, look_for, look_for_hooks},
};

use bpfassay_protocol::finding_name::{Finding, Pitfall};

/// Sorts findings and removes duplicates.
fn tidy(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_unstable();
    findings.dedup();
    findings
}

fn finding(pitfall: Pitfall, subject: &str, detail: impl Into<String>) -> Finding {
    Finding { pitfall, subject: subject.to_owned(), detail: detail.into() }
}
