// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pure decisions about boots: what a boot showed, who is to blame, and what follows.

pub(crate) mod asked;
pub mod attempt;
pub(crate) mod blame;
pub mod failure;
pub mod observed;
pub(crate) mod repeated;
