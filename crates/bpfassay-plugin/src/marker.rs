// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the instructions that mark the beginning and end of a window ([`markers`]).
//! `bpfassay-guest` executes them.

#[path = "markers.rs"]
mod markers;

/// The code of the marker that begins a window.
pub(crate) const BEGIN: u8 = 1;
/// The code of the marker that ends a window.
const END: u8 = 2;

/// An architecture's markers: the one that begins a window, and the one that ends it.
pub(crate) type Markers = [&'static [u8]; 2];

/// Returns the markers of `target`, QEMU's name of the architecture.
pub(crate) fn of_target(target: &str) -> Option<Markers> {
    markers::ALL.into_iter().find(|(name, _)| *name == target).map(|(_, markers)| markers)
}

/// Returns the code of the marker with the bytes of `instruction`, if it is a marker.
pub(crate) fn code(markers: Markers, instruction: &[u8]) -> Option<u8> {
    [BEGIN, END].into_iter().zip(markers).find(|(_, marker)| *marker == instruction).map(|(code, _)| code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_are_found_and_nothing_like_them() {
        let code = |target, bytes: &[u8]| code(of_target(target).unwrap(), bytes);
        assert_eq!(code("x86_64", &[0x0f, 0x1f, 0x84, 0x00, 0x02, 0x46, 0x50, 0x42]), Some(END));
        assert_eq!(code("x86_64", &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00]), None);
        assert_eq!(code("x86_64", &[0x90]), None);
        assert_eq!(code("aarch64", &0xd288_403f_u32.to_le_bytes()), Some(BEGIN));
        assert_eq!(code("aarch64", &0xd288_405f_u32.to_le_bytes()), Some(END));
        assert_eq!(code("aarch64", &0xd288_403e_u32.to_le_bytes()), None);
        assert_eq!(code("riscv64", &0x4210_2013_u32.to_le_bytes()), Some(BEGIN));
        assert_eq!(code("riscv64", &0x4220_2013_u32.to_le_bytes()), Some(END));
        assert_eq!(code("riscv64", &0x0000_2013_u32.to_le_bytes()), None);
        assert!(of_target("s390x").is_none());
    }
}
