// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay-tracer object`: a user's eBPF object, loaded and attached by the names of its
//! sections. Its maps are served over HTTP.
//!
//! This module contains the life of this mode and its page. [`bpfassay_protocol::loaded_object`]
//! describes the output.
//!
//! The object is untrusted: its size is bounded, and errors in it are reported.

use std::{
    borrow::Cow,
    fs,
    io::{self, Read as _, Write as _},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Instant,
};

use bpfassay_bpf::BpfMap;
use bpfassay_btf::{
    object_contents::{self, ContentsError},
    prototype,
};
use bpfassay_protocol::{
    Arch,
    checked_prototype::Prototypes,
    contents::Contents,
    loaded_object::{Hex, MAX_OBJECT, MAX_PAGE, MapPage, ObjectLine},
    tracer_messages::Refusal,
};

use super::{
    endpoint::{ListenAddress, ListenError, MetricsEndpoint, Page},
    serve::{self, ServeError},
    stop_signals,
};
use crate::{
    kernel::btf,
    loader::{
        libbpf::bare::{self, Bare},
        plan::object_files::{BUNDLED, named},
    },
};

/// The object to load, and the maps to serve.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ObjectConfig {
    pub(crate) object: ObjectSource,
    /// The programs to load; empty means all.
    pub(crate) programs: Vec<String>,
    /// Contents of maps and constants before the programs are attached.
    pub(crate) contents: Contents,
    pub(crate) maps: Vec<String>,
    pub(crate) pin: Option<PathBuf>,
    pub(crate) port: u16,
}

/// The location of an object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ObjectSource {
    /// In this file.
    File(PathBuf),
    /// In this program.
    Bundled(String),
}

