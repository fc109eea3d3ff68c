// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's symbol table, `/proc/kallsyms`.

pub(crate) mod cache;
pub(crate) mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::BufReader,
    path::Path,
};

use self::table::Symbol;
use super::unread::{Unread, unread};

const KALLSYMS: &str = "/proc/kallsyms";

/// What the table has of `wanted`; from the file `cache`, if it is given and has them all.
///
/// # Errors
/// [`Unread`].
pub(crate) fn of_kernel(cache: Option<&Path>, wanted: &BTreeSet<&str>) -> Result<BTreeMap<String, Symbol>, Unread> {
    cache::symbols(cache, wanted, |wanted| {
        let lines = File::open(KALLSYMS).map(|file| BufReader::with_capacity(1 << 16, file));
        lines.and_then(|lines| table::read(lines, wanted.iter().copied())).map_err(unread(KALLSYMS))
    })
}
