// SPDX-License-Identifier: MIT OR Apache-2.0
//! A user's object, which is loaded unchanged. Each program is attached by the name of its section.

use std::{
    ffi::OsString,
    fmt::Display,
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    time::Instant,
};

use bpfassay_bpf::{MapSpec, program_info};
use bpfassay_btf::object_contents::Encoded;
use bpfassay_protocol::{
    contents::{InnerMap, MapSize},
    loaded_object::{LoadedObject, UnattachedProgram, VerifiedProgram},
    nanoseconds,
    tracer_messages::{Refusal, Step},
};
use libbpf_rs::{
    Link, MapCore as _, MapFlags, MapType, Object, ObjectBuilder, OpenMap, OpenObject, Program, ProgramType,
};

use super::{libbpf_log, sys};
use crate::{kernel::verifier::statistics, loader::plan::refusal::Failure};

/// A loaded object with its programs attached, except those whose sections name no target.
#[derive(Debug)]
pub(crate) struct Bare {
    /// Links with the names of their programs or `struct_ops` maps. Fields are dropped in order, so links are detached
    /// before the object is closed.
    links: Vec<(String, Link)>,
    object: Object,
    /// The time of loading, the contents of the verifier's log about each program, and what is
    /// not attached.
    pub(crate) loaded: LoadedObject,
}

/// The kernel's log of accepted programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Logged {
    /// The verifier's statistics.
    Statistics,
    Nothing,
}

/// Size of the log for one program's statistics, in bytes. They are three lines.
const STATISTICS: usize = 16 << 10;

/// Name of the object. libbpf puts it before the names of the maps of global variables.
const OBJECT: &str = "object";

/// Loads `programs` of the object `elf`, or all of them, with these contents, and attaches them.
/// Programs that only a loader can attach stay unattached.
///
/// # Errors
/// A [`Refusal`]. Nothing stays attached.
pub(crate) fn bring_up(elf: &[u8], programs: &[String], contents: &Encoded) -> Result<Bare, Refusal> {
    let log = libbpf_log::capture();
    match load_and_attach(elf, programs, contents, Logged::Statistics) {
        // A log of statistics does not contain the reason. A kernel that refuses the log refuses
        // the program, too.
        Err(failure) if failure.step == Step::Load => {}
        done => return done.map_err(|failure| log.refusal(failure)),
    }
    let log = libbpf_log::capture();
    load_and_attach(elf, programs, contents, Logged::Nothing).map_err(|failure| {
        let mut refusal = log.refusal(failure);
        if libbpf_log::name_of("map", &refusal.message).is_some_and(|map| is_unsized(elf, map)) {
            refusal.message.push_str("; its size (max_entries) is 0 in the object: `maps` of the tool file can set it, as the loader of the tool may");
        }
        refusal
    })
}

/// Returns whether the object `elf` leaves the size of that map to a loader.
fn is_unsized(elf: &[u8], map: &str) -> bool {
    let open = ObjectBuilder::default().name(OBJECT).and_then(|builder| builder.open_memory(elf));
    open.is_ok_and(|open| open.maps().any(|found| found.name().to_string_lossy() == map && has_no_size(&found)))
}

/// Returns whether a loader has to set the size of `map`. libbpf sets that of a perf event array
/// (`map_set_def_max_entries`).
fn has_no_size(map: &OpenMap<'_>) -> bool {
    map.max_entries() == 0 && map.map_type() != MapType::PerfEventArray
}

fn load_and_attach(elf: &[u8], programs: &[String], contents: &Encoded, logged: Logged) -> Result<Bare, Failure> {
    let not_opened = |text| Failure { step: Step::Open, program: None, error: io::Error::other(text) };
    let mut open = opened(elf, programs, contents).map_err(not_opened)?;
    let templates = set_sizes(&mut open, &contents.maps).map_err(not_opened)?;
    let unloaded = |error: io::Error| Failure { step: Step::Load, program: None, error };
    make_private(&mut open).map_err(unloaded)?;
    let mut logs = Vec::new();
    for mut program in open.progs_mut().filter(|program| logged == Logged::Statistics && program.autoload()) {
        let log = sys::log_statistics(&mut program, STATISTICS).map_err(unloaded)?;
        logs.push((program.name().to_owned(), log));
    }
    let begun = Instant::now();
    let object = sys::load(open).map_err(unloaded)?;
    let load_ns = nanoseconds(begun.elapsed());
    drop(templates);
    let verified = verified(&object, &logs).map_err(unloaded)?;
    set_entries(&object, contents).map_err(|text| unloaded(io::Error::other(text)))?;
    libbpf_log::forget();
    let (links, unattached) = attach(&object)?;
    Ok(Bare { links, object, loaded: LoadedObject { load_ns, programs: verified, unattached } })
}

