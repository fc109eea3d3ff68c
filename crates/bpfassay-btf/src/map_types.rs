// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of maps' keys and values, field by field.

use super::{Btf, MAX_DEPTH, Type, kind, u32_at};

/// Maximum number of fields in a key or value.
const MAX_FIELDS: usize = 512;
/// Most types that are followed for one key or value. Structures can name each other endlessly.
const MAX_STEPS: u32 = 10_000;
/// Longest name of a field in bytes. Names of nested structures add up.
const MAX_NAME: usize = 1024;
/// Maximum number of array elements that become separate fields.
const MAX_ELEMENTS: u32 = 64;

/// The kind of value in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// An unsigned number, an enumeration, a Boolean or a pointer.
    Unsigned,
    /// A signed number.
    Signed,
    /// Characters up to the first NUL.
    Text,
}

/// A readable field of a key or value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapField {
    /// The name: `outer.inner` in structures, `name.0` in arrays; empty if there is no structure.
    pub name: String,
    /// Offset in bytes.
    pub offset: usize,
    /// Size in bytes: 1, 2, 4 or 8, or the length of a text.
    pub size: usize,
    /// The kind of value.
    pub scalar: Scalar,
}

impl MapField {
    /// Returns the name in tool files: `whole` if the type is not a structure.
    #[must_use]
    pub fn name_of<'a>(&'a self, whole: &'a str) -> &'a str {
        if self.name.is_empty() { whole } else { &self.name }
    }
}

/// The layout of a key or value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeLayout {
    /// Size in bytes.
    pub size: usize,
    /// The readable fields, in order. Bit fields and floating point are left out.
    pub fields: Vec<MapField>,
}

/// The key and the value of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapTypes {
    /// The key; `None` if the object has only the key's size.
    pub key: Option<TypeLayout>,
    /// The value; `None` if the object has only the value's size.
    pub value: Option<TypeLayout>,
}

/// The fields found so far, and the number of steps.
#[derive(Default)]
struct Walk {
    fields: Vec<MapField>,
    steps: u32,
}

