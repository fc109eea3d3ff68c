// SPDX-License-Identifier: MIT OR Apache-2.0
//! Expected refusals.

use bpfassay_input::document::{self, Field, Invalid, Reported};
use bpfassay_protocol::{Arch, ProbeConfiguration, tracer_messages::Step};

use super::probe_names::configurations;
use crate::{Expectation, expectation, target::kernel_name};

const STEPS: &[(&str, Step)] = &[("open", Step::Open), ("load", Step::Load), ("attach", Step::Attach)];

/// The built-in expectations.
///
/// # Errors
/// Fails only if the compiled-in file is invalid, which a test would find.
pub(super) fn built_in() -> Result<Vec<Expectation>, Invalid> {
    document::read("bundled expectations", expectation::BUILT_IN, |root| {
        root.only(&["expected"]);
        root.need("expected", read)
    })
}

/// Reads the tables `[[expected]]`.
///
/// # Errors
/// [`Reported`] if a key is unknown or missing, or a value is invalid. The complaint is in the
/// document.
pub(super) fn read(field: &Field<'_, '_>) -> Result<Vec<Expectation>, Reported> {
    field.each(|element| {
        let section = element.table()?;
        section.only(&["arch", "kernels", "probe", "step", "errno", "reason", "source"]);
        let archs = section.need("arch", |archs| archs.distinct("architecture", Field::name::<Arch>));
        let kernels = section.need("kernels", |kernels| kernels.distinct("kernel", kernel_name));
        let probes = section.need("probe", |probe| probe.distinct("probe configuration", refusable));
        let step = section.need("step", |step| step.choice(STEPS));
        let errno = section.need("errno", |errno| errno.number(1..=4095));
        let reason = section.need("reason", Field::string);
        let source = section.need("source", Field::string);
        Ok(Expectation {
            archs: archs?,
            kernels: kernels?,
            probes: probes?.concat(),
            step: step?,
            errno: errno?,
            reason: reason?,
            source: source?,
        })
    })
}

/// Expands the name of probe configurations that a kernel can refuse.
fn refusable(field: &Field<'_, '_>) -> Result<Vec<ProbeConfiguration>, Reported> {
    let all = configurations(field)?;
    if all.iter().any(|one| one.is_baseline()) {
        return Err(field.error("the baseline attaches nothing, so no kernel can refuse it"));
    }
    Ok(all)
}
