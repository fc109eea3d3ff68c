// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names that host, guest and tracer share, and the messages between them.
//!
//! This crate has names (architectures, probe configurations, operations), a guest's job, its
//! messages, the tracer's lines, and the framing of messages on a byte stream. It does no input or
//! output, has no policy, and has nothing that only one side needs.
//!
//! Everything from a guest or a tool is untrusted. Frames are bounded ([`frame::MAX_PAYLOAD`]), and
//! decoding never allocates more than a frame announces within that bound.

#![forbid(unsafe_code)]

pub mod arch;
pub mod call_list;
pub mod checked_prototype;
pub mod compiler_error;
pub mod contents;
pub mod control;
pub mod finding_name;
#[cfg(feature = "schema")]
mod flattened;
pub mod frame;
pub mod io_path;
pub mod job;
pub mod job_nodes;
pub mod kernel_feature;
pub mod kernel_parameters;
pub mod layout;
pub mod loaded_object;
pub mod mangle;
pub mod message;
pub mod operation;
pub mod privileges;
pub mod probe;
pub mod program_set;
pub mod run_name;
pub mod source;
pub mod symbols;
pub mod tool_job;
pub mod tracer_messages;

use std::{error::Error, iter, time::Duration};

pub use arch::Arch;
pub use io_path::IoPath;
pub use operation::Operation;
pub use probe::ProbeConfiguration;

/// Version of everything that passes between host and guest. Both sides must have the same version.
pub const PROTOCOL_VERSION: u32 = 17;

/// Name of the virtio-serial port that carries [`message::GuestMessage`] frames to the host. The
/// guest finds it in `/sys/class/virtio-ports/*/name`.
pub const AGENT_PORT: &str = "org.bpfassay.agent";

/// Path of the [`job::Job`] in the guest's initramfs, as JSON.
pub const JOB_PATH: &str = "/bpfassay/job.json";

/// Returns `error` and its causes on one line.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let causes = iter::successors(error.source(), |&cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Returns `duration` in whole nanoseconds, or the largest number if it is longer.
#[must_use]
pub fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// An unknown name, with a list of the known ones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {kind} `{name}`; known are {known}")]
pub struct UnknownName {
    /// The kind of the name ("architecture", "probe", …).
    pub kind: &'static str,
    /// The unknown name.
    pub name: String,
    /// The known names, comma-separated.
    pub known: String,
}

/// Defines an enumeration of plain names: `Display`, `FromStr`, serde and `ALL` from one list.
macro_rules! names {
    ($(#[$meta:meta])* $vis:vis enum $name:ident: $kind:literal { $($(#[$vmeta:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        $vis enum $name {
            $($(#[$vmeta])* #[serde(rename = $text)] $variant),+
        }

        impl $name {
            /// Every variant, in the order of display.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name used in files, on the command line and in output.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::UnknownName;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                match name {
                    $($text => Ok(Self::$variant),)+
                    _ => Err($crate::UnknownName {
                        kind: $kind,
                        name: name.chars().take(64).collect(),
                        known: [$($text),+].join(", "),
                    }),
                }
            }
        }
    };
}
pub(crate) use names;
