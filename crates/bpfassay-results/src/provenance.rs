// SPDX-License-Identifier: MIT OR Apache-2.0
//! The inputs of a set of results.

use std::collections::BTreeMap;

use bpfassay_protocol::Arch;
use bpfassay_study::Target;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The inputs of a set of results, known before the first boot. The facts that a guest reports are
/// in [`crate::record::GuestReady`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// This program.
    pub bpfassay: Artefact,
    /// The machine that ran the guests.
    pub host: HostFacts,
    /// QEMU per architecture. A study without guests (`bpfassay here`) has the agent and this
    /// machine.
    pub qemu: BTreeMap<Arch, QemuFacts>,
    /// The inputs of each target.
    pub targets: Vec<TargetArtefacts>,
    /// The whole testbed manifest, as its provider wrote it; null without guests.
    pub manifest: serde_json::Value,
}

/// One input.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Artefact {
    /// Name, such as `kernel`, `linux-image-6.1.0-37-amd64`, `bpfassay-tracer`.
    pub name: String,
    /// Version. For our own programs: the package version and, if known, the hash of the sources.
    pub version: String,
    /// SHA-256 in hexadecimal; `None` if the input is not a single file.
    pub sha256: Option<String>,
}

/// The machine that ran the guests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostFacts {
    /// `uname -m`.
    pub machine: String,
    /// `uname -r`.
    pub kernel_release: String,
    /// CPU model, from `/proc/cpuinfo`.
    pub cpu_model: String,
    /// Number of CPUs that this process can use.
    pub cpus: u32,
    /// Memory in KiB.
    pub memory_kib: u64,
    /// Largest number of guests that ran in parallel.
    pub jobs: u32,
}

/// QEMU for one architecture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QemuFacts {
    /// The program with name, version and hash.
    pub program: Artefact,
    /// Path of the program on the host.
    pub path: String,
    /// `tcg`, `kvm`, or `none` for a machine that is not a guest.
    pub accelerator: String,
    /// Why this accelerator was chosen.
    pub accelerator_reason: String,
    /// Machine type.
    pub machine: String,
    /// CPU model as given to QEMU.
    pub cpu: String,
    /// Plugin interface version of QEMU, if a plugin that counts instructions was loaded for it;
    /// otherwise `None`. No figure of a run depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin_api: Option<u32>,
    /// The package of a QEMU from `testbed.lock`, with the SHA-256 of the package file. `None` for
    /// the host's QEMU. Figures do not depend on the place that the same program came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<Artefact>,
}

/// The inputs of one target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetArtefacts {
    /// The target.
    pub target: Target,
    /// The kernel image.
    pub kernel: Artefact,
    /// The contents of the initramfs, segment by segment.
    pub initramfs: Vec<Artefact>,
    /// Our programs and, if given, the user's IOR.
    pub payload: Vec<Artefact>,
}

impl QemuFacts {
    /// Whether guests see the same machine: same QEMU program, accelerator, machine type and CPU.
    /// The path on the host does not matter.
    #[must_use]
    pub fn is_same_machine(&self, other: &Self) -> bool {
        let machine = |of: &Self| (of.program.clone(), of.accelerator.clone(), of.machine.clone(), of.cpu.clone());
        machine(self) == machine(other)
    }

    /// Describes QEMU briefly: version, digest, accelerator, machine, CPU.
    #[must_use]
    pub fn described(&self) -> String {
        let Self { program, accelerator, machine, cpu, .. } = self;
        let digest = program.sha256.as_deref().map_or("unknown", |digest| digest.get(..12).unwrap_or(digest));
        format!("{} with SHA-256 {digest}, {accelerator}, {machine}, -cpu {cpu}", program.version)
    }
}

impl Provenance {
    /// Whether guests and QEMU are the same as in `other`, for the targets and architectures of
    /// `other`. Under the instruction clock, the figures then are the same on any host.
    #[must_use]
    pub fn has_same_guests(&self, other: &Self) -> bool {
        let mut qemu = other.qemu.iter();
        qemu.all(|(arch, facts)| self.qemu.get(arch).is_some_and(|known| known.is_same_machine(facts)))
            && other.targets.iter().all(|target| self.targets.contains(target))
    }

    /// Whether guests of `arch` were emulated. Wall-clock figures of emulated guests are functional
    /// only.
    #[must_use]
    pub fn is_emulated(&self, arch: Arch) -> bool {
        self.qemu.get(&arch).is_none_or(|qemu| !matches!(qemu.accelerator.as_str(), "kvm" | "none"))
    }

    /// Whether this equals `before`, or adds targets to it: program and host are the same, and
    /// every guest in `before` is present.
    #[must_use]
    pub fn extends(&self, before: &Self) -> bool {
        // The number of parallel guests depends on the largest guest, and can differ.
        let host = |of: &Self| HostFacts { jobs: 0, ..of.host.clone() };
        let is_larger = self.targets.len() > before.targets.len()
            && self.bpfassay == before.bpfassay
            && host(self) == host(before)
            && self.is_without_guests() == before.is_without_guests()
            && before.qemu.iter().all(|(arch, facts)| self.qemu.get(arch) == Some(facts))
            && before.targets.iter().all(|target| self.targets.contains(target));
        is_larger || self == before
    }

    /// Whether the study ran on the machine itself (`bpfassay here`), without a testbed.
    #[must_use]
    pub fn is_without_guests(&self) -> bool {
        self.manifest.is_null()
    }
}
