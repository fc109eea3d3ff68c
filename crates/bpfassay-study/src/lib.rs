//! Study files: what to run, over which matrix, with which design; and their expansion to a plan.
//!
//! Here: reading and checking studies ([`load`], [`Study::parse`]), the studies and expectations compiled in
//! ([`bundled`], [`expectation`]), and the pure expansion of a study to the runs to do ([`plan::expand`]).
//! FORMAT.md beside the sources describes the files.
//! Not here: kernels (bpfassay-testbed), guests (bpfassay-vm), what IOR's options mean (bpfassay-ior), results.

#![forbid(unsafe_code)]

pub mod bundled;
pub mod command;
pub mod error;
pub mod expectation;
pub mod feature;
pub mod gate;
mod ior;
mod narrow;
pub mod plan;
pub mod read;
mod shuffle;
pub mod study;
pub mod target;

pub use bpfassay_input::document::Invalid;
pub use command::{CommandSpec, FigureName, FigureSpec};
pub use error::{ExpandError, StudyError};
pub use expectation::Expectation;
pub use feature::{ExpectedFeature, FeatureExpectations, Series};
pub use gate::{Certainty, Correction, Denied, Gate, Share};
pub use plan::{Available, Block, Cell, LeftOut, Narrowing, Plan, PlannedRun, expand};
pub use read::{folder, load};
pub use study::{
    Addresses, Clock, Deadlines, Design, EngineChoice, GuestSize, Interface, IorSpec, IorTest, Study, WorkloadKind,
    WorkloadSpec,
};
pub use target::Target;

/// Version of the study files that this crate reads (key `schema`).
pub const STUDY_SCHEMA: u32 = 1;
