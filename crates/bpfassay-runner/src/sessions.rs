// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps from a study to its results: selection, guests, session, work, verification.

pub(crate) mod earlier_guests;
pub(crate) mod plan_testbed;
pub(crate) mod results_directory;
pub(crate) mod same_guests;
pub(crate) mod session;
pub(crate) mod study_selection;
pub(crate) mod verification;
pub(crate) mod work;
