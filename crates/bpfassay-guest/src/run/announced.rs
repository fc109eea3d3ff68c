// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which phases of a run the host receives.

use bpfassay_protocol::message::Phase;

use crate::{error::Result, link::Link};

/// What the host receives of the phases of a run. Each is announced once, whatever is attached in
/// it and however often it is repeated: the order is part of the protocol ([`GuestMessage`]).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Announced {
    All,
    /// What a repeat with more to follow sends: all but the last.
    Beginning,
    Nothing,
}

impl Announced {
    pub(super) fn phase(self, link: &Link, phase: Phase, run: &str) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Beginning if phase == Phase::TearDown => Ok(()),
            Self::All | Self::Beginning => link.phase(phase, Some(run)),
        }
    }
}
