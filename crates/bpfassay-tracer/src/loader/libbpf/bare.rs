// SPDX-License-Identifier: MIT OR Apache-2.0
//! A user's object, which is loaded unchanged. Each program is attached by the name of its section.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    time::Instant,
};

use bpfassay_bpf::program_info;
use bpfassay_btf::object_contents::Encoded;
use bpfassay_protocol::{
    loaded_object::{LoadedObject, VerifiedProgram},
    nanoseconds,
    tracer_messages::{Refusal, Step},
};
use libbpf_rs::{Link, MapCore as _, MapFlags, Object, ObjectBuilder, OpenObject, Program};

use super::{libbpf_log, sys};
use crate::{kernel::verifier::statistics, loader::plan::refusal::Failure};

/// A loaded object with its programs attached.
#[derive(Debug)]
pub(crate) struct Bare {
    /// Links with the names of their programs. Fields are dropped in order, so links are detached
    /// before the object is closed.
    links: Vec<(String, Link)>,
    object: Object,
    /// The time of loading, and the contents of the verifier's log about each program.
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
            refusal.message.push_str("; its size (max_entries) is 0 in the object: the loader of the tool may set it");
        }
        refusal
    })
}

/// Returns whether the object `elf` leaves the size of that map to a loader.
fn is_unsized(elf: &[u8], map: &str) -> bool {
    let open = ObjectBuilder::default().name(OBJECT).and_then(|builder| builder.open_memory(elf));
    open.is_ok_and(|open| open.maps().any(|found| found.name().to_string_lossy() == map && found.max_entries() == 0))
}

fn load_and_attach(elf: &[u8], programs: &[String], contents: &Encoded, logged: Logged) -> Result<Bare, Failure> {
    let unopened = |text: String| Failure { step: Step::Open, program: None, error: io::Error::other(text) };
    let mut open = ObjectBuilder::default()
        .name(OBJECT)
        .and_then(|builder| builder.open_memory(elf))
        .map_err(|error| unopened(format!("{error:#}")))?;
    let names: Vec<String> = open.progs().map(|program| program.name().to_string_lossy().into_owned()).collect();
    if let Some(unknown) = programs.iter().find(|name| !names.contains(name)) {
        return Err(unopened(format!("the object has no program `{unknown}`: it has {}", listed(&names))));
    }
    if names.is_empty() {
        return Err(unopened("the object has no programs".to_owned()));
    }
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        if !programs.is_empty() && !programs.contains(&name) {
            program.set_autoload(false);
        }
    }
    set_constants(&mut open, contents).map_err(unopened)?;
    let unloaded = |error: io::Error| Failure { step: Step::Load, program: None, error };
    let mut logs = Vec::new();
    for mut program in open.progs_mut().filter(|program| logged == Logged::Statistics && program.autoload()) {
        logs.push(sys::log_statistics(&mut program, STATISTICS).map_err(unloaded)?);
    }
    let begun = Instant::now();
    let object = sys::load(open).map_err(unloaded)?;
    let loaded =
        LoadedObject { load_ns: nanoseconds(begun.elapsed()), programs: verified(&object, &logs).map_err(unloaded)? };
    set_entries(&object, contents).map_err(|text| Failure {
        step: Step::Load,
        program: None,
        error: io::Error::other(text),
    })?;
    let mut links = Vec::new();
    for program in object.progs_mut().filter(|program| program.autoload()) {
        let name = program.name().to_string_lossy().into_owned();
        match sys::attach(&program) {
            Ok(link) => links.push((name, link)),
            Err(error) => return Err(Failure { step: Step::Attach, program: Some(name), error }),
        }
    }
    Ok(Bare { links, object, loaded })
}

/// Returns the loaded programs of `object` with the statistics in `logs`. The logs have the same
/// order, or there are none.
fn verified(object: &Object, logs: &[sys::ProgramLog]) -> io::Result<Vec<VerifiedProgram>> {
    let mut logs = logs.iter();
    let of = |program: Program<'_>| {
        let id = program_info(program.as_fd())?.id;
        Ok(VerifiedProgram { id, log: logs.next().and_then(|log| statistics(&log.text())) })
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
