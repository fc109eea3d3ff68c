// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fault injection: draws faults by seed, injects them into a study while it runs, and compares the
//! outcome with the allowed ones.
//!
//! The command and QEMU are real, with their processes, signals, sockets and files. The guest is
//! either scripted ([`agent`]), which is quick and has figures that are known beforehand, or real
//! ([`guests`]). A fault ([`fault`]) defines what is done and which outcomes are allowed; the
//! checks ([`check`], [`leftovers`]) decide whether one of them occurred. Whatever the fault, the
//! study must have the fingerprint of the one without faults when it is resumed. Faults with
//! strangers' files ([`stranger`]) have a course of their own: whatever the file, the host beside
//! it must stay as it was.

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
pub mod qemu;
pub mod random;
pub mod script;
pub mod stranger;
pub mod study;
pub mod summary;
pub mod trial;
