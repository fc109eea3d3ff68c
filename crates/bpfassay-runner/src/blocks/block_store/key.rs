// SPDX-License-Identifier: MIT OR Apache-2.0
//! The name of a block in a store: SHA-256 over everything that determines its figures. Pure.

use std::{fmt, str::FromStr};

use bpfassay_packages::digest::Digest;
use bpfassay_results::{JOURNAL_VERSION, Provenance, provenance::Artefact};
use bpfassay_study::{Block, Clock, Study};
use serde_json::{Map, Value, to_value};

/// Version of the key's ingredients. A new version changes all keys.
const VERSION: u32 = 1;

/// QEMU's option for its system call filter; a value follows. The filter protects the host, and the
/// guest does not see it.
const SANDBOX: &str = "-sandbox";

/// The name of a block in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoreKey(Digest);

impl fmt::Display for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for StoreKey {
    type Err = <Digest as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// A block has no key, because something that determines its figures is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not known")]
pub(crate) struct NoKey(String);

/// Returns the key of `block` of `study`. The block was measured with `provenance` and the QEMU
/// command line `command`.
///
/// The figures follow from:
///
/// - this program's digest: it reads what guests and QEMU's plugin report,
/// - the parts of the study that say how a guest is made, its deadlines, and how output is read,
/// - the block, with the specifications of all runs in their order,
/// - the digests of kernel and initramfs, which includes tools under test and scripts,
/// - QEMU's version, digest and arguments: seed, machine, memory, the kernel's command line,
/// - the host, under the wall clock only.
///
/// Gates, expectations, descriptions, other targets and probes, the number of replicates, and paths
/// do not change a figure and are left out.
///
/// # Errors
/// [`NoKey`] if `provenance` lacks one of these.
pub(crate) fn key(
    study: &Study,
    block: &Block,
    provenance: &Provenance,
    command: &[String],
) -> Result<StoreKey, NoKey> {
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
    // The setting depends on the other workloads of the study.
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
    Ok(StoreKey(Digest::of(&text)))
}

/// The ingredients of a key by name. A JSON object sorts its keys, so equal values give equal text.
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

/// Returns names and digests in order, without versions, which can contain paths of the host.
fn named(artefacts: &[Artefact]) -> Result<Vec<(&str, &str)>, NoKey> {
    artefacts.iter().map(|artefact| Ok((artefact.name.as_str(), digest_of(artefact)?))).collect()
}

/// Returns QEMU's arguments without those that differ between hosts and do not change the guest.
/// These are the start of the program, which has paths, and then the system call filter. All other
/// files are opened before the start and inherited.
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
