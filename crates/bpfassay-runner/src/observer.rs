// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports about the execution of a plan.

use std::{num::NonZeroU32, path::Path, time::Duration};

use bpfassay_protocol::message::Phase;
use bpfassay_results::{BlockEnded, BlockStarted, GuestReady, RunRecord, ToDo};
use bpfassay_study::Block;

/// Something that happened.
#[derive(Debug)]
pub enum Happening<'a> {
    /// Blocks are about to be executed, once for each look of sequential sampling.
    Started {
        /// The blocks to execute.
        blocks: &'a [ToDo],
        /// Number of blocks in parallel.
        slots: NonZeroU32,
        /// The results directory.
        directory: &'a Path,
    },
    /// A block failed because of the host, and is booted again after this time.
    Waiting(&'a Block, Duration),
    /// A guest is being booted for a block.
    Booting(&'a Block, &'a BlockStarted),
    /// The records of a block came from a store. No guest is booted, and the runs end at once.
    Reused(&'a Block, &'a BlockStarted),
    /// A guest is ready.
    Ready(&'a Block, &'a GuestReady),
    /// A run with this id begins a phase.
    Phase(&'a Block, &'a str, Phase),
    /// A run ended. Its record is in the journal.
    RunEnded(&'a RunRecord),
    /// The guest has ended.
    Ended(&'a Block, &'a BlockEnded),
    /// A line of the guest for the log.
    Log(&'a Block, &'a str),
    /// No further block is begun, for this reason.
    Paused(&'a str),
    /// Whether guests are still being built. How long that takes is unknown.
    MakingGuests(bool),
}

/// Receives the progress from several tasks at once. It must be quick, because guests wait for it.
pub trait Observer: Send + Sync {
    /// Receives a report.
    fn progress(&self, progress: &Happening<'_>);
}
