// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loader `aya`: objects written in Rust (`bpfassay-tracer-ebpf`), loaded through aya.
//!
//! One object contains the programs of every probe for one map layout. The loader selects those of
//! one probe by their names (`PROBE__FUNCTION`). The offsets of the kernel's structures come from
//! its BTF ([`btf::member_offsets`]) and are written into the object as a read-only global.

pub(crate) mod aya_attach;
mod aya_refusal;

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use ::aya::{
    Btf, Ebpf, EbpfLoader,
    maps::{Map, MapData},
};
use bpfassay_protocol::{
    ProbeConfiguration,
    finding_name::Finding,
    probe::Probe,
    tracer_messages::{Refusal, Step},
};
use bpfassay_tracer_common::{Settings, map};

use self::aya_refusal::refuse;
use crate::{
    diagnostics::{self, SearchTime},
    kernel::btf,
    loader::plan::{
        hooked::AttachedPrograms,
        loaded::{LoadedTracer, PreparedPrograms, Since},
        prototypes::name_prototypes,
        settings,
        tracer_options::TracerOptions,
    },
};

/// Names of the globals in the objects.
const SETTINGS: &str = "SETTINGS";
const PROTOTYPES: &str = "PROTOTYPES";
const OFFSETS: &str = "OFFSETS";
const TASK_KNOWN: &str = "TASK_KNOWN";

/// Loads the programs of `configuration` from the object file `elf`, which has them in `sections`.
///
/// # Errors
/// A [`Refusal`] if the object cannot be opened or the kernel refuses a map or a program.
pub(crate) fn load(
    configuration: ProbeConfiguration,
    elf: &[u8],
    sections: &[String],
    options: &TracerOptions,
) -> Result<LoadedTracer, Refusal> {
    let start = Since::now();
    let offsets = btf::member_offsets::of_kernel().map_err(|error| refuse(Step::Open, None, &error))?;
    // In other probes, no task is preempted inside a program.
    let copies = match configuration.probe {
        Probe::Fexit | Probe::RawTracepoint | Probe::Tracepoint => settings::copies(),
        _ => 1,
    };
    let settings = Settings::new(options.cgroup, options.mount, options.latency, copies).to_bytes();
    let prototypes = name_prototypes(options).map_err(|failure| refuse(failure.step, None, &failure.error))?;
    let mut loader = EbpfLoader::new();
    // The tracer reads maps that aya cannot read through their descriptors.
    loader.allow_unsupported_maps();
    loader.override_global(OFFSETS, offsets.as_slice(), true).override_global(SETTINGS, settings.as_slice(), true);
    loader.override_global(PROTOTYPES, prototypes.as_slice(), true);
    let task_known = u64::from(settings::is_task_known());
    loader.override_global(TASK_KNOWN, &task_known, true);
    size_maps(&mut loader, copies, options);
    let mut ebpf = loader.load(elf).map_err(|error| refuse(aya_refusal::step_of(&error), None, &error))?;
    let btf = Btf::from_sys_fs().map_err(|error| refuse(Step::Open, None, &error))?;
    let mut names = aya_attach::programs_of(&ebpf, configuration.probe, copies, options);
    if names.is_empty() {
        return Err(no_programs(configuration));
    }
    let findings = aya_attach::load(&mut ebpf, configuration.probe, &mut names, options, &btf)?;
    let load_ns = start.nanoseconds();
    let maps = maps(&ebpf).map_err(|error| refuse(Step::Load, None, &error))?;
    let sections = sections.to_vec();
    let programs = LoadedPrograms { ebpf, probe: configuration.probe, names, sections };
    Ok(LoadedTracer { maps, load_ns, findings, programs: Box::new(programs) })
}

/// Programs that are loaded.
struct LoadedPrograms {
    ebpf: Ebpf,
    probe: Probe,
    /// Names of the loaded programs.
    names: Vec<String>,
    /// Sections of all programs of the probe.
    sections: Vec<String>,
}

impl PreparedPrograms for LoadedPrograms {
    fn attach(&mut self, options: &TracerOptions) -> Result<AttachedPrograms, Refusal> {
        let mut attached = aya_attach::all(&mut self.ebpf, self.probe, &self.names, options)?;
        if !settings::is_task_known() && attached.hooked.iter().any(|hooked| hooked.program.contains("__sys_fsync")) {
            attached.findings.push(settings::fsync_without_mount());
        }
        Ok(attached)
    }

    fn look(&self, options: &TracerOptions, when: SearchTime) -> Vec<Finding> {
        diagnostics::look_for_hooks(self.sections.iter().map(String::as_str), options, when)
    }
}

/// Sets the sizes of maps. aya creates every map of an object, so unused ones get one entry.
fn size_maps(loader: &mut EbpfLoader<'_>, copies: u32, options: &TracerOptions) {
    let unused = [
        (map::COUNTERS_2, copies < 2),
        ("turns", copies < 2),
        ("starts", !options.latency),
        (map::LATENCIES, !options.latency),
    ];
    for (name, _) in unused.iter().filter(|(_, is_unused)| *is_unused) {
        loader.map_max_entries(name, 1);
    }
    if let Some(entries) = options.map_entries {
        for name in [map::COUNTERS, map::COUNTERS_2] {
            if !unused.contains(&(name, true)) {
                loader.map_max_entries(name, entries);
            }
        }
        // aya rounds the size up to a power of two of pages. Each event has a header of eight
        // bytes.
        loader.map_max_entries(map::EVENTS, entries.saturating_mul(64).min(1 << 30));
    }
}

/// Returns the refusal of a build that has no programs for `configuration`.
pub(crate) fn no_programs(configuration: ProbeConfiguration) -> Refusal {
    let why = match configuration.probe {
        Probe::KprobeMulti => ": the library aya cannot attach to fprobe (kprobe.multi), use the loader libbpf",
        _ => "",
    };
    Refusal::new(Step::Open, format!("this build of the tracer has no programs for `{configuration}`{why}"))
}

/// Duplicates the descriptors of all maps, by name.
fn maps(ebpf: &Ebpf) -> io::Result<BTreeMap<String, OwnedFd>> {
    let named = ebpf.maps().filter_map(|(name, map)| Some((name, data(map)?)));
    named.map(|(name, data)| Ok((name.to_owned(), data.fd().as_fd().try_clone_to_owned()?))).collect()
}

/// Returns the common part of all kinds of maps in the objects.
fn data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::PerCpuHashMap(data)
        | Map::RingBuf(data)
        | Map::Unsupported(data) => Some(data),
        _ => None,
    }
}
