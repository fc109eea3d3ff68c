// SPDX-License-Identifier: MIT OR Apache-2.0
//! The eBPF objects in Rust, embedded by the build script where the build was given some.

use bpfassay_protocol::probe::MapLayout;

#[allow(unused_imports, reason = "a build without objects in Rust has an empty list")]
use crate::loader::plan::objects::Aligned;

/// One object file: all programs with one map layout.
#[derive(Debug)]
pub(super) struct Object {
    /// Name of the map layout.
    map: &'static str,
    /// The ELF file, for the architecture that the tracer itself is built for.
    elf: &'static [u8],
}

static OBJECTS: &[Object] = include!(concat!(env!("OUT_DIR"), "/aya_objects.rs"));

/// The object with a map layout, if this build has it. Builds on a host have none: see the build script.
pub(super) fn find(map: MapLayout) -> Option<&'static [u8]> {
    OBJECTS.iter().find(|object| object.map == map.name()).map(|object| object.elf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_is_an_elf_file_for_a_map_layout() {
        for object in OBJECTS {
            assert!(object.map.parse::<MapLayout>().is_ok(), "{}", object.map);
            assert_eq!(object.elf[..4], *b"\x7fELF");
        }
    }
}
