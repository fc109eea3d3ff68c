// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading and attaching the programs of a probe configuration.
//!
//! Here: `plan`, which is what the loaders have in common, and one folder for each loader. A loader has a function that
//! takes a probe configuration and [`Options`] and yields [`Loaded`], and a line in [`bring_up`].
//! Not here: reading what the programs count.

pub(crate) mod aya;
pub(crate) mod libbpf;
pub(crate) mod plan;

use bpfassay_protocol::{
    ProbeConfiguration,
    probe::{Loader, Probe},
    tracer::{Refusal, Step},
};

use self::plan::{
    descriptors, objects,
    options::{Loaded, Options},
    refusal::refusal,
    renamed,
};
use crate::diagnostics::{self, When};

/// Loads and attaches one probe configuration.
///
/// # Errors
/// A [`Refusal`] with the step that failed and the message of the kernel or the library; nothing stays attached then.
pub(crate) fn bring_up(configuration: ProbeConfiguration, options: &Options) -> Result<Loaded, Refusal> {
    descriptors::make_room();
    if configuration.probe == Probe::Programs {
        if let Some(why) = not_for_sets(configuration, options) {
            return Err(refusal(Step::Open, why.to_owned()));
        }
        return libbpf::sets::bring_up(configuration, options);
    }
    if options.mount != 0 && !configuration.probe.tells_mounts() {
        let message = format!("`{}` does not distinguish mounts: leave out --mount", configuration.probe);
        return Err(refusal(Step::Open, message));
    }
    if !configuration.probe.tells_mounts() && configuration != ProbeConfiguration::with_defaults(configuration.probe) {
        let message =
            format!("`{}` counts no calls in maps: leave out the map layout and the loader", configuration.probe);
        return Err(refusal(Step::Open, message));
    }
    if options.maxactive.is_some() && configuration.probe != Probe::Kretprobe {
        let message = format!("`{configuration}` has no kretprobes that take --maxactive: `kretprobe` has");
        return Err(refusal(Step::Open, message));
    }
    let options = &renamed::for_this_kernel(options);
    match configuration.loader {
        Loader::Libbpf => {
            let Some(object) = objects::find(configuration.probe, configuration.map) else {
                let message = format!("this build of the tracer has no programs for `{configuration}`");
                return Err(refusal(Step::Open, message));
            };
            // Before anything is loaded: the tracer's own hooks are no pitfalls.
            let findings = diagnostics::look_for(object.elf, options, When::Before);
            match libbpf::bring_up(configuration, object, options, &diagnostics::absent(&findings)) {
                Ok(mut loaded) => {
                    loaded.attached.findings.extend(findings);
                    Ok(loaded)
                }
                Err(mut refusal) => {
                    refusal.findings.extend(diagnostics::look_for(object.elf, options, When::Refused));
                    Err(refusal)
                }
            }
        }
        Loader::Aya => aya::bring_up(configuration, options),
    }
}

/// Options that program sets do not have.
fn not_for_sets(configuration: ProbeConfiguration, options: &Options) -> Option<&'static str> {
    let plain = Options {
        attach_order: options.attach_order,
        symbol_cache: options.symbol_cache.clone(),
        ..Options::default()
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
