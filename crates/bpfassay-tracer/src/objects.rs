//! The compiled eBPF objects, embedded by the build script.

use bpfassay_protocol::probe::{MapLayout, Probe};

/// One object file.
#[derive(Debug)]
pub(crate) struct Object {
    /// Name of the probe: its source is `src/bpf/PROBE.bpf.c`.
    probe: &'static str,
    /// Name of the map layout: `src/bpf/map_MAP.h`.
    map: &'static str,
    /// The ELF file, for the architecture that the tracer itself is built for.
    pub(crate) elf: &'static [u8],
}

/// libelf reads structures in place where they are aligned, and copies them where they are not.
#[repr(align(16))]
pub(crate) struct Aligned<T>(pub(crate) T);

static OBJECTS: &[Object] = include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// The object of a probe with a map layout, if there is one.
pub(crate) fn find(probe: Probe, map: MapLayout) -> Option<&'static Object> {
    OBJECTS.iter().find(|object| object.probe == probe.name() && object.map == map.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_has_a_probe_and_a_map_layout_and_every_pair_an_object() {
        for object in OBJECTS {
            assert!(object.probe.parse::<Probe>().is_ok_and(|probe| probe != Probe::None), "{}", object.probe);
            assert!(object.map.parse::<MapLayout>().is_ok(), "{}", object.map);
            assert_eq!(object.elf[..4], *b"\x7fELF");
            assert_eq!(object.elf.as_ptr().align_offset(16), 0);
        }
        for &probe in Probe::ALL {
            for &map in MapLayout::ALL {
                assert_eq!(find(probe, map).is_some(), probe != Probe::None, "{probe}+{map}");
            }
        }
    }
}
