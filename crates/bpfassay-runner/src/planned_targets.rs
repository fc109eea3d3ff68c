// SPDX-License-Identifier: MIT OR Apache-2.0
//! The targets of a plan, for the manifests of guests.

use bpfassay_protocol::Arch;
use bpfassay_study::Plan;
use bpfassay_testbed::manifest::Manifest;

/// Returns the targets of `plan` in the form for a provider.
pub(crate) fn targets_of(plan: &Plan) -> Vec<(Arch, String)> {
    plan.targets().iter().map(|target| (target.arch, target.kernel.clone())).collect()
}

/// Leaves only the guests for targets of `plan` in `manifest`.
pub(crate) fn keep_planned(manifest: &mut Manifest, plan: &Plan) {
    let targets = plan.targets();
    let is_needed = |arch: Arch, name: &str| targets.iter().any(|to| (to.arch, to.kernel.as_str()) == (arch, name));
    manifest.targets.retain(|made| is_needed(made.arch, &made.name));
}
