// SPDX-License-Identifier: MIT OR Apache-2.0
//! The source lines of loaded BPF programs, from what the kernel keeps: line records, texts in BTF,
//! instructions.

use std::{
    collections::{BTreeMap, HashMap, btree_map::Entry},
    io,
    os::fd::BorrowedFd,
};

use bpfassay_bpf::{ProgramSource as Kept, btf_bytes, program_source};
use bpfassay_btf::{
    Strings,
    instruction::{CALL, Following, Instruction},
};
use bpfassay_protocol::source::{
    Destination, LineRecord, LineTable, MAX_FILE_NAME, MAX_RECORDS, MAX_TEXT, MAX_TRANSFERS, SourceLines, Transfer,
};

/// The largest size of the texts of one program, in bytes.
const MAX_TEXTS: usize = 1 << 20;

/// The helper that continues in another program (`BPF_FUNC_tail_call`).
const TAIL_CALL: i32 = 12;

/// BTF by id. Programs of one object share their BTF.
#[derive(Debug, Default)]
pub(crate) struct BtfById(BTreeMap<u32, Option<Vec<u8>>>);

impl BtfById {
    fn get(&mut self, id: u32) -> io::Result<Option<&[u8]>> {
        let bytes = match self.0.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(btf_bytes(id)?),
        };
        Ok(bytes.as_deref())
    }

    /// Returns the strings of the BTF with this id, if they can be read.
    pub(crate) fn strings(&mut self, id: u32) -> Option<Strings<'_>> {
        Strings::of(self.get(id).ok()??).ok()
    }
}

/// Returns the source lines of `program`, or the reason why they are not known. A program that is
/// not compiled has no machine code.
pub(crate) fn lines_of(program: BorrowedFd<'_>, is_compiled: bool, types: &mut BtfById) -> SourceLines {
    match look(program, is_compiled, types) {
        Ok(table) => SourceLines::Known(table),
        Err(reason) => SourceLines::Unknown(reason),
    }
}

fn look(program: BorrowedFd<'_>, is_compiled: bool, types: &mut BtfById) -> Result<LineTable, String> {
    if !is_compiled {
        return Err("the kernel interprets the program: it has no machine code of its own (the JIT is off)".to_owned());
    }
    let kept = program_source(program).map_err(|error| format!("the kernel does not show the program: {error}"))?;
    if kept.lines.is_empty() || kept.btf == 0 {
        return Err("the program was loaded without line information (the object has no BTF, or its loader does not pass it on)".to_owned());
    }
    if kept.addresses.len() != kept.lines.len() {
        return Err("the kernel does not show at which addresses the lines of the program are".to_owned());
    }
    let bytes = types.get(kept.btf).map_err(|error| format!("the kernel does not show the program's BTF: {error}"))?;
    let bytes = bytes.ok_or_else(|| "the program's BTF is gone".to_owned())?;
    let strings = Strings::of(bytes).map_err(|error| format!("the program's BTF cannot be read: {error}"))?;
    table(&kept, |offset| strings.at(offset).map(std::borrow::Cow::into_owned))
}

/// Creates the line table of a program. `string` returns the string at an offset.
fn table(kept: &Kept, string: impl Fn(u32) -> Option<String>) -> Result<LineTable, String> {
    let transfers = transfers(&kept.instructions);
    if kept.lines.len() > MAX_RECORDS || transfers.len() > MAX_TRANSFERS {
        return Err(format!("the program has more than {MAX_RECORDS} line records, or as many jumps"));
    }
    let (mut files, mut texts) = (Indexed::default(), Indexed::default());
    let mut records = Vec::with_capacity(kept.lines.len());
    for (line, &address) in kept.lines.iter().zip(&kept.addresses) {
        let named = |offset| string(offset).ok_or_else(|| "a line record refers outside the program's BTF".to_owned());
        let file = files.index(line.file, || named(line.file).map(end_of))?;
        let text = texts.index(line.text, || named(line.text).map(beginning_of))?;
        let (instruction, line, column) = (line.instruction, line.line(), line.column());
        records.push(LineRecord { instruction, address, file, line, column, text });
    }
    let (files, texts) = (files.values, texts.values);
    if files.iter().chain(&texts).map(String::len).sum::<usize>() > MAX_TEXTS {
        return Err(format!("the source lines of the program have more than {} KiB of text", MAX_TEXTS >> 10));
    }
    let instructions = u32::try_from(kept.instructions.len()).unwrap_or(u32::MAX);
    Ok(LineTable { files, texts, records, transfers, instructions })
}

/// Strings by their offsets, each stored once.
#[derive(Default)]
struct Indexed {
    indices: HashMap<u32, u32>,
    values: Vec<String>,
}

impl Indexed {
    fn index(&mut self, offset: u32, value: impl FnOnce() -> Result<String, String>) -> Result<u32, String> {
        if let Some(&known) = self.indices.get(&offset) {
            return Ok(known);
        }
        let next = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.values.push(value()?);
        self.indices.insert(offset, next);
        Ok(next)
    }
}

