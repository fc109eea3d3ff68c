// SPDX-License-Identifier: MIT OR Apache-2.0
//! The BTF of an object file, completed as a linker would do it.

use std::collections::HashMap;

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, ReadRef};

use crate::{Btf, BtfError, kind, u32_at};

/// BTF cannot be taken from an object file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// It is not an object file.
    #[error("{0}")]
    File(String),
    /// There is no BTF.
    #[error("there is no section `.BTF`: compile it with -g")]
    NoTypes,
    /// The BTF cannot be read.
    #[error(transparent)]
    Types(#[from] BtfError),
    /// No symbol has the address of a variable.
    #[error("the variable `{variable}` of the section `{section}` has no symbol")]
    NoSymbol {
        /// The variable's name.
        variable: String,
        /// The section with the variable.
        section: String,
    },
}

/// Returns the section `.BTF` of `object`, an ELF file, with the size of each section of global
/// variables and the offset of each variable.
///
/// clang writes 0 for these numbers, because a linker decides them. They are in the section headers
/// and in the symbols, where libbpf 1.5 reads them, too (`btf_fixup_datasec`). Numbers other than 0
/// come from a linker and stay.
///
/// # Errors
/// [`ObjectError`] for a file without readable BTF, or a global variable without a symbol.
pub fn of_object(object: &[u8]) -> Result<Vec<u8>, ObjectError> {
    let file = object::File::parse(object).map_err(|error| ObjectError::File(error.to_string()))?;
    of_file(&file)
}

/// Like [`of_object`], for a parsed file.
///
/// # Errors
/// The errors of [`of_object`].
pub(crate) fn of_file<'a>(file: &object::File<'a, impl ReadRef<'a>>) -> Result<Vec<u8>, ObjectError> {
    let section = file.section_by_name(".BTF").ok_or(ObjectError::NoTypes)?;
    let original = section.data().map_err(|error| ObjectError::File(error.to_string()))?;
    let btf = Btf::new(original)?;
    let mut linked = original.to_vec();
    // The types begin after the header.
    let word = |at| u32_at(original, at).and_then(|word| usize::try_from(word).ok());
    let types = word(4).and_then(|header| header.checked_add(word(8)?)).ok_or(BtfError::Bounds)?;
    let mut put = |at: usize, value: u64| {
        let word = u32::try_from(value).ok().zip(linked.get_mut(types + at..).and_then(|rest| rest.get_mut(..4)));
        word.map(|(value, place)| place.copy_from_slice(&value.to_ne_bytes())).ok_or(BtfError::Bounds)
    };
    let placed = |symbol: object::Symbol<'a, '_, _>| {
        Some(((symbol.section_index()?, symbol.name().ok()?.to_owned()), symbol.address()))
    };
    let places: HashMap<_, _> = file.symbols().filter_map(placed).collect();
    for &start in &btf.starts {
        let found = btf.read(start).ok_or(BtfError::Bounds)?;
        if found.kind != kind::DATASEC || found.size_or_type != 0 {
            continue;
        }
        let name = btf.string(found.name).ok_or(BtfError::Bounds)?;
        // Skip declarations of maps, whose places have no meaning, and kernel symbols (.ksyms).
        let Some(section) = file.section_by_name(name).filter(|_| has_variables(name)) else { continue };
        put(start + 8, section.size())?;
        for index in 0..found.length {
            let at = found.rest + 12 * index;
            let variable = u32_at(btf.types, at).and_then(|id| btf.get(id)?).ok_or(BtfError::Bounds)?;
            let variable = btf.string(variable.name).ok_or(BtfError::Bounds)?;
            let place = places.get(&(section.index(), variable.to_owned()));
            let no_symbol = || ObjectError::NoSymbol { variable: variable.to_owned(), section: name.to_owned() };
            put(at + 4, *place.ok_or_else(no_symbol)?)?;
        }
    }
    Ok(linked)
}

/// Whether a section has global variables, by the rules of libbpf (`bpf_object__elf_collect`).
fn has_variables(section: &str) -> bool {
    [".data", ".rodata", ".bss"]
        .iter()
        .any(|&kind| section.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

#[cfg(test)]
mod tests;
