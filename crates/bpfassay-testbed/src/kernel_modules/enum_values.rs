// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of enum values (`TRACE_DEFINE_ENUM`) in a module with tracepoints.
//!
//! When a kernel inserts a module, it replaces the names of these enum values in the print format
//! of each tracepoint of the same system (`trace_event_eval_update` in
//! kernel/trace/trace_events.c). `nfsv4` has hundreds of both. On x86_64 6.12 this took 1.0 of the
//! 3.9 s of the instruction clock until the guest was ready. If a kernel does not find the table,
//! the file `format` of such a tracepoint contains names in place of numbers. Fields, their offsets
//! and what programs read from them do not change.

use object::{
    Endianness, SectionIndex,
    elf::FileHeader64,
    read::elf::{FileHeader, SectionHeader},
};

/// The section of the table (`find_module_sections` in kernel/module/main.c).
const SECTION: &[u8] = b"_ftrace_eval_map";

/// Replaces the first byte of the section's name. Kernels ignore a section of the new name.
const RENAMED: u8 = b'.';

/// Renames the table of `module`, an ELF file, so that the kernel does not find it. Leaves a module
/// without the table unchanged.
pub fn hide(module: &mut [u8]) {
    if let Some(byte) = place_of_name(module).and_then(|at| module.get_mut(at)) {
        *byte = RENAMED;
    }
}

/// Finds the offset of the section's name in `module`.
fn place_of_name(module: &[u8]) -> Option<usize> {
    let header = FileHeader64::<Endianness>::parse(module).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, module).ok()?;
    let (_, section) = sections.section_by_name(endian, SECTION)?;
    let names = sections.section(SectionIndex(header.shstrndx(endian, module).ok()? as usize)).ok()?;
    usize::try_from(names.sh_offset(endian).checked_add(section.sh_name(endian).into())?).ok()
}

#[cfg(test)]
mod tests {
    use object::{Object, ObjectSection};
    use proptest::prelude::*;

    use super::*;
    use crate::kernel_modules::tests::elf;

    #[test]
    fn the_table_has_another_name_and_nothing_else_changes() {
        let before = elf(Some(("_ftrace_eval_map", b"table")));
        let mut after = before.clone();
        hide(&mut after);
        let file = object::File::parse(after.as_slice()).unwrap();
        assert_eq!(file.section_by_name(".ftrace_eval_map").unwrap().data().unwrap(), b"table");
        assert_eq!(before.iter().zip(&after).filter(|(before, after)| before != after).count(), 1);
    }

    #[test]
    fn a_module_without_the_table_stays_as_it_is() {
        for before in [elf(None), elf(Some((".modinfo", b"name=nfsv4\0"))), b"_ftrace_eval_map".to_vec()] {
            let mut after = before.clone();
            hide(&mut after);
            assert_eq!(after, before);
        }
    }

    proptest! {
        #[test]
        fn damaged_modules_are_survived(at in 0usize..400, value: u8) {
            let mut module = elf(Some(("_ftrace_eval_map", b"table")));
            if let Some(byte) = module.get_mut(at) {
                *byte = value;
            }
            let before = module.clone();
            hide(&mut module);
            prop_assert!(before.iter().zip(&module).filter(|(before, after)| before != after).count() <= 1);
        }
    }
}
