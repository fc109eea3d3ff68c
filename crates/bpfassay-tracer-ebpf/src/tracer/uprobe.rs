//! uprobes on the C library's functions, or on those of a static program: count what was returned. The loader attaches
//! each program to the functions that are in the file.

#![expect(non_snake_case, reason = "two underscores separate the parts of a program's name")]

use aya_ebpf::{
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use bpfassay_ledger::Operation;

use super::{
    descriptor::{begins, ends},
    entry::Arguments as _,
};

/// Programs at the entry of functions, by descriptor or by path.
macro_rules! programs {
    ($($name:ident: |$context:ident| $operation:expr, $descriptor:expr;)+) => {
        $(
            #[uprobe]
            fn $name($context: ProbeContext) -> u32 {
                begins($operation, $descriptor);
                0
            }
        )+
    };
}

programs! {
    uprobe__read: |context| Operation::Read, Some(context.argument(0));
    uprobe__write: |context| Operation::Write, Some(context.argument(0));
    uprobe__readv: |context| Operation::Readv, Some(context.argument(0));
    uprobe__writev: |context| Operation::Writev, Some(context.argument(0));
    uprobe__fsync: |context| Operation::Fsync, Some(context.argument(0));
    uprobe__open: |_context| Operation::Open, None;
    uprobe__mkdir: |_context| Operation::Mkdir, None;
    uprobe__unlink: |_context| Operation::Unlink, None;
    uprobe__rmdir: |_context| Operation::Rmdir, None;
    uprobe__rename: |_context| Operation::Rename, None;
    uprobe__unlinkat: |context|
        if context.argument(2) & 0x200 != 0 { Operation::Rmdir } else { Operation::Unlink }, None;
}

/// Functions that return bytes, or -1.
#[uretprobe]
fn uprobe__bytes__return(context: RetProbeContext) -> u32 {
    ends(context.ret());
    0
}

/// Functions that return an `int`.
#[uretprobe]
fn uprobe__status__return(context: RetProbeContext) -> u32 {
    ends(i64::from(context.ret::<i32>()));
    0
}
