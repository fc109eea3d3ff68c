// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kinds of findings. Each has a file with its name, explanation and evaluation, and a line
//! here that registers it.

mod cgroups_merged;
mod counts_go_backwards;
mod counts_too_high;
mod counts_too_low;
mod counts_vanish;
mod does_not_attach;
mod does_not_load;
mod does_not_start;
mod events_dropped;
mod first_touch_lost;
mod idle_cpu;
mod impossible_durations;
mod left_behind;
mod map_full;
mod memory_held;
mod missed_probes;
mod mounts_merged;
mod operations_not_seen;
mod prototype_differs;
mod racy_update;
mod requested_as_moved;
mod slow_attach;
mod slow_detach;
mod subject_unknown;
mod unreadable;

use std::{borrow::Cow, fmt, str::FromStr};

pub use does_not_load::NO_SIGN;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::definition::Definition;

macro_rules! kinds {
    ($($kind:ident = $module:ident),+ $(,)?) => {
        /// A kind of fault in a tool; see [`Kind::explanation`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $(#[doc = concat!("See `finding/kind/", stringify!($module), ".rs`.")] $kind),+
        }

        impl Kind {
            /// Every kind, in the order of explaining differences and of display.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            pub(super) const fn definition(self) -> &'static Definition {
                match self {
                    $(Self::$kind => &$module::FINDING),+
                }
            }
        }
    };
}

kinds! {
    DoesNotLoad = does_not_load,
    DoesNotAttach = does_not_attach,
    DoesNotStart = does_not_start,
    PrototypeDiffers = prototype_differs,
    RequestedAsMoved = requested_as_moved,
    MountsMerged = mounts_merged,
    CgroupsMerged = cgroups_merged,
    SubjectUnknown = subject_unknown,
    CountsGoBackwards = counts_go_backwards,
    CountsVanish = counts_vanish,
    OperationsNotSeen = operations_not_seen,
    FirstTouchLost = first_touch_lost,
    EventsDropped = events_dropped,
    RacyUpdate = racy_update,
    CountsTooLow = counts_too_low,
    CountsTooHigh = counts_too_high,
    MapFull = map_full,
    ImpossibleDurations = impossible_durations,
    MissedProbes = missed_probes,
    LeftBehind = left_behind,
    MemoryHeld = memory_held,
    IdleCpu = idle_cpu,
    SlowAttach = slow_attach,
    SlowDetach = slow_detach,
    Unreadable = unreadable,
}

impl Kind {
    /// Name in files and output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.definition().name
    }

    /// The fault of the tool, and when it cannot be evaluated.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        self.definition().explanation
    }

    /// Whether the kind judges what a tool reports, which needs a workload.
    #[must_use]
    pub fn judges_reports(self) -> bool {
        self.definition().sources.have_reports()
    }
}

/// The text of a page of findings about a kind, without code markup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindAdvice {
    /// Meaning of the finding.
    pub meaning: String,
    /// How to check the finding by hand.
    pub check: String,
    /// How tools usually fix the fault.
    pub repair: String,
}

/// The pages of findings in docs/reference, through symbolic links.
const PAGES: [&str; 2] = [include_str!("../../findings.md"), include_str!("../../findings-behaviour.md")];

/// Returns `text` without the link to the next page.
fn without_next(text: &str) -> &str {
    text.split_once("\nNext: ").map_or(text, |(text, _)| text)
}

impl Kind {
    /// Returns the section about the kind.
    #[must_use]
    pub fn advice(self) -> KindAdvice {
        let section = PAGES.iter().flat_map(|page| page.split("\n## ").skip(1)).find_map(|section| {
            let (name, text) = section.split_once('\n')?;
            (name == self.name())
                .then(|| without_next(text).replace('`', "").split_whitespace().collect::<Vec<_>>().join(" "))
        });
        let section = section.unwrap_or_default();
        let (meaning, rest) = section.split_once(" *Check*: ").unwrap_or((&section, ""));
        let (check, repair) = rest.split_once(" *Repair*: ").unwrap_or((rest, ""));
        KindAdvice { meaning: meaning.to_owned(), check: check.to_owned(), repair: repair.to_owned() }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.iter().map(|kind| kind.name());
        Self::ALL.iter().copied().find(|kind| kind.name() == text).ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            let all = known().collect::<Vec<_>>().join(", ");
            format!(
                "unknown finding `{shown}`{}; known are {all}",
                bpfassay_input::document::suggestion(&shown, known())
            )
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Kind {
    fn schema_name() -> Cow<'static, str> {
        "Kind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one =
            |kind: &Self| json_schema!({ "description": kind.explanation(), "type": "string", "const": kind.name() });
        json_schema!({ "description": "What can be wrong with a tool.", "oneOf": Self::ALL.iter().map(one).collect::<Vec<_>>() })
    }
}
