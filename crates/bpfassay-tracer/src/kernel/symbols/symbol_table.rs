// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads `/proc/kallsyms`.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead},
};

use crate::kernel::kept_facts::Kept;

/// Suffixes of functions that the compiler changed. The original signature or the whole body may be
/// elsewhere (`-fipa-sra`, `-fipa-cp`, `-fipa-split` of GCC). `.cold` is not listed: it contains
/// the unlikely branches of a function that keeps its name, entry and exit.
const VARIANTS: [&str; 4] = ["isra", "constprop", "part", "llvm"];

/// One function in the symbol table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// Number of functions with exactly this name.
    pub(crate) count: usize,
    /// Names that the compiler derived from this name: `NAME.isra.0`.
    pub(crate) variants: BTreeSet<String>,
}

impl Kept for Symbol {
    const KIND: &'static str = "symbol";

    fn write(&self) -> Vec<String> {
        [self.count.to_string()].into_iter().chain(self.variants.iter().cloned()).collect()
    }

    fn parse<'a>(mut fields: impl Iterator<Item = &'a str>) -> Option<Self> {
        let count = fields.next()?.parse().ok()?;
        Some(Self { count, variants: fields.map(str::to_owned).collect() })
    }
}

/// Reads lines `ADDRESS TYPE NAME [MODULE]` and keeps the lines of `wanted` names.
///
/// # Errors
/// The reader's error, if a line cannot be read.
pub(crate) fn read<'a>(
    mut lines: impl BufRead,
    wanted: impl IntoIterator<Item = &'a str>,
) -> io::Result<BTreeMap<String, Symbol>> {
    let mut found: BTreeMap<String, Symbol> =
        wanted.into_iter().map(|name| (name.to_owned(), Symbol::default())).collect();
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Ok(found);
        }
        let Some(name) = function(&line) else { continue };
        if let Some(symbol) = found.get_mut(name) {
            symbol.count += 1;
        } else if let Some((base, suffix)) = name.split_once('.')
            && let Some(symbol) = found.get_mut(base)
            && suffix.split('.').any(|part| VARIANTS.contains(&part))
        {
            symbol.variants.insert(name.to_owned());
        }
    }
}

/// Returns the name in a line, if it is a function's. Most of a kernel's 200,000 lines are not
/// functions, or are not requested. This check determines the cost of reading them.
fn function(line: &[u8]) -> Option<&str> {
    let rest = &line[line.iter().position(|&byte| byte == b' ')?..];
    // Weak functions are listed, too, if nothing overrides them.
    let &[b' ', b't' | b'T' | b'w' | b'W', b' ', ref name @ ..] = rest else { return None };
    let end = name.iter().position(u8::is_ascii_whitespace).unwrap_or(name.len());
    str::from_utf8(&name[..end]).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KALLSYMS: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T vfs_read
ffffffff81000100 t vfs_readv
ffffffff81000200 t lookup.isra.0
ffffffff81000300 t lookup.isra.0.cold
ffffffff81000400 T vfs_write
ffffffff81000500 t vfs_write.part.0
ffffffff81000600 t vfs_write.cold
ffffffff81000700 t twice
ffffffff81000800 t twice\t[nfs]
ffffffff81000900 d data
ffffffff81000a00 t data.constprop.0.isra.0
ffffffff81000b00 T vfs_reader
broken
";

    #[test]
    fn functions_and_their_variants_are_found_by_exact_name() {
        let wanted = ["vfs_read", "vfs_write", "lookup", "twice", "data", "nowhere"];
        let found = read(KALLSYMS.as_bytes(), wanted).unwrap();
        let of = |name: &str| {
            let symbol = &found[name];
            (symbol.count, symbol.variants.iter().map(String::as_str).collect::<Vec<_>>())
        };
        assert_eq!(of("vfs_read"), (1, vec![]));
        assert_eq!(of("vfs_write"), (1, vec!["vfs_write.part.0"]), "cold parts do not matter");
        assert_eq!(of("lookup"), (0, vec!["lookup.isra.0", "lookup.isra.0.cold"]));
        assert_eq!(of("twice"), (2, vec![]));
        assert_eq!(of("data"), (0, vec!["data.constprop.0.isra.0"]), "data is no function");
        assert_eq!(of("nowhere"), (0, vec![]));
        assert_eq!(found.len(), wanted.len());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(text: Vec<u8>) {
            read(&text[..], ["a"]).unwrap();
        }
    }
}
