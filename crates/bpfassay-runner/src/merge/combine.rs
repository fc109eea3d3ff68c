// SPDX-License-Identifier: MIT OR Apache-2.0
//! Combines journals into one: checks what must be equal, and orders the entries. Pure.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
};

use bpfassay_results::{
    JOURNAL_VERSION, JournalContents, JournalEntry, JournalHeader, Provenance,
    fingerprint::first_difference,
    provenance::{HostFacts, QemuFacts},
};
use bpfassay_study::Plan;
use bpfassay_testbed::{manifest::Manifest, provider};

use super::MergeError;
use crate::planned_targets::targets_of;

/// A results directory and its journal.
#[derive(Debug)]
pub(super) struct ReadResults {
    pub(super) directory: PathBuf,
    pub(super) contents: JournalContents,
}

/// Returns the journal of a run that measured all of `read`. The blocks are in the order of the
/// plan, but grouped by host if several hosts measured them.
///
/// # Errors
/// [`MergeError`] if two journals do not fit together.
pub(super) fn combine(mut read: Vec<ReadResults>) -> Result<JournalContents, MergeError> {
    let plan = same_plan(&read)?;
    let order: HashMap<&str, usize> = plan.blocks.iter().map(|block| block.id.as_str()).zip(0..).collect();
    // The order in which the user names the directories must not matter.
    read.sort_by_key(|shard| {
        let places = shard.contents.entries.iter().filter_map(block_of).filter_map(|block| order.get(block));
        (places.min().copied(), shard.directory.clone())
    });
    each_once(&read)?;
    let hosts = Hosts::of(&read, &plan)?;
    let started_unix_ms = read.iter().map(|shard| shard.contents.header.started_unix_ms).min().unwrap_or_default();

    // The entries of each block, each with the host that recorded it.
    let mut blocks: BTreeMap<usize, Vec<(usize, JournalEntry)>> = BTreeMap::new();
    let mut resumed: HashMap<usize, u64> = HashMap::new();
    for shard in read {
        let mut host = hosts.place(&shard.contents.header.provenance);
        let begun = shard.contents.header.started_unix_ms;
        resumed.entry(host).and_modify(|at| *at = begun.min(*at)).or_insert(begun);
        for entry in shard.contents.entries {
            if let JournalEntry::Resumed { at_unix_ms, provenance } = &entry {
                host = hosts.place(provenance);
                resumed.entry(host).and_modify(|at| *at = (*at).min(*at_unix_ms)).or_insert(*at_unix_ms);
            } else if let Some(&place) = block_of(&entry).and_then(|block| order.get(block)) {
                blocks.entry(place).or_default().push((host, entry));
            }
        }
    }
    let mut blocks: Vec<Vec<(usize, JournalEntry)>> = blocks.into_values().collect();
    // The sort is stable, so blocks of one host stay in the order of the plan.
    blocks.sort_by_key(|entries| entries.first().map(|(host, _)| *host));
    let mut entries = Vec::new();
    let mut current = 0;
    for (host, entry) in blocks.into_iter().flatten() {
        if host != current {
            current = host;
            let at_unix_ms = resumed.get(&host).copied().unwrap_or(started_unix_ms);
            entries.push(JournalEntry::Resumed { at_unix_ms, provenance: Box::new(hosts.provenance(host)) });
        }
        entries.push(entry);
    }
    let provenance = hosts.provenance(0);
    let header = JournalHeader { journal: JOURNAL_VERSION, started_unix_ms, plan, provenance };
    Ok(JournalContents { header, entries, torn: None, digest: None })
}

/// The block that an entry is about.
fn block_of(entry: &JournalEntry) -> Option<&str> {
    match entry {
        JournalEntry::BlockStarted(started) => Some(&started.block),
        JournalEntry::GuestReady(ready) => Some(&ready.block),
        JournalEntry::Run(record) => Some(&record.block),
        JournalEntry::BlockEnded(ended) => Some(&ended.block),
        JournalEntry::Provisioned { .. } | JournalEntry::Resumed { .. } => None,
    }
}

/// Returns the whole plan that all shards are parts of.
fn same_plan(read: &[ReadResults]) -> Result<Plan, MergeError> {
    let whole = |shard: &ReadResults| Plan { shard: None, ..shard.contents.header.plan.clone() };
    let Some((first, others)) = read.split_first() else { return Err(MergeError::Nothing) };
    let plan = whole(first);
    for other in others {
        let of_other = whole(other);
        if of_other != plan {
            return Err(MergeError::OtherPlan {
                first: first.directory.clone(),
                second: other.directory.clone(),
                difference: first_difference(&plan, &of_other).unwrap_or_default(),
            });
        }
    }
    Ok(plan)
}

/// Checks that no block has entries in two journals.
fn each_once(read: &[ReadResults]) -> Result<(), MergeError> {
    let mut known: HashMap<&str, &Path> = HashMap::new();
    for ReadResults { directory, contents } in read {
        let own: HashSet<&str> = contents.entries.iter().filter_map(block_of).collect();
        // The order of the plan makes the message reproducible.
        for block in contents.header.plan.blocks.iter().filter(|block| own.contains(block.id.as_str())) {
            if let Some(first) = known.insert(&block.id, directory) {
                let (first, second) = (first.to_owned(), directory.clone());
                return Err(MergeError::Twice { first, second, block: block.id.clone() });
            }
        }
    }
    Ok(())
}

/// The provenance of all shards, and their hosts.
struct Hosts {
    /// The part that all hosts share: every guest, and each QEMU as on the first host that has it.
    common: Provenance,
    hosts: Vec<(HostFacts, BTreeMap<bpfassay_protocol::Arch, QemuFacts>)>,
}

