// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads and attaches the programs of a probe configuration.
//!
//! `plan` is the common part of the loaders. Each loader has a folder, with a function that accepts
//! a probe configuration and [`TracerOptions`] and returns [`LoadedTracer`], and a line in
//! [`load`]. The module `counters` reads the counts of the programs.

pub(crate) mod aya;
pub(crate) mod libbpf;
pub(crate) mod plan;

use std::{collections::BTreeMap, io, mem, os::fd::OwnedFd};

use bpfassay_protocol::{
    ProbeConfiguration,
    finding_name::Finding,
    probe::{Loader, Probe},
    tracer_messages::{Attached, Refusal, Step},
};

use self::plan::{
    descriptors,
    hooked::{AttachedPrograms, Hooked},
    loaded::{LoadedTracer, PreparedPrograms, Since},
    object_files, renamed,
    tracer_options::TracerOptions,
};
use crate::diagnostics::{self, SearchTime};

/// The loaded programs of a probe configuration. They can be attached any number of times.
pub(crate) struct LoadedConfiguration {
    configuration: ProbeConfiguration,
    options: TracerOptions,
    /// Time to load; `None` once it has been reported.
    load_ns: Option<u64>,
    maps: BTreeMap<String, OwnedFd>,
    /// Functions that are not counted.
    findings: Vec<Finding>,
    /// Pitfalls that were found before loading, until the programs are attached.
    before: Option<Vec<Finding>>,
    programs: Box<dyn PreparedPrograms>,
}

impl LoadedConfiguration {
    fn new(
        (configuration, options): (ProbeConfiguration, &TracerOptions),
        LoadedTracer { maps, load_ns, findings, programs }: LoadedTracer,
        before: Vec<Finding>,
    ) -> Self {
        let (options, load_ns, before) = (options.clone(), Some(load_ns), Some(before));
        Self { configuration, options, load_ns, maps, findings, before, programs }
    }

    /// Returns the descriptors of the maps by name ([`bpfassay_tracer_common::map`]), for their
    /// reader. Empty at the second call.
    pub(crate) fn take_maps(&mut self) -> BTreeMap<String, OwnedFd> {
        mem::take(&mut self.maps)
    }

    /// Attaches the programs. They count until the links in the result are dropped, and can then be
    /// attached again. The time of loading is reported once.
    ///
    /// # Errors
    /// A [`Refusal`]. In that case, no program stays attached.
    pub(crate) fn attach(&mut self) -> Result<(Attached, AttachedPrograms), Refusal> {
        // This comes before anything is attached: the tracer's own hooks are not pitfalls.
        let before = self.before.take().unwrap_or_else(|| self.programs.look(&self.options, SearchTime::Before));
        let start = Since::now();
        match self.programs.attach(&self.options) {
            Ok(mut programs) => {
                let attach_ns = start.nanoseconds();
                let unhooked = mem::take(&mut programs.findings);
                let attached = Attached {
                    configuration: self.configuration,
                    load_ns: self.load_ns.take(),
                    attach_ns,
                    programs: programs.hooked.iter().map(described).collect::<Result<_, _>>()?,
                    findings: [self.findings.clone(), unhooked, before].concat(),
                };
                Ok((attached, programs))
            }
            Err(mut refusal) => {
                refusal.findings.extend(self.programs.look(&self.options, SearchTime::Refused));
                Err(refusal)
            }
        }
    }
}

fn described(hooked: &Hooked) -> Result<bpfassay_protocol::tracer_messages::Program, Refusal> {
    hooked.describe().map_err(|error: io::Error| Refusal {
        program: Some(hooked.program.clone()),
        errno: error.raw_os_error(),
        ..Refusal::new(Step::Attach, error.to_string())
    })
}

/// Loads the programs of one probe configuration.
///
/// # Errors
/// A [`Refusal`] with the step that failed and the message of the kernel or the library. In that
/// case, no program stays loaded.
pub(crate) fn load(configuration: ProbeConfiguration, options: &TracerOptions) -> Result<LoadedConfiguration, Refusal> {
    descriptors::make_room();
    if configuration.probe == Probe::Programs {
        if let Some(why) = not_for_sets(configuration, options) {
            return Err(Refusal::new(Step::Open, why.to_owned()));
        }
        let loaded = libbpf::libbpf_sets::load(configuration)?;
        return Ok(LoadedConfiguration::new((configuration, options), loaded, Vec::new()));
    }
    if options.mount != 0 && !configuration.probe.distinguishes_mounts() {
        let message = format!("`{}` does not distinguish mounts: leave out --mount", configuration.probe);
        return Err(Refusal::new(Step::Open, message));
    }
    if !configuration.probe.distinguishes_mounts()
        && configuration != ProbeConfiguration::with_defaults(configuration.probe)
    {
        let message =
            format!("`{}` counts no calls in maps: leave out the map layout and the loader", configuration.probe);
        return Err(Refusal::new(Step::Open, message));
    }
    if options.maxactive.is_some() && configuration.probe != Probe::Kretprobe {
        let message = format!("`{configuration}` has no kretprobes that take --maxactive: `kretprobe` has");
        return Err(Refusal::new(Step::Open, message));
    }
    let options = &renamed::for_this_kernel(options);
    match configuration.loader {
        Loader::Libbpf => {
            let Some(object) = object_files::find(configuration.probe, configuration.map) else {
                let message = format!("this build of the tracer has no programs for `{configuration}`");
                return Err(Refusal::new(Step::Open, message));
            };
            let before = diagnostics::look_for(object.elf, options, SearchTime::Before);
            let loaded = libbpf::load(object, options, &diagnostics::absent(&before));
            loaded.map(|loaded| LoadedConfiguration::new((configuration, options), loaded, before)).map_err(|refusal| {
                with_findings(refusal, diagnostics::look_for(object.elf, options, SearchTime::Refused))
            })
        }
        Loader::Aya => {
            let elf = object_files::in_rust(configuration.map).ok_or_else(|| aya::no_programs(configuration))?;
            let sections = aya::aya_attach::sections_of(elf, configuration.probe);
            let look = |when| diagnostics::look_for_hooks(sections.iter().map(String::as_str), options, when);
            let before = look(SearchTime::Before);
            let loaded = aya::load(configuration, elf, &sections, options);
            loaded
                .map(|loaded| LoadedConfiguration::new((configuration, options), loaded, before))
                .map_err(|refusal| with_findings(refusal, look(SearchTime::Refused)))
        }
    }
}

fn with_findings(mut refusal: Refusal, findings: Vec<Finding>) -> Refusal {
    refusal.findings.extend(findings);
    refusal
}

/// Returns why program sets do not accept the options or the configuration, if they do not.
fn not_for_sets(configuration: ProbeConfiguration, options: &TracerOptions) -> Option<&'static str> {
    let plain = TracerOptions {
        attach_order: options.attach_order,
        symbol_cache: options.symbol_cache.clone(),
        ..TracerOptions::default()
    };
    let default = ProbeConfiguration { sets: configuration.sets, ..ProbeConfiguration::with_defaults(Probe::Programs) };
    if configuration != default {
        Some("program sets have maps of their own and one loader: leave out the map layout and the loader")
    } else if *options != plain {
        Some("program sets count everything, in all cgroups: leave out the options of other probes")
    } else {
        None
    }
}
