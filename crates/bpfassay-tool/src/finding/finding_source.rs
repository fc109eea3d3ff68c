// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sources of findings. A kind is not clear if one of its sources does not answer.

use crate::file::{CountedUnit, Whose};

macro_rules! sources {
    ($($source:ident = $name:literal),+ $(,)?) => {
        /// A source of findings.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[cfg_attr(not(test), expect(dead_code, reason = "of compared figures, tests alone name the sources"))]
        pub(super) enum Source {
            $(#[doc = $name] $source),+
        }

        impl Source {
            #[cfg(test)]
            pub(super) const ALL: &'static [Self] = &[$(Self::$source),+];

            /// Name in docs/explanation/finding-evidence.md.
            #[cfg(test)]
            pub(super) const fn name(self) -> &'static str {
                match self {
                    $(Self::$source => $name),+
                }
            }
        }
    };
}

sources! {
    Start = "its start",
    Prototypes = "its programs beside the kernel's BTF",
    Figures = "the figures of its tool file",
    Reports = "its reports",
    Truth = "the reference tracer",
    Lost = "its own count of lost events",
    Programs = "its programs in the kernel",
    Links = "the list of links",
    ProgramMisses = "the kernel's count of skipped programs",
    ProbeHits = "the kernel's count of missed hits",
    Left = "what is in the guest before and after",
    Instructions = "the instructions of its programs in the kernel",
    Keys = "the number of keys in its maps",
    Memory = "the memory of its processes, programs and maps",
    IdleTime = "its CPU time while nothing happens",
    AttachTime = "the time until it is ready",
    DetachTime = "the time until it ends",
}

/// The sources of a kind.
pub(super) enum KindSources {
    /// Figures that can be compared with the truth, if the function accepts unit and kind of
    /// subject.
    Figures(fn(CountedUnit, Whose) -> bool),
    /// This list of sources.
    Of(&'static [Source]),
}

/// Every figure that can be compared with the truth.
pub(super) const EVERY_FIGURE: KindSources = KindSources::Figures(|_, _| true);

impl KindSources {
    /// Whether a comparable figure of `unit` and `whose` can show the kind.
    pub(super) fn compares(&self, unit: CountedUnit, whose: Whose) -> bool {
        matches!(self, Self::Figures(is_of) if is_of(unit, whose))
    }

    /// Whether the kind judges what the tool reports.
    pub(super) fn have_reports(&self) -> bool {
        match self {
            Self::Figures(_) => true,
            Self::Of(sources) => sources.contains(&Source::Reports),
        }
    }
}
