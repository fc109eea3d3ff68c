// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is reported while a plan is executed.

use std::{num::NonZeroU32, path::Path, time::Duration};

use bpfassay_protocol::message::Phase;
use bpfassay_results::{BlockEnded, BlockStarted, GuestReady, RunRecord, ToDo};
use bpfassay_study::Block;

/// Something that happened.
#[derive(Debug)]
pub enum Progress<'a> {
    /// Blocks are about to be executed: once for each look of sequential sampling, otherwise once.
    Started {
        /// Which blocks.
        blocks: &'a [ToDo],
        /// How many of them side by side.
        slots: NonZeroU32,
        /// The results directory.
        directory: &'a Path,
    },
    /// A block is about to be booted again that the host failed, after this time.
    Waiting(&'a Block, Duration),
    /// A guest is being booted for a block.
    Booting(&'a Block, &'a BlockStarted),
    /// The records of a block were taken from a store, in place of booting a guest. Its runs end
    /// right after this.
    Reused(&'a Block, &'a BlockStarted),
    /// It is ready.
    Ready(&'a Block, &'a GuestReady),
    /// A run, by its id, begins a phase.
    Phase(&'a Block, &'a str, Phase),
    /// A run ended; its record is in the journal.
    RunEnded(&'a RunRecord),
    /// The guest is gone.
    Ended(&'a Block, &'a BlockEnded),
    /// A line that the guest asked to be kept.
    Log(&'a Block, &'a str),
    /// No further block is begun, for this reason.
    Paused(&'a str),
    /// Whether guests are still being made: how long that takes is not known.
    MakingGuests(bool),
}

/// Receives the progress, from several tasks at once. Must be quick: guests wait for it.
pub trait Observer: Send + Sync {
    /// Something happened.
    fn progress(&self, progress: &Progress<'_>);
}
