// SPDX-License-Identifier: MIT OR Apache-2.0
//! Instructions of a loaded program, and the source lines that they belong to.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
};

use crate::{
    object::ObjectInfo,
    syscall::{BpfCommand, open},
};

/// Largest number of instructions of a program that are copied: the verifier's limit
/// (`BPF_COMPLEXITY_LIMIT_INSNS`).
const MOST_INSTRUCTIONS: u32 = 1_000_000;
/// Most line records that are copied. The kernel accepts at most one per instruction of a program.
const MOST_LINES: u32 = 1 << 18;
/// Largest BTF that is copied, in bytes (`BTF_MAX_SIZE` of include/linux/btf.h).
const LARGEST_BTF: u32 = 16 << 20;

/// A line record (`struct bpf_line_info`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineInfo {
    /// The first instruction of the line, after the verifier's rewriting.
    pub instruction: u32,
    /// Offset of the file name in the strings of the program's BTF.
    pub file: u32,
    /// Offset of the line's text in the strings of the program's BTF.
    pub text: u32,
    /// The line in the upper 22 bits, the column in the lower 10.
    pub line_and_column: u32,
}

impl LineInfo {
    /// Returns the line, from 1; 0 if the compiler knew none (`BPF_LINE_INFO_LINE_NUM`).
    #[must_use]
    pub const fn line(self) -> u32 {
        self.line_and_column >> 10
    }

    /// Returns the column, from 1; 0 if the compiler knew none (`BPF_LINE_INFO_LINE_COL`).
    #[must_use]
    pub const fn column(self) -> u32 {
        self.line_and_column & 0x3ff
    }
}

/// The source information of a program that the kernel kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramSource {
    /// The id of the program's BTF; 0 for none.
    pub btf: u32,
    /// Instructions of all functions as the verifier rewrote them; empty if the kernel hides them.
    pub instructions: Vec<u64>,
    /// Line records, sorted by instruction; empty if the program was loaded without them.
    pub lines: Vec<LineInfo>,
    /// Addresses of the machine code of `lines`; empty if the kernel interprets the program or does
    /// not show addresses.
    pub addresses: Vec<u64>,
}

/// Asks the kernel for the source information of `program` (Linux 5.0 and later).
///
/// # Errors
/// The kernel's error if `program` is not a descriptor of a program, or the command fails; `E2BIG`
/// if there is more information than any program has.
pub fn program_source(program: BorrowedFd<'_>) -> io::Result<ProgramSource> {
    // Offsets in `struct bpf_prog_info`, in 64-bit words.
    const INSTRUCTIONS_LENGTH: usize = 2;
    const INSTRUCTIONS: usize = 4;
    const LINE_COUNT: usize = 18;
    const LINES: usize = 19;
    const ADDRESSES: usize = 20;
    const ADDRESS_COUNT: usize = 21;
    const ADDRESS_SIZE: usize = 22;
    let asked = ObjectInfo::of(program)?;
    let (bytes, lines, addresses) = (asked.half(20), asked.half(148), asked.half(168));
    if bytes / 8 > MOST_INSTRUCTIONS || lines > MOST_LINES || addresses > MOST_LINES {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    let mut source = ProgramSource {
        btf: asked.half(128),
        instructions: vec![0; (bytes / 8) as usize],
        lines: vec![LineInfo::default(); lines as usize],
        addresses: vec![0; addresses as usize],
    };
    let mut words = [0_u64; 23];
    words[INSTRUCTIONS_LENGTH] = pair(0, bytes);
    words[INSTRUCTIONS] = source.instructions.as_mut_ptr() as u64;
    if lines > 0 {
        words[LINE_COUNT] = pair(0, lines);
        words[LINES] = source.lines.as_mut_ptr() as u64;
    }
    if addresses > 0 {
        words[ADDRESSES] = source.addresses.as_mut_ptr() as u64;
    }
    // The record sizes must have these values if records are requested (`set_info_rec_size`,
    // kernel/bpf/syscall.c).
    words[ADDRESS_COUNT] = pair(addresses, size_of::<LineInfo>() as u32);
    words[ADDRESS_SIZE] = pair(size_of::<u64>() as u32, 0);
    // SAFETY: the addresses are of lists that outlive the call, with their lengths.
    unsafe { ObjectInfo::fill(program, &mut words)? };
    // The kernel sets the address of a list to 0 if it does not show the content.
    if words[INSTRUCTIONS] == 0 {
        source.instructions.clear();
    }
    if words[ADDRESSES] == 0 {
        source.addresses.clear();
    }
    Ok(source)
}

/// Combines two 32-bit numbers that are adjacent in memory.
const fn pair(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// Returns the bytes of the BTF with this id; `None` if it no longer exists.
///
/// # Errors
/// The kernel's error if it refuses a descriptor or the bytes; `E2BIG` if the BTF is larger than
/// the kernel's limit.
pub fn btf_bytes(id: u32) -> io::Result<Option<Vec<u8>>> {
    // SAFETY: there are no addresses, and the command returns a new descriptor.
    let btf = match unsafe { open(BpfCommand::BtfGetFdById, &mut [id, 0, 0]) } {
        Ok(btf) => btf,
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    // The fields of `struct bpf_btf_info`: the address of the bytes, and their number.
    let mut words = [0_u64; 2];
    // SAFETY: the address is 0, so the kernel returns only the length.
    unsafe { ObjectInfo::fill(btf.as_fd(), &mut words)? };
    let [length, _] = halves(words[1]);
    if length > LARGEST_BTF {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    let mut bytes = vec![0_u8; length as usize];
    let mut words = [bytes.as_mut_ptr() as u64, pair(length, 0)];
    // SAFETY: the address is of a buffer that outlives the call, with its length.
    unsafe { ObjectInfo::fill(btf.as_fd(), &mut words)? };
    Ok(Some(bytes))
}

/// Splits a word into the two 32-bit numbers that are adjacent in memory.
fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_share_a_number() {
        let info = LineInfo { line_and_column: 1234 << 10 | 56, ..LineInfo::default() };
        assert_eq!((info.line(), info.column()), (1234, 56));
        assert_eq!(halves(pair(7, 9)), [7, 9]);
    }
}
