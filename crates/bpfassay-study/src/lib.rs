// SPDX-License-Identifier: MIT OR Apache-2.0
//! Study files: what to run, over which matrix and with which design. Also the expansion of a study
//! to a plan.
//!
//! This crate reads and checks studies ([`load`], [`Study::parse`]), and expands them to runs
//! without side effects ([`expand()`]). It has the built-in studies and expectations
//! ([`bundled_studies`], [`expectation`]) and the kinds of workloads ([`workload`]). FORMAT.md in
//! the crate's directory describes the files.
//!
//! Other crates have kernels (bpfassay-testbed), guests (bpfassay-vm), the meaning of IOR's options
//! (bpfassay-ior) and results (bpfassay-results).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod budget;
pub mod bundled_studies;
mod clock;
pub mod cost_model;
pub mod error;
pub mod expand;
pub mod expectation;
pub mod feature;
pub mod gate;
mod mount_design;
mod narrow;
mod node_design;
pub mod plan;
pub mod read_study;
mod shard;
mod shuffle;
pub mod study;
mod study_digest;
pub mod target;
pub mod workload;

pub use bpfassay_input::document::{Invalid, nearest};
pub use budget::{Budget, BudgetFigure, GROWTH_FLOOR};
pub use clock::Clock;
pub use cost_model::Model;
pub use error::{ExpandError, StudyError};
pub use expand::{Available, expand};
pub use expectation::Expectation;
pub use feature::{ExpectedFeature, FeatureExpectations, Series};
pub use gate::{Correction, Denied, Gate, Share, VerdictCertainty};
pub use plan::{Block, Cell, LeftOut, Narrowing, Plan, PlannedRun, file_system_id};
pub use read_study::{folder, load};
pub use shard::Shard;
pub use study::{Addresses, Deadlines, GuestSize, Study, StudyDesign, WarmUp, WarmUpRule};
pub use target::{Target, by_version};
pub use workload::{
    CommandSpec, EngineChoice, Interface, IorSpec, IorTest, Metric, MetricInput, MetricName, MetricSpec, NoMetricName,
    PhaseReport, WorkloadKind, WorkloadSpec,
};

/// Version of the study format (key `schema`).
pub const STUDY_SCHEMA: u32 = 1;
