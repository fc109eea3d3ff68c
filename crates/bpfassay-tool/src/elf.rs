// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recognises ELF files of tool files, and finds what the dynamic linker needs to start them. Files
//! are untrusted: a damaged file counts as unknown.

use std::collections::BTreeSet;

use bpfassay_input::document::suggestion;
use bpfassay_protocol::Arch;
use object::{
    Endianness, LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind, elf,
    read::{
        StringTable,
        elf::{Dyn as _, ElfFile64, ProgramHeader as _},
    },
};

/// Length limit of program, map and section names in bytes, and largest number of names per object.
const MAX_NAME: usize = 255;
const MAX_NAMED: usize = 4096;

/// Returns the architecture in a 64-bit little-endian ELF header.
#[must_use]
pub fn machine(start: &[u8]) -> Option<Arch> {
    let (header, _) = object::pod::from_bytes::<elf::FileHeader64<LittleEndian>>(start).ok()?;
    let ident = &header.e_ident;
    if ident.magic != elf::ELFMAG || ident.class != elf::ELFCLASS64 || ident.data != elf::ELFDATA2LSB {
        return None;
    }
    Arch::of_elf_machine(header.e_machine.get(LittleEndian))
}

/// The requirements of a program or library for the dynamic linker.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Dynamic {
    /// Required libraries (DT_NEEDED).
    pub needed: Vec<String>,
    /// Name by which other files require it (DT_SONAME).
    pub name: Option<String>,
}

/// Returns the path of the dynamic linker in the program (PT_INTERP).
#[must_use]
pub fn interpreter(program: &[u8]) -> Option<String> {
    let file = ElfFile64::<LittleEndian>::parse(program).ok()?;
    let endian = file.endian();
    let headers = file.elf_program_headers();
    let path = headers.iter().find_map(|header| header.interpreter(endian, program).ok().flatten())?;
    std::str::from_utf8(path).ok().map(str::to_owned)
}

/// Reads the dynamic section of `file`; `None` if that fails.
#[must_use]
pub fn dynamic(file: &[u8]) -> Option<Dynamic> {
    let elf = ElfFile64::<LittleEndian>::parse(file).ok()?;
    let endian = elf.endian();
    let headers = elf.elf_program_headers();
    let entries = headers.iter().find_map(|header| header.dynamic(endian, file).ok().flatten())?;
    let entries = entries.iter().take_while(|entry| entry.tag(endian) != elf::DT_NULL);
    let entries: Vec<_> = entries.map(|entry| (entry.tag(endian), entry.val(endian))).collect();
    let value = |wanted| entries.iter().find(|(tag, _)| *tag == wanted).map(|(_, value)| *value);
    let (address, size) = (value(elf::DT_STRTAB)?, value(elf::DT_STRSZ)?);
    let of_segment = |header: &elf::ProgramHeader64<LittleEndian>| {
        (header.p_type(endian) == elf::PT_LOAD)
            .then(|| header.data_range(endian, file, address, size).ok().flatten())?
    };
    let strings = headers.iter().find_map(of_segment)?;
    let strings = StringTable::new(strings, 0, strings.len() as u64);
    let text = |offset: u64| {
        let bytes = strings.get(u32::try_from(offset).ok()?).ok()?;
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    };
    let all = |wanted| entries.iter().filter(move |(tag, _)| *tag == wanted).filter_map(|(_, value)| text(*value));
    Some(Dynamic { needed: all(elf::DT_NEEDED).collect(), name: all(elf::DT_SONAME).next() })
}

/// Explains why the kernel of an `arch` guest cannot start `bytes` as a program, and what to do.
/// `None` if nothing is wrong.
#[must_use]
pub fn no_program(bytes: &[u8], arch: Arch) -> Option<String> {
    if bytes.starts_with(b"#!") {
        return None;
    }
    match machine(bytes) {
        Some(other) if other != arch => Some(format!(
            "is a program for {other}, and the tool file gives it for {arch}: build it for {arch}, or correct `arch`"
        )),
        // Byte 16 of an ELF header is the low byte of the type.
        Some(_) if bytes.get(16).is_some_and(|&kind| u16::from(kind) == elf::ET_REL) => {
            Some("is an object file that is not linked: give the program that the linker makes of it".to_owned())
        }
        Some(_) => None,
        None if is_elf(bytes) => {
            Some(format!("is no program for {arch}, but {}: build it for {arch}", described(bytes)))
        }
        None => Some(format!(
            "is no program for {arch}: it is no ELF file, and does not begin with `#!` as scripts do; give the program itself"
        )),
    }
}