/// Opens the object `elf` with these contents. If there are `programs`, it will load only these.
fn opened(elf: &[u8], programs: &[String], contents: &Encoded) -> Result<OpenObject, String> {
    let mut open = ObjectBuilder::default()
        .name(OBJECT)
        .and_then(|builder| builder.open_memory(elf))
        .map_err(|error| format!("{error:#}"))?;
    let names: Vec<String> = open.progs().map(|program| program.name().to_string_lossy().into_owned()).collect();
    if let Some(unknown) = programs.iter().find(|name| !names.contains(name)) {
        return Err(format!("the object has no program `{unknown}`: it has {}", listed(&names)));
    }
    if names.is_empty() {
        return Err("the object has no programs".to_owned());
    }
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if !programs.is_empty() && !programs.contains(&name) {
            program.set_autoload(false);
        }
    }
    let has_struct_ops =
        open.progs().any(|program| program.autoload() && program.prog_type() == ProgramType::StructOps);
    if !has_struct_ops {
        // libbpf loads the programs of such a map whether they were left out or not
        // (`bpf_object_adjust_struct_ops_autoload`).
        for mut map in open.maps_mut().filter(|map| map.map_type() == MapType::StructOps) {
            map.set_autocreate(false).map_err(|error| format!("{error:#}"))?;
        }
    }
    set_constants(&mut open, contents)?;
    Ok(open)
}

/// Makes each map of the object belong to it alone, whatever the object says of pinning: a pinned
/// map would outlive this process, and bring the state of one run into the next.
fn make_private(open: &mut OpenObject) -> io::Result<()> {
    open.maps_mut().try_for_each(|map| sys::unset_pin_path(&map))
}

/// The links of an object with their names, and what has none.
type Attachments = (Vec<(String, Link)>, Vec<UnattachedProgram>);

/// Attaches the loaded programs and `struct_ops` maps of `object`.
fn attach(object: &Object) -> Result<Attachments, Failure> {
    let (mut links, mut unattached) = (Vec::new(), Vec::new());
    for program in object.progs_mut().filter(|program| program.autoload()) {
        let name = program.name().to_string_lossy().into_owned();
        match sys::attach_by_section(&program) {
            Ok(Some(link)) => links.push((name, link)),
            // The map of a `struct_ops` program is attached instead.
            Ok(None) if program.prog_type() == ProgramType::StructOps => {}
            Ok(None) => {
                let section = program.section().to_string_lossy().into_owned();
                unattached.push(UnattachedProgram { program: name, section });
            }
            Err(error) => return Err(Failure { step: Step::Attach, program: Some(name), error }),
        }
    }
    for map in object.maps().filter(|map| map.autocreate() && map.map_type() == MapType::StructOps) {
        let failed = |error| Failure { step: Step::Attach, program: None, error };
        let name = map.name().to_string_lossy().into_owned();
        links.extend(sys::attach_struct_ops(&map).map_err(failed)?.map(|link| (name, link)));
    }
    Ok((links, unattached))
}

/// Returns the loaded programs of `object` with the statistics in `logs`, by name. libbpf also
/// loads programs of `struct_ops` maps that were left out, without a log.
fn verified(object: &Object, logs: &[(OsString, sys::ProgramLog)]) -> io::Result<Vec<VerifiedProgram>> {
    let of = |program: Program<'_>| {
        let id = program_info(program.as_fd())?.id;
        let log = logs.iter().find(|(name, _)| name == program.name());
        Ok(VerifiedProgram { id, log: log.and_then(|(_, log)| statistics(&log.text())) })
    };
    object.progs().filter(|program| program.autoload()).map(of).collect()
}

/// Returns the name of a map in the object. libbpf prefixes the names of maps of global variables
/// with the object's name (`internal_map_name`).
fn short(name: &str) -> &str {
    name.strip_prefix(OBJECT).filter(|rest| rest.starts_with('.')).unwrap_or(name)
}

fn set_constants(open: &mut OpenObject, contents: &Encoded) -> Result<(), String> {
    for variable in &contents.variables {
        let mut maps = open.maps_mut();
        let map = maps.find(|map| short(&map.name().to_string_lossy()) == variable.section);
        let mut map = map.ok_or_else(|| format!("the object has no section `{}`", variable.section))?;
        let end = variable.offset.checked_add(variable.bytes.len());
        let place = map.initial_value_mut().zip(end).and_then(|(whole, end)| whole.get_mut(variable.offset..end));
        let place = place.ok_or_else(|| format!("a constant is outside of the section `{}`", variable.section))?;
        place.copy_from_slice(&variable.bytes);
    }
    Ok(())
}

