// SPDX-License-Identifier: MIT OR Apache-2.0
//! Encodes contents that are set in an object before it runs: keys and values of maps, and
//! constants, by their names in the object's types.

use bpfassay_protocol::contents::{Constant, Contents, Fields, MapEntry, MapSize};
use object::{Object as _, ObjectSection as _};

use crate::{Btf, MapField, Scalar, TypeLayout, linked};

/// Largest key or value in bytes.
const MAX_SIZE: usize = 1 << 20;

/// Contents that cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentsError {
    /// The object or its types cannot be read.
    #[error("cannot read the object: {0}")]
    Object(String),
    /// The types do not describe the map.
    #[error(
        "the object's BTF describes no map `{0}` with its keys and values: declare it with `__type(key, …)` and `__type(value, …)`"
    )]
    NoMap(String),
    /// A key, a value or the constants have no such field.
    #[error("{place} has no `{field}`: it has {known}")]
    NoField {
        /// The map, key, value or section.
        place: String,
        /// The unknown field's name.
        field: String,
        /// The known names, separated by commas.
        known: String,
    },
    /// The field cannot hold a number.
    #[error("{field} is a number of {bits} bits, which cannot hold {value}")]
    Number {
        /// The field's name.
        field: String,
        /// The field's size in bits.
        bits: u32,
        /// The value that does not fit.
        value: i64,
    },
    /// There is a number in place of text.
    #[error("{0} is text: give a string")]
    IsText(String),
    /// There is text in place of a number.
    #[error("{0} is a number: give a whole number")]
    IsNumber(String),
    /// A text is too long.
    #[error("{field} holds at most {most} bytes of text and none that is NUL")]
    Text {
        /// The field's name.
        field: String,
        /// Number of bytes that fit before the NUL.
        most: usize,
    },
}

/// A constant with its place and value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The section: `.rodata`, or one with this prefix.
    pub section: String,
    /// Offset in the section in bytes.
    pub offset: usize,
    /// The value as bytes.
    pub bytes: Vec<u8>,
}

/// Contents in binary form.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encoded {
    /// A map's name, a key and a value for each entry, in the order of [`Contents::set`].
    pub entries: Vec<(String, Vec<u8>, Vec<u8>)>,
    /// The constants.
    pub variables: Vec<Variable>,
    /// Sizes of maps.
    pub maps: Vec<MapSize>,
}

/// Encodes `contents` with the types of `object`, an ELF file.
///
/// # Errors
/// [`ContentsError`] if the object lacks a map, field or constant, or one cannot hold its value.
pub fn encode(object: &[u8], contents: &Contents) -> Result<Encoded, ContentsError> {
    let maps = contents.maps.clone();
    if contents.set.is_empty() && contents.rodata.is_empty() {
        return Ok(Encoded { maps, ..Encoded::default() });
    }
    let file = object::File::parse(object).map_err(|error| ContentsError::Object(error.to_string()))?;
    let types = linked::of_file(&file).map_err(|error| ContentsError::Object(error.to_string()))?;
    let btf = Btf::new(&types).map_err(|error| ContentsError::Object(error.to_string()))?;
    let entries = contents.set.iter().map(|entry| of_entry(&btf, entry)).collect::<Result<_, _>>()?;
    let constants = constants(&file, &btf);
    let variables = contents.rodata.iter().map(|(name, value)| {
        let Some((variable, field)) = constants.iter().find(|(_, field)| field.name == *name) else {
            let known = constants.iter().map(|(_, field)| field.name.as_str());
            return Err(no_field("`.rodata`".to_owned(), name, known));
        };
        let mut variable = variable.clone();
        write(&mut variable.bytes, field, &format!("the constant `{name}`"), value)?;
        Ok(variable)
    });
    Ok(Encoded { entries, variables: variables.collect::<Result<_, _>>()?, maps })
}

fn of_entry(btf: &Btf<'_>, entry: &MapEntry) -> Result<(String, Vec<u8>, Vec<u8>), ContentsError> {
    let no_map = || ContentsError::NoMap(entry.map.clone());
    let types = btf.map(&entry.map).ok_or_else(no_map)?;
    let part = |layout: Option<TypeLayout>, whole: &str, fields: &Fields| {
        let layout = layout.filter(|layout| layout.size <= MAX_SIZE).ok_or_else(no_map)?;
        let place = format!("the {whole} of the map `{}`", entry.map);
        let mut bytes = vec![0; layout.size];
        for (wanted, value) in fields {
            let Some(field) = layout.fields.iter().find(|field| field.name_of(whole) == wanted) else {
                return Err(no_field(place, wanted, layout.fields.iter().map(|field| field.name_of(whole))));
            };
            write(&mut bytes, field, &format!("`{wanted}` in {place}"), value)?;
        }
        Ok(bytes)
    };
    Ok((entry.map.clone(), part(types.key, "key", &entry.key)?, part(types.value, "value", &entry.value)?))
}

fn no_field<'a>(place: String, field: &str, known: impl Iterator<Item = &'a str>) -> ContentsError {
    let known = known.collect::<Vec<_>>().join(", ");
    let known = if known.is_empty() { "nothing that can be set".to_owned() } else { known };
    ContentsError::NoField { place, field: field.to_owned(), known }
}

/// Returns numbers and texts among the global variables of `.rodata` sections. Each is filled with
/// zeros and has the field that describes it.
fn constants(file: &object::File<'_>, btf: &Btf<'_>) -> Vec<(Variable, MapField)> {
    let sections = file.sections().filter_map(|section| Some(section.name().ok()?.to_owned()));
    let mut found = Vec::new();
    for section in sections.filter(|name| name == ".rodata" || name.starts_with(".rodata.")) {
        let fields = btf.map(&section).and_then(|types| types.value).map_or_else(Vec::new, |value| value.fields);
        for field in fields.into_iter().filter(|field| field.size <= MAX_SIZE) {
            let variable = Variable { section: section.clone(), offset: field.offset, bytes: vec![0; field.size] };
            found.push((variable, MapField { offset: 0, ..field }));
        }
    }
    found
}

/// Writes `value` into the place of `field` in `bytes`. `name` is for messages. Guests are
/// little-endian on every architecture.
fn write(bytes: &mut [u8], field: &MapField, name: &str, value: &Constant) -> Result<(), ContentsError> {
    let short = || ContentsError::Object(format!("{name} lies outside of what holds it"));
    let end = field.offset.checked_add(field.size).ok_or_else(short)?;
    let place = bytes.get_mut(field.offset..end).ok_or_else(short)?;
    match (value, field.scalar) {
        (Constant::Text(text), Scalar::Text) => {
            if text.len() >= field.size || text.contains('\0') {
                return Err(ContentsError::Text { field: name.to_owned(), most: field.size.saturating_sub(1) });
            }
            place[..text.len()].copy_from_slice(text.as_bytes());
        }
        (Constant::Number(_), Scalar::Text) => return Err(ContentsError::IsText(name.to_owned())),
        (Constant::Text(_), _) => return Err(ContentsError::IsNumber(name.to_owned())),
        (&Constant::Number(value), _) => {
            let bits = 8 * u32::try_from(field.size).unwrap_or(u32::MAX).min(8);
            // The number may be signed or unsigned: -1 means all ones in both cases.
            let range = -(1_i128 << (bits - 1))..1_i128 << bits;
            if !range.contains(&i128::from(value)) {
                return Err(ContentsError::Number { field: name.to_owned(), bits, value });
            }
            place.copy_from_slice(value.to_le_bytes().get(..field.size).ok_or_else(short)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
