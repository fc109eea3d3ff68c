// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! uprobes on functions of the C library and of MPI-IO, in their libraries or in a static program.
//! The loader attaches each program to those functions that the file contains
//! ([`bpfassay_tracer_common::functions`]).
//!
//! Calls of the C library are counted by what they returned. Calls of MPI-IO are counted with the
//! bytes that were requested, as far as these are known. A file handle of MPI does not identify a
//! file of the kernel. A datatype has no known size, except the predefined datatypes of MPICH and
//! its derivatives, whose handles contain the size.

#![expect(non_snake_case, reason = "two underscores separate the parts of a program's name")]

use aya_ebpf::{
    EbpfContext, Global,
    macros::{map, uprobe, uretprobe},
    maps::{LruHashMap, ProgramArray},
    programs::{ProbeContext, RetProbeContext},
};
use bpfassay_tracer_common::{NO_DURATION, Operation, tally as tallies};

use super::{
    count::{By, Outcome, Subject, clock, count_by, tally, thread},
    descriptor::{begins, ends},
    entry::Arguments as _,
    kernel::Place,
    syscalls::REMOVE_DIRECTORY,
};

/// Always empty.
#[map(name = "no_programs")]
static NO_PROGRAMS: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// Always 0. The verifier knows that the loader does not change this value; the compiler does not.
#[unsafe(no_mangle)]
static TAIL_CALLS: Global<u32> = Global::new(0);

/// Makes the kernel leave the program on the stack of the task that runs it.
///
/// From 6.13 on (x86_64 first), the kernel gives each program of this type that uses at least 64
/// bytes of stack a private stack on each CPU (`bpf_enable_priv_stack`, kernel/bpf/verifier.c).
/// That is safe for kprobes, because a program does not run twice at once on a CPU. Nothing ensures
/// this for uprobes, in which tasks can be preempted. Two such tasks on one CPU overwrite each
/// other's variables, and calls are lost or counted under another's key.
///
/// A program that contains a tail call does not get such a stack, even if the tail call is never
/// reached. `check_max_stack_depth` checks `has_tail_call`, which `check_subprogs` sets before any
/// values are known. This tail call is not reached: the verifier removes it, so that it costs
/// nothing. It is not checked on kernels that forbid tail calls together with calls of functions
/// (`allow_tail_call_in_subprogs`).
#[inline(always)]
fn stay_on_stack(context: &impl EbpfContext) {
    // SAFETY: a global; volatile, because the compiler must not know its value. Nothing follows a
    // tail call that succeeds.
    unsafe {
        if (&raw const TAIL_CALLS).cast::<u32>().read_volatile() != 0 {
            NO_PROGRAMS.tail_call(context, 0);
        }
    }
}

/// Declares programs at the entry of functions of the C library.
macro_rules! entries {
    ($($program:ident: |$context:ident| $operation:expr, $descriptor:expr;)+) => {
        $(
            #[uprobe]
            fn $program($context: ProbeContext) -> u32 {
                stay_on_stack(&$context);
                begins(By::Preempted, $operation, $descriptor);
                0
            }
        )+
    };
}

entries! {
    uprobe__read__entry: |context| Operation::Read, Some(context.argument(0));
    uprobe__write__entry: |context| Operation::Write, Some(context.argument(0));
    uprobe__readv__entry: |context| Operation::Readv, Some(context.argument(0));
    uprobe__writev__entry: |context| Operation::Writev, Some(context.argument(0));
    uprobe__fsync__entry: |context| Operation::Fsync, Some(context.argument(0));
    uprobe__open__entry: |context| Operation::Open, None;
    uprobe__mkdir__entry: |context| Operation::Mkdir, None;
    uprobe__unlink__entry: |context| Operation::Unlink, None;
    uprobe__unlinkat__entry: |context|
        if context.argument(2) & REMOVE_DIRECTORY != 0 { Operation::Rmdir } else { Operation::Unlink }, None;
    uprobe__rmdir__entry: |context| Operation::Rmdir, None;
    uprobe__rename__entry: |context| Operation::Rename, None;
}

