// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pure decisions about boots: what a boot showed, who is to blame, and what follows.

pub(crate) mod asked;
pub(crate) mod attempt;
pub(crate) mod blame;
pub(crate) mod failure;
pub(crate) mod observed;
pub(crate) mod repeated;
