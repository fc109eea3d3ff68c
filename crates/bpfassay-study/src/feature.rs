// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which kernels should offer a feature to eBPF tools. Trials are compared with this: an
//! unexplained missing feature is a surprise, and so is an unexpected one.

use std::{collections::BTreeMap, fmt, str::FromStr};

use bpfassay_input::document::{self, Field, Invalid, Reported, Section};
use bpfassay_protocol::Arch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use bpfassay_tool::file::is_of_series;

use crate::Target;

/// The built-in expectations.
const BUILT_IN: &str = include_str!("../studies/kernel-features-expected.toml");

/// A kernel series such as `6.12`, ordered by age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Series {
    major: u32,
    minor: u32,
}

impl Series {
    /// Major and minor version.
    #[must_use]
    pub const fn version(self) -> (u32, u32) {
        (self.major, self.minor)
    }

    /// Parses the series from a kernel's name or release: 6.12 from `6.12.107+deb13-amd64` and from
    /// `6.12`, 7.3 from `7.3-rc`. `None` if the text does not begin with such numbers.
    #[must_use]
    pub fn of(kernel: &str) -> Option<Self> {
        let (major, rest) = kernel.split_once('.')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        Some(Self { major: major.parse().ok()?, minor: rest[..end].parse().ok()? })
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.major, self.minor))
    }
}

impl FromStr for Series {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::of(text)
            .filter(|series| series.to_string() == text)
            .ok_or_else(|| "give the first two numbers of a release, such as `6.12`".to_owned())
    }
}

impl TryFrom<String> for Series {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Series> for String {
    fn from(series: Series) -> Self {
        series.to_string()
    }
}

/// The first series with a feature, on each architecture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Introduction {
    /// Kind and name of the feature: `map-type ringbuf`.
    pub feature: String,
    /// The first series that has it. An architecture without an entry never has it.
    pub from: BTreeMap<Arch, Series>,
    /// Source of this knowledge: a commit or a file.
    pub source: String,
}

/// An exception to the introductions, for some kernels of a series.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deviation {
    /// Kind and name of the feature; `kfunc *` means all names of that kind.
    pub feature: String,
    /// The architectures.
    pub archs: Vec<Arch>,
    /// Kernel names, as in [`crate::Expectation`].
    pub kernels: Vec<String>,
    /// Whether the feature works on these kernels.
    pub works: bool,
    /// Why these kernels are an exception.
    pub reason: String,
    /// Source of this knowledge.
    pub source: String,
}

/// The expected features of kernels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FeatureExpectations {
    /// When features were introduced. The first entry for a feature counts.
    pub introductions: Vec<Introduction>,
    /// Exceptions. The first that matches counts, before any introduction.
    pub deviations: Vec<Deviation>,
}

/// The expectation for one feature on one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ExpectedFeature {
    /// It works.
    Works {
        /// Why.
        reason: String,
        /// Source of this knowledge.
        source: String,
    },
    /// The kernel refuses it.
    Refused {
        /// Why.
        reason: String,
        /// Source of this knowledge.
        source: String,
    },
    /// Nothing is expected.
    Nothing {
        /// Why.
        reason: String,
    },
}

impl FeatureExpectations {
    /// Whether there are no expectations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.introductions.is_empty() && self.deviations.is_empty()
    }

    /// The expectation for `feature` (kind and name) on `target`. `series` is the series of the
    /// target's kernel, if known.
    #[must_use]
    pub fn of(&self, feature: &str, target: &Target, series: Option<Series>) -> ExpectedFeature {
        let deviation = self.deviations.iter().find(|deviation| {
            is_meant(&deviation.feature, feature)
                && deviation.archs.contains(&target.arch)
                && deviation.kernels.iter().any(|name| is_of_series(&target.kernel, name))
        });
        if let Some(Deviation { works, reason, source, .. }) = deviation {
            let (reason, source) = (reason.clone(), source.clone());
            return match works {
                true => ExpectedFeature::Works { reason, source },
                false => ExpectedFeature::Refused { reason, source },
            };
        }
        let Some(introduction) = self.introductions.iter().find(|introduction| introduction.feature == feature) else {
            return ExpectedFeature::Nothing { reason: "no expectation is recorded for this feature".to_owned() };
        };
        let Some(series) = series else {
            return ExpectedFeature::Nothing { reason: "the series of this kernel is not known".to_owned() };
        };
        let source = introduction.source.clone();
        match introduction.from.get(&target.arch) {
            Some(first) if series >= *first => ExpectedFeature::Works { reason: format!("since {first}"), source },
            Some(first) => ExpectedFeature::Refused { reason: format!("since {first} only"), source },
            None => ExpectedFeature::Refused { reason: format!("never on {}", target.arch), source },
        }
    }

    /// Appends the expectations in `other`, which rank after these.
    pub(crate) fn extend(&mut self, other: Self) {
        self.introductions.extend(other.introductions);
        self.deviations.extend(other.deviations);
    }

    /// The built-in expectations.
    ///
    /// # Errors
    /// Fails only if the compiled-in file is invalid, which a test would find.
    pub(crate) fn built_in() -> Result<Self, Invalid> {
        document::read("bundled expectations of features", BUILT_IN, Self::read)
    }

    /// Reads a table with the lists `since` and `deviation`.
    ///
    /// # Errors
    /// [`Reported`] if a key is unknown or a value is invalid. The complaint is in the document.
    pub(crate) fn read(section: &Section<'_, '_>) -> Result<Self, Reported> {
        section.only(&["since", "deviation"]);
        let introductions = section.or("since", Vec::new(), |since| since.each(introductions));
        let deviations = section.or("deviation", Vec::new(), |deviation| deviation.each(deviations));
        Ok(Self { introductions: introductions?.concat(), deviations: deviations?.concat() })
    }
}

