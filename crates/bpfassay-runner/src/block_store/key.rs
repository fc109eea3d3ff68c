// SPDX-License-Identifier: MIT OR Apache-2.0
//! What names a block in a store: SHA-256 over everything that determines its figures. Pure.

use std::{fmt, str::FromStr};

use bpfassay_results::{JOURNAL_VERSION, Provenance, provenance::Artefact};
use bpfassay_study::{Block, Clock, Study};
use bpfassay_testbed::cache::Digest;
use serde_json::{Map, Value, to_value};

/// Version of what keys are made of. Another one is another key, so that entries of before are not
/// found.
const VERSION: u32 = 1;

/// QEMU's filter of system calls, with its value: it protects the host, and the guest does not see
/// it.
const SANDBOX: &str = "-sandbox";

/// The name of a block in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockKey(Digest);

impl fmt::Display for BlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for BlockKey {
    type Err = <Digest as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// Why a block has no key: something that determines its figures is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not known")]
pub(crate) struct NoKey(String);

/// The key of `block` of `study`, measured with `provenance` by the command line `command` of QEMU.
///
/// The figures follow from: this program, by its digest, which reads what guests and QEMU's plugin
/// report; what of the study says how a guest is made, how long it may take, and how its output is
/// read; the block, with every run's specification and its place in the order of runs; kernel and
/// initramfs by their digests, which have tools under test and scripts in them; QEMU by version and
/// digest, and its arguments, with seed, machine, memory and the kernel's command line. By the wall
/// clock the host is part of it, too. Not part of it is what names no figure: gates, expectations,
/// descriptions, other targets and probes, how many replicates there are, paths.
///
/// # Errors
/// [`NoKey`] where `provenance` lacks one of these.
pub(crate) fn key(
    study: &Study,
    block: &Block,
    provenance: &Provenance,
    command: &[String],
) -> Result<BlockKey, NoKey> {
    let target = provenance.targets.iter().find(|made| made.target == block.target);
    let target = target.ok_or_else(|| NoKey(format!("what the guest for {} is made of", block.target)))?;
    let qemu = provenance.qemu.get(&block.target.arch);
    let qemu = qemu.ok_or_else(|| NoKey(format!("QEMU for {}", block.target.arch)))?;
    let workload = study.workload(&block.case);
    let workload = workload.ok_or_else(|| NoKey(format!("the workload of the case {}", block.case)))?;

    let mut all = Ingredients::default();
    all.add("store", to_value(VERSION))?;
    all.add("journal", to_value(JOURNAL_VERSION))?;
    all.add("bpfassay", to_value(with_version(&provenance.bpfassay)?))?;
    all.add("clock", to_value(study.clock))?;
    // It depends on the other workloads of the study.
    all.add("counts", to_value(study.counts_instructions()))?;
    all.add("model", to_value(&study.model))?;
    all.add("guest", to_value(&study.guest))?;
    all.add("mounts", to_value(&study.mounts))?;
    all.add("deadlines", to_value(&study.deadlines))?;
    all.add("seed", to_value(study.design.seed))?;
    all.add("workload", to_value(workload))?;
    all.add("block", to_value(block))?;
    all.add("kernel", to_value(digest_of(&target.kernel)?))?;
    all.add("initramfs", to_value(&named(&target.initramfs)?))?;
    all.add("payload", to_value(&named(&target.payload)?))?;
    all.add("qemu", to_value(with_version(&qemu.program)?))?;
    all.add("plugin", to_value(qemu.plugin_api))?;
    all.add("arguments", to_value(arguments(command)))?;
    if study.clock == Clock::Wall {
        all.add("host", to_value(&provenance.host))?;
    }
    let text = serde_json::to_vec(&Value::Object(all.0)).map_err(|error| NoKey(format!("its JSON text ({error})")))?;
    Ok(BlockKey(Digest::of(&text)))
}

/// What a key is made of, by name. The keys of an object are in order, so that its text is the same
/// for the same values.
#[derive(Default)]
struct Ingredients(Map<String, Value>);

impl Ingredients {
    fn add(&mut self, name: &str, value: serde_json::Result<Value>) -> Result<(), NoKey> {
        let value = value.map_err(|error| NoKey(format!("the JSON form of {name} ({error})")))?;
        self.0.insert(name.to_owned(), value);
        Ok(())
    }
}

fn digest_of(artefact: &Artefact) -> Result<&str, NoKey> {
    artefact.sha256.as_deref().ok_or_else(|| NoKey(format!("the digest of {}", artefact.name)))
}

fn with_version(artefact: &Artefact) -> Result<(&str, &str), NoKey> {
    Ok((&artefact.version, digest_of(artefact)?))
}

/// Their names and digests, in their order. Versions are left out: they may have paths of the host.
fn named(artefacts: &[Artefact]) -> Result<Vec<(&str, &str)>, NoKey> {
    artefacts.iter().map(|artefact| Ok((artefact.name.as_str(), digest_of(artefact)?))).collect()
}

/// QEMU's arguments without what differs by host and changes nothing in the guest: how the program
/// is started, which has paths, and the filter of system calls, which comes first. Everything else
/// that has a path is opened before and inherited.
fn arguments(command: &[String]) -> Vec<&str> {
    let mut all = Vec::with_capacity(command.len());
    let start = command.iter().position(|argument| argument == SANDBOX).unwrap_or(1);
    let mut arguments = command.iter().skip(start).map(String::as_str);
    while let Some(argument) = arguments.next() {
        if argument == SANDBOX {
            arguments.next();
        } else {
            all.push(argument);
        }
    }
    all
}
