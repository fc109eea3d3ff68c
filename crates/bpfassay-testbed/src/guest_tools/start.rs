// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the files that a tool's program needs to start: interpreters, dynamic linkers, libraries.
//! Refuses a tool only if guests certainly lack a file.

#![allow(clippy::disallowed_methods, reason = "the path is only shown in a message")]

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::Path,
};

use bpfassay_protocol::{Arch, layout};
use bpfassay_tool::{Binary, Source, Supply, elf, file::of_arch, guest_request};

use super::{MAX_FILE, closure::started_by, refuse};
use crate::{
    error::{Error, Result},
    initramfs::{Archive, FileContent, NewcNode, initramfs_tree},
};

/// The programs that every guest has.
const OF_GUESTS: [&str; 3] = [layout::AGENT, layout::TRACER, layout::IOR];

/// Libraries that musl's dynamic linker provides itself: the names between `lib` and `.`.
const OF_MUSL: [&str; 7] = ["c", "pthread", "rt", "m", "dl", "util", "xnet"];

/// Checks that the libraries of `tool`, if it has any, contain its dynamic linkers.
///
/// # Errors
/// [`Error::Tool`] if a dynamic linker is missing.
pub(super) fn check_linkers(tool: &Supply<'_>, arch: Arch, own: &Archive) -> Result<()> {
    let Source::Binary(list) = tool.source else { return Ok(()) };
    for (place, binary) in of_arch(list, arch) {
        let Some(libraries) = &binary.libraries else { continue };
        let link = guest_request::loader(&tool.name, place);
        let Some(NewcNode::Symlink { target }) = own.get(link.trim_start_matches('/')) else { continue };
        let linker = initramfs_tree::resolve(own, link.trim_start_matches('/')).and_then(|path| own.get(&path));
        if !matches!(linker, Some(NewcNode::File { .. })) {
            let name = target.rsplit('/').next().unwrap_or(target);
            let directory = tool.place(libraries)?;
            return Err(refuse(
                &tool.name,
                format!(
                    "its program is started by the dynamic linker {name}, which is not in {}: copy it there",
                    directory.display()
                ),
            ));
        }
    }
    Ok(())
}

/// Checks that guests can start `tool` if they have only this project's programs and `own`.
///
/// # Errors
/// [`Error::Tool`] if a file is missing. [`Error::ToolFile`] and [`Error::Overlay`] if files cannot
/// be read.
pub(super) fn check(tool: &Supply<'_>, arch: Arch, own: &Archive) -> Result<()> {
    match tool.source {
        Source::Binary(list) => of_arch(list, arch).try_for_each(|entry| check_program(tool, arch, entry, own)),
        Source::Script(list) => of_arch(list, arch).try_for_each(|(_, script)| {
            if is_there(own, &script.interpreter) {
                return Ok(());
            }
            let problem = format!(
                "guests do not have {}, the interpreter of {}: name the package that has it, as `debian = {{ suite = …, package = … }}`",
                script.interpreter,
                tool.place(&script.path)?.display()
            );
            Err(refuse(&tool.name, problem))
        }),
        Source::Guest(program) if !is_there(own, program) => {
            Err(refuse(&tool.name, format!("guests do not have {program}; they have {}", OF_GUESTS.join(", "))))
        }
        Source::Guest(_) | Source::Debian(_) | Source::Nix(_) | Source::Object(_) => Ok(()),
    }
}

/// Checks that guests have this program's interpreter and libraries.
fn check_program(tool: &Supply<'_>, arch: Arch, (place, binary): (usize, &Binary), own: &Archive) -> Result<()> {
    let Some(bytes) = bytes_of(own, &guest_request::program(&tool.name, place))? else { return Ok(()) };
    if let Some(interpreter) = started_by(&bytes).filter(|_| bytes.starts_with(b"#!")) {
        if is_there(own, &interpreter) {
            return Ok(());
        }
        let problem = format!(
            "{} is a script for {interpreter}, which guests do not have: make it a `script`, with the package that \
             has its interpreter, or give a program",
            tool.place(&binary.path)?.display()
        );
        return Err(refuse(&tool.name, problem));
    }
    match &binary.libraries {
        Some(libraries) => {
            let top = guest_request::libraries(&tool.name, place);
            check_libraries(tool, arch, (&bytes, &binary.path), (libraries, &top), own)
        }
        None => Ok(()),
    }
}

