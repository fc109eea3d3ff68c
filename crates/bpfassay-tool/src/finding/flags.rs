// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that read the flags of vectored calls as the return value. A program that assumes the
//! four arguments of `vfs_read` does this: `vfs_readv` and `vfs_writev` have five since Linux 4.6.
//! Such a tool lacks the bytes of these calls, and counts the sum of their flags as bytes.

use bpfassay_protocol::{Operation, checked_prototype::Checked};

use super::{candidates::names, finding_comparison::NumberComparison};
use crate::file::{CountedUnit, ReportedFigure};

/// Operations and the kernel functions that execute them.
const FUNCTIONS: [(Operation, &str); 2] = [(Operation::Readv, "vfs_readv"), (Operation::Writev, "vfs_writev")];

/// How `bpfassay_btf::prototype` describes the mistake.
const TAKEN: &str = "takes argument 5 for a number of 64 bits, where the return value would be with one argument less";

/// Largest value of the flags: all flags up to Linux 7.2 (`RWF_HIPRI` to `RWF_NOSIGNAL`,
/// include/uapi/linux/fs.h). The kernel refuses others.
const MOST: u64 = 0x1ff;

/// The program that reads the flags of `operation` as the return value, if there is one.
fn program(checked: &[Checked], operation: Operation) -> Option<&Checked> {
    let (_, function) = FUNCTIONS.iter().find(|(of, _)| *of == operation)?;
    checked.iter().find(|one| {
        one.section.split_once('/').is_some_and(|(_, hooked)| hooked == *function)
            && one.differs.iter().any(|line| line.starts_with(TAKEN))
    })
}

/// Names a program and its hook for evidence.
pub(super) fn shown(one: &Checked) -> String {
    format!("{} ({})", one.program, one.section)
}

/// Why the bytes of all `operations` are missing, according to the kernel's prototypes. Empty if
/// the prototypes do not show it.
pub(super) fn reason(checked: &[Checked], figure: &ReportedFigure, operations: &[Operation]) -> String {
    let programs: Vec<String> =
        operations.iter().filter_map(|&operation| program(checked, operation)).map(shown).collect();
    if figure.unit != CountedUnit::BytesReturned || programs.is_empty() || programs.len() < operations.len() {
        return String::new();
    }
    let verb = if programs.len() == 1 { "takes" } else { "take" };
    format!(": {} {verb} argument 5, the flags, for the bytes that a call returned", programs.join(" and "))
}

/// Describes the missing amount if flags were taken for bytes. It must be the bytes of all such
/// operations, or of one alone, minus the flags.
pub(super) fn missing(checked: &[Checked], figure: &ReportedFigure, one: &NumberComparison<'_>) -> Option<String> {
    let is_taken = |operation: &Operation| {
        program(checked, *operation).is_some() && one.subject.of(*operation, CountedUnit::BytesReturned) > 0
    };
    let taken: Vec<Operation> = figure.operations.iter().copied().filter(is_taken).collect();
    let counted = |operations: &[Operation]| counted(operations, one);
    let of_one = || {
        let mut fitting = taken.iter().filter_map(|operation| Some(([*operation], counted(&[*operation])?)));
        fitting.next().filter(|_| fitting.next().is_none())
    };
    let (operations, (least, most)) = match counted(&taken) {
        Some(range) => (taken.clone(), range),
        None => of_one().map(|(operation, range)| (operation.to_vec(), range))?,
    };
    let but = match (least, most) {
        (_, 0) => String::new(),
        (least, most) if least == most => format!(" but {least} bytes"),
        (least, most) => format!(" but {least} to {most} bytes"),
    };
    Some(format!("what is missing is all of {}{but}{}", names(&operations), reason(checked, figure, &operations)))
}

/// Smallest and largest counted amount of `operations`, if their flags can add up to it.
fn counted(operations: &[Operation], one: &NumberComparison<'_>) -> Option<(u64, u64)> {
    let sum = |unit| operations.iter().fold(0_u64, |sum, of| sum.saturating_add(one.subject.of(*of, unit)));
    let (moved, flags) = (sum(CountedUnit::BytesReturned), sum(CountedUnit::Calls).saturating_mul(MOST));
    // Any amount could be the flags of short calls. An amount within the truth's uncertainty fits
    // by chance.
    if flags >= moved || moved <= one.at_most - one.at_least {
        return None;
    }
    let (lacks_least, lacks_most) =
        (one.at_least.checked_sub(one.reported)?.saturating_sub(one.slack), one.at_most - one.reported);
    let (least, most) = (moved.saturating_sub(lacks_most), moved.checked_sub(lacks_least)?.min(one.reported));
    (least <= most && least <= flags).then(|| (least, most.min(flags)))
}
