// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gates: limits that a study sets on its results, and the error rate of verdicts.

use std::{fmt, str::FromStr};

use bpfassay_input::document::{Field, Reported, Section};
use bpfassay_protocol::{Arch, ProbeConfiguration};
use bpfassay_tool::{file::is_of_series, finding::Kind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Cell, Study,
    budget::{self, Budget, BudgetFigure},
    target::kernel_name,
};

/// Limits on figures of the cells that the gate applies to. An empty list stands for all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// Architectures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub archs: Vec<Arch>,
    /// Kernel names; each covers its builds, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    /// Names of probe configurations and tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<String>,
    /// Names of workloads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<String>,
    /// The relative overhead is at most 1 + this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Share>,
    /// Limit of the overhead in time per call of phases. Needs a workload that times its calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead_per_call: Option<Share>,
    /// The direct cost is at most this many instructions per call in every run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_cost: Option<u64>,
    /// The relative error over IOR's own interval is at most 1 + this, in either direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_error: Option<Share>,
    /// The absolute byte error is at most this in every phase of every run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub byte_error: Option<u64>,
    /// Limits on the programs and maps of a tool under test, and on the time to load, attach and
    /// detach.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<Budget>,
    /// Whether attaching must go as expected: expected refusals happen, and nothing else is
    /// refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attach: bool,
    /// Kinds of findings that a tool under test must not have. Unless all kinds are listed, each
    /// listed kind must also have been looked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Kind>,
}

/// The keys of a gate, without those of budgets.
const KEYS: &[&str] = &[
    "arch",
    "kernels",
    "probes",
    "workloads",
    "overhead",
    "overhead_per_call",
    "direct_cost",
    "relative_error",
    "byte_error",
    "attach",
    "deny",
];

impl Gate {
    /// Whether this gate of `study` applies to `cell`. A gate never applies to a baseline.
    #[must_use]
    pub fn covers(&self, study: &Study, cell: &Cell) -> bool {
        let under_test = cell.tool.clone().unwrap_or_else(|| cell.probe.to_string());
        let is_of = |names: &[String], matches: &dyn Fn(&str) -> bool| {
            names.is_empty() || names.iter().any(|name| matches(name))
        };
        !cell.is_baseline()
            && (self.archs.is_empty() || self.archs.contains(&cell.target.arch))
            && is_of(&self.kernels, &|name| is_of_series(&cell.target.kernel, name))
            && is_of(&self.probes, &|name| name == under_test)
            && is_of(&self.workloads, &|name| study.workload(&cell.case).is_some_and(|workload| workload.name == name))
    }

    /// Whether the gate limits an overhead.
    #[must_use]
    pub const fn limits_overheads(&self) -> bool {
        self.overhead.is_some() || self.overhead_per_call.is_some()
    }