/// An end that was not requested, except a refusal by the kernel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObjectServiceError {
    #[error("cannot read the object {path:?}: check that it exists and may be read")]
    Read { path: PathBuf, source: io::Error },
    #[error("the object {path:?} is larger than {MAX_OBJECT} bytes: is it the right file?")]
    TooLarge { path: PathBuf },
    #[error("no bundled object `{name}`: there are {known}")]
    NotBundled { name: String, known: String },
    #[error("cannot read the types of the bundled object: this program was not built correctly")]
    Types(#[source] bpfassay_btf::ObjectError),
    #[error("cannot set the contents of the object's maps and constants")]
    Contents(#[from] ContentsError),
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
    #[error("cannot handle SIGINT and SIGTERM")]
    Signals(#[source] io::Error),
    #[error("cannot use the map `{map}`")]
    Map { map: String, source: io::Error },
    #[error("cannot pin a link at {path:?}: is it in a bpf file system?")]
    Pin { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Loads, attaches and serves. Returns `Some` if the kernel refuses.
pub(crate) fn run(args: &ObjectConfig) -> Result<Option<Refusal>, ObjectServiceError> {
    // Signals are blocked before anything is attached, so that nothing remains when one arrives in
    // the meantime.
    let signals = stop_signals::descriptor().map_err(ObjectServiceError::Signals)?;
    let elf = match &args.object {
        ObjectSource::File(path) => Cow::Owned(read(path)?),
        ObjectSource::Bundled(name) => Cow::Borrowed(bundled(name)?),
    };
    let prototypes = prototypes(&elf, &args.programs);
    report(&prototypes)?;
    if matches!(args.object, ObjectSource::Bundled(_)) {
        report(&types(&elf)?)?;
    }
    let contents = object_contents::encode(&elf, &args.contents)?;
    let mut loaded = match bare::bring_up(&elf, &args.programs, &contents) {
        Ok(loaded) => loaded,
        // The prototypes may be the reason.
        Err(refusal) => return Ok(Some(Refusal { prototypes: compared(prototypes), ..refusal })),
    };
    drop(elf);
    report(&ObjectLine::Loaded(loaded.loaded.clone()))?;
    let maps = args.maps.iter().map(|name| opened(&loaded, name)).collect::<Result<Vec<_>, _>>()?;
    if let Some(directory) = &args.pin {
        fs::create_dir_all(directory).map_err(|source| ObjectServiceError::Pin { path: directory.clone(), source })?;
        loaded.pin(directory).map_err(|(path, source)| ObjectServiceError::Pin { path, source })?;
    }
    // The port opens after everything is attached: a client that can connect treats the program as
    // ready.
    let page = if maps.is_empty() { Page::Nothing } else { Page::Map };
    let mut endpoint = MetricsEndpoint::bind(ListenAddress::Tcp((Ipv4Addr::LOCALHOST, args.port).into()), page)?;
    let stdin = io::stdin();
    loop {
        let ready = serve::wait(&stdin, &signals, None, None, false, Some(&endpoint))?;
        if ready.signal {
            return Ok(None);
        }
        endpoint.serve(&ready.endpoint, Instant::now(), &mut |_| {
            // Each map gets an equal share of the page.
            let most = MAX_PAGE / maps.len().max(1);
            let pages = maps.iter().map(|(name, map)| {
                page_of(name, map, most).map_err(|error| {
                    // The client receives a status without the reason. The reason goes to standard
                    // error.
                    let _ = writeln!(io::stderr(), "bpfassay-tracer: cannot read the map `{name}`: {error}");
                })
            });
            Some(pages.collect::<Result<Vec<_>, ()>>().ok()?.join("\n"))
        })?;
    }
}

/// Reads the object in a file, which can contain any bytes.
fn read(path: &Path) -> Result<Vec<u8>, ObjectServiceError> {
    let mut elf = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(MAX_OBJECT + 1).read_to_end(&mut elf));
    read.map_err(|source| ObjectServiceError::Read { path: path.to_owned(), source })?;
    if elf.len() as u64 > MAX_OBJECT {
        return Err(ObjectServiceError::TooLarge { path: path.to_owned() });
    }
    Ok(elf)
}

/// Returns the object of the bundled tool `name`.
fn bundled(name: &str) -> Result<&'static [u8], ObjectServiceError> {
    named(BUNDLED, name).ok_or_else(|| {
        let known: Vec<&str> = BUNDLED.iter().map(|bundled| bundled.name).collect();
        ObjectServiceError::NotBundled { name: name.to_owned(), known: known.join(", ") }
    })
}

pub(crate) fn types(elf: &[u8]) -> Result<ObjectLine, ObjectServiceError> {
    let btf = bpfassay_btf::of_object(elf).map_err(ObjectServiceError::Types)?;
    Ok(ObjectLine::Types { btf: Hex(btf) })
}

/// Compares what `programs` of `elf`, or all of them, read with this kernel's functions.
fn prototypes(elf: &[u8], programs: &[String]) -> ObjectLine {
    let checked = || {
        let kernel = btf::read().map_err(|error| btf::cannot(&error))?;
        prototype::check(elf, &kernel, Arch::BUILT_FOR).map_err(|error| error.to_string())
    };
    match checked() {
        Ok(mut checked) => {
            checked.retain(|one| programs.is_empty() || programs.contains(&one.program));
            ObjectLine::Prototypes { checked }
        }
        Err(reason) => ObjectLine::PrototypesUnknown { reason },
    }
}

/// Returns the result of the comparison, if there is one.
fn compared(prototypes: ObjectLine) -> Option<Box<Prototypes>> {
    match prototypes {
        ObjectLine::Prototypes { checked } => Some(Box::new(Prototypes(checked))),
        _ => None,
    }
}

/// Writes one line to standard output.
///
/// # Errors
/// [`ObjectServiceError::Output`] if standard output cannot be written to.
pub(crate) fn report(line: &ObjectLine) -> Result<(), ObjectServiceError> {
    let mut out = io::stdout().lock();
    let written = serde_json::to_writer(&mut out, line).map_err(io::Error::from);
    written.and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()).map_err(ObjectServiceError::Output)
}

fn opened(loaded: &Bare, name: &str) -> Result<(String, BpfMap), ObjectServiceError> {
    let failed = |source| ObjectServiceError::Map { map: name.to_owned(), source };
    let map = loaded.map(name).and_then(BpfMap::new).map_err(failed)?;
    Ok((name.to_owned(), map))
}

/// Returns the page of a map, as JSON of at most `length` bytes.
fn page_of(name: &str, map: &BpfMap, length: usize) -> io::Result<String> {
    let copies = map.copies();
    // The kernel pads the copies of a per-CPU map to this size, but not a single copy.
    let stride = if copies == 1 { map.value_size() } else { map.value_size().next_multiple_of(8) };
    // The number of entries that fit on a page, plus one that shows that there are more.
    let most = length / MapPage::length(map.key_size(), stride.saturating_mul(copies)) + 1;
    let entries = map.first_entries(most)?.into_iter().map(|entry| {
        let mut value = Vec::with_capacity(stride.saturating_mul(copies));
        for copy in entry.values {
            value.extend_from_slice(&copy);
            value.resize(value.len().next_multiple_of(stride.max(1)), 0);
        }
        (entry.key, value)
    });
    let page = MapPage::within(length, name, u32::try_from(copies).unwrap_or(u32::MAX), entries, false);
    serde_json::to_string(&page).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_up_to_its_largest_size() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.o");
        assert!(matches!(read(&path), Err(ObjectServiceError::Read { .. })));
        let file = fs::File::create(&path).unwrap();
        file.set_len(MAX_OBJECT).unwrap();
        assert_eq!(read(&path).unwrap().len() as u64, MAX_OBJECT);
        file.set_len(MAX_OBJECT + 1).unwrap();
        assert!(matches!(read(&path), Err(ObjectServiceError::TooLarge { .. })));
    }

    #[test]
    fn bundled_objects_have_types() {
        for one in BUNDLED {
            let ObjectLine::Types { btf } = types(bundled(one.name).unwrap()).unwrap() else { panic!("{}", one.name) };
            let btf = bpfassay_btf::Btf::new(&btf.0).unwrap();
            // The object has a map, or a section of global variables. The object file alone has the
            // offsets of these.
            let values = ["counts", ".data.calls"].into_iter().filter_map(|map| btf.map(map)?.value);
            let values: Vec<_> = values.collect();
            let has_places = |fields: &[bpfassay_btf::MapField]| fields.iter().skip(1).all(|field| field.offset > 0);
            assert!(values.len() == 1 && values[0].size > 0 && has_places(&values[0].fields), "{}", one.name);
        }
        let error = bundled("none").unwrap_err().to_string();
        assert!(error.starts_with("no bundled object `none`: there are ceems-layout, vfs-calls"), "{error}");
    }

    #[test]
    fn what_cannot_be_compared_is_reported_with_the_reason() {
        let ObjectLine::PrototypesUnknown { reason } = prototypes(b"no object", &[]) else { panic!("it was compared") };
        assert!(reason.starts_with("cannot read the "), "{reason}");
    }
}