/// Whether `pattern` equals `feature`, or matches it with a `*` at the end.
fn is_meant(pattern: &str, feature: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => feature.starts_with(beginning),
        None => pattern == feature,
    }
}

fn introductions(element: &Field<'_, '_>) -> Result<Vec<Introduction>, Reported> {
    let section = element.table()?;
    let archs: Vec<&str> = Arch::ALL.iter().map(|arch| arch.name()).collect();
    section.only(&[&["feature", "kernel", "source"], archs.as_slice()].concat());
    let read = |field: &Field<'_, '_>| match field.text()? {
        "never" => Ok(None),
        _ => field.name::<Series>().map(Some),
    };
    let general = section.optional("kernel", read);
    let own: Vec<_> = Arch::ALL.iter().map(|arch| (arch, section.optional(arch.name(), read))).collect();
    let source = section.need("source", Field::string);
    let names = section.need("feature", features);
    let general = general?;
    let mut from = BTreeMap::new();
    for (arch, own) in own {
        let Some(series) = own?.or(general) else {
            return Err(section.error(format!("give the first `kernel`, or the first one for {arch}, or `never`")));
        };
        from.extend(series.map(|series| (*arch, series)));
    }
    let (source, names) = (source?, names?);
    let introduction = |feature| Introduction { feature, from: from.clone(), source: source.clone() };
    Ok(names.into_iter().map(introduction).collect())
}

fn deviations(element: &Field<'_, '_>) -> Result<Vec<Deviation>, Reported> {
    let section = element.table()?;
    section.only(&["feature", "arch", "kernels", "works", "reason", "source"]);
    let archs = section.need("arch", |archs| archs.each(Field::name::<Arch>));
    let kernels = section.need("kernels", |kernels| kernels.each(Field::string));
    let works = section.need("works", Field::boolean);
    let reason = section.need("reason", Field::string);
    let source = section.need("source", Field::string);
    let names = section.need("feature", features)?;
    let (archs, kernels, works, reason, source) = (archs?, kernels?, works?, reason?, source?);
    let deviation = |feature| Deviation {
        feature,
        archs: archs.clone(),
        kernels: kernels.clone(),
        works,
        reason: reason.clone(),
        source: source.clone(),
    };
    Ok(names.into_iter().map(deviation).collect())
}

/// Expands a list of feature names, in which `{a,b}` stands for each alternative.
fn features(field: &Field<'_, '_>) -> Result<Vec<String>, Reported> {
    let names = field.each(|element| {
        let expanded = expand(element.text()?).ok_or_else(|| {
            element
                .error(format!("braces hold names between commas, `{{a,b}}`, and stand for {MAX_NAMES} names at most"))
        })?;
        let is_known = |name: &String| {
            name.split_once(' ').is_some_and(|(kind, name)| {
                kind.parse::<bpfassay_protocol::kernel_feature::FeatureKind>().is_ok()
                    && !name.is_empty()
                    && !name.contains(' ')
            })
        };
        match expanded.iter().all(is_known) {
            true => Ok(expanded),
            false => Err(element.error("give kind and name of a feature, such as `map-type ringbuf`")),
        }
    })?;
    Ok(names.concat())
}

/// Largest number of names of one pattern: several times the number of all features.
const MAX_NAMES: usize = 1000;

/// Longest feature name, in bytes.
const MAX_NAME: usize = 200;

