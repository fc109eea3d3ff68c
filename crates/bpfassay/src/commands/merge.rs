// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay cluster merge`: merges the results directories of shards into one.

use std::path::Path;

use bpfassay_runner::{Merge, PoolSummary};
use bpfassay_vm::shell_command;

use super::run::{self, RunEnd};
use crate::{
    cli::{self, MessageFormat},
    exit::CommandOutcome,
};

/// Executes the command. The exit code is the same as of a run that measured everything.
///
/// # Errors
/// - A usage failure, if the output directory exists, or shards are damaged, do not fit together,
///   or are missing
/// - An infrastructure failure, if the merged results cannot be written or printed
pub(crate) fn merge(arguments: &cli::MergeArgs) -> CommandOutcome {
    // Check this first: reading large journals can take minutes.
    Merge::may_write(&arguments.output)?;
    let merge = Merge::read(&arguments.directories)?;
    let merge = if arguments.partial { merge } else { merge.complete()? };
    write(merge, &arguments.output)
}

/// Writes merged results to `output` and reports them. The exit code is the same as of a run that
/// measured the same boots.
///
/// # Errors
/// An infrastructure failure, if the results cannot be written or printed.
pub(super) fn write(merge: Merge, output: &Path) -> CommandOutcome {
    let (missing, planned) = (merge.missing().len(), merge.plan().blocks.len());
    let concluded = merge.write(output)?;
    let paused = (missing > 0).then(|| format!("{missing} of {planned} boots are missing"));
    let summary = PoolSummary { paused, ..PoolSummary::default() };
    let how_to_continue = format!("; continue with: bpfassay run --resume {}", shell_command([output]));
    run::report(output, concluded, &RunEnd { summary, how_to_continue, against: None }, MessageFormat::Human)
}
