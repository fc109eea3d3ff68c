// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removes from an eBPF object what only debuggers read. The build script, which embeds the
//! objects, uses this module; the library tests it.
//!
//! clang writes DWARF whenever it writes BTF. No loader reads DWARF, which is a third of an object.
//! No loader applies relocations of BTF either, which are another fifth.

use std::ops::Range;

/// Size of a section's header (`Elf64_Shdr`), and of the file's, in bytes.
const SECTION: usize = 64;
const FILE: usize = 64;
/// Size of a symbol (`Elf64_Sym`), in bytes.
const SYMBOL: usize = 24;

/// Types of sections (`SHT_*`).
const SYMBOLS: u32 = 2;
const RELOCATIONS_WITH_ADDENDS: u32 = 4;
const NO_BITS: u32 = 8;
const RELOCATIONS: u32 = 9;

/// Section of symbols that belong to no section (`SHN_ABS`), and the first reserved section number
/// (`SHN_LORESERVE`).
const ABSOLUTE: u16 = 0xfff1;
const RESERVED: u16 = 0xff00;

/// Returns the little-endian 64-bit object `elf` without the sections for debuggers; `None` for
/// anything else.
pub(crate) fn without_debug_sections(elf: &[u8]) -> Option<Vec<u8>> {
    // The magic, ELFCLASS64, ELFDATA2LSB.
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let headers = usize::try_from(number(elf, 0x28..0x30)?).ok()?;
    let count = usize::try_from(number(elf, 0x3c..0x3e)?).ok()?;
    let names = usize::try_from(number(elf, 0x3e..0x40)?).ok()?;
    let mut sections = Vec::new();
    for index in 0..count {
        let at = headers.checked_add(index * SECTION)?;
        sections.push(elf.get(at..at.checked_add(SECTION)?)?.to_vec());
    }
    let names = contents(elf, sections.get(names)?)?.to_vec();
    let name_of = |section: &[u8]| -> Option<&[u8]> {
        let name = names.get(usize::try_from(number(section, 0..4)?).ok()?..)?;
        name.split(|&byte| byte == 0).next()
    };
    let mut stays = Vec::new();
    for section in &sections {
        stays.push(!is_for_debuggers(name_of(section)?));
    }
    // Returns the new number of a section.
    let after = |index: u64| -> Option<u64> {
        let index = usize::try_from(index).ok()?;
        stays.get(index)?.then(|| stays[..index].iter().filter(|stays| **stays).count() as u64)
    };

    let mut out = elf.get(..FILE)?.to_vec();
    let mut kept = Vec::new();
    for (section, _) in sections.iter().zip(&stays).filter(|(_, stays)| **stays) {
        let mut header = section.clone();
        let kind = u32::try_from(number(section, 4..8)?).ok()?;
        let mut data = if kind == NO_BITS { Vec::new() } else { contents(elf, section)?.to_vec() };
        if kind == SYMBOLS {
            for symbol in data.chunks_exact_mut(SYMBOL) {
                let section = u16::try_from(number(symbol, 6..8)?).ok()?;
                if section != 0 && section < RESERVED {
                    let now = after(u64::from(section)).and_then(|now| u16::try_from(now).ok()).unwrap_or(ABSOLUTE);
                    symbol[6..8].copy_from_slice(&now.to_le_bytes());
                }
            }
        }
        let link = u32::try_from(after(number(section, 0x28..0x2c)?)?).ok()?;
        header[0x28..0x2c].copy_from_slice(&link.to_le_bytes());
        if matches!(kind, RELOCATIONS | RELOCATIONS_WITH_ADDENDS) {
            let about = u32::try_from(after(number(section, 0x2c..0x30)?)?).ok()?;
            header[0x2c..0x30].copy_from_slice(&about.to_le_bytes());
        }
        let alignment = usize::try_from(number(section, 0x30..0x38)?).ok()?.max(1);
        out.resize(out.len().checked_next_multiple_of(alignment)?, 0);
        // The first header belongs to no section and is all zeros.
        if number(section, 4..8)? != 0 {
            header[0x18..0x20].copy_from_slice(&(out.len() as u64).to_le_bytes());
        }
        out.extend(data);
        kept.push(header);
    }
    out.resize(out.len().next_multiple_of(8), 0);
    let headers = (out.len() as u64).to_le_bytes();
    out[0x28..0x30].copy_from_slice(&headers);
    out[0x3c..0x3e].copy_from_slice(&u16::try_from(kept.len()).ok()?.to_le_bytes());
    let names = u16::try_from(after(number(elf, 0x3e..0x40)?)?).ok()?;
    out[0x3e..0x40].copy_from_slice(&names.to_le_bytes());
    out.extend(kept.concat());
    Some(out)
}

