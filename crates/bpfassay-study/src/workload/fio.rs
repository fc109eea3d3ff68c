// SPDX-License-Identifier: MIT OR Apache-2.0
//! fio as a command with fixed arguments and metrics: it writes a fixed number of bytes to a file,
//! and reads them again.

use bpfassay_input::document::Reported;
use bpfassay_protocol::{
    Operation,
    job::{Better, DIRECTORY},
};
use bpfassay_tool::{Debian, DebianPackage, Source};

use super::{
    Metric, ReadTable, TypeKey, WorkloadKind, WorkloadTable,
    command::{CommandSpec, MetricSpec, ValueLocation, deadline},
};

/// The figures of fio for a job: name of the metric, JSON key, unit, and which values are better.
const OF_A_JOB: [(&str, &str, &str, Better); 3] = [
    ("bandwidth", "bw", "KiB/s", Better::Higher),
    ("iops", "iops", "1/s", Better::Higher),
    ("latency", "lat_ns/mean", "ns", Better::Lower),
];

/// Default bytes of the file and of each call.
const DEFAULT_SIZE: u64 = 4 << 20;
const DEFAULT_BLOCK: u64 = 4096;

pub(super) const TYPES: &[TypeKey] = &[TypeKey {
    name: "fio",
    read: |table| {
        Ok(ReadTable { kind: WorkloadKind::Command(fio(table)?), default_name: Some(table.type_name.to_owned()) })
    },
}];

fn fio(table: &WorkloadTable<'_>) -> Result<CommandSpec, Reported> {
    let section = table.section;
    section.only(&["type", "name", "suite", "access", "block", "size", "deadline"]);
    let suite = section.or("suite", "trixie".to_owned(), bpfassay_tool::suite);
    let random = section.or("access", false, |field| field.choice(&[("sequential", false), ("random", true)]));
    let block = section.or("block", DEFAULT_BLOCK, |field| field.number(512..=16 << 20));
    let deadline_ms = deadline(section);
    let block = block?;
    let size = section.or("size", DEFAULT_SIZE.max(block), |field| {
        let size = field.number(block..=1 << 40)?;
        table.must_fit(size, &format!("{size} bytes")).map_err(|message| field.error(message))?;
        Ok(size)
    })?;
    if !size.is_multiple_of(block) {
        return Err(section.error(format!("`size`, {size}, is not a multiple of `block`, {block}")));
    }
    let (suite, random) = (suite?, random?);
    let (write, read) = if random { ("randwrite", "randread") } else { ("write", "read") };
    // No file is laid out in advance (`create_on_open`, `fallocate`), so fio's report of written
    // bytes is complete.
    let arguments = format!(
        "--output-format=json --thread --ioengine=psync --randrepeat=1 --create_on_open=1 --fallocate=none \
         --directory={DIRECTORY} --filename=data --bs={block} --size={size} \
         --name=write --rw={write} --end_fsync=1 --name=read --stonewall --rw={read}"
    );
    let jobs = || (0..).zip(["write", "read"]);
    let figures = jobs().flat_map(|(index, job)| {
        OF_A_JOB.map(|(name, key, unit, better)| {
            let Metric { name, unit, better, .. } = Metric::new(&format!("{job}-{name}"), unit, better);
            MetricSpec { name, unit, better, location: ValueLocation::Pointer(format!("/jobs/{index}/{job}/{key}")) }
        })
    });
    let bytes = [Operation::Write, Operation::Read].into_iter().zip(jobs());
    let bytes = bytes
        .map(|(operation, (index, job))| (operation, ValueLocation::Pointer(format!("/jobs/{index}/{job}/io_bytes"))));
    let from = DebianPackage { suite, package: "fio".to_owned(), with: Vec::new() };
    Ok(CommandSpec {
        source: Source::Debian(vec![Debian {
            archs: Vec::new(),
            kernels: Vec::new(),
            from,
            program: "/usr/bin/fio".to_owned(),
        }]),
        arguments: arguments.split_whitespace().map(str::to_owned).collect(),
        deadline_ms: deadline_ms?,
        figures: figures.collect(),
        bytes: bytes.collect(),
    })
}