/// Declares programs at the return of functions. Each has a second version for kernels that do not
/// compile programs. Those kernels give programs no private stack, and refuse tail calls together
/// with calls of functions, which the layout `lru-shared` has.
macro_rules! returns {
    ($($program:ident, $interpreted:ident: |$context:ident| $body:expr;)+) => {
        $(
            #[uretprobe]
            fn $program($context: RetProbeContext) -> u32 {
                stay_on_stack(&$context);
                $body;
                0
            }

            #[uretprobe]
            fn $interpreted($context: RetProbeContext) -> u32 {
                $body;
                0
            }
        )+
    };
}

returns! {
    // Bytes, or -1.
    uprobe__bytes__return, uprobe__bytes__return_interpreted: |context| ends(By::Preempted, context.ret());
    // An `int`.
    uprobe__status__return, uprobe__status__return_interpreted: |context|
        ends(By::Preempted, i64::from(context.ret::<i32>()));
    // 0, or the number of an error.
    uprobe__mpi__return, uprobe__mpi__return_interpreted: |context| mpi_ends(context.ret::<i32>() != 0);
}

/// A call of MPI-IO that has begun.
#[repr(C)]
#[derive(Clone, Copy)]
struct Call {
    bytes: u64,
    start: u64,
    operation: u32,
    /// 1 if there is a call.
    wanted: u32,
}

/// Calls by thread, separate from calls of the C library, which MPI-IO calls. LRU eviction removes
/// entries of threads that have exited.
#[map(name = "pending_mpi")]
static PENDING: LruHashMap<u32, Call> = LruHashMap::with_max_entries(8192, 0);

/// Returns the bytes of `count` elements; 0 if the size is not known. The count is an `int` or has
/// 64 bits; its low 32 bits are used, because the upper bits of an `int` are undefined.
///
/// MPICH's handle of a predefined datatype is `0x4c00SSNN`, where SS is the size (MPICH 4.3,
/// src/include/mpir_objects.h and src/mpi/datatype/typerep: `MPIR_Datatype_get_basic_size`). Open
/// MPI's handle is a pointer, which is above 32 bits in its libraries.
#[inline(always)]
fn mpi_bytes(count: u64, datatype: u64) -> u64 {
    let (count, size) = (count as u32, datatype >> 8 & 0xff);
    if datatype >> 24 == 0x4c && count as i32 > 0 { u64::from(count) * size } else { 0 }
}

#[inline(always)]
fn mpi_begins(operation: Operation, bytes: u64) {
    let call = Call { bytes, start: clock(), operation: operation as u32, wanted: 1 };
    if PENDING.insert(thread(), call, 0).is_err() {
        tally(tallies::UNMATCHED);
    }
}

/// Declares programs at the entry of functions of MPI-IO.
macro_rules! mpi_entries {
    ($($program:ident: |$context:ident| $operation:ident, $bytes:expr;)+) => {
        $(
            #[uprobe]
            fn $program($context: ProbeContext) -> u32 {
                stay_on_stack(&$context);
                mpi_begins(Operation::$operation, $bytes);
                0
            }
        )+
    };
}

// The arguments are (file, buffer, count, datatype, status). Functions whose names end in `_at`
// have an offset before the buffer.
mpi_entries! {
    uprobe__mpi_open__entry: |context| MpiOpen, 0;
    uprobe__mpi_read__entry: |context| MpiRead, mpi_bytes(context.argument(2), context.argument(3));
    uprobe__mpi_read_at__entry: |context| MpiRead, mpi_bytes(context.argument(3), context.argument(4));
    uprobe__mpi_write__entry: |context| MpiWrite, mpi_bytes(context.argument(2), context.argument(3));
    uprobe__mpi_write_at__entry: |context| MpiWrite, mpi_bytes(context.argument(3), context.argument(4));
}

#[inline(always)]
fn mpi_ends(failed: bool) {
    let Some(call) = PENDING.get_ptr_mut(thread()) else { return };
    // SAFETY: a value of the map, which only this thread uses.
    let Call { bytes, start, operation, wanted } = unsafe { *call };
    if wanted == 0 {
        return;
    }
    // SAFETY: as above.
    unsafe { (*call).wanted = 0 };
    if let Some(subject) = Subject::new(Place::NOWHERE) {
        let outcome =
            Outcome { bytes: if failed { 0 } else { bytes }, errors: u64::from(failed), duration: NO_DURATION };
        count_by(By::Preempted, &subject, operation, outcome, start);
    }
}
