// SPDX-License-Identifier: MIT OR Apache-2.0
//! Program sets: one object each, loaded and attached one after the other.

use std::{collections::BTreeMap, io};

use bpfassay_protocol::{
    ProbeConfiguration,
    finding_name::Finding,
    program_set::ProgramSet,
    tracer_messages::{Refusal, Step},
};
use libbpf_rs::Object;

use super::{libbpf_attach, libbpf_log, maps, open, sys};
use crate::{
    diagnostics::SearchTime,
    loader::plan::{
        hooked::AttachedPrograms,
        loaded::{LoadedTracer, PreparedPrograms, Since},
        object_files,
        refusal::Failure,
        tracer_options::{TracerOptions, set_map_name},
    },
};

/// Loads all sets of `configuration`, or none.
///
/// # Errors
/// A [`Refusal`]. It names the set if no program is to blame.
pub(crate) fn load(configuration: ProbeConfiguration) -> Result<LoadedTracer, Refusal> {
    let (mut sets, mut named, mut load_ns) = (Vec::new(), BTreeMap::new(), 0_u64);
    for set in configuration.sets.iter() {
        let log = libbpf_log::capture();
        let start = Since::now();
        let object = load_set(set).map_err(|failure| of_set(set, log, failure))?;
        load_ns = load_ns.saturating_add(start.nanoseconds());
        let maps = maps(&object)
            .map_err(|error| of_set(set, libbpf_log::capture(), Failure { step: Step::Load, program: None, error }))?;
        named.extend(maps.into_iter().map(|(name, fd)| (set_map_name(set, &name), fd)));
        sets.push((set, object));
    }
    Ok(LoadedTracer { maps: named, load_ns, findings: Vec::new(), programs: Box::new(LoadedSets(sets)) })
}

fn load_set(set: ProgramSet) -> Result<Object, Failure> {
    let failed = |step, error| Failure { step, program: None, error };
    let elf = object_files::of_set(set)
        .ok_or_else(|| failed(Step::Open, io::Error::other("this build of the tracer has no programs for it")))?;
    sys::load(open(elf)?).map_err(|error| failed(Step::Load, error))
}

fn of_set(set: ProgramSet, log: libbpf_log::LibbpfLog, failure: Failure) -> Refusal {
    let mut refusal = log.refusal(failure);
    refusal.message = format!("program set {set}: {}", refusal.message);
    refusal
}

/// Loaded objects, each with its set.
struct LoadedSets(Vec<(ProgramSet, Object)>);

impl PreparedPrograms for LoadedSets {
    fn attach(&mut self, options: &TracerOptions) -> Result<AttachedPrograms, Refusal> {
        let mut all = AttachedPrograms::default();
        for (set, object) in &self.0 {
            let log = libbpf_log::capture();
            let attached = libbpf_attach::all(object, options).and_then(|attached| match attached.findings.first() {
                None => Ok(attached),
                // A set that misses a kind of its events counts wrongly.
                Some(finding) => {
                    let error = io::Error::other(format!("{}: {}", finding.subject, finding.detail));
                    Err(Failure { step: Step::Attach, program: None, error })
                }
            });
            let mut attached = attached.map_err(|failure| of_set(*set, log, failure))?;
            for hooked in &mut attached.hooked {
                // Programs of different sets can have the same name.
                hooked.program = format!("{set}/{}", hooked.program);
            }
            all.hooked.extend(attached.hooked);
            all.links.extend(attached.links);
        }
        Ok(all)
    }

    fn look(&self, _: &TracerOptions, _: SearchTime) -> Vec<Finding> {
        Vec::new()
    }
}
