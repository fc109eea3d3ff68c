// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates bootable guests: kernels, initramfs segments, programs, and the manifest of these.
//!
//! This crate has the kernel catalogue, the lock of exact package files, unpacked kernels, the
//! cross-toolchain, and the guest's programs and images. A [`provider`] is one file that makes or
//! finds guests and describes them in a [`manifest::Manifest`]. [`compose`] does so for the output
//! of Nix or another builder.
//!
//! Other crates fetch, keep and unpack packages (bpfassay-packages), boot guests (bpfassay-vm),
//! decide what is measured (bpfassay-study), and run inside the guest (bpfassay-guest).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod busybox;
pub mod catalogue;
pub mod compose;
pub mod error;
#[doc(hidden)]
pub mod fuzz;
pub mod guest_bundle;
pub mod guest_tools;
pub mod image;
pub mod initramfs;
pub mod kernel;
pub mod kernel_files;
pub mod kernel_modules;
pub mod lock_update;
pub mod locked_qemu;
pub mod manifest;
pub mod missing;
pub mod payload;
pub mod provider;
pub mod pvh;
pub mod segment;
#[cfg(test)]
mod test_support;
pub mod testbed_lock;
pub mod toolchain;

pub use bpfassay_protocol::Arch;

pub use self::error::{Error, Result};
