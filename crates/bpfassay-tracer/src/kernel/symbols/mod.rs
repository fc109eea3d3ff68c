// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's symbol table, `/proc/kallsyms`.

pub(crate) mod symbol_table;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::BufReader,
    path::Path,
};

use self::symbol_table::Symbol;
use super::{
    kept_facts,
    unread::{Unread, unread},
};

const KALLSYMS: &str = "/proc/kallsyms";

/// Returns the entries of the table for `wanted`. They come from the file `kept` if it is
/// given and has them all. `usual`: see [`kept_facts::look_up`].
///
/// # Errors
/// [`Unread`] if the table cannot be read.
pub(crate) fn of_kernel(
    kept: Option<&Path>,
    wanted: &BTreeSet<&str>,
    usual: &[String],
) -> Result<BTreeMap<String, Symbol>, Unread> {
    kept_facts::look_up(kept, wanted, usual, |wanted| {
        let lines = File::open(KALLSYMS).map(|file| BufReader::with_capacity(1 << 16, file));
        lines.and_then(|lines| symbol_table::read(lines, wanted.iter().copied())).map_err(unread(KALLSYMS))
    })
}
