// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's type information.

mod function_prototypes;
pub(crate) mod ids;
pub(crate) mod member_offsets;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use bpfassay_btf::{Btf, Prototype};

use self::function_prototypes::FunctionPrototypes;
use super::kept_facts;

/// The file that contains the kernel's type information.
pub(crate) const PATH: &str = bpfassay_btf::KERNEL;

/// Reads the whole file.
///
/// # Errors
/// The kernel's error; `NotFound` if the kernel was built without type information. [`cannot`]
/// returns the message.
pub(crate) fn read() -> io::Result<Vec<u8>> {
    fs::read(PATH)
}

/// Returns the prototypes of the `wanted` functions that the kernel has. They come from the file
/// `kept` if it is given and has them all. `usual`: see [`kept_facts::look_up`]. A name of
/// several functions occurs several times.
///
/// # Errors
/// The errors of [`read`], and `InvalidData` for type information that cannot be parsed.
pub(crate) fn prototypes(
    kept: Option<&Path>,
    wanted: &BTreeSet<&str>,
    usual: &[String],
) -> io::Result<Vec<(String, Prototype)>> {
    let mut known = kept_facts::look_up(kept, wanted, usual, |wanted| {
        let bytes = read()?;
        let found = Btf::new(&bytes).and_then(|btf| btf.prototypes(wanted));
        let found = found.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        // Names of functions that the kernel does not have are kept, too.
        let mut all: BTreeMap<String, FunctionPrototypes> =
            wanted.iter().map(|name| ((*name).to_owned(), FunctionPrototypes::default())).collect();
        for (name, prototype) in found {
            all.entry(name).or_default().0.push(prototype);
        }
        Ok::<_, io::Error>(all)
    })?;
    known.retain(|name, _| wanted.contains(name.as_str()));
    let each = known
        .into_iter()
        .flat_map(|(name, FunctionPrototypes(all))| all.into_iter().map(move |one| (name.clone(), one)));
    Ok(each.collect())
}

/// Returns the message for an error of [`read`] or [`prototypes()`].
pub(crate) fn cannot(error: &io::Error) -> String {
    format!("cannot read the kernel's type information in {PATH}: {error}; the kernel needs CONFIG_DEBUG_INFO_BTF")
}