/// Returns whether guests can have a program at `path`. Directories that guests fill while they run
/// can contain anything.
pub(super) fn is_there(own: &Archive, path: &str) -> bool {
    let is_live = layout::DIRECTORIES.iter().any(|directory| Path::new(path).starts_with(directory));
    is_live || OF_GUESTS.contains(&path) || initramfs_tree::resolve(own, path.trim_start_matches('/')).is_some()
}

/// Checks that guests have all libraries that the program needs, directly or indirectly, under
/// their names. The libraries of `directory`, relative to the tool file, are at `top` in the guest.
fn check_libraries(
    tool: &Supply<'_>,
    arch: Arch,
    (program, path): (&[u8], &str),
    (directory, top): (&str, &str),
    own: &Archive,
) -> Result<()> {
    let is_musl = elf::interpreter(program).is_some_and(|path| path.contains("/ld-musl-"));
    let of_linker = |name: &str| {
        let stem = name.strip_prefix("lib").and_then(|rest| rest.split('.').next());
        is_musl && stem.is_some_and(|stem| OF_MUSL.contains(&stem))
    };
    let names = files_by_name(own);
    // Names of libraries, and who needs each.
    let mut waiting: VecDeque<(String, String)> = VecDeque::new();
    let mut known = BTreeSet::new();
    // A library can also be found by the name (DT_SONAME) of another loaded library.
    let mut given = BTreeSet::new();
    let mut missing = Vec::new();
    let mut take = |file: &[u8], of: &str, given: &mut BTreeSet<String>| {
        let dynamic = elf::dynamic(file).unwrap_or_default();
        given.extend(dynamic.name);
        let new = dynamic.needed.into_iter().filter(|name| known.insert(name.clone()));
        new.map(|name| (name, of.to_owned())).collect::<Vec<_>>()
    };
    waiting.extend(take(program, &tool.place(path)?.display().to_string(), &mut given));
    while let Some((name, by)) = waiting.pop_front() {
        if name.contains('/') || of_linker(&name) {
            continue;
        }
        let shown = tool.place(directory)?.join(&name).display().to_string();
        match names.get(name.as_str()).copied().unwrap_or_default() {
            0 => missing.push((name, by)),
            1 => {
                let Some(bytes) = bytes_of(own, &format!("{top}/{name}"))? else { continue };
                if initramfs_tree::machine(&bytes) != Some(arch) {
                    let problem = format!("{by} needs the library {name}, and {shown} is none for {arch}: replace it");
                    return Err(refuse(&tool.name, problem));
                }
                waiting.extend(take(&bytes, &shown, &mut given));
            }
            // Search paths decide which of several files is loaded.
            _ => {}
        }
    }
    missing.retain(|(name, _)| !given.contains(name));
    let Some((name, by)) = missing.into_iter().next() else { return Ok(()) };
    let directory = tool.place(directory)?;
    Err(refuse(
        &tool.name,
        format!("{by} needs the library {name}, which is not in {}: copy it there", directory.display()),
    ))
}

/// Counts the files and links of each name.
fn files_by_name(own: &Archive) -> BTreeMap<&str, usize> {
    let mut names = BTreeMap::new();
    for (path, node) in own.entries() {
        if !matches!(node, NewcNode::Directory { .. }) {
            *names.entry(path.rsplit('/').next().unwrap_or(path)).or_default() += 1;
        }
    }
    names
}

/// Returns the content of the file that `path` leads to, if there is one.
fn bytes_of<'a>(own: &'a Archive, path: &str) -> Result<Option<Cow<'a, [u8]>>> {
    let real = initramfs_tree::resolve(own, path.trim_start_matches('/'));
    match real.and_then(|real| own.get(&real)) {
        Some(NewcNode::File { content: FileContent::Bytes(bytes), .. }) => Ok(Some(Cow::Borrowed(bytes))),
        Some(NewcNode::File { content: FileContent::Host { path, .. }, .. }) => {
            let file = bpfassay_input::open_unlinked(path).map_err(Error::io("read", path))?;
            let bytes = bpfassay_input::read_file(file, MAX_FILE).map_err(Error::io("read", path))?;
            Ok(Some(Cow::Owned(bytes)))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
