// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chaos: draws faults by seed, does them to a study under way, and holds what comes of it against what may come of it.
//!
//! The command and QEMU are real, with their processes, signals, sockets and files. The guest is either scripted ([`agent`]), which is
//! quick and knows every figure beforehand, or real ([`guests`]). A fault ([`fault`]) says how it is done and which outcomes are allowed;
//! the checks ([`check`], [`leftovers`]) say whether one of them occurred. Whatever was done, the study must come to the fingerprint of the
//! one without faults when it is resumed.

pub mod agent;
pub mod check;
pub mod control;
pub mod damaged_cache;
pub mod drive;
pub mod environment;
pub mod fault;
pub mod guests;
pub mod leftovers;
pub mod process;
pub mod random;
pub mod script;
pub mod study;
pub mod summary;
pub mod trial;
