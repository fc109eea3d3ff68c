// SPDX-License-Identifier: MIT OR Apache-2.0
//! What trials with strangers' files need: makers of such files, a room in which the command gets
//! them, and checks of what it did to the host.
//!
//! A room is the environment of a trial with files of a host beside it. However a command ends
//! there, it must have left these files as they were, have read nothing of them, have made nothing
//! outside of its own directories, have ended in time with a documented exit code, and have left
//! the cache whole.

pub mod bundle;
pub mod package;
pub mod plant;
pub mod room;
pub mod victims;
pub mod whole;
pub mod workshop;