impl Btf<'_> {
    /// Returns the layout of `map`. `None` means that there is no such map, or its description
    /// points outside of the BTF.
    ///
    /// A map is declared in libbpf's section `.maps` (`struct { __type(key, …); … } name
    /// SEC(".maps")`). It can also be a section of global variables, such as `.bss`: then there is
    /// no key, and the fields are the variables.
    #[must_use]
    pub fn map(&self, map: &str) -> Option<MapTypes> {
        for &start in &self.starts {
            let section = self.read(start)?;
            if section.kind != kind::DATASEC {
                continue;
            }
            let name = self.string(section.name)?;
            if name == ".maps" {
                for index in 0..section.length {
                    let variable = self.get(u32_at(self.types, section.rest + 12 * index)?)??;
                    if self.string(variable.name)? == map {
                        return self.declared(variable.size_or_type);
                    }
                }
            } else if name == map {
                return Some(MapTypes { key: None, value: Some(self.variables(&section)?) });
            }
        }
        None
    }

    fn declared(&self, id: u32) -> Option<MapTypes> {
        let definition = self.resolve(id)??;
        if definition.kind != kind::STRUCT {
            return None;
        }
        let mut layout = MapTypes { key: None, value: None };
        for index in 0..definition.length {
            let at = definition.rest + 12 * index;
            let slot = match self.string(u32_at(self.types, at)?)? {
                "key" => &mut layout.key,
                "value" => &mut layout.value,
                _ => continue,
            };
            // `__type(key, T)` declares a member `T *key`.
            let pointer = self.resolve(u32_at(self.types, at + 4)?)??;
            if pointer.kind == kind::PTR {
                *slot = Some(self.layout(pointer.size_or_type)?);
            }
        }
        Some(layout)
    }

    fn variables(&self, section: &Type) -> Option<TypeLayout> {
        let mut walk = Walk::default();
        for index in 0..section.length {
            let at = section.rest + 12 * index;
            let variable = self.get(u32_at(self.types, at)?)??;
            let offset = usize::try_from(u32_at(self.types, at + 4)?).ok()?;
            self.flatten(variable.size_or_type, self.string(variable.name)?, offset, 0, &mut walk)?;
        }
        Some(TypeLayout { size: usize::try_from(section.size_or_type).ok()?, fields: walk.fields })
    }

    fn layout(&self, id: u32) -> Option<TypeLayout> {
        let mut walk = Walk::default();
        self.flatten(id, "", 0, 0, &mut walk)?;
        Some(TypeLayout { size: self.size(id, 0)?, fields: walk.fields })
    }

    /// Adds the readable fields of the type `id`. Unreadable types, and fields beyond
    /// [`MAX_FIELDS`], are left out.
    fn flatten(&self, id: u32, name: &str, offset: usize, depth: u32, walk: &mut Walk) -> Option<()> {
        walk.steps += 1;
        if depth > MAX_DEPTH || walk.steps > MAX_STEPS || name.len() > MAX_NAME {
            return None;
        }
        if walk.fields.len() >= MAX_FIELDS {
            return Some(());
        }
        let Some(found) = self.resolve(id)? else { return Some(()) };
        let inner = |part: &str| match (name, part) {
            ("", part) => part.to_owned(),
            // The members of an anonymous member belong to the structure around it.
            (name, "") => name.to_owned(),
            (name, part) => format!("{name}.{part}"),
        };
        match found.kind {
            kind::INT | kind::ENUM | kind::ENUM64 | kind::PTR => {
                let size = if found.kind == kind::PTR { 8 } else { usize::try_from(found.size_or_type).ok()? };
                // BTF_INT_SIGNED is the first bit of an integer's encoding. The flag of an
                // enumeration has the same meaning.
                let signed = match found.kind {
                    kind::INT => u32_at(self.types, found.rest)? >> 24 & 1 == 1,
                    kind::PTR => false,
                    _ => found.flag,
                };
                if matches!(size, 1 | 2 | 4 | 8) {
                    let scalar = if signed { Scalar::Signed } else { Scalar::Unsigned };
                    walk.fields.push(MapField { name: name.to_owned(), offset, size, scalar });
                }
            }
            kind::STRUCT | kind::UNION => {
                for index in 0..found.length {
                    // Bit fields are left out but count as steps.
                    walk.steps += 1;
                    if walk.steps > MAX_STEPS {
                        return None;
                    }
                    let at = found.rest + 12 * index;
                    let place = u32_at(self.types, at + 8)?;
                    let (bits, offset_bits) = if found.flag { (place >> 24, place & 0xff_ffff) } else { (0, place) };
                    if bits != 0 || !offset_bits.is_multiple_of(8) {
                        continue;
                    }
                    let part = inner(self.string(u32_at(self.types, at)?)?);
                    let at_byte = offset.checked_add(usize::try_from(offset_bits / 8).ok()?)?;
                    self.flatten(u32_at(self.types, at + 4)?, &part, at_byte, depth + 1, walk)?;
                }
            }
            kind::ARRAY => {
                let element = u32_at(self.types, found.rest)?;
                let count = u32_at(self.types, found.rest + 8)?;
                let size = self.size(element, depth + 1)?;
                if self.resolve(element)?.is_some_and(|of| of.kind == kind::INT && of.size_or_type == 1) {
                    let size = usize::try_from(count).ok()?;
                    walk.fields.push(MapField { name: name.to_owned(), offset, size, scalar: Scalar::Text });
                    return Some(());
                }
                for index in 0..count.min(MAX_ELEMENTS) {
                    let at = offset.checked_add(size.checked_mul(usize::try_from(index).ok()?)?)?;
                    self.flatten(element, &inner(&index.to_string()), at, depth + 1, walk)?;
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Returns the size of a type in bytes.
    fn size(&self, id: u32, depth: u32) -> Option<usize> {
        let Some(found) = self.resolve(id)? else { return Some(0) };
        match found.kind {
            kind::PTR => Some(8),
            kind::ARRAY if depth < MAX_DEPTH => {
                let count = usize::try_from(u32_at(self.types, found.rest + 8)?).ok()?;
                self.size(u32_at(self.types, found.rest)?, depth + 1)?.checked_mul(count)
            }
            kind::INT | kind::ENUM | kind::ENUM64 | kind::STRUCT | kind::UNION | kind::FLOAT => {
                usize::try_from(found.size_or_type).ok()
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tests::Builder;

    /// A map and a variable in `.bss`. The map is `struct { __type(key, struct key); __type(value,
    /// u64[2]); __uint(max_entries, 8); } counts SEC(".maps")`. The key is `{ u64 cgroup; struct {
    /// u32 major, minor; } dev; char comm[16]; int flags: 3; }`.
    fn sample() -> Builder {
        let mut b = Builder::default();
        let u64_ = b.add("u64", kind::INT, 0, 8, &[64]);
        let u32_ = b.add("u32", kind::INT, 0, 4, &[32]);
        let int = b.add("int", kind::INT, 0, 4, &[0x0100_0020]);
        let char_ = b.add("char", kind::INT, 0, 1, &[8]);
        let comm = b.add("", kind::ARRAY, 0, 0, &[char_, u32_, 16]);
        let names = ["cgroup", "dev", "comm", "flags", "major", "minor", "key", "value", "max_entries"];
        let name: Vec<u32> = names.iter().map(|name| b.name(name)).collect();
        let dev = b.add("", kind::STRUCT, 2, 8, &[name[4], u32_, 0, name[5], u32_, 32]);
        let key = b.add(
            "key",
            1 << 7 | kind::STRUCT,
            4,
            40,
            &[name[0], u64_, 0, name[1], dev, 64, name[2], comm, 128, name[3], int, 3 << 24 | 256],
        );
        let pair = b.add("", kind::ARRAY, 0, 0, &[u64_, u32_, 2]);
        let key_pointer = b.add("", kind::PTR, 0, key, &[]);
        let value_pointer = b.add("", kind::PTR, 0, pair, &[]);
        let definition =
            b.add("", kind::STRUCT, 3, 24, &[name[6], key_pointer, 0, name[7], value_pointer, 64, name[8], u64_, 128]);
        let counts = b.add("counts", kind::VAR, 0, definition, &[1]);
        b.add(".maps", kind::DATASEC, 1, 24, &[counts, 0, 24]);
        let total = b.add("total", kind::VAR, 0, int, &[1]);
        b.add(".bss", kind::DATASEC, 1, 16, &[total, 8, 4]);
        b
    }

    fn names(layout: Option<&TypeLayout>) -> Vec<(&str, usize, usize)> {
        layout.unwrap().fields.iter().map(|field| (field.name.as_str(), field.offset, field.size)).collect()
    }

    #[test]
    fn fields_of_keys_and_values_have_names_and_places() {
        let bytes = sample().build();
        let btf = Btf::new(&bytes).unwrap();
        let map = btf.map("counts").unwrap();
        // Bit fields are left out.
        assert_eq!(
            names(map.key.as_ref()),
            [("cgroup", 0, 8), ("dev.major", 8, 4), ("dev.minor", 12, 4), ("comm", 16, 16)]
        );
        assert_eq!(map.key.as_ref().unwrap().size, 40);
        assert_eq!(map.key.unwrap().fields[3].scalar, Scalar::Text);
        assert_eq!(names(map.value.as_ref()), [("0", 0, 8), ("1", 8, 8)]);
        let globals = btf.map(".bss").unwrap();
        assert_eq!((globals.key, names(globals.value.as_ref())), (None, vec![("total", 8, 4)]));
        assert_eq!(globals.value.unwrap().fields[0].scalar, Scalar::Signed);
        assert_eq!(btf.map("count"), None);
    }

    #[test]
    fn a_structure_within_itself_and_a_giant_array_come_to_an_end() {
        let mut b = Builder::default();
        let name = b.name("value");
        // The structure is type 1, and its members have type 1: it contains itself.
        let own = b.add("own", kind::STRUCT, 2, 8, &[name, 1, 0, name, 1, 0]);
        let giant = b.add("", kind::ARRAY, 0, 0, &[own, own, u32::MAX]);
        let pointer = b.add("", kind::PTR, 0, giant, &[]);
        let definition = b.add("", kind::STRUCT, 1, 8, &[name, pointer, 0]);
        let variable = b.add("m", kind::VAR, 0, definition, &[1]);
        b.add(".maps", kind::DATASEC, 1, 8, &[variable, 0, 8]);
        assert_eq!(Btf::new(&b.build()).unwrap().map("m"), None);
    }

    #[test]
    fn names_that_add_up_and_bit_fields_without_number_come_to_an_end() {
        // 30 nested structures, each under a name of 100,000 letters, 64 times.
        let mut b = Builder::default();
        let name = b.name("value");
        let long = b.name(&"x".repeat(100_000));
        let number = b.add("u64", kind::INT, 0, 8, &[64]);
        let mut inner = number;
        for _ in 0..30 {
            inner = b.add("", kind::STRUCT, 1, 8, &[long, inner, 0]);
        }
        let many = b.add("", kind::ARRAY, 0, 0, &[inner, number, 64]);
        // 64 structures of 60,000 bit fields each.
        let fields = [0, number, 3 << 24 | 1].repeat(60_000);
        let bits = b.add("", 1 << 7 | kind::STRUCT, 60_000, 8, &fields);
        let more = b.add("", kind::ARRAY, 0, 0, &[bits, number, 64]);
        for (map, element) in [("long", many), ("bits", more)] {
            let pointer = b.add("", kind::PTR, 0, element, &[]);
            let definition = b.add("", kind::STRUCT, 1, 8, &[name, pointer, 0]);
            let variable = b.add(map, kind::VAR, 0, definition, &[1]);
            b.add(".maps", kind::DATASEC, 1, 8, &[variable, 0, 8]);
        }
        let bytes = b.build();
        let btf = Btf::new(&bytes).unwrap();
        assert_eq!((btf.map("long"), btf.map("bits")), (None, None));
    }

    #[test]
    fn structures_that_multiply_come_to_an_end() {
        let mut b = Builder::default();
        let name = b.name("value");
        let mut inner = b.add("", kind::STRUCT, 0, 8, &[]);
        for _ in 0..30 {
            inner = b.add("", kind::STRUCT, 2, 8, &[name, inner, 0, name, inner, 0]);
        }
        let pointer = b.add("", kind::PTR, 0, inner, &[]);
        let definition = b.add("", kind::STRUCT, 1, 8, &[name, pointer, 0]);
        let variable = b.add("m", kind::VAR, 0, definition, &[1]);
        b.add(".maps", kind::DATASEC, 1, 8, &[variable, 0, 8]);
        assert_eq!(Btf::new(&b.build()).unwrap().map("m"), None);
    }

    proptest! {
        #[test]
        fn damaged_bytes_end_in_a_layout_or_none(at in 0usize..600, byte: u8) {
            let mut bytes = sample().build();
            let length = bytes.len();
            bytes[at % length] = byte;
            if let Ok(btf) = Btf::new(&bytes) {
                for map in ["counts", ".bss"] {
                    if let Some(layout) = btf.map(map) {
                        prop_assert!(layout.value.is_none_or(|value| value.fields.len() <= MAX_FIELDS));
                    }
                }
            }
        }
    }
}
