// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a loaded program was made from: its instructions, and which of them which source line is of.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
};

use crate::{
    object::Info,
    syscall::{Command, open},
};

/// Most instructions of a program that are copied: as many as the verifier looks at (`BPF_COMPLEXITY_LIMIT_INSNS`).
const MOST_INSTRUCTIONS: u32 = 1_000_000;
/// Most line records that are copied. The kernel takes no more of them than a program has instructions.
const MOST_LINES: u32 = 1 << 18;
/// Largest BTF that is copied, in bytes (`BTF_MAX_SIZE` of include/linux/btf.h).
const LARGEST_BTF: u32 = 16 << 20;

/// A line record (`struct bpf_line_info`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineInfo {
    /// The first instruction of the line, after the verifier's rewriting.
    pub instruction: u32,
    /// Where in the strings of the program's BTF the name of the file is.
    pub file: u32,
    /// Where the text of the line is.
    pub text: u32,
    /// The line in the upper 22 bits, the column in the lower 10.
    pub line_and_column: u32,
}

impl LineInfo {
    /// The line, from 1; 0 where the compiler knew none (`BPF_LINE_INFO_LINE_NUM`).
    #[must_use]
    pub const fn line(self) -> u32 {
        self.line_and_column >> 10
    }

    /// The column, from 1; 0 where the compiler knew none (`BPF_LINE_INFO_LINE_COL`).
    #[must_use]
    pub const fn column(self) -> u32 {
        self.line_and_column & 0x3ff
    }
}

/// What a program was made from, as far as the kernel kept it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramSource {
    /// The id of its BTF; 0 for none.
    pub btf: u32,
    /// Its instructions after the verifier's rewriting, those of all of its functions; empty where the kernel does not show them.
    pub instructions: Vec<u64>,
    /// Its line records, by instruction; empty where it was loaded without.
    pub lines: Vec<LineInfo>,
    /// The address of the machine code of each of `lines`; empty where the kernel interprets the program, or does not show addresses.
    pub addresses: Vec<u64>,
}

/// Asks the kernel what `program` was made from (Linux 5.0 and later).
///
/// # Errors
/// The kernel's error where `program` is not a descriptor of a program, or the command fails; `E2BIG` where there is more of it than any program has.
pub fn program_source(program: BorrowedFd<'_>) -> io::Result<ProgramSource> {
    // Offsets in `struct bpf_prog_info`, in words of 64 bits.
    const INSTRUCTIONS_LENGTH: usize = 2;
    const INSTRUCTIONS: usize = 4;
    const LINE_COUNT: usize = 18;
    const LINES: usize = 19;
    const ADDRESSES: usize = 20;
    const ADDRESS_COUNT: usize = 21;
    const ADDRESS_SIZE: usize = 22;
    let asked = Info::of(program)?;
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
    // The sizes of records have to be these where records are asked for (`set_info_rec_size`, kernel/bpf/syscall.c).
    words[ADDRESS_COUNT] = pair(addresses, size_of::<LineInfo>() as u32);
    words[ADDRESS_SIZE] = pair(size_of::<u64>() as u32, 0);
    // SAFETY: the addresses are of lists that outlive the call, with their lengths beside.
    unsafe { Info::fill(program, &mut words)? };
    // The kernel sets an address to 0 whose contents it does not show.
    if words[INSTRUCTIONS] == 0 {
        source.instructions.clear();
    }
    if words[ADDRESSES] == 0 {
        source.addresses.clear();
    }
    Ok(source)
}

/// Two numbers of 32 bits as they lie in memory one after the other.
const fn pair(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// The bytes of the BTF with this id; `None` where there is none any more.
///
/// # Errors
/// The kernel's error where it refuses a descriptor or does not give the bytes; `E2BIG` for more than the kernel loads.
pub fn btf_bytes(id: u32) -> io::Result<Option<Vec<u8>>> {
    // SAFETY: no addresses; the command returns a new descriptor.
    let btf = match unsafe { open(Command::BtfGetFdById, &mut [id, 0, 0]) } {
        Ok(btf) => btf,
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    // `struct bpf_btf_info`: the address of the bytes, and how many they are.
    let mut words = [0_u64; 2];
    // SAFETY: the address is 0, by which only the length is asked for.
    unsafe { Info::fill(btf.as_fd(), &mut words)? };
    let [length, _] = halves(words[1]);
    if length > LARGEST_BTF {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    let mut bytes = vec![0_u8; length as usize];
    let mut words = [bytes.as_mut_ptr() as u64, pair(length, 0)];
    // SAFETY: the address is of a buffer that outlives the call, with its length beside.
    unsafe { Info::fill(btf.as_fd(), &mut words)? };
    Ok(Some(bytes))
}

/// The two numbers of 32 bits that a word holds in memory.
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