/// Returns whether libbpf (`ignore_elf_section`) and aya skip this section.
fn is_for_debuggers(name: &[u8]) -> bool {
    let about = name.strip_prefix(b".rela").or_else(|| name.strip_prefix(b".rel")).unwrap_or(name);
    about.starts_with(b".debug_") || about != name && (about == b".BTF" || about == b".BTF.ext")
}

/// Reads a little-endian number.
fn number(bytes: &[u8], at: Range<usize>) -> Option<u64> {
    Some(bytes.get(at)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

fn contents<'a>(elf: &'a [u8], section: &[u8]) -> Option<&'a [u8]> {
    let offset = usize::try_from(number(section, 0x18..0x20)?).ok()?;
    elf.get(offset..offset.checked_add(usize::try_from(number(section, 0x20..0x28)?).ok()?)?)
}

#[cfg(test)]
mod tests {
    use object::{
        BinaryFormat, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionKind, SymbolFlags,
        SymbolKind, SymbolScope,
        write::{Object, Relocation, StandardSegment, Symbol, SymbolSection},
    };

    use super::*;

    /// A program that refers to a global variable. The variable's section follows a section for
    /// debuggers, which refers to the program.
    fn sample() -> Vec<u8> {
        let mut object = Object::new(BinaryFormat::Elf, object::Architecture::Bpf, object::Endianness::Little);
        let segment = object.segment_name(StandardSegment::Text).to_vec();
        let debug = object.add_section(Vec::new(), b".debug_info".to_vec(), SectionKind::Debug);
        let program = object.add_section(segment, b"kprobe/vfs_read".to_vec(), SectionKind::Text);
        let btf = object.add_section(Vec::new(), b".BTF".to_vec(), SectionKind::Other);
        let data = object.add_section(Vec::new(), b".data".to_vec(), SectionKind::Data);
        object.append_section_data(debug, &[1; 40], 1);
        object.append_section_data(program, &[2; 24], 8);
        object.append_section_data(btf, &[3; 10], 4);
        object.append_section_data(data, &[4; 8], 8);
        let mut symbol = |name: &str, section, size| {
            object.add_symbol(Symbol {
                name: name.into(),
                value: 0,
                size,
                kind: SymbolKind::Data,
                scope: SymbolScope::Dynamic,
                weak: false,
                section: SymbolSection::Section(section),
                flags: SymbolFlags::None,
            })
        };
        let (begins, counter) = (symbol("program", program, 24), symbol("counter", data, 8));
        for (section, symbol, r_type) in [(program, counter, 1), (debug, begins, 2), (btf, begins, 4)] {
            let flags = object::RelocationFlags::Elf { r_type };
            object.add_relocation(section, Relocation { offset: 0, symbol, addend: 0, flags }).unwrap();
        }
        object.section_symbol(debug);
        object.write().unwrap()
    }

    fn sections(elf: &[u8]) -> Vec<(String, Vec<u8>)> {
        let object = object::File::parse(elf).unwrap();
        let all =
            object.sections().map(|section| (section.name().unwrap().to_owned(), section.data().unwrap().to_vec()));
        all.filter(|(name, _)| !matches!(name.as_str(), ".symtab" | ".strtab" | ".shstrtab")).collect()
    }

    #[test]
    fn the_remaining_sections_refer_to_the_same_symbols() {
        let (before, after) = (sample(), without_debug_sections(&sample()).unwrap());
        assert!(after.len() < before.len());
        let names = |elf: &[u8]| sections(elf).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert!(names(&before).contains(&".rela.BTF".to_owned()) || names(&before).contains(&".rel.BTF".to_owned()));
        let all = sections(&after);
        assert!(all.iter().all(|(name, _)| !is_for_debuggers(name.as_bytes())), "{:?}", names(&after));
        for (name, data) in [("kprobe/vfs_read", vec![2; 24]), (".BTF", vec![3; 10]), (".data", vec![4; 8])] {
            assert!(all.contains(&(name.to_owned(), data)), "{name}");
        }
        let object = object::File::parse(&*after).unwrap();
        let program = object.section_by_name("kprobe/vfs_read").unwrap();
        let (_, relocation) = program.relocations().next().unwrap();
        let RelocationTarget::Symbol(index) = relocation.target() else { panic!("{relocation:?}") };
        let counter = object.symbol_by_index(index).unwrap();
        let section = object.section_by_index(counter.section_index().unwrap()).unwrap();
        assert_eq!((counter.name().unwrap(), section.name().unwrap()), ("counter", ".data"));
        // Nothing more can be removed.
        assert_eq!(without_debug_sections(&after).unwrap().len(), after.len());
    }

    #[test]
    fn what_is_no_object_is_none() {
        assert_eq!(without_debug_sections(b"\x7fELF\x02\x02"), None);
        let sample = sample();
        for length in (0..sample.len()).step_by(7) {
            let _ = without_debug_sections(&sample[..length]);
        }
    }
}
