//! BPF trampoline at function exit: counts what the call returned.

use aya_ebpf::{macros::fexit, programs::FExitContext};
use bpfassay_ledger::Operation;

use super::{count::returned, kernel::Place};

/// A program for a function whose first argument is a `struct file *` and that has `$arguments` arguments: the return
/// value lies behind them.
macro_rules! program {
    ($name:ident, $function:literal, $arguments:literal, $operation:ident) => {
        #[fexit(function = $function)]
        fn $name(context: FExitContext) -> i32 {
            returned(Place::of_typed_file(context.arg(0)), Operation::$operation, context.arg($arguments));
            0
        }
    };
}

program!(fexit_vfs_read, "vfs_read", 4, Read);
program!(fexit_vfs_write, "vfs_write", 4, Write);
