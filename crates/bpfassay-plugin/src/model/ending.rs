// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classifies the last instruction of a block by its bytes. Only branches are distinguished;
//! everything else is [`BlockEnding::Other`].

use super::branch::BlockEnding;

/// Classifies an instruction at `address` on `target`, QEMU's name of the architecture.
pub(crate) fn ending(target: &str, address: u64, bytes: &[u8]) -> BlockEnding {
    let ending = match target {
        "x86_64" => x86(address, bytes),
        "aarch64" => aarch64(address, bytes),
        "riscv64" => riscv(address, bytes),
        _ => None,
    };
    ending.unwrap_or(BlockEnding::Other)
}

/// Source: Intel's manual, volume 2, opcode maps (appendix A).
fn x86(address: u64, bytes: &[u8]) -> Option<BlockEnding> {
    let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    let rest = &bytes[bytes.iter().take_while(|byte| is_prefix(byte)).count()..];
    // REX.
    let rest = if rest.first()? & 0xf0 == 0x40 { rest.get(1..)? } else { rest };
    let behind = address.wrapping_add(bytes.len() as u64);
    // The displacement is the last part of the instruction.
    let near = || Some(behind.wrapping_add_signed(i64::from(i32::from_le_bytes(*bytes.last_chunk()?))));
    let short = || Some(behind.wrapping_add_signed(i64::from(bytes.last()?.cast_signed())));
    match (rest.first()?, rest.get(1)) {
        (0x70..=0x7f | 0xe0..=0xe3, Some(_)) => Some(BlockEnding::Conditional { target: short()? }),
        (0x0f, Some(0x80..=0x8f)) => Some(BlockEnding::Conditional { target: near()? }),
        (0xe8, _) => Some(BlockEnding::Call { target: near()? }),
        (0xc2 | 0xc3, _) => Some(BlockEnding::Return),
        (0xff, Some(operand)) => match operand >> 3 & 7 {
            2 => Some(BlockEnding::IndirectCall),
            4 => Some(BlockEnding::Indirect),
            _ => None,
        },
        _ => None,
    }
}

/// Source: Arm's manual DDI 0487, C4.1, branches, exception generating and system instructions.
fn aarch64(address: u64, bytes: &[u8]) -> Option<BlockEnding> {
    let word = u32::from_le_bytes(bytes.try_into().ok()?);
    let target = |from: u32, bits: u32| address.wrapping_add_signed(4 * signed(word >> from, bits));
    if word & 0xff00_0000 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 {
        // B.cond, BC.cond; CBZ, CBNZ.
        return Some(BlockEnding::Conditional { target: target(5, 19) });
    }
    if word & 0x7e00_0000 == 0x3600_0000 {
        // TBZ, TBNZ.
        return Some(BlockEnding::Conditional { target: target(5, 14) });
    }
    if word & 0xfc00_0000 == 0x9400_0000 {
        return Some(BlockEnding::Call { target: target(0, 26) });
    }
    if word & 0xfe00_0000 != 0xd600_0000 {
        return None;
    }
    // BR, BLR, RET. Pointer authentication sets bit 11, and bit 24 for a modifier in a register.
    match word >> 21 & 7 {
        0 => Some(BlockEnding::Indirect),
        1 => Some(BlockEnding::IndirectCall),
        2 => Some(BlockEnding::Return),
        // ERET and DRPS (for debuggers).
        _ => None,
    }
}

