// SPDX-License-Identifier: MIT OR Apache-2.0
//! One boot: its guests and their machines, its messages, and what the journal records of it.

pub(crate) mod boot_nodes;
pub(crate) mod counting;
pub mod host_setup;
pub mod joint_report;
pub(crate) mod loaded_plugin;
pub mod run_context;
pub mod running_boot;
pub(crate) mod study_nodes;
pub mod sum;
pub mod tally;
