// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of a few instructions. They are assembled here and not compiled, so that each tries one
//! thing only.
//!
//! The encoding is that of include/uapi/linux/bpf.h and
//! Documentation/bpf/standardization/instruction-set.rst.

use std::os::fd::{AsRawFd as _, BorrowedFd};

#[cfg(target_endian = "big")]
compile_error!("the two registers of an instruction are in reverse order on big-endian machines");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    /// Frame pointer, read-only.
    Fp = 10,
}

/// Encodes an instruction that has no method of [`Code`]: `struct bpf_insn` in the byte order of
/// little-endian machines, for which the tracer is built. `offset` is the distance of a jump in
/// instructions, or of an access in bytes.
pub(super) const fn insn(code: u8, dst: Reg, src: Reg, offset: i16, immediate: i32) -> u64 {
    encode(code, dst as u8 | (src as u8) << 4, offset, immediate)
}

/// Encodes an instruction with both registers in one byte, the destination in the lower half.
const fn encode(code: u8, registers: u8, offset: i16, immediate: i32) -> u64 {
    let [o, p] = offset.to_le_bytes();
    let [i, j, k, l] = immediate.to_le_bytes();
    u64::from_le_bytes([code, registers, o, p, i, j, k, l])
}

// Classes, sizes, modes and sources of the encodings below.
const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const ST: u8 = 0x02;
const STX: u8 = 0x03;
const ALU: u8 = 0x04;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU64: u8 = 0x07;
const W: u8 = 0x00;
const DW: u8 = 0x18;
const IMM: u8 = 0x00;
const MEM: u8 = 0x60;
const MEMSX: u8 = 0x80;
const ATOMIC: u8 = 0xc0;
const K: u8 = 0x00;
const X: u8 = 0x08;

/// The effect of an atomic instruction on memory (its immediate).
#[derive(Debug, Clone, Copy)]
pub(super) enum Atomic {
    Add = 0x00,
    FetchAdd = 0x01,
    FetchOr = 0x41,
    FetchAnd = 0x51,
    FetchXor = 0xa1,
    Exchange = 0xe1,
    CompareExchange = 0xf1,
    LoadAcquire = 0x100,
    StoreRelease = 0x110,
}

/// A builder of instructions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Code(pub(super) Vec<u64>);

impl Code {
    /// Adds any instruction.
    pub(super) fn push(mut self, insn: u64) -> Self {
        self.0.push(insn);
        self
    }

    /// `dst = value`.
    pub(super) fn mov(self, dst: Reg, value: i32) -> Self {
        self.push(insn(ALU64 | 0xb0 | K, dst, Reg::R0, 0, value))
    }

    /// `dst = src`.
    pub(super) fn copy(self, dst: Reg, src: Reg) -> Self {
        self.push(insn(ALU64 | 0xb0 | X, dst, src, 0, 0))
    }

    /// `dst = (s8) src`, sign-extended (Linux 6.6).
    pub(super) fn copy_sign_extended(self, dst: Reg, src: Reg) -> Self {
        self.push(insn(ALU64 | 0xb0 | X, dst, src, 8, 0))
    }

    /// `dst += value`.
    pub(super) fn add(self, dst: Reg, value: i32) -> Self {
        self.push(insn(ALU64 | K, dst, Reg::R0, 0, value))
    }

    /// `dst = dst / value`, signed (Linux 6.6).
    pub(super) fn divide_signed(self, dst: Reg, value: i32) -> Self {
        self.push(insn(ALU64 | 0x30 | K, dst, Reg::R0, 1, value))
    }

    /// Reverses the bytes of the lower `bits` of `dst`, whatever the machine's byte order (Linux
    /// 6.6).
    pub(super) fn swap_bytes(self, dst: Reg, bits: i32) -> Self {
        self.push(insn(ALU64 | 0xd0, dst, Reg::R0, 0, bits))
    }

