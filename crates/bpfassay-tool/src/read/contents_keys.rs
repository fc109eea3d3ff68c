// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads what a tool file sets in its object: map entries, constants and sizes of maps.

use std::collections::BTreeMap;

use bpfassay_input::document::{Field, Reported, Section};
use bpfassay_protocol::contents::{Constant, Contents, Fields, InnerMap, MapEntry, MapSize};

use super::entries;

/// Longest text, in bytes.
const MAX_TEXT: usize = 255;
/// Limit for fields of a key or value, and for constants.
const MAX_FIELDS: usize = 64;
/// Deepest nesting of tables.
const MAX_DEPTH: u32 = 8;

/// Reads the keys `set`, `rodata` and `maps` of `section`.
///
/// # Errors
/// [`Reported`] if a value is invalid, or a name is part of a structure. The complaint is in the
/// document.
pub(super) fn read(section: &Section<'_, '_>) -> Result<Contents, Reported> {
    let set = section.or("set", Vec::new(), |field| entries(field, entry));
    let rodata = section.or("rodata", Fields::new(), |field| {
        let mut fields = Fields::new();
        add_table(&field.table()?, "", 0, &mut fields)?;
        match fields.keys().find(|name| name.contains('.')) {
            Some(name) => {
                Err(field.error(format!("`{name}` is part of a structure: only whole numbers and texts can be set")))
            }
            None => Ok(fields),
        }
    });
    let maps = section.or("maps", Vec::new(), |field| entries(field, size));
    Ok(Contents { set: set?, rodata: rodata?, maps: maps? })
}

fn size(field: &Field<'_, '_>) -> Result<MapSize, Reported> {
    let section = field.table()?;
    section.only(&["name", "max_entries", "inner"]);
    let name = section.need("name", Field::string);
    let max_entries = section.optional("max_entries", |field| field.number(1..=u32::MAX));
    let inner = section.optional("inner", |field| {
        let section = field.table()?;
        section.only(&["kind", "key_size", "value_size", "max_entries"]);
        let kind = section.need("kind", Field::name);
        let number = |key| section.need(key, |field| field.number(1..=u32::MAX));
        let (key_size, value_size) = (number("key_size"), number("value_size"));
        let max_entries = number("max_entries");
        Ok(InnerMap { kind: kind?, key_size: key_size?, value_size: value_size?, max_entries: max_entries? })
    });
    let size = MapSize { name: name?, max_entries: max_entries?, inner: inner? };
    match size.max_entries.is_some() || size.inner.is_some() {
        true => Ok(size),
        false => Err(field.error("give `max_entries`, `inner` or both")),
    }
}

fn entry(field: &Field<'_, '_>) -> Result<MapEntry, Reported> {
    let section = field.table()?;
    section.only(&["map", "key", "value"]);
    let map = section.need("map", Field::string);
    let key = section.need("key", |field| fields(field, "key"));
    let value = section.need("value", |field| fields(field, "value"));
    Ok(MapEntry { map: map?, key: key?, value: value? })
}

/// Reads a table of fields, or a single value, which is then named `whole`.
fn fields(field: &Field<'_, '_>, whole: &str) -> Result<Fields, Reported> {
    let mut fields = BTreeMap::new();
    if field.is_table() {
        add_table(&field.table()?, "", 0, &mut fields)?;
    } else {
        fields.insert(whole.to_owned(), constant(field)?);
    }
    Ok(fields)
}

/// Adds the fields of a table. Fields of nested tables are named `outer.inner`.
fn add_table(section: &Section<'_, '_>, outer: &str, depth: u32, fields: &mut Fields) -> Result<(), Reported> {
    for (key, field) in section.entries() {
        let name = if outer.is_empty() { key.to_owned() } else { format!("{outer}.{key}") };
        if field.is_table() {
            if depth == MAX_DEPTH {
                return Err(field.error(format!("more than {MAX_DEPTH} tables within each other")));
            }
            add_table(&field.table()?, &name, depth + 1, fields)?;
        } else if fields.len() == MAX_FIELDS {
            return Err(field.error(format!("more than {MAX_FIELDS} are set")));
        } else if fields.insert(name.clone(), constant(&field)?).is_some() {
            return Err(field.error(format!("`{name}` is set twice")));
        }
    }
    Ok(())
}

fn constant(field: &Field<'_, '_>) -> Result<Constant, Reported> {
    if field.is_boolean() {
        return field.boolean().map(|value| Constant::Number(value.into()));
    }
    if !field.is_text() {
        return field.number(i64::MIN..=i64::MAX).map(Constant::Number);
    }
    let text = field.text()?;
    if text.len() <= MAX_TEXT && !text.contains(char::is_control) {
        return Ok(Constant::Text(text.to_owned()));
    }
    Err(field.error(format!("give a text of at most {MAX_TEXT} bytes without control characters")))
}
