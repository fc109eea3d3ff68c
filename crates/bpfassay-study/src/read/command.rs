//! Workloads that are any program, and fio.

use std::collections::BTreeMap;

use bpfassay_input::document::{Field, Reported, Section, nearest};
use bpfassay_protocol::{
    Operation,
    job::{Better, DIRECTORY, FileSystem},
};
use bpfassay_tool::{Debian, DebianPackage, Pattern, Source, arguments, program_source};

use super::{DAY_MS, workloads::size_mib};
use crate::command::{CommandSpec, FigureName, FigureSpec, GROUP, Place};

/// How long a program may take where a study does not say.
const DEADLINE_MS: u64 = 60_000;

/// Most figures of merit of a workload.
const MAX_FIGURES: usize = 16;

/// Names that rows have already: of IOR's accesses, and of the time that the work took.
const TAKEN: [&str; 3] = ["read", "write", "work"];

/// A workload of type `command`.
pub(super) fn command(section: &Section<'_, '_>) -> Result<CommandSpec, Reported> {
    section.only(&["type", "name", "source", "arguments", "deadline", "figures", "bytes"]);
    let source = section.need("source", program_source);
    let arguments = section.or("arguments", Vec::new(), arguments);
    let deadline_ms = deadline(section);
    let figures = section.or("figures", Vec::new(), figures);
    let bytes = section.or("bytes", BTreeMap::new(), bytes);
    Ok(CommandSpec {
        source: source?,
        arguments: arguments?,
        deadline_ms: deadline_ms?,
        figures: figures?,
        bytes: bytes?,
    })
}

fn deadline(section: &Section<'_, '_>) -> Result<u64, Reported> {
    section.or("deadline", DEADLINE_MS, |field| field.milliseconds(1000..=DAY_MS))
}

fn figures(field: &Field<'_, '_>) -> Result<Vec<FigureSpec>, Reported> {
    let mut taken: Vec<FigureName> = Vec::new();
    let figures = field.each(|element| {
        let section = element.table()?;
        section.only(&["name", "unit", "better", "pattern", "pointer"]);
        let name = section.need("name", |field| {
            let name = figure_name(field)?;
            if taken.contains(&name) {
                return Err(field.error("a figure of that name stands here already"));
            }
            taken.push(name);
            Ok(name)
        });
        let unit = section.need("unit", unit);
        let better = section.need("better", Field::name::<Better>);
        let place = place(&section);
        Ok(FigureSpec { name: name?, unit: unit?, better: better?, place: place? })
    })?;
    if figures.len() > MAX_FIGURES {
        return Err(field.error(format!("there are {} figures, and may be {MAX_FIGURES}", figures.len())));
    }
    Ok(figures)
}

fn figure_name(field: &Field<'_, '_>) -> Result<FigureName, Reported> {
    let text = field.text()?;
    if TAKEN.contains(&text) {
        return Err(field.error(format!("`{text}` is the name of another row: take another")));
    }
    let is_word = !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    match FigureName::from(text) {
        Ok(name) if is_word => Ok(name),
        _ => Err(field.error("use at most 24 lower-case letters, digits and `-`")),
    }
}

