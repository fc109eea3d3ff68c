// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a loader returns, whichever library it uses.

use std::{collections::BTreeMap, os::fd::OwnedFd, time::Duration};

use bpfassay_protocol::{finding::Finding, nanoseconds, tracer::Refusal};
use rustix::time::{ClockId, clock_gettime};

use super::{hooked::AttachedPrograms, options::Options};
use crate::diagnostics::When;

/// What a loader returns: programs that are loaded and not attached.
pub(crate) struct Loaded {
    /// Descriptors of the maps by name ([`bpfassay_tracer_common::map`]); duplicates are enough.
    pub(crate) maps: BTreeMap<String, OwnedFd>,
    /// Time to open and load the programs, in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) load_ns: u64,
    /// Functions that are not counted, and why.
    pub(crate) findings: Vec<Finding>,
    /// The programs.
    pub(crate) programs: Box<dyn Programs>,
}

/// Programs that are loaded.
pub(crate) trait Programs {
    /// Attaches them; all or none. They stay attached until the links of what is returned are
    /// dropped, and may be attached again then.
    ///
    /// # Errors
    /// The [`Refusal`], without findings.
    fn attach(&mut self, options: &Options) -> Result<AttachedPrograms, Refusal>;

    /// Searches for the pitfalls of hooking the targets of these programs.
    fn look(&self, options: &Options, when: When) -> Vec<Finding>;
}

/// A reading of `CLOCK_MONOTONIC`, to measure how long something takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Since(Duration);

impl Since {
    /// Reads the clock now.
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        // The monotonic clock is never negative.
        Self(Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0)))
    }

    /// Nanoseconds since then.
    pub(crate) fn nanoseconds(self) -> u64 {
        nanoseconds(Self::now().0.saturating_sub(self.0))
    }
}