/// Expands a pattern with any number of `{a,b}`. `None` if braces do not match, for more than
/// [`MAX_NAMES`] names, or for a name longer than [`MAX_NAME`].
fn expand(pattern: &str) -> Option<Vec<String>> {
    let mut names = vec![String::new()];
    let mut rest = pattern;
    while let Some((before, behind)) = rest.split_once('{') {
        let (alternatives, after) = behind.split_once('}')?;
        if before.contains('}') || alternatives.contains('{') {
            return None;
        }
        let alternatives: Vec<&str> = alternatives.split(',').map(str::trim).collect();
        let longest = alternatives.iter().map(|one| one.len()).max().unwrap_or(0).checked_add(before.len())?;
        if names.len().checked_mul(alternatives.len())? > MAX_NAMES
            || names.iter().any(|name| name.len() + longest > MAX_NAME)
        {
            return None;
        }
        names =
            names.iter().flat_map(|name| alternatives.iter().map(move |one| format!("{name}{before}{one}"))).collect();
        rest = after;
    }
    if rest.contains('}') || names.iter().any(|name| name.len() + rest.len() > MAX_NAME) {
        return None;
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(arch: Arch, kernel: &str) -> Target {
        Target { arch, kernel: kernel.to_owned() }
    }

    fn read(text: &str) -> Result<FeatureExpectations, Invalid> {
        document::read("x.toml", text, FeatureExpectations::read)
    }

    #[test]
    fn series_are_ordered_by_number_and_read_from_releases() {
        let of = |text| Series::of(text).unwrap();
        assert!(of("5.10") < of("6.1") && of("6.1") < of("6.12") && of("6.12") < of("7.3-rc"));
        assert_eq!(of("6.12.107+deb13-amd64").to_string(), "6.12");
        assert_eq!(Series::of("mine"), None);
        assert!("6.12.1".parse::<Series>().is_err() && "6".parse::<Series>().is_err());
    }

    #[test]
    fn braces_stand_for_each_of_their_items() {
        assert_eq!(expand("helper {a,b}/x").unwrap(), ["helper a/x", "helper b/x"]);
        assert_eq!(expand("kfunc {a,b}/{x,y}").unwrap().len(), 4);
        assert_eq!(expand("plain").unwrap(), ["plain"]);
        assert_eq!(expand("kfunc {a,b}/{x,y}").unwrap(), ["kfunc a/x", "kfunc a/y", "kfunc b/x", "kfunc b/y"]);
        // A thousand million names, and as many braces as a study file can hold.
        assert_eq!(expand(&"{a,b}".repeat(30)), None);
        assert_eq!(expand(&"{a}".repeat(300_000)), None);
        for wrong in ["{a", "a}", "{a{b}}", "}{"] {
            assert_eq!(expand(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_star_stands_for_all_of_a_kind() {
        assert!(is_meant("kfunc *", "kfunc fexit/bpf_strcmp") && is_meant("system jit", "system jit"));
        assert!(!is_meant("kfunc *", "system jit") && !is_meant("system jit", "system jit-harden"));
    }

    #[test]
    fn one_line_names_since_when_and_where() {
        let all = read(
            r#"
            since = [
                { feature = "attach-type fexit", kernel = "5.5", aarch64 = "6.4", riscv64 = "never", source = "a commit" },
            ]
            [[deviation]]
            feature = "attach-type fexit"
            arch = ["x86_64"]
            kernels = ["6.1"]
            works = false
            reason = "switched off"
            source = "its configuration"
            "#,
        )
        .unwrap();
        let of = |arch, kernel| all.of("attach-type fexit", &target(arch, kernel), Series::of(kernel));
        assert!(matches!(of(Arch::X86_64, "5.10"), ExpectedFeature::Works { .. }));
        assert!(matches!(of(Arch::X86_64, "6.12"), ExpectedFeature::Works { .. }));
        assert!(
            matches!(of(Arch::X86_64, "6.1.9"), ExpectedFeature::Refused { reason, .. } if reason == "switched off")
        );
        assert!(
            matches!(of(Arch::Aarch64, "6.1"), ExpectedFeature::Refused { reason, .. } if reason == "since 6.4 only")
        );
        assert!(matches!(of(Arch::Aarch64, "6.12"), ExpectedFeature::Works { .. }));
        assert!(matches!(of(Arch::Riscv64, "7.2"), ExpectedFeature::Refused { .. }));
        assert!(matches!(of(Arch::X86_64, "mine"), ExpectedFeature::Nothing { .. }));
        let other = all.of("map-type hash", &target(Arch::X86_64, "6.1"), Series::of("6.1"));
        assert!(matches!(other, ExpectedFeature::Nothing { .. }));
    }

    #[test]
    fn what_is_no_expectation_is_refused() {
        for (line, part) in [
            (r#"{ feature = "ringbuf", kernel = "5.8", source = "x" }"#, "kind and name"),
            (r#"{ feature = "map-type ringbuf", source = "x" }"#, "give the first `kernel`"),
            (r#"{ feature = "map-type ringbuf", kernel = "5", source = "x" }"#, "first two numbers"),
            (r#"{ feature = "map-type ringbuf", kernel = "5.8" }"#, "`source` is missing"),
            (r#"{ feature = "map-type {a", kernel = "5.8", source = "x" }"#, "braces"),
        ] {
            let message = read(&format!("since = [{line}]")).unwrap_err().to_string();
            assert!(message.contains(part), "{line}: {message}");
        }
    }

    #[test]
    fn the_ones_compiled_in_are_sound_and_name_each_feature_once() {
        let all = FeatureExpectations::built_in().unwrap();
        let mut names: Vec<&str> = all.introductions.iter().map(|one| one.feature.as_str()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for deviation in &all.deviations {
            assert!(names.iter().any(|name| is_meant(&deviation.feature, name)), "{}", deviation.feature);
        }
    }
}
