// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;

/// Compiled by clang 19 from contents.bpf.c in the same directory.
const OBJECT: &[u8] = include_bytes!("../../tests/data/contents.bpf.o");

fn variables(types: &[u8]) -> (usize, Vec<(String, usize)>) {
    let layout = Btf::new(types).unwrap().map(".rodata").unwrap().value.unwrap();
    (layout.size, layout.fields.into_iter().map(|field| (field.name, field.offset)).collect())
}

#[test]
fn variables_are_where_the_symbols_are() {
    let linked = of_object(OBJECT).unwrap();
    let (size, found) = variables(&linked);
    let file = object::File::parse(OBJECT).unwrap();
    let section = file.section_by_name(".rodata").unwrap();
    assert_eq!(size as u64, section.size());
    assert!(found.len() >= 4, "{found:?}");
    for (name, offset) in &found {
        let variable = name.split('.').next().unwrap();
        let symbol = file.symbols().find(|symbol| symbol.name() == Ok(variable)).unwrap();
        assert_eq!(*offset as u64, symbol.address(), "{name}");
    }
    // clang wrote none of the offsets: otherwise this test could not fail.
    let (size, found) = variables(section_of(OBJECT));
    assert!(size == 0 && found.iter().all(|(_, offset)| *offset == 0), "{found:?}");
}

fn section_of(object: &[u8]) -> &[u8] {
    object::File::parse(object).unwrap().section_by_name(".BTF").unwrap().data().unwrap()
}

#[test]
fn what_has_no_types_or_no_symbol_is_refused() {
    let refused = |object: &[u8]| of_object(object).unwrap_err().to_string();
    assert!(!refused(b"no object").is_empty());
    let without = |name: &[u8], other: &[u8]| {
        let mut object = OBJECT.to_vec();
        let places: Vec<usize> = (0..object.len() - name.len()).filter(|&at| object[at..].starts_with(name)).collect();
        for at in places {
            object[at..at + other.len()].copy_from_slice(other);
        }
        object
    };
    assert_eq!(refused(&without(b".BTF\0", b".XTF\0")), "there is no section `.BTF`: compile it with -g");
    // Change a name in the types but not in the symbols. The types come after the section's header,
    // and the names of symbols come last.
    let mut object = OBJECT.to_vec();
    let at = (0..object.len() - 6).rev().find(|&at| object[at..].starts_with(b"\0first\0")).unwrap();
    object[at + 1] = b'x';
    let message = refused(&object);
    assert_eq!(message, "the variable `first` of the section `.rodata` has no symbol");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(at in 0..OBJECT.len(), byte: u8, length in 0..OBJECT.len()) {
        let mut object = OBJECT.to_vec();
        object[at] = byte;
        drop(of_object(&object));
        drop(of_object(&object[..length]));
    }
}