    /// Reads one table. `known` has the allowed names in `probes`, and `workloads` has the
    /// workloads of the study.
    ///
    /// # Errors
    /// [`Reported`] if a key is unknown, a value is invalid, or a name is not in the study. The
    /// complaint is in the document.
    pub(crate) fn read(section: &Section<'_, '_>, known: &[String], workloads: &[&str]) -> Result<Self, Reported> {
        let budgets = BudgetFigure::ALL.iter().map(|(key, ..)| *key);
        section.only(&KEYS.iter().copied().chain(budgets).collect::<Vec<_>>());
        let archs =
            section.or("arch", Vec::new(), |archs| archs.distinct("architecture", |field| field.name::<Arch>()));
        let kernels = section.or("kernels", Vec::new(), |kernels| kernels.distinct("kernel", kernel_name));
        let probes = section.or("probes", Vec::new(), |probes| {
            probes.distinct("probe configuration", |field| under_test(field, known))
        });
        let names = section.or("workloads", Vec::new(), |names| {
            names.distinct("workload", |field| {
                let name = field.text()?;
                match workloads.contains(&name) {
                    true => Ok(name.to_owned()),
                    false => Err(field.error(format!("the study has no such workload: {}", workloads.join(", ")))),
                }
            })
        });
        let overhead = section.optional("overhead", Field::name);
        let overhead_per_call = section.optional("overhead_per_call", Field::name);
        let direct_cost = section.optional("direct_cost", |field| field.number(0..=i64::MAX as u64));
        let relative_error = section.optional("relative_error", |field| match field.name::<Share>()? {
            Share { ppm: 0 } => Err(field.error("nothing can be shown to have no error at all: allow more than 0%")),
            share => Ok(share),
        });
        let byte_error = section.optional("byte_error", |field| field.number(0..=i64::MAX as u64));
        let budgets = budget::read(section);
        let attach = section.or("attach", false, Field::boolean);
        let deny = section
            .or("deny", Vec::new(), |field| Ok(Denied::kinds(&field.distinct("finding", Field::name::<Denied>)?)));
        let gate = Self {
            archs: archs?,
            kernels: kernels?,
            probes: probes?,
            workloads: names?,
            overhead: overhead?,
            overhead_per_call: overhead_per_call?,
            direct_cost: direct_cost?,
            relative_error: relative_error?,
            byte_error: byte_error?,
            budgets: budgets?,
            attach: attach?,
            deny: deny?,
        };
        let has_limit = gate.limits_overheads() || gate.relative_error.is_some();
        let has_count = gate.direct_cost.is_some() || gate.byte_error.is_some() || !gate.budgets.is_empty();
        if has_limit || has_count || gate.attach || !gate.deny.is_empty() {
            return Ok(gate);
        }
        let budgets: String = BudgetFigure::ALL.iter().map(|(key, ..)| format!("`{key}`, ")).collect();
        Err(section.error(format!(
            "this gate has no limit: give `overhead`, `overhead_per_call`, `direct_cost`, `relative_error`, `byte_error`, \
             {budgets}`attach = true` or `deny`",
        )))
    }
}

/// Reads the name of a probe configuration or tool in `known`.
fn under_test(field: &Field<'_, '_>, known: &[String]) -> Result<String, Reported> {
    let text = field.text()?;
    // `fexit+percpu` is another name for `fexit`.
    let name = text.parse::<ProbeConfiguration>().map_or(text.to_owned(), |probe| probe.to_string());
    if known.contains(&name) {
        return Ok(name);
    }
    Err(field.error(format!(
        "`{}` is none of the study's probe configurations and tools that a gate can limit: {}",
        text.chars().take(64).collect::<String>(),
        known.join(", ")
    )))
}

/// One denied kind of finding, or `all` kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied(pub Vec<Kind>);

impl Denied {
    /// Merges the lists: each kind once, in the order of [`Kind::ALL`].
    #[must_use]
    pub fn kinds(all: &[Self]) -> Vec<Kind> {
        let is_denied = |kind: &Kind| all.iter().any(|denied| denied.0.contains(kind));
        Kind::ALL.iter().copied().filter(is_denied).collect()
    }
}

impl FromStr for Denied {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self(Kind::ALL.to_vec()));
        }
        text.parse().map(|kind| Self(vec![kind])).map_err(|error: String| format!("{error}; or `all`"))
    }
}

/// The error rate of a study's verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Certainty", deny_unknown_fields)]
pub struct VerdictCertainty {
    /// Probability of each of a verdict's two errors: a pass above the limit, and a regression
    /// below it.
    pub error_rate: Share,
    /// How the error rate is kept over the whole matrix.
    pub correction: Correction,
    /// Whether wall-clock overheads are evaluated even without KVM.
    pub insist: bool,
}

impl Default for VerdictCertainty {
    fn default() -> Self {
        Self { error_rate: Share::from_ppm(50_000), correction: Correction::Holm, insist: false }
    }
}

