// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's type information.

pub(crate) mod ids;
pub(crate) mod offsets;

use std::{collections::BTreeSet, fs, io};

use bpfassay_btf::{Btf, Prototype};

/// Where the kernel has it.
pub(crate) const PATH: &str = bpfassay_btf::KERNEL;

/// All of it.
///
/// # Errors
/// The kernel's error; `NotFound` where the kernel was built without it. [`cannot`] has the message.
pub(crate) fn read() -> io::Result<Vec<u8>> {
    fs::read(PATH)
}

/// The prototypes of those of `wanted` that the kernel has. A name that several functions have comes several times.
///
/// # Errors
/// Those of [`read`], and `InvalidData` for type information that is not understood.
pub(crate) fn prototypes(wanted: &BTreeSet<&str>) -> io::Result<Vec<(String, Prototype)>> {
    let bytes = read()?;
    let found = Btf::new(&bytes).and_then(|btf| btf.prototypes(wanted));
    found.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The message for an error of [`read`] or [`prototypes`].
pub(crate) fn cannot(error: &io::Error) -> String {
    format!("cannot read the kernel's type information in {PATH}: {error}; it takes CONFIG_DEBUG_INFO_BTF")
}
