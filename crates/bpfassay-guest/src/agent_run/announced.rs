// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which phases of a run the host is told about.

use bpfassay_protocol::message::Phase;

use crate::{agent_link::Link, error::Result};

/// Which phases of a run are announced to the host. Each phase is announced once, even if the run
/// is repeated: the order is part of the protocol ([`GuestMessage`]).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Announced {
    All,
    /// A run that is repeated afterwards announces all phases but the last.
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
