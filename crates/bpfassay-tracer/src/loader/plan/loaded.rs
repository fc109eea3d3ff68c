// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of a loader, whichever library it uses.

use std::{collections::BTreeMap, os::fd::OwnedFd, time::Duration};

use bpfassay_protocol::{finding_name::Finding, nanoseconds, tracer_messages::Refusal};
use rustix::time::{ClockId, clock_gettime};

use super::{hooked::AttachedPrograms, tracer_options::TracerOptions};
use crate::diagnostics::SearchTime;

/// The result of a loader: programs that are loaded but not attached.
pub(crate) struct LoadedTracer {
    /// Descriptors of the maps by name ([`bpfassay_tracer_common::map`]), as duplicates.
    pub(crate) maps: BTreeMap<String, OwnedFd>,
    /// Time to open and load the programs, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) load_ns: u64,
    /// Functions that are not counted, and why.
    pub(crate) findings: Vec<Finding>,
    pub(crate) programs: Box<dyn PreparedPrograms>,
}

pub(crate) trait PreparedPrograms {
    /// Attaches all programs, or none. They stay attached until the links in the result are
    /// dropped, and can then be attached again.
    ///
    /// # Errors
    /// The [`Refusal`], without findings.
    fn attach(&mut self, options: &TracerOptions) -> Result<AttachedPrograms, Refusal>;

    /// Searches for the pitfalls of hooking the targets of these programs.
    fn look(&self, options: &TracerOptions, when: SearchTime) -> Vec<Finding>;
}

/// A reading of `CLOCK_MONOTONIC`, to measure how long something takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Since(Duration);

impl Since {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        // The monotonic clock is never negative.
        Self(Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0)))
    }

    /// Returns the nanoseconds since this reading.
    pub(crate) fn nanoseconds(self) -> u64 {
        nanoseconds(Self::now().0.saturating_sub(self.0))
    }
}
