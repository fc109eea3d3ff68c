//! What carrying out a plan tells whoever watches.

use bpfassay_protocol::message::Phase;
use bpfassay_report::{BlockEnded, BlockStarted, GuestReady, RunRecord};
use bpfassay_study::Block;

/// Something that happened.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A guest is being booted for a block.
    Booting(&'a Block, &'a BlockStarted),
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
}

/// Is told of progress, from several tasks at once. Must be quick: guests wait for it.
pub trait Observer: Send + Sync {
    /// Something happened.
    fn progress(&self, progress: &Progress<'_>);
}
