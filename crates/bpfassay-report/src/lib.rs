//! Results: the journal that is written while a plan is carried out, the figures derived from it, their published form
//! (`results.json` and its JSON schema), and the tables that show them.
//!
//! Here: [`journal`] (the only part with input and output, besides [`results::read`] and [`results::write`]), [`record`] and [`outcome`]
//! (what is journalled), [`mod@fingerprint`] (whether two runs have the same raw figures), [`derive`] (from records to results),
//! [`check`] (whether a results directory is whole), [`results`] (the schema), [`mod@compare`] (two results), [`mod@trend`] (many),
//! [`render`] (what people and programs read).
//! Not here: estimators (bpfassay-stats), running anything (bpfassay-runner), what a study is (bpfassay-study).

#![forbid(unsafe_code)]

pub mod check;
pub mod compare;
pub mod derive;
mod disk;
pub mod event;
pub mod figure;
pub mod fingerprint;
mod ior;
pub mod journal;
mod labels;
pub mod outcome;
pub mod plain;
pub mod provenance;
pub mod reason;
pub mod record;
pub mod render;
pub mod results;
pub mod schema;
mod tagged;
pub mod trend;
mod verdict;

pub use derive::{derive, derive_all, sampling::to_do};
pub use event::Event;
pub use figure::Figure;
pub use fingerprint::fingerprint;
pub use journal::{Again, Contents, Journal, JournalError, Past, PastBoot, Standing, ToDo};
pub use outcome::{AfterRun, FailureKind, Outcome, RunFailure};
pub use provenance::Provenance;
pub use record::{BlockEnded, BlockStarted, Entry, GuestReady, Header, RunRecord};
pub use results::{Results, ResultsError};
pub use verdict::{BootVerdict, Involved};

/// Version of the journal's format.
pub const JOURNAL_VERSION: u32 = 3;

/// Version of `results.json`.
pub const RESULTS_VERSION: u32 = 2;