/// Source: the RISC-V manual, volume 1, RV32I, "C" and the hints on return-address stacks.
fn riscv(address: u64, bytes: &[u8]) -> Option<BlockEnding> {
    let is_link = |register: u32| matches!(register, 1 | 5);
    let jump = |link: u32, source: u32| match (is_link(link), is_link(source)) {
        (true, _) => BlockEnding::IndirectCall,
        (false, true) => BlockEnding::Return,
        (false, false) => BlockEnding::Indirect,
    };
    if let Ok(half) = <[u8; 2]>::try_from(bytes) {
        let half = u32::from(u16::from_le_bytes(half));
        let bits = |from: u32, count: u32, to: u32| (half >> from & ((1 << count) - 1)) << to;
        return match half & 0xe003 {
            // C.BEQZ, C.BNEZ.
            0xc001 | 0xe001 => {
                let offset = bits(12, 1, 8) | bits(10, 2, 3) | bits(5, 2, 6) | bits(3, 2, 1) | bits(2, 1, 5);
                Some(BlockEnding::Conditional { target: address.wrapping_add_signed(signed(offset, 9)) })
            }
            // C.JR, C.JALR; C.EBREAK has no register.
            0x8002 if half & 0x7c == 0 && half & 0xf80 != 0 => Some(jump(half >> 12 & 1, half >> 7 & 31)),
            _ => None,
        };
    }
    let word = u32::from_le_bytes(bytes.try_into().ok()?);
    let bits = |from: u32, count: u32, to: u32| (word >> from & ((1 << count) - 1)) << to;
    let link = word >> 7 & 31;
    match word & 0x7f {
        0x63 => {
            let offset = bits(31, 1, 12) | bits(7, 1, 11) | bits(25, 6, 5) | bits(8, 4, 1);
            Some(BlockEnding::Conditional { target: address.wrapping_add_signed(signed(offset, 13)) })
        }
        0x6f if is_link(link) => {
            let offset = bits(31, 1, 20) | bits(12, 8, 12) | bits(20, 1, 11) | bits(21, 10, 1);
            Some(BlockEnding::Call { target: address.wrapping_add_signed(signed(offset, 21)) })
        }
        0x67 => Some(jump(link, word >> 15 & 31)),
        _ => None,
    }
}

