// SPDX-License-Identifier: MIT OR Apache-2.0
//! Program sets: one object each, loaded and attached one after the other.

use std::{collections::BTreeMap, io};

use bpfassay_protocol::{
    ProbeConfiguration,
    program_set::ProgramSet,
    tracer::{Attached, Refusal, Step},
};
use libbpf_rs::ObjectBuilder;

use super::{attach, into_loaded, log, monotonic, sys};
use crate::loader::plan::{
    hooked::AttachedPrograms,
    objects,
    options::{Loaded, Options, set_map_name},
    refusal::Failure,
};

/// Loads and attaches the sets of `configuration`; all or none.
///
/// # Errors
/// A [`Refusal`], which names the set where no program is to blame.
pub(crate) fn bring_up(configuration: ProbeConfiguration, options: &Options) -> Result<Loaded, Refusal> {
    let mut all = Loaded {
        attached: Attached::none(configuration),
        maps: BTreeMap::new(),
        hooked: Vec::new(),
        keep: Box::new(()),
    };
    let mut keep = Vec::new();
    for set in configuration.sets.iter() {
        let log = log::capture();
        let loaded = load_and_attach(set, configuration, options).map_err(|failure| {
            let mut refusal = log.refusal(failure);
            refusal.message = format!("program set {set}: {}", refusal.message);
            refusal
        })?;
        all.attached.load_ns = all.attached.load_ns.saturating_add(loaded.attached.load_ns);
        all.attached.attach_ns = all.attached.attach_ns.saturating_add(loaded.attached.attach_ns);
        all.attached.programs.extend(loaded.attached.programs);
        all.maps.extend(loaded.maps);
        all.hooked.extend(loaded.hooked);
        keep.push(loaded.keep);
    }
    all.keep = Box::new(keep);
    Ok(all)
}

fn load_and_attach(set: ProgramSet, configuration: ProbeConfiguration, options: &Options) -> Result<Loaded, Failure> {
    let failed = |step, error| Failure { step, program: None, error };
    let start = monotonic();
    let elf = objects::of_set(set)
        .ok_or_else(|| failed(Step::Open, io::Error::other("this build of the tracer has no programs for it")))?;
    let open = ObjectBuilder::default()
        .name("bpfassay")
        .and_then(|builder| builder.open_memory(elf))
        .map_err(|error| failed(Step::Open, io::Error::other(format!("{error:#}"))))?;
    let object = sys::load(open).map_err(|error| failed(Step::Load, error))?;
    let loaded = monotonic();
    let AttachedPrograms { mut hooked, links, findings } = attach::all(&object, options)?;
    // A set that cannot see all of its events does not count right.
    if let Some(finding) = findings.first() {
        return Err(failed(Step::Attach, io::Error::other(format!("{}: {}", finding.subject, finding.detail))));
    }
    let times = [start, loaded, monotonic()];
    for hooked in &mut hooked {
        // Programs of several sets share names.
        hooked.program = format!("{set}/{}", hooked.program);
    }
    let mut loaded =
        into_loaded(object, (hooked, links), times, Attached { findings, ..Attached::none(configuration) })?;
    loaded.maps = loaded.maps.into_iter().map(|(name, fd)| (set_map_name(set, &name), fd)).collect();
    Ok(loaded)
}
