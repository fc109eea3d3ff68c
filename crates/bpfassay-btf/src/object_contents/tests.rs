// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;

/// Compiled by clang 19 from contents.bpf.c in the same directory.
const OBJECT: &[u8] = include_bytes!("../../tests/data/contents.bpf.o");

fn number(name: &str, value: i64) -> (String, Constant) {
    (name.to_owned(), Constant::Number(value))
}

fn text(name: &str, value: &str) -> (String, Constant) {
    (name.to_owned(), Constant::Text(value.to_owned()))
}

fn set<const N: usize>(map: &str, key: (String, Constant), value: [(String, Constant); N]) -> Contents {
    let entry = MapEntry { map: map.to_owned(), key: [key].into(), value: value.into() };
    Contents { set: vec![entry], ..Contents::default() }
}

fn refused(contents: Contents) -> String {
    encode(OBJECT, &contents).unwrap_err().to_string()
}

#[test]
fn an_entry_of_a_map_has_the_bytes_of_its_fields_and_zeros() {
    let value =
        [number("magic", 0x6367_7270), number("index", -1), number("inner.low", 0xfffe), text("inner.name", "/mnt")];
    let encoded = encode(OBJECT, &set("conf_map", number("key", 3), value)).unwrap();
    let (map, key, value) = &encoded.entries[0];
    assert_eq!((map.as_str(), key.as_slice()), ("conf_map", &[3, 0, 0, 0][..]));
    let mut expected = [[0xff; 8], [0x70, 0x72, 0x67, 0x63, 0, 0, 0, 0]].concat();
    expected.extend(b"\xfe\xff/mnt\0\0\0\0");
    expected.resize(32, 0);
    assert_eq!(*value, expected);
    assert_eq!(encode(b"no object", &Contents::default()), Ok(Encoded::default()));
}

#[test]
fn constants_lie_where_the_object_has_them() {
    let rodata = [number("first", 9), number("pid", -2), text("comm", "ior"), number("all", 1)].into();
    let encoded = encode(OBJECT, &Contents { rodata, ..Contents::default() }).unwrap();
    let file = object::File::parse(OBJECT).unwrap();
    for variable in &encoded.variables {
        assert_eq!(variable.section, ".rodata");
        let whole = file.section_by_name(&variable.section).unwrap().data().unwrap();
        // In the source, every other constant has a non-zero value.
        let before = &whole[variable.offset..variable.offset + variable.bytes.len()];
        let expected: (&[u8], &[u8]) = match variable.bytes.as_slice() {
            [9, 0, 0, 0] => (&[1, 0, 0, 0], &[9, 0, 0, 0]),
            [1] => (&[0], &[1]),
            bytes if bytes.len() == 16 => (b"any\0\0\0\0\0\0\0\0\0\0\0\0\0", b"ior\0\0\0\0\0\0\0\0\0\0\0\0\0"),
            _ => (&[0; 4], &[0xfe, 0xff, 0xff, 0xff]),
        };
        assert_eq!((before, variable.bytes.as_slice()), expected);
    }
    assert_eq!(encoded.variables.len(), 4);
}

#[test]
fn what_cannot_be_set_is_refused_with_the_reason() {
    let of = |value| set("conf_map", number("key", 0), [value]);
    let rodata = |value| Contents { rodata: [value].into(), ..Contents::default() };
    for (contents, message) in [
        (
            set("conf", number("key", 0), []),
            "the object's BTF describes no map `conf` with its keys and values: declare it with `__type(key, …)` and `__type(value, …)`",
        ),
        (
            set("sizes_only", number("key", 0), []),
            "the object's BTF describes no map `sizes_only` with its keys and values: declare it with `__type(key, …)` and `__type(value, …)`",
        ),
        (
            of(number("magick", 0)),
            "the value of the map `conf_map` has no `magick`: it has index, magic, inner.low, inner.name",
        ),
        (set("conf_map", number("k", 0), []), "the key of the map `conf_map` has no `k`: it has key"),
        (
            set("conf_map", number("key", 1 << 32), []),
            "`key` in the key of the map `conf_map` is a number of 32 bits, which cannot hold 4294967296",
        ),
        (
            of(number("inner.low", -32769)),
            "`inner.low` in the value of the map `conf_map` is a number of 16 bits, which cannot hold -32769",
        ),
        (of(number("inner.name", 1)), "`inner.name` in the value of the map `conf_map` is text: give a string"),
        (of(text("magic", "1")), "`magic` in the value of the map `conf_map` is a number: give a whole number"),
        (
            of(text("inner.name", "12345678")),
            "`inner.name` in the value of the map `conf_map` holds at most 7 bytes of text and none that is NUL",
        ),
        (rodata(number("seen", 1)), "`.rodata` has no `seen`: it has first, pid, comm, all, pair.x"),
        (rodata(number("pair", 1)), "`.rodata` has no `pair`: it has first, pid, comm, all, pair.x"),
        (rodata(number("all", 256)), "the constant `all` is a number of 8 bits, which cannot hold 256"),
    ] {
        let found = refused(contents);
        // The order of symbols depends on the compiler.
        let sorted = |text: &str| {
            let mut words: Vec<String> = text.split([' ', ',']).map(str::to_owned).collect();
            words.sort();
            words
        };
        assert_eq!(sorted(&found), sorted(message), "{found}");
    }
    let error = encode(b"\x7fELF", &rodata(number("pid", 1))).unwrap_err();
    assert!(matches!(error, ContentsError::Object(_)), "{error}");
}

proptest! {
    #[test]
    fn damaged_objects_end_in_bytes_or_a_reason(at in 0usize..4096, byte: u8) {
        let mut object = OBJECT.to_vec();
        let length = object.len();
        object[at % length] = byte;
        let contents = Contents {
            rodata: [number("pid", 1), text("comm", "x")].into(),
            ..set("conf_map", number("key", 0), [number("magic", 1)])
        };
        if let Ok(encoded) = encode(&object, &contents) {
            prop_assert!(encoded.entries[0].2.len() <= MAX_SIZE);
        }
    }
}
