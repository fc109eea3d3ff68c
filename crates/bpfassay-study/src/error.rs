// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be wrong with a study or with its narrowing.

use std::{fmt::Display, io, path::PathBuf};

use bpfassay_input::document::Invalid;

/// Why a study cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// Neither a bundled study nor a file.
    #[error("no study `{name}`: bundled studies are {bundled}{nearest}; for a file, give its path")]
    Unknown {
        /// The name as given.
        name: String,
        /// The bundled names, comma-separated.
        bundled: String,
        /// Empty, or a suggestion that begins with `; `.
        nearest: String,
    },
    /// A file cannot be read.
    #[error("cannot read {what} {}: check that it exists and may be read", path.display())]
    Read {
        /// What the file is (`study`, `IOR script`).
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Something in the file is wrong.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl StudyError {
    /// The file that is not valid, if that is the error.
    #[must_use]
    pub const fn invalid(&self) -> Option<&Invalid> {
        match self {
            Self::Invalid(invalid) => Some(invalid),
            _ => None,
        }
    }
}

/// Why a study has no plan under the narrowing that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// The narrowing names something that the study does not have.
    #[error("study `{study}` has no {kind} `{value}`; it has {available}")]
    NotInStudy {
        /// The study's name.
        study: String,
        /// `architecture`, `kernel`, `probe configuration`.
        kind: &'static str,
        /// The value that was given.
        value: String,
        /// What the study has, comma-separated.
        available: String,
    },
    /// What is left of the study has no such cell.
    #[error("study `{study}` has no cell `{cell}`{nearest}: `bpfassay plan {study}` lists them")]
    NoCell {
        /// The study's name.
        study: String,
        /// The id that was given.
        cell: String,
        /// Empty, or a suggestion that begins with `, `.
        nearest: String,
    },
    /// Each value is in the study, but not together.
    #[error("study `{study}` has no target for {asked}; its targets are {available}")]
    NoTarget {
        /// The study's name.
        study: String,
        /// The narrowing, as text.
        asked: String,
        /// The targets of the study, comma-separated.
        available: String,
    },
    /// A pattern that matches no build.
    #[error("no known kernel build matches {pattern}: `bpfassay list kernels` lists them")]
    NoBuild {
        /// The pattern.
        pattern: String,
    },
    /// A build whose name cannot be part of the names of files.
    #[error("a kernel build that matches {pattern} has no name that can be used: {problem}")]
    KernelName {
        /// The pattern.
        pattern: String,
        /// What is wrong with the name.
        problem: String,
    },
    /// A model where nothing is counted.
    #[error(
        "study `{study}` counts no instructions, which the model `{model}` prices: give it --clock instructions and a workload, or leave --model out"
    )]
    NothingToPrice {
        /// The study's name.
        study: String,
        /// The model's name.
        model: String,
    },
    /// A number is out of range.
    #[error("{replicates} replicates: give a number from 1 to {limit}")]
    Replicates {
        /// The number given.
        replicates: u32,
        /// The largest number allowed.
        limit: u32,
    },
    /// Too few boots for sequential sampling.
    #[error(
        "at most {replicates} boots are too few to sample until intervals are narrow: give --replicates {fewest} or more"
    )]
    TooFewUntil {
        /// The number given.
        replicates: u32,
        /// The fewest.
        fewest: u32,
    },
    /// More shards than there is to spread.
    #[error(
        "the plan of study `{study}` cannot be spread over {of} shards, for it has boots for {most} at most{together}: give --shard K/N with N up to {most}"
    )]
    Shards {
        /// The study's name.
        study: String,
        /// How many shards were asked for.
        of: u32,
        /// How many there can be.
        most: usize,
        /// Empty, or why there are fewer than boots, beginning with `, `.
        together: &'static str,
    },
    /// Nothing of the matrix can be run on this machine.
    #[error("nothing of study `{study}` can be run here: {reasons}")]
    NothingLeft {
        /// The study's name.
        study: String,
        /// Why, for each thing left out, separated by semicolons.
        reasons: String,
    },
    /// The matrix is larger than this program handles.
    #[error(
        "study `{study}` expands to more than {limit} runs: narrow it with --arch, --kernel, --probe or --replicates"
    )]
    TooLarge {
        /// The study's name.
        study: String,
        /// Largest number of runs.
        limit: usize,
    },
    /// Its nodes cannot do what it asks for.
    #[error("study `{study}` has several nodes: {problem}")]
    Nodes {
        /// The study's name.
        study: String,
        /// What they cannot do, and what to do.
        problem: String,
    },
    /// The plan is longer than what can be written down.
    #[error(
        "the plan of study `{study}` is {bytes} bytes long, and at most {limit} can be recorded: narrow it with --arch, --kernel, --probe or \
         --replicates, or shorten the options of its workloads and tools"
    )]
    TooLong {
        /// The study's name.
        study: String,
        /// Its length as JSON.
        bytes: u64,
        /// The largest length.
        limit: u64,
    },
}

/// `values` with commas, for messages.
pub(crate) fn list<T: Display>(values: &[T]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
