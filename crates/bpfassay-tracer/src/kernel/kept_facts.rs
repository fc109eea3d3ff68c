// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about the kernel's functions, kept between tracers of one boot (`--symbol-cache`).
//!
//! `/proc/kallsyms` has over 200,000 lines, and the type information has five megabytes. Reading
//! them takes seconds on an emulated machine, and a study starts a tracer many times in one boot.
//! The file is only a cache: if anything is wrong with it, the kernel is read again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::Path,
};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Modules are loaded and unloaded within a boot, and symbols with them.
const MODULES: &str = "/proc/modules";

/// Largest file that is read, in bytes: a hundred times what the bundled programs need.
const MAX_FILE: u64 = 4 << 20;

/// Separates the fields of a line.
const SEPARATOR: char = '\t';

/// A fact that is kept for each function.
pub(crate) trait Kept: Sized {
    /// First field of the lines of this kind.
    const KIND: &'static str;

    /// Returns the fields of a line after the function's name.
    fn write(&self) -> Vec<String>;

    /// Parses these fields; `None` if they are not what [`Kept::write`] writes.
    fn parse<'a>(fields: impl Iterator<Item = &'a str>) -> Option<Self>;
}

/// Returns the facts about `wanted`. They come from `file`, if it was written in this boot and has
/// them all, otherwise from `read`, whose result is then kept. `usual` are functions to read in
/// addition, so that different configurations do not read the kernel again and again.
///
/// # Errors
/// The errors of `read`.
pub(crate) fn look_up<V: Kept, E>(
    file: Option<&Path>,
    wanted: &BTreeSet<&str>,
    usual: &[String],
    read: impl FnOnce(&BTreeSet<&str>) -> Result<BTreeMap<String, V>, E>,
) -> Result<BTreeMap<String, V>, E> {
    let Some((file, state)) = file.zip(state()) else { return read(wanted) };
    let text = contents(file).unwrap_or_default();
    let known = parse(&text, &state).unwrap_or_default();
    if wanted.iter().all(|name| known.contains_key(*name)) {
        return Ok(known);
    }
    let usual = usual.iter().map(String::as_str);
    let all: BTreeSet<&str> = known.keys().map(String::as_str).chain(usual).chain(wanted.iter().copied()).collect();
    let found = read(&all)?;
    // If this fails, the next tracer reads the kernel itself.
    let _ = replace(file, &write(&found, &state, &text));
    Ok(found)
}

/// Returns what all kept facts depend on: the boot, and the names of the modules.
fn state() -> Option<String> {
    let boot = fs::read_to_string(BOOT_ID).ok()?;
    // A kernel without modules does not have this file.
    let modules = fs::read_to_string(MODULES).unwrap_or_default();
    let modules: Vec<&str> = modules.lines().filter_map(|line| line.split(' ').next()).collect();
    Some(format!("{} {}", boot.trim(), modules.join(",")))
}

fn contents(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}

/// Replaces the whole file at once, so that no reader finds a part of it.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let mut name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = file.with_file_name(name);
    let written = File::create_new(&new).and_then(|mut to| to.write_all(text.as_bytes()));
    written.and_then(|()| fs::rename(&new, file)).inspect_err(|_| {
        // The file could not be written completely.
        let _ = fs::remove_file(&new);
    })
}

/// Returns a text with the state on the first line, then a function per line, and the lines of
/// other kinds from the file `before`. A function whose fields cannot be distinguished in a line is
/// left out.
pub(crate) fn write<V: Kept>(functions: &BTreeMap<String, V>, state: &str, before: &str) -> String {
    let mut text = format!("{state}\n");
    for line in lines(before, state).into_iter().flatten().filter(|line| first(line) != V::KIND) {
        text.push_str(line);
        text.push('\n');
    }
    for (name, value) in functions {
        let fields = value.write();
        if fields.iter().chain([name]).any(|field| field.contains([SEPARATOR, '\n'])) {
            continue;
        }
        text.push_str(V::KIND);
        for field in [name].into_iter().chain(&fields) {
            text.push(SEPARATOR);
            text.push_str(field);
        }
        text.push('\n');
    }
    text
}

/// Parses a file. Returns `None` for a damaged file and for one of another boot.
pub(crate) fn parse<V: Kept>(text: &str, state: &str) -> Option<BTreeMap<String, V>> {
    lines(text, state)?
        .filter(|line| first(line) == V::KIND)
        .map(|line| {
            let mut fields = line.split(SEPARATOR).skip(1);
            Some((fields.next()?.to_owned(), V::parse(fields)?))
        })
        .collect()
}

/// Returns the lines after the one with `state`.
fn lines<'a>(text: &'a str, state: &str) -> Option<impl Iterator<Item = &'a str>> {
    let (first, rest) = text.split_once('\n')?;
    // This is not `lines`, which would remove a carriage return from a name.
    (first == state && (rest.is_empty() || rest.ends_with('\n'))).then(|| rest.split_terminator('\n'))
}

