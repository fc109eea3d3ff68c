// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes bootable guests: kernels, initramfs segments, the guest's programs, and the manifest that
//! describes them.
//!
//! Here: the cache, access to Debian's packages, the kernel catalogue, the lock that names the
//! exact package files, kernels unpacked and ready to boot, the cross-toolchain, the guest's
//! programs and images. A [`provider`] is one file: it makes or finds guests and describes them in
//! a
//! [`manifest::Manifest`]. [`compose`] does so for what Nix or another builder made.
//! Not here: booting (bpfassay-vm), what is measured (bpfassay-study), what runs inside the guest
//! (bpfassay-guest).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod apt;
pub mod bundle;
pub mod busybox;
pub mod cache;
pub mod catalogue;
pub mod compose;
pub mod error;
#[doc(hidden)]
pub mod fuzz;
pub mod http;
pub mod image;
pub mod initramfs;
pub mod kernel;
pub mod manifest;
pub mod modules;
pub mod names;
pub mod payload;
pub mod provider;
pub mod pvh;
pub mod qemu;
pub mod stages;
#[cfg(test)]
mod test_support;
pub mod testbed_lock;
pub mod toolchain;
pub mod tools;
pub mod unpack;
mod untrusted_tree;

pub use bpfassay_protocol::Arch;

pub use self::error::{Error, Result};
