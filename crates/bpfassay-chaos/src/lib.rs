// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fault injection: draws faults by seed, injects them into a study while it runs, and compares the
//! outcome with the allowed ones.
//!
//! The command and QEMU are real, with their processes, signals, sockets and files. The guest is
//! scripted ([`agent`]) or real ([`guests`]). A scripted guest is quick, and its figures are known
//! in advance.
//!
//! A fault ([`fault`]) defines what is done and which outcomes are allowed. The checks
//! ([`outcome_check`], [`leftovers`]) decide whether an allowed outcome occurred. When the study is
//! resumed, it must have the fingerprint of the study without faults.
//!
//! Faults with strangers' files ([`stranger`]) have another course: whatever the file, the host
//! must stay as it was.

pub mod agent;
pub mod chaos_control;
pub mod chaos_environment;
pub mod chaos_random;
pub mod chaos_study;
pub mod chaos_summary;
pub mod command_process;
pub mod damaged_cache;
pub mod drive;
pub mod fake_qemu;
pub mod fault;
pub mod guests;
pub mod leftovers;
pub mod outcome_check;
pub mod script;
pub mod stranger;
pub mod trial;
