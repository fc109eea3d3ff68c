// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetches package files from Debian's archives, checks them, keeps them in a cache, and unpacks
//! them.
//!
//! [`apt`] reads Debian's package indexes and fetches files, with the host's apt or without it
//! ([`http`]). [`cache`] keeps everything that was downloaded or made, by content ([`digest`]).
//! [`unpack`] reads `.deb` and `.rpm` files. Others chose the names and the trees in these files
//! ([`safe_names`], [`untrusted_tree`]). [`stages`] reports the progress of all this.
//!
//! bpfassay-testbed decides which packages a guest needs, locks their files, and makes guests of
//! them.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod apt;
pub mod cache;
pub mod digest;
pub mod error;
#[doc(hidden)]
pub mod fuzz;
pub mod http;
pub mod safe_names;
pub mod stages;
#[cfg(any(test, feature = "test-support"))]
#[doc(hidden)]
pub mod test_support;
pub mod unpack;
pub mod untrusted_tree;