impl Hosts {
    /// Compares the provenance of all shards.
    ///
    /// # Errors
    /// [`MergeError::OtherGuests`] if guests, QEMU or this program differ, [`MergeError::NotWhole`]
    /// for an invalid manifest.
    fn of(read: &[ReadResults], plan: &Plan) -> Result<Self, MergeError> {
        let mut all: Vec<(&ReadResults, &Provenance)> = Vec::new();
        for shard in read {
            all.push((shard, &shard.contents.header.provenance));
            all.extend(shard.contents.entries.iter().filter_map(|entry| match entry {
                JournalEntry::Resumed { provenance, .. } => Some((shard, provenance.as_ref())),
                _ => None,
            }));
        }
        let Some(((first, begun), others)) = all.split_first() else { return Err(MergeError::Nothing) };
        let mut this = Self { common: (*begun).clone(), hosts: Vec::new() };
        let mut manifests = vec![manifest_of(first, begun)?];
        this.add(begun);
        // The shard that had each part first, for messages.
        let mut found: Vec<(&ReadResults, &Provenance)> = vec![(first, begun)];
        for (shard, provenance) in others {
            for (before, known) in &found {
                if let Some(what) = other_guests(known, provenance) {
                    let (first, second) = (before.directory.clone(), shard.directory.clone());
                    return Err(MergeError::OtherGuests { first, second, what });
                }
            }
            let is_known = found.iter().any(|(_, known)| *known == *provenance);
            if !is_known {
                manifests.push(manifest_of(shard, provenance)?);
                found.push((shard, provenance));
                for target in &provenance.targets {
                    if !this.common.targets.contains(target) {
                        this.common.targets.push(target.clone());
                    }
                }
                this.add(provenance);
            }
        }
        let targets = targets_of(plan);
        let place = |target: &bpfassay_study::Target| {
            targets.iter().position(|(arch, kernel)| (*arch, kernel) == (target.arch, &target.kernel))
        };
        this.common.targets.sort_by_key(|made| place(&made.target).unwrap_or(usize::MAX));
        let mut manifest = provider::joined(manifests, &targets);
        let mut seen = HashSet::new();
        manifest.targets.retain(|made| seen.insert((made.arch, made.name.clone())));
        this.common.manifest =
            serde_json::to_value(manifest).map_err(|error| Box::new(crate::error::Error::from(error)))?;
        Ok(this)
    }

    /// Adds the host of `provenance`.
    fn add(&mut self, provenance: &Provenance) {
        for (arch, facts) in &provenance.qemu {
            self.common.qemu.entry(*arch).or_insert_with(|| facts.clone());
        }
        let place = self.place(provenance);
        match self.hosts.get_mut(place) {
            // The number of guests in parallel is the highest of the host's shards.
            Some((host, qemu)) => {
                host.jobs = host.jobs.max(provenance.host.jobs);
                for (arch, facts) in &provenance.qemu {
                    qemu.entry(*arch).or_insert_with(|| facts.clone());
                }
            }
            None => self.hosts.push((provenance.host.clone(), provenance.qemu.clone())),
        }
    }

    /// Returns the index of the host of `provenance`. An unknown host gets the next free index.
    fn place(&self, provenance: &Provenance) -> usize {
        let machine = |host: &HostFacts| HostFacts { jobs: 0, ..host.clone() };
        let is_same = |(host, qemu): &(HostFacts, BTreeMap<_, QemuFacts>)| {
            machine(host) == machine(&provenance.host)
                && provenance.qemu.iter().all(|(arch, facts)| qemu.get(arch).is_none_or(|known| known == facts))
        };
        self.hosts.iter().position(is_same).unwrap_or(self.hosts.len())
    }

    /// Returns the provenance of the host at index `place`, with the guests of all hosts.
    fn provenance(&self, place: usize) -> Provenance {
        let mut provenance = self.common.clone();
        if let Some((host, qemu)) = self.hosts.get(place) {
            provenance.host = host.clone();
            provenance.qemu.extend(qemu.clone());
        }
        provenance
    }
}

/// Reads the testbed manifest of `provenance`.
fn manifest_of(shard: &ReadResults, provenance: &Provenance) -> Result<Manifest, MergeError> {
    Manifest::parse(&shard.directory, provenance.manifest.to_string().as_bytes()).map_err(|error| {
        let message = bpfassay_protocol::with_causes(&error);
        MergeError::NotWhole { directory: shard.directory.clone(), what: "its testbed manifest", message }
    })
}

/// Returns a difference between two testbeds that changes figures, if any.
fn other_guests(first: &Provenance, second: &Provenance) -> Option<String> {
    if first.bpfassay != second.bpfassay {
        let name = |made: &Provenance| {
            format!("{} {}", made.bpfassay.version, made.bpfassay.sha256.as_deref().unwrap_or("unknown"))
        };
        return Some(format!("programs bpfassay ({} and {})", name(first), name(second)));
    }
    for (arch, facts) in &first.qemu {
        let Some(other) = second.qemu.get(arch) else { continue };
        if !facts.is_same_machine(other) {
            return Some(format!("QEMUs for {arch} ({} and {})", facts.described(), other.described()));
        }
    }
    for made in &first.targets {
        for other in &second.targets {
            if made.target == other.target && made != other {
                return Some(format!("guests for {}", made.target));
            }
            // Shards with different kernels still share the programs in guests of an architecture.
            if made.target.arch == other.target.arch && made.payload != other.payload {
                return Some(format!("programs in the guests for {}", made.target.arch));
            }
        }
    }
    None
}