fn unit(field: &Field<'_, '_>) -> Result<String, Reported> {
    let text = field.text()?;
    if (1..=20).contains(&text.len()) && !text.contains(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(field.error("give a unit of at most 20 bytes, such as `1/s`"))
}

/// The only one of the ways to find a number.
fn place(section: &Section<'_, '_>) -> Result<Place, Reported> {
    match (section.get("pattern"), section.get("pointer")) {
        (Some(field), None) => {
            let pattern = field.name::<Pattern>()?;
            if !pattern.groups().any(|group| group == GROUP) {
                return Err(field.error(format!("it has no group `(?<{GROUP}>…)` that holds the number")));
            }
            Ok(Place::Pattern(pattern))
        }
        (None, Some(field)) => {
            let pointer = field.text()?;
            // RFC 6901, section 3.
            if pointer.len() > 200 || !pointer.starts_with('/') {
                return Err(field.error("give a JSON pointer of at most 200 bytes, such as `/jobs/0/iops`"));
            }
            Ok(Place::Pointer(pointer.to_owned()))
        }
        _ => Err(section.error("give either `pattern` or `pointer`")),
    }
}

fn bytes(field: &Field<'_, '_>) -> Result<BTreeMap<Operation, Place>, Reported> {
    let known = || Operation::ALL.iter().copied().filter(|operation| operation.direction().is_some());
    let of_operation = |(key, field): (&str, Field<'_, '_>)| {
        let Some(operation) = known().find(|operation| operation.name() == key) else {
            let names: Vec<&str> = known().map(Operation::name).collect();
            let hint = match nearest(key, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are {}", names.join(", ")),
            };
            return Err(field.error(format!("no operation of that name moves data: {hint}")));
        };
        let section = field.table()?;
        section.only(&["pattern", "pointer"]);
        Ok((operation, place(&section)?))
    };
    let read: Vec<_> = field.table()?.entries().map(of_operation).collect();
    read.into_iter().collect()
}

/// What fio tells of one of its jobs: name of the figure, key of its JSON, unit, which way it is better.
const OF_FIO: [(&str, &str, &str, Better); 3] = [
    ("bandwidth", "bw", "KiB/s", Better::Higher),
    ("iops", "iops", "1/s", Better::Higher),
    ("latency", "lat_ns/mean", "ns", Better::Lower),
];

/// Bytes of the file of a workload of type `fio`, and of each call, where a study does not say.
const DEFAULT_SIZE: u64 = 4 << 20;
const DEFAULT_BLOCK: u64 = 4096;

/// A workload of type `fio`: a fixed number of bytes is written to a file and read again.
pub(super) fn fio(section: &Section<'_, '_>, file_systems: &[FileSystem]) -> Result<CommandSpec, Reported> {
    section.only(&["type", "name", "suite", "access", "block", "size", "deadline"]);
    let suite = section.or("suite", "trixie".to_owned(), bpfassay_tool::suite);
    let random = section.or("access", false, |field| field.choice(&[("sequential", false), ("random", true)]));
    let block = section.or("block", DEFAULT_BLOCK, |field| field.number(512..=16 << 20));
    let deadline_ms = deadline(section);
    let block = block?;
    let size = section.or("size", DEFAULT_SIZE.max(block), |field| {
        let size = field.number(block..=1 << 40)?;
        let is_full = |file_system: &&FileSystem| size > u64::from(size_mib(file_system)) << 20;
        match file_systems.iter().find(is_full) {
            None => Ok(size),
            Some(file_system) => Err(field.error(format!(
                "{size} bytes do not fit into a file system of {} MiB (`file_systems`, `size_mib`)",
                size_mib(file_system)
            ))),
        }
    })?;
    if !size.is_multiple_of(block) {
        return Err(section.error(format!("`size`, {size}, is not a multiple of `block`, {block}")));
    }
    let (suite, random) = (suite?, random?);
    let (write, read) = if random { ("randwrite", "randread") } else { ("write", "read") };
    // No files are laid out before (`create_on_open`, `fallocate`): what fio says that it wrote is all that it wrote there.
    let arguments = format!(
        "--output-format=json --thread --ioengine=psync --randrepeat=1 --create_on_open=1 --fallocate=none \
         --directory={DIRECTORY} --filename=data --bs={block} --size={size} \
         --name=write --rw={write} --end_fsync=1 --name=read --stonewall --rw={read}"
    );
    let jobs = || (0..).zip(["write", "read"]);
    let figures = jobs().flat_map(|(index, job)| {
        OF_FIO.map(|(figure, key, unit, better)| FigureSpec {
            // Shorter than a name may be.
            name: FigureName::from(&format!("{job}-{figure}")).unwrap_or_default(),
            unit: unit.to_owned(),
            better,
            place: Place::Pointer(format!("/jobs/{index}/{job}/{key}")),
        })
    });
    let bytes = [Operation::Write, Operation::Read].into_iter().zip(jobs());
    let bytes =
        bytes.map(|(operation, (index, job))| (operation, Place::Pointer(format!("/jobs/{index}/{job}/io_bytes"))));
    let from = DebianPackage { suite, package: "fio".to_owned(), with: Vec::new() };
    Ok(CommandSpec {
        source: Source::Debian(vec![Debian { archs: Vec::new(), from, program: "/usr/bin/fio".to_owned() }]),
        arguments: arguments.split_whitespace().map(str::to_owned).collect(),
        deadline_ms: deadline_ms?,
        figures: figures.collect(),
        bytes: bytes.collect(),
    })
}
