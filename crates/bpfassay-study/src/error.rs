// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors in a study or in its narrowing.

use std::{fmt::Display, io, path::PathBuf};

use bpfassay_input::document::Invalid;

/// Why a study cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The name is neither a bundled study nor a file.
    #[error("no study `{name}`: bundled studies are {bundled}{nearest}; for a file, give its path")]
    Unknown {
        /// The name that was given.
        name: String,
        /// The bundled names, separated by commas.
        bundled: String,
        /// A suggestion that begins with `; `, or nothing.
        nearest: String,
    },
    /// A file cannot be read.
    #[error("cannot read {what} {}: check that it exists and may be read", path.display())]
    Read {
        /// Kind of the file: `study` or `IOR script`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file has an error.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl StudyError {
    /// The invalid file, if that is the error.
    #[must_use]
    pub const fn invalid(&self) -> Option<&Invalid> {
        match self {
            Self::Invalid(invalid) => Some(invalid),
            _ => None,
        }
    }
}

/// Why a study has no plan under a narrowing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// The narrowing names something that the study does not have.
    #[error("study `{study}` has no {kind} `{value}`; it has {available}")]
    NotInStudy {
        /// The study's name.
        study: String,
        /// Either `architecture`, `kernel` or `probe configuration`.
        kind: &'static str,
        /// The value that was given.
        value: String,
        /// The values that the study has, separated by commas.
        available: String,
    },
    /// The narrowed study has no such cell.
    #[error("study `{study}` has no cell `{cell}`{nearest}: `bpfassay plan {study}` lists them")]
    NoCell {
        /// The study's name.
        study: String,
        /// The cell id that was given.
        cell: String,
        /// A suggestion that begins with `, `, or nothing.
        nearest: String,
    },
    /// The study has each value, but no target with all of them.
    #[error("study `{study}` has no target for {asked}; its targets are {available}")]
    NoTarget {
        /// The study's name.
        study: String,
        /// The narrowing as text.
        asked: String,
        /// The targets of the study, separated by commas.
        available: String,
    },
    /// A kernel pattern matches no build.
    #[error("no known kernel build matches {pattern}: `bpfassay list kernels` lists them")]
    NoBuild {
        /// The pattern.
        pattern: String,
    },
    /// A build has a name that cannot be part of a file name.
    #[error("a kernel build that matches {pattern} has no name that can be used: {problem}")]
    KernelName {
        /// The pattern.
        pattern: String,
        /// The fault of the name.
        problem: String,
    },
    /// A model was given, but no instructions are counted.
    #[error(
        "study `{study}` counts no instructions, which the model `{model}` prices: give it --clock instructions and a workload, or leave --model out"
    )]
    NothingToPrice {
        /// The study's name.
        study: String,
        /// The model's name.
        model: String,
    },
    /// The number of replicates is out of range.
    #[error("{replicates} replicates: give a number from 1 to {limit}")]
    Replicates {
        /// The number given.
        replicates: u32,
        /// The largest allowed number.
        limit: u32,
    },
    /// Sequential sampling needs more boots.
    #[error(
        "at most {replicates} boots are too few to sample until intervals are narrow: give --replicates {fewest} or more"
    )]
    TooFewUntil {
        /// The number given.
        replicates: u32,
        /// The smallest number that works.
        fewest: u32,
    },
    /// More shards than units to distribute.
    #[error(
        "the plan of study `{study}` cannot be spread over {of} shards, for it has boots for {most} at most{together}: give --shard K/N with N up to {most}"
    )]
    Shards {
        /// The study's name.
        study: String,
        /// Number of shards that was given.
        of: u32,
        /// Largest possible number of shards.
        most: usize,
        /// Either nothing, or the reason why there are fewer units than boots. It begins with `, `.
        together: &'static str,
    },
    /// No part of the matrix can run on this machine.
    #[error("nothing of study `{study}` can be run here: {reasons}")]
    NothingLeft {
        /// The study's name.
        study: String,
        /// The reasons for everything left out, separated by semicolons.
        reasons: String,
    },
    /// The matrix exceeds the limit of runs.
    #[error(
        "study `{study}` expands to more than {limit} runs: narrow it with --arch, --kernel, --probe or --replicates"
    )]
    TooLarge {
        /// The study's name.
        study: String,
        /// Largest number of runs.
        limit: usize,
    },
    /// Several nodes cannot run this study.
    #[error("study `{study}` has several nodes: {problem}")]
    Nodes {
        /// The study's name.
        study: String,
        /// The problem and its solution.
        problem: String,
    },
    /// The plan is too long to be recorded.
    #[error(
        "the plan of study `{study}` is {bytes} bytes long, and at most {limit} can be recorded: narrow it with --arch, --kernel, --probe or \
         --replicates, or shorten the options of its workloads and tools"
    )]
    TooLong {
        /// The study's name.
        study: String,
        /// Length of the plan as JSON.
        bytes: u64,
        /// Largest length that can be recorded.
        limit: u64,
    },
}

/// Joins `values` with commas, for messages.
pub(crate) fn list<T: Display>(values: &[T]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