/// Describes another kind of ELF file for messages.
fn described(bytes: &[u8]) -> String {
    let Ok(file) = object::File::parse(bytes) else { return "a damaged ELF file".to_owned() };
    if file.architecture() == object::Architecture::Bpf {
        return "an eBPF object (`object = { path = … }` is its source)".to_owned();
    }
    let bits = if file.is_64() { 64 } else { 32 };
    format!("an ELF file of {bits} bits for the architecture {:?}", file.architecture())
}

/// Explains why `bytes` is not an eBPF object with the functions `programs`, and what to do. `None`
/// if nothing is wrong.
#[must_use]
pub fn no_object(bytes: &[u8], programs: &[String]) -> Option<String> {
    const MAKE: &str = "compile it with `clang -target bpf -g -O2 -c`";
    if !bytes.starts_with(b"\x7fELF") {
        return Some(format!("is no eBPF object: it is no ELF file; {MAKE}"));
    }
    let Ok(file) = object::File::parse(bytes) else {
        return Some(format!("is no eBPF object: its ELF header is damaged; {MAKE}"));
    };
    if file.architecture() != object::Architecture::Bpf {
        return Some(format!("is no eBPF object, but {}; {MAKE}", described(bytes)));
    }
    if file.endianness() != Endianness::Little {
        return Some("is an eBPF object for big-endian machines: compile it with `-target bpfel`".to_owned());
    }
    let known = self::programs(bytes);
    let functions: Vec<&str> = known.iter().map(|program| program.name.as_str()).collect();
    let missing = programs.iter().find(|program| !functions.contains(&program.as_str()))?;
    Some(format!(
        "has no program `{missing}`; it has {}{}",
        if functions.is_empty() { "none".to_owned() } else { functions.join(", ") },
        suggestion(missing, functions.iter().copied())
    ))
}

/// Whether the file that begins with `start` is an ELF file.
#[must_use]
pub fn is_elf(start: &[u8]) -> bool {
    start.starts_with(&elf::ELFMAG)
}

/// Whether `bytes` is an eBPF object.
#[must_use]
pub fn is_object(bytes: &[u8]) -> bool {
    is_elf(bytes) && object::File::parse(bytes).is_ok_and(|file| file.architecture() == object::Architecture::Bpf)
}

/// A program or map of an eBPF object, with its section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElfItem {
    /// Name of the symbol.
    pub name: String,
    /// Name of the section.
    pub section: String,
}

/// Lists the programs of an eBPF object: functions outside `.text`, which has subprograms.
#[must_use]
pub fn programs(object: &[u8]) -> Vec<ElfItem> {
    symbols(object, |kind, section| kind == SymbolKind::Text && section != ".text")
}

/// Lists the maps that an eBPF object declares in `.maps`.
#[must_use]
pub fn maps(object: &[u8]) -> Vec<ElfItem> {
    symbols(object, |kind, section| kind == SymbolKind::Data && section == ".maps")
}

/// Lists the sections of an eBPF object that have global variables a program can change: loaders
/// make a map of each, with the section's name.
#[must_use]
pub fn global_sections(object: &[u8]) -> BTreeSet<String> {
    let is_changeable = |section: &str| {
        let rest = section.strip_prefix(".data").or_else(|| section.strip_prefix(".bss"));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let variables = symbols(object, |kind, section| kind == SymbolKind::Data && is_changeable(section));
    variables.into_iter().map(|variable| variable.section).collect()
}

/// Lists the symbols of the `wanted` kind and section, [`MAX_NAMED`] at most. Names longer than
/// [`MAX_NAME`] are skipped.
fn symbols(object: &[u8], wanted: impl Fn(SymbolKind, &str) -> bool) -> Vec<ElfItem> {
    let Ok(file) = object::File::parse(object) else { return Vec::new() };
    let named = |symbol: object::Symbol<'_, '_>| {
        let section = file.section_by_index(symbol.section_index()?).ok()?;
        let (name, section) = (symbol.name().ok()?, section.name().ok()?);
        let is_short = |name: &str| (1..=MAX_NAME).contains(&name.len());
        (is_short(name) && is_short(section) && wanted(symbol.kind(), section))
            .then(|| ElfItem { name: name.to_owned(), section: section.to_owned() })
    };
    file.symbols().filter_map(named).take(MAX_NAMED).collect()
}