impl VerdictCertainty {
    /// Reads the keys of the error rate.
    ///
    /// # Errors
    /// [`Reported`] if the error rate is out of range or a value is invalid. The complaint is in
    /// the document.
    pub(crate) fn read(section: &Section<'_, '_>) -> Result<Self, Reported> {
        let default = Self::default();
        let error_rate = section.or("error_rate", default.error_rate, |field| match field.name::<Share>()? {
            rate if (1..500_000).contains(&rate.ppm()) => Ok(rate),
            _ => Err(field.error("an error rate must be between 0.0001% and 49.9999%")),
        });
        let correction = section.or("correction", default.correction, |field| field.choice(Correction::NAMES));
        let insist = section.or("insist", default.insist, Field::boolean);
        Ok(Self { error_rate: error_rate?, correction: correction?, insist: insist? })
    }
}

/// How an error rate is kept over many verdicts; see `multiplicity` in bpfassay-stats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Correction {
    /// Limits the probability of any false claim in the whole matrix (Holm).
    Holm,
    /// Limits the average share of false claims among the claims (Benjamini-Hochberg).
    BenjaminiHochberg,
}

impl Correction {
    /// The names in study files.
    pub const NAMES: &'static [(&'static str, Self)] =
        &[("holm", Self::Holm), ("benjamini-hochberg", Self::BenjaminiHochberg)];
}

/// A share, exact to one millionth. Written in per cent: `5%`, `0.5%`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Share {
    ppm: u32,
}

/// Largest share, so that the ratio 1 + share is at most 100.
const MAX_PPM: u32 = 99_000_000;

impl Share {
    /// Creates a share of `ppm` millionths, 9900 % at most.
    #[must_use]
    pub const fn from_ppm(ppm: u32) -> Self {
        Self { ppm: if ppm > MAX_PPM { MAX_PPM } else { ppm } }
    }

    /// The share in millionths.
    #[must_use]
    pub const fn ppm(self) -> u32 {
        self.ppm
    }

    /// The share as a number: 0.05 for 5 %.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.ppm) / 1e6
    }

    /// The ratio 1 + share.
    #[must_use]
    pub fn ratio(self) -> f64 {
        f64::from(self.ppm + 1_000_000) / 1e6
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            let shown: String = text.chars().take(64).collect();
            format!("`{shown}` is not a share from 0% to 9900% with four decimals at most, such as 5% or 0.5%")
        };
        let number = text.strip_suffix('%').ok_or_else(wrong)?.trim_end();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || fraction.len() > 4 {
            return Err(wrong());
        }
        let ppm = format!("{whole}{fraction:0<4}").parse::<u32>().ok().filter(|&ppm| ppm <= MAX_PPM);
        ppm.map(Self::from_ppm).ok_or_else(wrong)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:04}", self.ppm / 10_000, self.ppm % 10_000);
        write!(f, "{}%", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl TryFrom<String> for Share {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Share> for String {
    fn from(share: Share) -> Self {
        share.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_are_written_in_per_cent() {
        for (text, ppm) in [("5%", 50_000), ("0.5%", 5000), ("0%", 0), ("100 %", 1_000_000), ("0.0001%", 1)] {
            assert_eq!(text.parse::<Share>().map(Share::ppm), Ok(ppm), "{text}");
        }
        for text in ["", "%", "5", "-1%", "0.00001%", ".5%", "5.%", "9900.0001%", "1e3%", "99999999999%", "+5%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        assert_eq!(Share::from_ppm(5000).ratio(), 1.005);
    }

    proptest! {
        #[test]
        fn shares_survive_writing(ppm in 0..=MAX_PPM) {
            let share = Share::from_ppm(ppm);
            prop_assert_eq!(share.to_string().parse::<Share>(), Ok(share));
        }

        #[test]
        fn no_text_makes_the_reader_of_shares_panic(text: String) {
            let _ = text.parse::<Share>();
        }
    }
}
