// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds BTF type by type, and checks what is read from it.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// A builder of BTF.
#[derive(Default)]
pub(crate) struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Builder {
    /// Adds a name and returns its offset.
    pub(crate) fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        self.strings.extend(name.bytes().chain([0]));
        // The empty string, which starts every BTF, comes first.
        (self.strings.len() - name.len()) as u32
    }

    pub(crate) fn add(&mut self, name: &str, kind: u32, length: u32, size_or_type: u32, rest: &[u32]) -> u32 {
        let offset = self.name(name);
        for word in [offset, kind << 24 | length, size_or_type].iter().chain(rest) {
            self.types.extend(word.to_ne_bytes());
        }
        self.count += 1;
        self.count
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32 + 1);
        let mut bytes = Vec::from(MAGIC.to_ne_bytes());
        bytes.extend([1, 0]);
        for word in [24, 0, types, types, strings] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(&self.types);
        bytes.push(0);
        bytes.extend(&self.strings);
        bytes
    }
}

/// `ssize_t vfs_read(struct file *, char *, size_t, loff_t *)` and some other functions.
fn sample() -> Builder {
    let mut b = Builder::default();
    let long = b.add("long int", kind::INT, 0, 8, &[0x0100_0040]);
    let ssize = b.add("ssize_t", kind::TYPEDEF, 0, long, &[]);
    let file = b.add("file", kind::STRUCT, 1, 16, &[0, long, 0]);
    let file_pointer = b.add("", kind::PTR, 0, file, &[]);
    let char_ = b.add("char", kind::INT, 0, 1, &[8]);
    let user = b.add("user", kind::TYPE_TAG, 0, char_, &[]);
    let constant = b.add("", kind::CONST, 0, user, &[]);
    let buffer = b.add("", kind::PTR, 0, constant, &[]);
    let proto = b.add("", kind::FUNC_PROTO, 3, ssize, &[0, file_pointer, 0, buffer, 0, ssize]);
    b.add("vfs_read", kind::FUNC, 1, proto, &[]);
    b.add("mode", kind::ENUM, 1, 4, &[0, 7]);
    let nothing = b.add("", kind::FUNC_PROTO, 0, 0, &[]);
    b.add("nothing", kind::FUNC, 0, nothing, &[]);
    let pointers = b.add("", kind::PTR, 0, file_pointer, &[]);
    let variadic = b.add("", kind::FUNC_PROTO, 2, file_pointer, &[0, pointers, 0, 0]);
    b.add("variadic", kind::FUNC, 0, variadic, &[]);
    b
}

#[test]
fn prototypes_are_read_behind_modifiers_and_definitions() {
    let bytes = sample().build();
    let btf = Btf::new(&bytes).unwrap();
    let found = btf.prototypes(&BTreeSet::from(["vfs_read", "nothing", "variadic", "file"])).unwrap();
    let texts: Vec<_> = found.iter().map(|(_, prototype)| prototype.to_string()).collect();
    assert_eq!(
        texts,
        [
            "ssize_t vfs_read(struct file *, const char *, ssize_t)",
            "void nothing(void)",
            "struct file *variadic(struct file **, ...)"
        ]
    );
    let (_, read) = &found[0];
    assert_eq!(read.returns, ValueShape::Integer(8));
    assert_eq!(read.arguments, [ValueShape::Pointer("file".to_owned()), ValueShape::Address, ValueShape::Integer(8)]);
}

#[test]
fn an_unknown_kind_and_a_circle_are_reported() {
    let mut b = Builder::default();
    b.add("new", 30, 0, 0, &[]);
    assert_eq!(Btf::new(&b.build()).unwrap_err(), BtfError::Kind { id: 1, kind: 30 });
    let mut b = Builder::default();
    b.add("circle", kind::TYPEDEF, 0, 1, &[]);
    let proto = b.add("", kind::FUNC_PROTO, 0, 1, &[]);
    b.add("f", kind::FUNC, 0, proto, &[]);
    let bytes = b.build();
    assert_eq!(Btf::new(&bytes).unwrap().prototypes(&BTreeSet::from(["f"])), Err(BtfError::Bounds));
    assert_eq!(Btf::new(b"\x7fELF").unwrap_err(), BtfError::Header);
}

#[test]
fn a_small_file_does_not_stand_for_any_amount_of_text() {
    // 60,000 arguments of a type with a name of 100,000 letters would be 6 GB of text.
    let mut b = Builder::default();
    let long = b.add(&"x".repeat(100_000), kind::STRUCT, 0, 8, &[]);
    let arguments = [0, long].repeat(60_000);
    let proto = b.add("", kind::FUNC_PROTO, 60_000, 0, &arguments);
    b.add("f", kind::FUNC, 0, proto, &[]);
    let bytes = b.build();
    assert_eq!(Btf::new(&bytes).unwrap().prototypes(&BTreeSet::from(["f"])), Err(BtfError::Bounds));
    // The same holds for 100,000 functions with one prototype.
    let mut b = Builder::default();
    let long = b.add(&"x".repeat(60_000), kind::STRUCT, 0, 8, &[]);
    let proto = b.add("", kind::FUNC_PROTO, 1, 0, &[0, long]);
    let name = b.name("f");
    for _ in 0..100_000 {
        b.add("", kind::FUNC, 0, proto, &[]);
        let at = b.types.len() - 12;
        b.types[at..at + 4].copy_from_slice(&name.to_ne_bytes());
    }
    let bytes = b.build();
    assert_eq!(Btf::new(&bytes).unwrap().prototypes(&BTreeSet::from(["f"])), Err(BtfError::Bounds));
}

/// Works like [`Btf::prototypes`], but compares the whole name of every function.
fn prototypes_by_names(btf: &Btf<'_>, wanted: &BTreeSet<&str>) -> Option<Vec<(String, Prototype)>> {
    let functions = btf.starts.iter().filter_map(|&start| btf.read(start)).filter(|found| found.kind == kind::FUNC);
    let named = functions.filter_map(|function| Some((btf.string(function.name)?, function.size_or_type)));
    let wanted = named.filter(|(name, _)| wanted.contains(name));
    wanted.map(|(name, id)| Some((name.to_owned(), btf.prototype(name, id)?))).collect()
}

proptest! {
    #[test]
    fn no_function_is_passed_over(
        names in prop::collection::vec("[ab_]{0,6}", 0..20),
        wanted in prop::collection::btree_set("[ab_]{0,6}", 0..6),
    ) {
        let mut b = sample();
        let nothing = b.add("", kind::FUNC_PROTO, 0, 0, &[]);
        for name in &names {
            b.add(name, kind::FUNC, 0, nothing, &[]);
        }
        let bytes = b.build();
        let btf = Btf::new(&bytes).unwrap();
        let wanted: BTreeSet<&str> = wanted.iter().map(String::as_str).chain(["vfs_read"]).collect();
        prop_assert_eq!(btf.prototypes(&wanted).ok(), prototypes_by_names(&btf, &wanted));
    }

    #[test]
    fn damaged_bytes_end_in_an_error_or_an_answer(at in 0usize..600, byte: u8, cut in 0usize..600) {
        let mut bytes = sample().build();
        let length = bytes.len();
        bytes[at % length] = byte;
        bytes.truncate(length - cut % 40);
        if let Ok(btf) = Btf::new(&bytes) {
            let _ = btf.prototypes(&BTreeSet::from(["vfs_read", "variadic"]));
        }
    }
}
