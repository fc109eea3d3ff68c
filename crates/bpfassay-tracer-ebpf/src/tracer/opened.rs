// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Counts what `do_filp_open` (renamed in later kernels) returned. Every open of user space reaches
//! this function. Failed opens have no file, and so neither mount nor device. Files that the call
//! created are counted as created: open does not call `vfs_create`. File systems that look up and
//! create in one step, such as NFS, do not call it either.

use bpfassay_tracer_common::Operation;

use super::{
    count::{By, Outcome, Subject, count_by},
    kernel::{Address, Place, offset, read},
};

/// `FMODE_CREATED` (include/linux/fs.h), set in `f_mode` of a file that this open created.
const CREATED: u32 = 0x10_0000;

/// `IS_ERR_VALUE` (include/linux/err.h): the last page of addresses contains error numbers.
#[inline(always)]
fn is_error(pointer: u64) -> bool {
    pointer >= -4095_i64 as u64
}

/// Returns whether the open that returned `file` created it.
#[inline(always)]
pub(super) fn is_created(file: Address) -> bool {
    read::<u32>(file, offset!(file_mode)) & CREATED != 0
}

/// Counts an open that returned `file`, a `struct file *` or an error.
#[inline(always)]
pub(super) fn opened(by: By, file: Address, start: u64) {
    if is_error(file) {
        if let Some(subject) = Subject::new(Place::NOWHERE) {
            count_by(by, &subject, Operation::Open as u32, Outcome::of_status(true), start);
        }
        return;
    }
    let Some(subject) = Subject::new(Place::of_file(file)) else { return };
    count_by(by, &subject, Operation::Open as u32, Outcome::of_status(false), start);
    if is_created(file) {
        count_by(by, &subject, Operation::Create as u32, Outcome::of_status(false), 0);
    }
}
