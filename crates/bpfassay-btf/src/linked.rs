// SPDX-License-Identifier: MIT OR Apache-2.0
//! The type information of an object file, with what clang leaves to the linker.

use std::collections::HashMap;

use object::{Object as _, ObjectSection as _, ObjectSymbol as _, ReadRef};

use crate::{Btf, BtfError, kind, u32_at};

/// Type information that cannot be taken from an object file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// It is no object file.
    #[error("{0}")]
    File(String),
    /// It has no type information.
    #[error("there is no section `.BTF`: compile it with -g")]
    NoTypes,
    /// The type information cannot be read.
    #[error(transparent)]
    Types(#[from] BtfError),
    /// The symbols do not say where a variable is.
    #[error("the variable `{variable}` of the section `{section}` has no symbol")]
    NoSymbol {
        /// The variable's name.
        variable: String,
        /// Its section.
        section: String,
    },
}

/// The section `.BTF` of `object`, an ELF file, with the size of each section of global variables, and the place of each variable in it.
///
/// clang writes 0 for these, because a linker decides them. They are in the headers of sections and in the symbols
/// (`btf_fixup_datasec` of libbpf 1.5 takes them from there, too). What is not 0 is as a linker wrote it.
///
/// # Errors
/// [`ObjectError`] for what is no object file or has no readable type information, and where a global variable has no symbol.
pub fn of_object(object: &[u8]) -> Result<Vec<u8>, ObjectError> {
    let file = object::File::parse(object).map_err(|error| ObjectError::File(error.to_string()))?;
    of_file(&file)
}

/// [`of_object`] for a file that was parsed.
///
/// # Errors
/// As there.
pub(crate) fn of_file<'a>(file: &object::File<'a, impl ReadRef<'a>>) -> Result<Vec<u8>, ObjectError> {
    let section = file.section_by_name(".BTF").ok_or(ObjectError::NoTypes)?;
    let original = section.data().map_err(|error| ObjectError::File(error.to_string()))?;
    let btf = Btf::new(original)?;
    let mut linked = original.to_vec();
    // Where the types begin in the section: behind the header.
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
        // Not the declarations of maps, whose places mean nothing, and not what the kernel has (.ksyms).
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

/// Whether a section holds global variables, as libbpf decides it (`bpf_object__elf_collect`).
fn has_variables(section: &str) -> bool {
    [".data", ".rodata", ".bss"]
        .iter()
        .any(|&kind| section.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

#[cfg(test)]
mod tests;
