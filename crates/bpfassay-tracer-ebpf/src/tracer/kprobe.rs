//! kprobe at function entry: counts the size that was asked for, whatever the call then did. It cannot see errors.

use aya_ebpf::{macros::kprobe, programs::ProbeContext};
use bpfassay_ledger::Operation;

use super::{count::requested, kernel::Place};

/// A program for a function with a `struct file *` first and the size third.
macro_rules! program {
    ($name:ident, $function:literal, $operation:ident) => {
        #[kprobe(function = $function)]
        fn $name(context: ProbeContext) -> u32 {
            if let (Some(file), Some(size)) = (context.arg(0), context.arg(2)) {
                requested(Place::of_file(file), Operation::$operation, size);
            }
            0
        }
    };
}

program!(kprobe_vfs_read, "vfs_read", Read);
program!(kprobe_vfs_write, "vfs_write", Write);
