// SPDX-License-Identifier: MIT OR Apache-2.0
//! The compiled eBPF objects, embedded by the build script.

use bpfassay_protocol::{
    probe::{MapLayout, Probe},
    program_set::ProgramSet,
};

/// One object file.
#[derive(Debug)]
pub(crate) struct ObjectFile {
    /// Name of the probe, whose source is `src/bpf/PROBE.bpf.c`.
    probe: &'static str,
    /// Name of the map layout, whose source is `src/bpf/map_MAP.h`.
    map: &'static str,
    /// The ELF file, for the architecture for which the tracer is built.
    pub(crate) elf: &'static [u8],
}

#[derive(Debug)]
pub(crate) struct NamedObject {
    pub(crate) name: &'static str,
    pub(crate) elf: &'static [u8],
}

/// Aligns an object: libelf reads aligned structures in place, and copies others.
#[repr(align(16))]
pub(crate) struct Aligned<T>(pub(crate) T);

static OBJECTS: &[ObjectFile] = include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// Returns the object of a probe with a map layout, if there is one.
pub(crate) fn find(probe: Probe, map: MapLayout) -> Option<&'static ObjectFile> {
    OBJECTS.iter().find(|object| object.probe == probe.name() && object.map == map.name())
}

/// The objects of bundled tools, which are loaded unchanged: `src/bpf/bundled/NAME.bpf.c`.
pub(crate) static BUNDLED: &[NamedObject] = include!(concat!(env!("OUT_DIR"), "/bundled_objects.rs"));

/// The objects of program sets: `src/bpf/sets/NAME.bpf.c`.
static SETS: &[NamedObject] = include!(concat!(env!("OUT_DIR"), "/sets.rs"));

/// The objects in Rust by map layout. Builds on a host have none: see the build script.
static RUST: &[NamedObject] = include!(concat!(env!("OUT_DIR"), "/aya_objects.rs"));

/// Returns the object file of a program set, if there is one.
pub(crate) fn of_set(set: ProgramSet) -> Option<&'static [u8]> {
    named(SETS, set.name())
}

/// Returns the object file in Rust with a map layout, if this build has it.
pub(crate) fn in_rust(map: MapLayout) -> Option<&'static [u8]> {
    named(RUST, map.name())
}

/// Returns the object file with a name in a list.
pub(crate) fn named(list: &[NamedObject], name: &str) -> Option<&'static [u8]> {
    list.iter().find(|object| object.name == name).map(|object| object.elf)
}

/// Name of the kfunc with which programs read the kernel's structures, if the kernel has it
/// (bpf/counters.h).
const CAST: &[u8] = b"\0bpf_rdonly_cast\0";
/// A name of the same length that no kernel has.
const NO_CAST: &[u8] = b"\0bpf_rdonly_none\0";

/// Returns the object without any call of a kfunc, so that the programs behave as on kernels
/// without kfuncs. `None` if the object has no such calls.
///
/// A program treats a weak kfunc as missing if the kernel has no kfunc of that name. Therefore the
/// name is changed, in the string tables of symbols and of the type information.
pub(crate) fn without_casts(elf: &[u8]) -> Option<Vec<u8>> {
    let mut other = elf.to_vec();
    let mut at = 0;
    while let Some(found) = other[at..].windows(CAST.len()).position(|window| window == CAST) {
        at += found;
        other[at..at + CAST.len()].copy_from_slice(NO_CAST);
    }
    (at > 0).then_some(other)
}

#[cfg(test)]
mod tests {
    use object::{Object as _, ObjectSection as _};

    use super::*;

    #[test]
    fn objects_work_without_kfuncs() {
        assert_eq!((CAST.len(), without_casts(b"\x7fELF")), (NO_CAST.len(), None));
        let count = |elf: &[u8], name: &[u8]| elf.windows(name.len()).filter(|window| *window == name).count();
        for object in OBJECTS {
            let calls = count(object.elf, CAST);
            let Some(other) = without_casts(object.elf) else {
                assert_eq!(calls, 0, "{}+{}", object.probe, object.map);
                continue;
            };
            // The name occurs among the names of symbols and of types.
            assert!(calls >= 2, "{}+{}: {calls}", object.probe, object.map);
            assert_eq!((count(&other, CAST), count(&other, NO_CAST)), (0, calls));
            assert_eq!(other.len(), object.elf.len());
        }
    }

    #[test]
    fn libbpf_opens_every_stripped_object() {
        let named = SETS.iter().chain(BUNDLED).map(|object| (object.name, object.elf));
        let all = OBJECTS.iter().map(|object| (object.probe, object.elf)).chain(named);
        for (name, elf) in all {
            let parsed = object::File::parse(elf).unwrap();
            let sections: Vec<&str> = parsed.sections().map(|section| section.name().unwrap()).collect();
            assert!(sections.contains(&".BTF") && sections.contains(&".BTF.ext"), "{name}");
            assert!(!sections.iter().any(|section| section.contains(".debug_")), "{name}: {sections:?}");
            let open =
                libbpf_rs::ObjectBuilder::default().name("bpfassay").and_then(|builder| builder.open_memory(elf));
            let open = open.unwrap_or_else(|error| panic!("{name}: {error:#}"));
            assert!(open.progs().next().is_some(), "{name}");
        }
    }

    #[test]
    fn every_object_in_rust_is_an_elf_file_for_a_map_layout() {
        for object in RUST {
            assert!(object.name.parse::<MapLayout>().is_ok(), "{}", object.name);
            assert_eq!(object.elf[..4], *b"\x7fELF");
        }
    }

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
                let has_one = !matches!(probe, Probe::None | Probe::Programs);
                assert_eq!(find(probe, map).is_some(), has_one, "{probe}+{map}");
            }
        }
    }
}