fn first(line: &str) -> &str {
    line.split(SEPARATOR).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    /// A kind whose fields are unchanged.
    #[derive(Debug, Clone, Default, PartialEq)]
    struct Fields(Vec<String>);

    impl Kept for Fields {
        const KIND: &'static str = "fields";

        fn write(&self) -> Vec<String> {
            self.0.clone()
        }

        fn parse<'a>(fields: impl Iterator<Item = &'a str>) -> Option<Self> {
            Some(Self(fields.map(str::to_owned).collect()))
        }
    }

    /// Another kind.
    #[derive(Debug, Clone, PartialEq)]
    struct Number(u32);

    impl Kept for Number {
        const KIND: &'static str = "number";

        fn write(&self) -> Vec<String> {
            vec![self.0.to_string()]
        }

        fn parse<'a>(mut fields: impl Iterator<Item = &'a str>) -> Option<Self> {
            fields.next()?.parse().ok().map(Self)
        }
    }

    fn fields(name: &str, fields: &[&str]) -> BTreeMap<String, Fields> {
        [(name.to_owned(), Fields(fields.iter().map(|field| (*field).to_owned()).collect()))].into()
    }

    #[test]
    fn a_field_is_read_as_it_is_written() {
        let text = "boot\nfields\tf\ta\r\t\n";
        assert_eq!(parse(text, "boot"), Some(fields("f", &["a\r", ""])));
        assert_eq!(write(&fields("f", &["a\r", ""]), "boot", ""), text);
        assert_eq!(parse::<Number>("boot\nnumber\tf\tx\n", "boot"), None);
    }

    #[test]
    fn kinds_do_not_affect_each_other() {
        let numbers = BTreeMap::from([("f".to_owned(), Number(7))]);
        let both = write(&fields("g", &["a"]), "boot", &write(&numbers, "boot", ""));
        assert_eq!((parse(&both, "boot"), parse(&both, "boot")), (Some(numbers), Some(fields("g", &["a"]))));
        // Lines of another boot are not kept.
        assert_eq!(write(&fields("g", &[]), "boot", "another\nnumber\tf\t7\n"), "boot\nfields\tg\n");
    }

    #[test]
    fn a_name_that_would_break_a_line_is_not_kept() {
        let mut all = fields("c", &[]);
        all.extend(fields("a\tb", &[]));
        all.extend(fields("d", &["e\nf"]));
        assert_eq!(write(&all, "boot", ""), "boot\nfields\tc\n");
    }

    #[test]
    fn the_kernel_is_read_once_for_all_functions() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("symbols");
        let reads = Cell::new(0);
        let ask = |names: &[&str], usual: &[String]| {
            let found = look_up(Some(&file), &names.iter().copied().collect(), usual, |wanted| {
                reads.set(reads.get() + 1);
                Ok::<_, ()>(wanted.iter().map(|name| ((*name).to_owned(), Fields::default())).collect())
            });
            found.unwrap().len()
        };
        assert_eq!((ask(&["a"], &[]), ask(&["a"], &[]), reads.get()), (1, 1, 1));
        assert_eq!((ask(&["b"], &[]), reads.get()), (2, 2));
        let usual = ["u".to_owned()];
        assert_eq!((ask(&["a", "b"], &usual), reads.get()), (2, 2));
        assert_eq!((ask(&["c"], &usual), reads.get()), (4, 3));
        assert_eq!((ask(&["u"], &[]), reads.get()), (4, 3));
        fs::write(&file, "another boot\nfields\ta\n").unwrap();
        assert_eq!((ask(&["a"], &[]), reads.get()), (1, 4));
        fs::write(&file, fs::read_to_string(&file).unwrap().trim_end()).unwrap();
        assert_eq!((ask(&["a"], &[]), reads.get()), (1, 5), "cut off");
        fs::write(&file, vec![b'\n'; MAX_FILE as usize + 1]).unwrap();
        assert_eq!((ask(&["a"], &[]), reads.get()), (1, 6), "too large");
        // The file alone remains.
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(names in prop::collection::btree_map("[a-z_]{1,8}", prop::collection::vec("[a-z. *(]{0,6}", 0..3), 0..6)) {
            let all: BTreeMap<String, Fields> = names.into_iter().map(|(name, fields)| (name, Fields(fields))).collect();
            prop_assert_eq!(parse(&write(&all, "s", ""), "s"), Some(all));
        }

        #[test]
        fn no_file_makes_it_panic(text: String) {
            let _ = parse::<Fields>(&format!("s\n{text}"), "s");
            let _ = parse::<Number>(&format!("s\n{text}"), "s");
        }
    }
}
