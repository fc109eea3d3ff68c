// SPDX-License-Identifier: MIT OR Apache-2.0
//! An object of the user: loaded as it is, each program attached by the name of its section, nothing corrected.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use bpfassay_protocol::tracer::{Refusal, Step};
use libbpf_rs::{Link, MapCore as _, Object, ObjectBuilder};

use super::{log, sys};
use crate::loader::plan::refusal::Failure;

/// A loaded object with its programs attached.
#[derive(Debug)]
pub(crate) struct Bare {
    /// With the names of their programs. Detached before the object is closed: fields are dropped in order.
    links: Vec<(String, Link)>,
    object: Object,
}

/// Loads `programs` of the object `elf`, or all of them, and attaches them.
///
/// # Errors
/// A [`Refusal`]; nothing stays attached.
pub(crate) fn bring_up(elf: &[u8], programs: &[String]) -> Result<Bare, Refusal> {
    let log = log::capture();
    load_and_attach(elf, programs).map_err(|failure| log.refusal(failure))
}

fn load_and_attach(elf: &[u8], programs: &[String]) -> Result<Bare, Failure> {
    let unopened = |text: String| Failure { step: Step::Open, program: None, error: io::Error::other(text) };
    let mut open = ObjectBuilder::default()
        // What the kernel calls the maps of global variables after.
        .name("object")
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
    let object = sys::load(open).map_err(|error| Failure { step: Step::Load, program: None, error })?;
    let mut links = Vec::new();
    for program in object.progs_mut().filter(|program| program.autoload()) {
        let name = program.name().to_string_lossy().into_owned();
        match sys::attach(&program) {
            Ok(link) => links.push((name, link)),
            Err(error) => return Err(Failure { step: Step::Attach, program: Some(name), error }),
        }
    }
    Ok(Bare { links, object })
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl Bare {
    /// The map called `name` in the object.
    ///
    /// # Errors
    /// `NotFound`, with the names of all maps, where there is none.
    pub(crate) fn map(&self, name: &str) -> io::Result<OwnedFd> {
        let mut names = Vec::new();
        for map in self.object.maps().filter(|map| map.autocreate()) {
            let full = map.name().to_string_lossy().into_owned();
            // libbpf puts the object's name before those of the sections of global variables (`internal_map_name`).
            let short = full.strip_prefix("object").filter(|rest| rest.starts_with('.')).unwrap_or(&full);
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

    /// Pins every link below `directory` of a bpf file system, under its program's name and this process' id, so that it outlives this
    /// process.
    ///
    /// # Errors
    /// The kernel's or libbpf's, with the path.
    pub(crate) fn pin(&mut self, directory: &Path) -> Result<(), (PathBuf, io::Error)> {
        for (name, link) in &mut self.links {
            let path = directory.join(format!("{name}-{}", std::process::id()));
            if let Err(error) = link.pin(&path) {
                return Err((path, io::Error::other(format!("{error:#}"))));
            }
            // Some kinds of links are detached when they are closed, pinned or not.
            link.disconnect();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_object_is_refused_when_it_is_opened() {
        for elf in
            [&b""[..], b"\x7fELF", b"no object at all, but quite some bytes of text, more than an ELF header has"]
        {
            let refusal = bring_up(elf, &[]).unwrap_err();
            assert_eq!((refusal.step, refusal.program), (Step::Open, None));
            assert!(!refusal.message.is_empty());
        }
    }
}
