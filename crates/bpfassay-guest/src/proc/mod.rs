// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses files of /proc that the agent reads.

pub(crate) mod cpu_activity;
pub(crate) mod idle;
pub(crate) mod meminfo;
pub(crate) mod mountinfo;
pub(crate) mod mountstats;
pub(crate) mod stat;
pub(crate) mod zoneinfo;