/// Returns the end of a file's name, which says most.
fn end_of(mut name: String) -> String {
    let begin = name.ceil_char_boundary(name.len().saturating_sub(MAX_FILE_NAME));
    name.split_off(begin)
}

fn beginning_of(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}

/// Returns the instructions that do not always lead to the next instruction.
fn transfers(slots: &[u64]) -> Vec<Transfer> {
    let instructions = instructions(slots);
    let mut transfers = Vec::new();
    let mut at = 0;
    while let Some(instruction) = instructions.get(at) {
        let place = u32::try_from(at).unwrap_or(u32::MAX);
        transfers.extend(destination(place, instruction).map(|to| Transfer { at: place, to }));
        at += instruction.slots();
    }
    transfers
}

/// Decodes the instructions of a loaded program.
pub(crate) fn instructions(slots: &[u64]) -> Vec<Instruction> {
    slots.iter().map(|slot| Instruction::of(slot.to_ne_bytes())).collect()
}

fn destination(at: u32, instruction: &Instruction) -> Option<Destination> {
    /// `BPF_JMP | BPF_JA | BPF_X`.
    const JUMP_BY_REGISTER: u8 = 0x0d;
    let target = |distance: i32| at.wrapping_add(1).wrapping_add_signed(distance);
    match (instruction.code, instruction.following()) {
        (JUMP_BY_REGISTER, _) => Some(Destination::Indirect),
        (CALL, _) => {
            let is_tail_call = instruction.source == 0 && instruction.immediate == TAIL_CALL;
            is_tail_call.then_some(Destination::TailCall)
        }
        (_, Following::Next) => None,
        (_, Following::End) => Some(Destination::Exit),
        (_, Following::Jump(distance)) => Some(Destination::Jump(target(distance))),
        (_, Following::Branch(distance)) => Some(Destination::Branch(target(distance))),
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_bpf::LineInfo;

    use super::*;

    /// Encodes an instruction in the kernel's layout.
    fn instruction(code: u8, registers: u8, offset: i16, immediate: i32) -> u64 {
        let ([a, b], [c, d, e, f]) = (offset.to_ne_bytes(), immediate.to_ne_bytes());
        u64::from_ne_bytes([code, registers, a, b, c, d, e, f])
    }

    #[test]
    fn jumps_are_found_and_operands_are_not_taken_for_them() {
        let program = [
            instruction(0x18, 1, 0, 5),     // r1 = 5 ll
            instruction(0x05, 0, 9, 0),     // its second half, which would be a jump
            instruction(0x15, 1, 2, 0),     // if r1 == 0 goto +2
            instruction(0x85, 0, 0, 12),    // a tail call
            instruction(0x85, 0, 0, 1),     // another helper
            instruction(0x85, 0x10, 0, 12), // a function of the program
            instruction(0x56, 1, -5, 3),    // if w1 != 3 goto -5
            instruction(0x06, 0, 0, -3),    // gotol -3
            instruction(0x05, 0, 1, 0),     // goto +1
            instruction(0x0d, 1, 0, 0),     // goto r1
            instruction(0xb7, 0, 0, 0),     // r0 = 0
            instruction(0x95, 0, 0, 0),     // exit
        ];
        let found: Vec<_> = transfers(&program).iter().map(|transfer| (transfer.at, transfer.to)).collect();
        let wanted = [
            (2, Destination::Branch(5)),
            (3, Destination::TailCall),
            (6, Destination::Branch(2)),
            (7, Destination::Jump(5)),
            (8, Destination::Jump(10)),
            (9, Destination::Indirect),
            (11, Destination::Exit),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn line_records_get_their_strings_and_addresses() {
        let line = |instruction, text, line: u32, column| LineInfo {
            instruction,
            file: 1,
            text,
            line_and_column: line << 10 | column,
        };
        let kept = Kept {
            btf: 7,
            instructions: vec![instruction(0x95, 0, 0, 0); 3],
            lines: vec![line(0, 5, 10, 2), line(1, 9, 11, 3), line(2, 5, 10, 4)],
            addresses: vec![0x100, 0x110, 0x120],
        };
        let strings = |offset| match offset {
            1 => Some("a.c".to_owned()),
            5 => Some("x".repeat(MAX_TEXT + 9)),
            9 => Some("\treturn 0;".to_owned()),
            _ => None,
        };
        let found = table(&kept, strings).unwrap();
        assert_eq!(found.files, ["a.c"]);
        assert_eq!(found.texts, ["x".repeat(MAX_TEXT), "\treturn 0;".to_owned()]);
        assert_eq!((found.instructions, found.transfers.len()), (3, 3));
        let records: Vec<_> =
            found.records.iter().map(|record| (record.address, record.line, record.column, record.text)).collect();
        assert_eq!(records, [(0x100, 10, 2, 0), (0x110, 11, 3, 1), (0x120, 10, 4, 0)]);
        assert!(table(&kept, |_| None).is_err());
    }

    #[test]
    fn the_end_of_a_long_name_is_kept() {
        let name = end_of(format!("{}/a.bpf.c", "ü".repeat(MAX_FILE_NAME)));
        assert!(name.len() <= MAX_FILE_NAME && name.ends_with("ü/a.bpf.c"));
    }
}
