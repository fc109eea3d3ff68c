// SPDX-License-Identifier: MIT OR Apache-2.0
//! Known outcomes of attaching. If a kernel refuses a probe for a known reason, that is expected
//! and not a failure.

use bpfassay_protocol::{
    Arch, ProbeConfiguration,
    tracer_messages::{Refusal, Step},
};
use bpfassay_tool::file::is_of_series;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Target;

/// An expected refusal of some probe configurations on some targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Expectation {
    /// The architectures.
    pub archs: Vec<Arch>,
    /// Kernel names. A name covers itself and its builds: `6.1` covers `6.1`, `6.1.9` and `6.1-rt`,
    /// but not `6.12`.
    pub kernels: Vec<String>,
    /// The probe configurations.
    pub probes: Vec<ProbeConfiguration>,
    /// The step that the kernel refuses.
    pub step: Step,
    /// The kernel's error number, as a positive value.
    pub errno: i32,
    /// Why the kernel refuses.
    pub reason: String,
    /// Source of this knowledge.
    pub source: String,
}

impl Expectation {
    /// Whether the expectation applies to `probe` on `target`.
    #[must_use]
    pub fn covers(&self, target: &Target, probe: ProbeConfiguration) -> bool {
        self.archs.contains(&target.arch)
            && self.probes.contains(&probe)
            && self.kernels.iter().any(|name| is_of_series(&target.kernel, name))
    }

    /// Whether `refusal` has the expected step and error number.
    #[must_use]
    pub fn is_met_by(&self, refusal: &Refusal) -> bool {
        self.step == refusal.step && refusal.errno == Some(self.errno)
    }
}

/// Finds the first of `expectations` that applies to `probe` on `target`.
#[must_use]
pub fn find<'a>(
    expectations: &'a [Expectation],
    target: &Target,
    probe: ProbeConfiguration,
) -> Option<&'a Expectation> {
    expectations.iter().find(|expectation| expectation.covers(target, probe))
}

/// The built-in expectations as TOML, in `[[expected]]` tables as in a study.
pub(crate) const BUILT_IN: &str = include_str!("../studies/expectations.toml");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_not_a_prefix_of_another() {
        assert!(is_of_series("6.1", "6.1"));
        assert!(is_of_series("6.1.9", "6.1"));
        assert!(is_of_series("7.3-rc", "7.3"));
        assert!(!is_of_series("6.12", "6.1"));
        assert!(!is_of_series("6", "6.1"));
    }

    #[test]
    fn only_the_same_error_at_the_same_step_meets_an_expectation() {
        let expectation = Expectation {
            archs: vec![Arch::Aarch64],
            kernels: vec!["6.1".to_owned()],
            probes: vec![ProbeConfiguration::with_defaults(bpfassay_protocol::probe::Probe::Fexit)],
            step: Step::Attach,
            errno: 524,
            reason: String::new(),
            source: String::new(),
        };
        let met = Refusal { errno: Some(524), ..Refusal::new(Step::Attach, String::new()) };
        assert!(expectation.is_met_by(&met));
        assert!(!expectation.is_met_by(&Refusal { errno: Some(22), ..met.clone() }));
        assert!(!expectation.is_met_by(&Refusal { errno: None, ..met.clone() }));
        assert!(!expectation.is_met_by(&Refusal { step: Step::Load, ..met }));
    }
}
