// SPDX-License-Identifier: MIT OR Apache-2.0
//! The outputs of a study: the journal, which is written while it runs, and `results.json`, the
//! published form.
//!
//! This crate has:
//!
//! - [`record`], [`outcome`], [`journal`]: entries of the journal, reading and writing it
//! - [`Results`], [`mod@file`]: results, reading and writing `results.json`
//! - [`results_schema`]: JSON schemas
//! - [`event`]: what `run` reports during a study
//! - [`mod@fingerprint`]: whether two runs have the same raw figures
//! - [`plain`]: text from outside, made safe to print
//!
//! Other crates derive figures from a journal, compare and render them (bpfassay-report), estimate
//! (bpfassay-stats), and run studies (bpfassay-runner).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod cell;
mod code_coverage;
mod count;
mod direct_counts;
pub mod directory;
mod disk_space;
pub mod event;
mod figure;
pub mod file;
pub mod fingerprint;
mod gate_result;
pub mod journal;
mod kernel_features;
mod node_results;
pub mod outcome;
pub mod plain;
pub mod provenance;
pub mod reason;
pub mod record;
mod results;
pub mod results_schema;
mod run_record;
mod sampling;
mod tagged;
mod tool_result;
mod verdict;

pub use cell::{
    Attach, Basis, BystanderCost, ByteErrors, CellAccuracy, CellFailure, CellFinding, CellMetric, CellResult, Cost,
    EventTime, Overhead, Pooled, PooledCost, RunCounts, RunTime, Unit,
};
pub use code_coverage::{
    BootCoverage, CodeCoverage, CoveredBranch, CoveredLine, CoveredLines, ProgramCoverage, ProgramExecutions,
    ProgramLines, ProgramSource, RunCoverage, SourceBranch, SourceLine,
};
pub use count::{FunctionCount, Instructions, Misses, MissesPerCall, PhaseCount, PhaseMisses, Role, RunCount};
pub use direct_counts::{Direct, DirectFunction, NO_COUNTS, Priced, PricedRole};
pub use directory::OpenDirectory;
pub use event::Event;
pub use figure::Figure;
pub use file::ResultsError;
pub use fingerprint::fingerprint;
pub use gate_result::{Demand, GateResult};
pub use journal::{
    Again, CountedEntries, JOURNAL_VERSION, Journal, JournalContents, JournalError, Past, PastBoot, ToDo,
};
pub use kernel_features::{
    ConfigurationCell, ConfigurationRow, Counted, FeatureCell, FeatureRow, FeatureVerdict, KernelFeatures, ProgramFacts,
};
pub use node_results::{NodeBytes, NodeFacts, NodeFigures, NodeRun};
pub use outcome::{AfterRun, FailureKind, Outcome, RunFailure};
pub use provenance::Provenance;
pub use record::{BlockEnded, BlockStarted, GuestReady, JournalEntry, JournalHeader, Reused, RunRecord};
pub use results::{Boot, RESULTS_VERSION, Results};
pub use run_record::{
    BystanderCalls, ByteFigure, Difference, EventFigure, MovedSource, NO_CALL_TIMES, PathCoverage, RepetitionAccuracy,
    RepetitionMetric, RunAccuracy, RunDerived, RunMetric, RunResult, Span, Work,
};
pub use sampling::{Sampled, SamplingEnd, Widest};
pub use tool_result::{Loaded, MapFill, ToolProcessor, ToolResult};
pub use verdict::{BootVerdict, Involved};
