// SPDX-License-Identifier: MIT OR Apache-2.0
//! The instructions that mark where a window begins and ends; `bpfassay-guest` has them in its `marker.rs`, too.

/// The code of the marker that begins a window.
pub(crate) const BEGIN: u8 = 1;
/// The code of the marker that ends it.
const END: u8 = 2;

/// Finds a marker's code in the bytes of an instruction.
pub(crate) type Find = fn(&[u8]) -> Option<u8>;

/// What finds a marker's code in the bytes of an instruction of `target`, as QEMU names the architecture.
pub(crate) fn marker_of(target: &str) -> Option<Find> {
    match target {
        "x86_64" => Some(x86_64),
        "aarch64" => Some(aarch64),
        "riscv64" => Some(riscv64),
        _ => None,
    }
}

fn known(code: u32) -> Option<u8> {
    u8::try_from(code).ok().filter(|code| matches!(*code, BEGIN | END))
}

/// `nop dword ptr [rax + rax + 0x425046NN]`.
fn x86_64(bytes: &[u8]) -> Option<u8> {
    match bytes {
        [0x0f, 0x1f, 0x84, 0x00, code, 0x46, 0x50, 0x42] => known(u32::from(*code)),
        _ => None,
    }
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_le_bytes)
}

/// `movz xzr, #0x42NN`.
fn aarch64(bytes: &[u8]) -> Option<u8> {
    let word = word(bytes)?;
    let (instruction, operand) = (word & !(0xffff << 5), word >> 5 & 0xffff);
    (instruction == 0xd280_001f && operand >> 8 == 0x42).then(|| known(operand & 0xff)).flatten()
}

/// `slti x0, x0, 0x42N`.
fn riscv64(bytes: &[u8]) -> Option<u8> {
    let word = word(bytes)?;
    let (instruction, operand) = (word & 0xf_ffff, word >> 20);
    (instruction == 0x2013 && operand >> 4 == 0x42).then(|| known(operand & 0xf)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_found_and_nothing_like_them() {
        let code = |target, bytes: &[u8]| marker_of(target).unwrap()(bytes);
        assert_eq!(code("x86_64", &[0x0f, 0x1f, 0x84, 0x00, 0x02, 0x46, 0x50, 0x42]), Some(END));
        assert_eq!(code("x86_64", &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00]), None);
        assert_eq!(code("x86_64", &[0x90]), None);
        assert_eq!(code("aarch64", &0xd288_403f_u32.to_le_bytes()), Some(BEGIN));
        assert_eq!(code("aarch64", &0xd288_403e_u32.to_le_bytes()), None);
        assert_eq!(code("riscv64", &0x4220_2013_u32.to_le_bytes()), Some(END));
        assert_eq!(code("riscv64", &0x0000_2013_u32.to_le_bytes()), None);
        assert!(marker_of("s390x").is_none());
    }
}
