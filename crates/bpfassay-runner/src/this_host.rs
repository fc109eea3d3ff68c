// SPDX-License-Identifier: MIT OR Apache-2.0
//! This host: its QEMU and accelerator, the cache, what it lacks, and what results record of it.

pub(crate) mod accelerator;
pub(crate) mod doctor;
pub(crate) mod emulator;
pub(crate) mod host_packages;
pub(crate) mod qemu_source;
pub mod run_provenance;
pub(crate) mod runner_store;
pub(crate) mod slots;