/// Sets sizes of maps, and what the maps in maps of maps are like. Returns the maps that are
/// examples of these: libbpf uses their descriptors when it loads the object, and does not close
/// them.
fn set_sizes(open: &mut OpenObject, sizes: &[MapSize]) -> Result<Vec<OwnedFd>, String> {
    let mut templates = Vec::new();
    for MapSize { name, max_entries, inner } in sizes {
        let names: Vec<String> = open.maps().map(|map| map.name().to_string_lossy().into_owned()).collect();
        let mut maps = open.maps_mut();
        let mut map = maps
            .find(|map| map.name().to_string_lossy() == name.as_str())
            .ok_or_else(|| format!("the object has no map `{name}`: it has {}", listed(&names)))?;
        let failed = |error: &dyn Display| format!("cannot set the size of the map `{name}`: {error:#}");
        if let Some(entries) = max_entries {
            map.set_max_entries(*entries).map_err(|error| failed(&error))?;
        }
        if let Some(InnerMap { kind, key_size, value_size, max_entries }) = *inner {
            let like =
                MapSpec { kind: kind.number(), key: key_size, entries: max_entries, ..MapSpec::array(value_size) };
            let like = like.create().map_err(|error| failed(&error))?;
            map.set_inner_map_fd(like.as_fd()).map_err(|error| failed(&error))?;
            templates.push(like);
        }
    }
    Ok(templates)
}

fn set_entries(object: &Object, contents: &Encoded) -> Result<(), String> {
    for (name, key, value) in &contents.entries {
        let mut maps = object.maps();
        let map = maps.find(|map| map.name().to_string_lossy() == name.as_str());
        let map = map.ok_or_else(|| format!("the object has no map `{name}` that is created"))?;
        let set = if map.map_type().is_percpu() {
            libbpf_rs::num_possible_cpus()
                .and_then(|copies| map.update_percpu(key, &vec![value.clone(); copies], MapFlags::ANY))
        } else {
            map.update(key, value, MapFlags::ANY)
        };
        set.map_err(|error| format!("cannot set an entry of the map `{name}`: {error:#}"))?;
    }
    Ok(())
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl Bare {
    /// Returns the map with the name `name` in the object.
    ///
    /// # Errors
    /// `NotFound` with the names of all maps, if there is no such map.
    pub(crate) fn map(&self, name: &str) -> io::Result<OwnedFd> {
        let mut names = Vec::new();
        for map in self.object.maps().filter(|map| map.autocreate()) {
            let full = map.name().to_string_lossy().into_owned();
            let short = short(&full);
            if short == name {
                return map.as_fd().try_clone_to_owned();
            }
            names.push(short.to_owned());
        }
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("the object has no map `{name}`: it has {}", listed(&names)),
        ))
    }

    /// Pins every link below `directory` of a bpf file system, under its program's name and this
    /// process's id, so that it outlives this process.
    ///
    /// # Errors
    /// The error of the kernel or libbpf, with the path.
    pub(crate) fn pin(&mut self, directory: &Path) -> Result<(), (PathBuf, io::Error)> {
        for (name, link) in &mut self.links {
            let path = directory.join(format!("{name}-{}", std::process::id()));
            if let Err(error) = link.pin(&path) {
                return Err((path, io::Error::other(format!("{error:#}"))));
            }
            // Some kinds of links are detached when they are closed, whether pinned or not.
            link.disconnect();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::plan::object_files::{BUNDLED, named};

    fn layout() -> OpenObject {
        opened(named(BUNDLED, "ceems-layout").unwrap(), &[], &Encoded::default()).unwrap()
    }

    #[test]
    fn maps_of_an_object_are_neither_pinned_nor_shared() {
        let mut open = layout();
        for mut map in open.maps_mut() {
            map.set_pin_path("/sys/fs/bpf/counts").unwrap();
        }
        assert!(open.maps_mut().all(|map| sys::pin_path(&map).is_some()));
        make_private(&mut open).unwrap();
        assert!(open.maps_mut().count() > 0 && open.maps_mut().all(|map| sys::pin_path(&map).is_none()));
    }

    #[test]
    fn the_size_of_a_perf_event_array_is_not_left_to_a_loader() {
        let mut open = layout();
        let of_type = |open: &mut OpenObject, kind| {
            let mut map = open.maps_mut().find(|map| map.name() == "counts").unwrap();
            map.set_max_entries(0).unwrap();
            map.set_type(kind).unwrap();
            open.maps().any(|map| map.name() == "counts" && has_no_size(&map))
        };
        assert!(of_type(&mut open, MapType::Hash));
        assert!(!of_type(&mut open, MapType::PerfEventArray));
    }

    #[test]
    fn sizes_of_maps_are_set_before_the_object_is_loaded() {
        let sized = |name: &str| {
            let size = MapSize { name: name.to_owned(), max_entries: Some(7), inner: None };
            let mut open = layout();
            set_sizes(&mut open, &[size]).map(|_| open)
        };
        let open = sized("counts").unwrap();
        assert_eq!(open.maps().find(|map| map.name() == "counts").unwrap().max_entries(), 7);
        let error = sized("count").unwrap_err();
        assert!(error.starts_with("the object has no map `count`: it has "), "{error}");
    }

    #[test]
    fn a_file_that_is_no_object_is_refused_when_it_is_opened() {
        for elf in
            [&b""[..], b"\x7fELF", b"no object at all, but quite some bytes of text, more than an ELF header has"]
        {
            let refusal = bring_up(elf, &[], &Encoded::default()).unwrap_err();
            assert_eq!((refusal.step, refusal.program), (Step::Open, None));
            assert!(!refusal.message.is_empty());
        }
    }
}
