// SPDX-License-Identifier: MIT OR Apache-2.0
//! Support for trials with strangers' files: makers of such files, a room in which the command gets
//! them, and checks of what the command did to the host.
//!
//! A room is the environment of a trial together with files of a host. However a command ends in a
//! room, these conditions must hold:
//!
//! - The files of the host are unchanged, and none of them was read.
//! - Nothing was made outside of the command's directories.
//! - The command ended in time with a documented exit code.
//! - The cache is whole.

pub mod finished_results;
pub mod hostile_bundle;
pub mod hostile_package;
pub mod plant;
pub mod room;
pub mod victims;
pub mod whole;
pub mod workshop;