    /// `dst = frame pointer + offset`.
    pub(super) fn stack(self, dst: Reg, offset: i32) -> Self {
        self.copy(dst, Reg::Fp).add(dst, offset)
    }

    /// `dst = *(u64 *)(src + offset)`.
    pub(super) fn load(self, dst: Reg, src: Reg, offset: i16) -> Self {
        self.push(insn(LDX | DW | MEM, dst, src, offset, 0))
    }

    /// `dst = *(s32 *)(src + offset)`, sign-extended (Linux 6.6).
    pub(super) fn load_sign_extended(self, dst: Reg, src: Reg, offset: i16) -> Self {
        self.push(insn(LDX | W | MEMSX, dst, src, offset, 0))
    }

    /// `*(u64 *)(dst + offset) = src`.
    pub(super) fn store(self, dst: Reg, offset: i16, src: Reg) -> Self {
        self.push(insn(STX | DW | MEM, dst, src, offset, 0))
    }

    /// `*(u64 *)(dst + offset) = value`.
    pub(super) fn store_value(self, dst: Reg, offset: i16, value: i32) -> Self {
        self.push(insn(ST | DW | MEM, dst, Reg::R0, offset, value))
    }

    /// An atomic operation of `src` on `*(u64 *)(dst + offset)`. [`Atomic::LoadAcquire`] has the
    /// other direction.
    pub(super) fn atomic(self, operation: Atomic, dst: Reg, offset: i16, src: Reg) -> Self {
        self.push(insn(STX | DW | ATOMIC, dst, src, offset, operation as i32))
    }

    /// `dst` = 64 bits that the verifier replaces according to `kind` (`BPF_PSEUDO_…`). `low` and
    /// `high` select the value.
    pub(super) fn address(self, dst: Reg, kind: u8, low: i32, high: i32) -> Self {
        let first = encode(LD | DW | IMM, dst as u8 | kind << 4, 0, low);
        self.push(first).push(encode(0, 0, 0, high))
    }

    /// `dst` = the map.
    pub(super) fn map(self, dst: Reg, map: BorrowedFd<'_>) -> Self {
        self.address(dst, libbpf_sys::BPF_PSEUDO_MAP_FD as u8, map.as_raw_fd(), 0)
    }

    /// `dst` = the first value of the array `map`.
    pub(super) fn map_value(self, dst: Reg, map: BorrowedFd<'_>) -> Self {
        self.address(dst, libbpf_sys::BPF_PSEUDO_MAP_VALUE as u8, map.as_raw_fd(), 0)
    }

    /// `dst` = the function that begins `distance` instructions after this pair.
    pub(super) fn function(self, dst: Reg, distance: i32) -> Self {
        // The distance counts from the first of the two instructions.
        self.address(dst, libbpf_sys::BPF_PSEUDO_FUNC as u8, distance + 1, 0)
    }

    pub(super) fn helper(self, id: u32) -> Self {
        self.push(encode(JMP | 0x80, 0, 0, id as i32))
    }

    /// Calls the function of this program that begins `distance` instructions after the next one.
    pub(super) fn call(self, distance: i32) -> Self {
        let registers = (libbpf_sys::BPF_PSEUDO_CALL as u8) << 4;
        self.push(encode(JMP | 0x80, registers, 0, distance))
    }

    /// Calls the kernel function with this BTF id in vmlinux.
    pub(super) fn kernel_function(self, id: i32) -> Self {
        let registers = (libbpf_sys::BPF_PSEUDO_KFUNC_CALL as u8) << 4;
        self.push(encode(JMP | 0x80, registers, 0, id))
    }

    /// Jumps `distance` instructions ahead if `register` is `value`.
    pub(super) fn if_equal(self, register: Reg, value: i32, distance: i16) -> Self {
        self.push(insn(JMP | 0x10 | K, register, Reg::R0, distance, value))
    }