/// Sign-extends the lowest `bits` of `value`.
fn signed(value: u32, bits: u32) -> i64 {
    let unused = 32 - bits;
    i64::from((value << unused).cast_signed() >> unused)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HERE: u64 = 0xffff_ffff_8100_0000;

    fn conditional(offset: i64) -> BlockEnding {
        BlockEnding::Conditional { target: HERE.wrapping_add_signed(offset) }
    }

    fn call(offset: i64) -> BlockEnding {
        BlockEnding::Call { target: HERE.wrapping_add_signed(offset) }
    }

    /// The instructions were assembled with `llvm-mc`.
    #[test]
    fn branches_of_x86_64_are_distinguished() {
        for (bytes, expected) in [
            (&[0x74, 0x10][..], conditional(0x12)),
            (&[0x75, 0xfe], conditional(0)),
            (&[0x0f, 0x84, 0x00, 0x01, 0x00, 0x00], conditional(0x106)),
            (&[0x2e, 0x74, 0x10], conditional(0x13)),
            (&[0xe3, 0x05], conditional(7)),
            (&[0xe8, 0xfb, 0xff, 0xff, 0xff], call(0)),
            (&[0xc3], BlockEnding::Return),
            (&[0xf3, 0xc3], BlockEnding::Return),
            (&[0xff, 0xd0], BlockEnding::IndirectCall),
            (&[0x41, 0xff, 0xd3], BlockEnding::IndirectCall),
            (&[0xff, 0xe0], BlockEnding::Indirect),
            (&[0xff, 0x24, 0xc5, 0x00, 0x00, 0x00, 0x81], BlockEnding::Indirect),
            // jmp, push, iretq, syscall, sysretq, mov.
            (&[0xeb, 0x10], BlockEnding::Other),
            (&[0xe9, 0x00, 0x00, 0x00, 0x00], BlockEnding::Other),
            (&[0xff, 0x30], BlockEnding::Other),
            (&[0x48, 0xcf], BlockEnding::Other),
            (&[0x0f, 0x05], BlockEnding::Other),
            (&[0x48, 0x0f, 0x07], BlockEnding::Other),
            (&[0x48, 0x89, 0xe5], BlockEnding::Other),
            (&[], BlockEnding::Other),
            (&[0x48], BlockEnding::Other),
        ] {
            assert_eq!(ending("x86_64", HERE, bytes), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn branches_of_aarch64_are_distinguished() {
        for (word, expected) in [
            (0x5400_0080_u32, conditional(16)),
            (0x54ff_ffe1, conditional(-4)),
            (0xb400_0040, conditional(8)),
            (0x35ff_ffc0, conditional(-8)),
            (0x3600_0080, conditional(16)),
            (0xb7ff_ffe0, conditional(-4)),
            (0x9400_0002, call(8)),
            (0x97ff_ffff, call(-4)),
            (0xd65f_03c0, BlockEnding::Return),
            (0xd65f_0bff, BlockEnding::Return),
            (0xd61f_0200, BlockEnding::Indirect),
            (0xd71f_0a11, BlockEnding::Indirect),
            (0xd63f_0200, BlockEnding::IndirectCall),
            (0xd73f_0a11, BlockEnding::IndirectCall),
            // b, eret, svc, nop, add.
            (0x1400_0001, BlockEnding::Other),
            (0xd69f_03e0, BlockEnding::Other),
            (0xd400_0001, BlockEnding::Other),
            (0xd503_201f, BlockEnding::Other),
            (0x9100_0400, BlockEnding::Other),
        ] {
            assert_eq!(ending("aarch64", HERE, &word.to_le_bytes()), expected, "{word:x}");
        }
    }

    #[test]
    fn branches_of_riscv64_are_distinguished() {
        for (bytes, expected) in [
            // beq a0, a1, 16; bne a0, zero, -4; jal ra, 8; jal t0, -4; jalr ra, 0(a5); ret; jr t0;
            // jr a5; jalr t0, 8(t0).
            (&0x00b5_0863_u32.to_le_bytes()[..], conditional(16)),
            (&0xfe05_1ee3_u32.to_le_bytes(), conditional(-4)),
            (&0x0080_00ef_u32.to_le_bytes(), call(8)),
            (&0xffdf_f2ef_u32.to_le_bytes(), call(-4)),
            (&0x0007_80e7_u32.to_le_bytes(), BlockEnding::IndirectCall),
            (&0x0000_8067_u32.to_le_bytes(), BlockEnding::Return),
            (&0x0002_8067_u32.to_le_bytes(), BlockEnding::Return),
            (&0x0007_8067_u32.to_le_bytes(), BlockEnding::Indirect),
            (&0x0082_82e7_u32.to_le_bytes(), BlockEnding::IndirectCall),
            // c.beqz a0, 8; c.bnez a0, -4; ret; c.jr a5; c.jalr a5.
            (&0xc501_u16.to_le_bytes(), conditional(8)),
            (&0xfd75_u16.to_le_bytes(), conditional(-4)),
            (&0x8082_u16.to_le_bytes(), BlockEnding::Return),
            (&0x8782_u16.to_le_bytes(), BlockEnding::Indirect),
            (&0x9782_u16.to_le_bytes(), BlockEnding::IndirectCall),
            // c.ebreak, c.mv, c.j, j, ecall, sret, addi.
            (&0x9002_u16.to_le_bytes(), BlockEnding::Other),
            (&0x853e_u16.to_le_bytes(), BlockEnding::Other),
            (&0xa001_u16.to_le_bytes(), BlockEnding::Other),
            (&0x0080_006f_u32.to_le_bytes(), BlockEnding::Other),
            (&0x0000_0073_u32.to_le_bytes(), BlockEnding::Other),
            (&0x1020_0073_u32.to_le_bytes(), BlockEnding::Other),
            (&0x0015_0513_u32.to_le_bytes(), BlockEnding::Other),
        ] {
            assert_eq!(ending("riscv64", HERE, bytes), expected, "{bytes:x?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_something(address: u64, bytes in prop::collection::vec(any::<u8>(), 0..16)) {
            for target in ["x86_64", "aarch64", "riscv64", "s390x"] {
                let _ = ending(target, address, &bytes);
            }
        }
    }
}
