// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was found in the symbol table, kept between tracers of one boot (`--symbol-cache`).
//!
//! `/proc/kallsyms` has over 200,000 lines, which takes seconds to read on an emulated machine, and a study starts a
//! tracer many times in one boot. The file is a convenience: if anything is wrong with it, the table is read again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use super::table::Symbol;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Modules come and go within a boot, and symbols with them.
const MODULES: &str = "/proc/modules";

type Symbols = BTreeMap<String, Symbol>;

/// What is known of `wanted`: from `file`, if it is of this boot and has them all, else by `read`, which is then kept.
///
/// # Errors
/// Those of `read`.
pub(super) fn symbols<E>(
    file: Option<&Path>,
    wanted: &BTreeSet<&str>,
    read: impl FnOnce(&BTreeSet<&str>) -> Result<Symbols, E>,
) -> Result<Symbols, E> {
    let Some(file) = file else { return read(wanted) };
    let Some(state) = state() else { return read(wanted) };
    let known = fs::read_to_string(file).ok().and_then(|text| parse(&text, &state)).unwrap_or_default();
    if wanted.iter().all(|name| known.contains_key(*name)) {
        return Ok(known);
    }
    // All that was ever asked for, so that two configurations in turn do not read the table every time.
    let all: BTreeSet<&str> = known.keys().map(String::as_str).chain(wanted.iter().copied()).collect();
    let found = read(&all)?;
    // Without the file the next tracer reads the table itself.
    let _ = fs::write(file, write(&found, &state));
    Ok(found)
}

/// What the table depends on: the boot, and the names of the modules.
fn state() -> Option<String> {
    let boot = fs::read_to_string(BOOT_ID).ok()?;
    // A kernel without modules has no such file.
    let modules = fs::read_to_string(MODULES).unwrap_or_default();
    let modules: Vec<&str> = modules.lines().filter_map(|line| line.split(' ').next()).collect();
    Some(format!("{} {}", boot.trim(), modules.join(",")))
}

/// The state on the first line, then a function per line: its name, how often it is there, its variants.
pub(crate) fn write(symbols: &Symbols, state: &str) -> String {
    let mut text = format!("{state}\n");
    for (name, symbol) in symbols {
        let variants: String = symbol.variants.iter().map(|variant| format!(" {variant}")).collect();
        // Writing into a String does not fail.
        let _ = writeln!(text, "{name} {}{variants}", symbol.count);
    }
    text
}

/// `None` for the file of another boot and for one that is damaged.
pub(crate) fn parse(text: &str, state: &str) -> Option<Symbols> {
    let (first, rest) = text.split_once('\n')?;
    if first != state || !(rest.is_empty() || rest.ends_with('\n')) {
        return None;
    }
    // Not `lines`, which would take a carriage return off a name.
    rest.split_terminator('\n')
        .map(|line| {
            let mut fields = line.split(' ');
            let name = fields.next()?.to_owned();
            let count = fields.next()?.parse().ok()?;
            Some((name, Symbol { count, variants: fields.map(str::to_owned).collect() }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        let text = "boot\nf 0 a\r 0\n";
        let symbols = parse(text, "boot").unwrap();
        assert_eq!(parse(&write(&symbols, "boot"), "boot"), Some(symbols));
    }

    #[test]
    fn the_table_is_read_once_for_all_that_was_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("symbols");
        let reads = Cell::new(0);
        let ask = |names: &[&str]| {
            let found = symbols(Some(&file), &names.iter().copied().collect(), |wanted| {
                reads.set(reads.get() + 1);
                Ok::<_, ()>(
                    wanted.iter().map(|name| ((*name).to_owned(), Symbol { count: 1, ..Symbol::default() })).collect(),
                )
            });
            found.unwrap().len()
        };
        assert_eq!((ask(&["a"]), ask(&["a"]), reads.get()), (1, 1, 1));
        assert_eq!((ask(&["b"]), reads.get()), (2, 2));
        assert_eq!((ask(&["a", "b"]), reads.get()), (2, 2));
        fs::write(&file, "another boot\na 1\n").unwrap();
        assert_eq!((ask(&["a"]), reads.get()), (1, 3));
        fs::write(&file, fs::read_to_string(&file).unwrap().trim_end()).unwrap();
        assert_eq!((ask(&["a"]), reads.get()), (1, 4), "cut off");
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(names in prop::collection::btree_map("[a-z_]{1,8}", (0usize..3, prop::collection::btree_set("[a-z.]{1,6}", 0..3)), 0..6)) {
            let symbols: Symbols =
                names.into_iter().map(|(name, (count, variants))| (name, Symbol { count, variants })).collect();
            prop_assert_eq!(parse(&write(&symbols, "s"), "s"), Some(symbols));
        }

        #[test]
        fn no_file_makes_it_panic(text: String) {
            let _ = parse(&format!("s\n{text}"), "s");
        }
    }
}