    /// Jumps `distance` instructions ahead if `register` is below `value` (Linux 4.14).
    pub(super) fn if_below(self, register: Reg, value: i32, distance: i16) -> Self {
        self.push(insn(JMP | 0xa0 | K, register, Reg::R0, distance, value))
    }

    /// Jumps `distance` instructions ahead if the lower half of `register` is `value` (Linux 5.1,
    /// `-mcpu=v3`).
    pub(super) fn if_equal_32(self, register: Reg, value: i32, distance: i16) -> Self {
        self.push(insn(JMP32 | 0x10 | K, register, Reg::R0, distance, value))
    }

    /// Jumps `distance` instructions ahead.
    pub(super) fn go(self, distance: i16) -> Self {
        self.push(insn(JMP, Reg::R0, Reg::R0, distance, 0))
    }

    /// Jumps `distance` instructions ahead, with a distance of 32 bits (Linux 6.6, `-mcpu=v4`).
    pub(super) fn go_far(self, distance: i32) -> Self {
        self.push(insn(JMP32, Reg::R0, Reg::R0, 0, distance))
    }

    /// Jumps `distance` instructions ahead once a budget of the kernel's choice is exhausted (Linux
    /// 6.9, `may_goto`).
    pub(super) fn may_go(self, distance: i16) -> Self {
        self.push(insn(JMP | 0xe0, Reg::R0, Reg::R0, distance, 0))
    }

    /// `dst += value` in the lower 32 bits.
    pub(super) fn add_32(self, dst: Reg, value: i32) -> Self {
        self.push(insn(ALU | K, dst, Reg::R0, 0, value))
    }

    /// Returns from the program or function.
    pub(super) fn exit(self) -> Self {
        self.push(insn(JMP | 0x90, Reg::R0, Reg::R0, 0, 0))
    }

    pub(super) fn exit_zero(self) -> Self {
        self.mov(Reg::R0, 0).exit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(code: Code) -> Vec<u8> {
        code.0.iter().flat_map(|insn| insn.to_le_bytes()).collect()
    }

    #[test]
    fn instructions_are_encoded_as_llvm_does() {
        // clang -target bpf -mcpu=v4, llvm-objdump -d: r0 = 0; exit; r1 = *(u64 *)(r6 + 8); r3 =
        // (s8)r2; r1 s/= 2.
        assert_eq!(bytes(Code::default().exit_zero()), b"\xb7\0\0\0\0\0\0\0\x95\0\0\0\0\0\0\0");
        assert_eq!(bytes(Code::default().load(Reg::R1, Reg::R6, 8)), b"\x79\x61\x08\0\0\0\0\0");
        assert_eq!(bytes(Code::default().copy_sign_extended(Reg::R3, Reg::R2)), b"\xbf\x23\x08\0\0\0\0\0");
        assert_eq!(bytes(Code::default().divide_signed(Reg::R1, 2)), b"\x37\x01\x01\0\x02\0\0\0");
        // r1 = atomic_fetch_add((u64 *)(r10 - 8), r1); call 14; if w1 == 1 goto +2; gotol +1
        assert_eq!(
            bytes(Code::default().atomic(Atomic::FetchAdd, Reg::Fp, -8, Reg::R1)),
            b"\xdb\x1a\xf8\xff\x01\0\0\0"
        );
        assert_eq!(bytes(Code::default().helper(14)), b"\x85\0\0\0\x0e\0\0\0");
        assert_eq!(bytes(Code::default().if_equal_32(Reg::R1, 1, 2)), b"\x16\x01\x02\0\x01\0\0\0");
        assert_eq!(bytes(Code::default().go_far(1)), b"\x06\0\0\0\x01\0\0\0");
        assert_eq!(bytes(Code::default().address(Reg::R1, 1, 5, 0)), b"\x18\x11\0\0\x05\0\0\0\0\0\0\0\0\0\0\0");
    }
}
