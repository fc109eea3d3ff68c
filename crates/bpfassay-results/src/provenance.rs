// SPDX-License-Identifier: MIT OR Apache-2.0
//! What went into a set of results.

use std::collections::BTreeMap;

use bpfassay_protocol::Arch;
use bpfassay_study::Target;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What went into a set of results, known before the first boot. What a guest reports of itself
/// stands in
/// [`crate::record::GuestReady`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// This program.
    pub bpfassay: Artefact,
    /// The machine that ran the guests.
    pub host: HostFacts,
    /// QEMU per architecture; of a study that was run without guests (`bpfassay here`) the agent
    /// and this machine.
    pub qemu: BTreeMap<Arch, QemuFacts>,
    /// What each target was made of.
    pub targets: Vec<TargetArtefacts>,
    /// The testbed manifest whole, as its provider wrote it; null without guests.
    pub manifest: serde_json::Value,
}

/// One thing that went in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Artefact {
    /// Name (`kernel`, `linux-image-6.1.0-37-amd64`, `bpfassay-tracer`).
    pub name: String,
    /// Version; for our own programs the package's version and, where known, the source's hash.
    pub version: String,
    /// SHA-256 in hexadecimal; `None` where the thing is not one file.
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
    /// CPUs that this process may use.
    pub cpus: u32,
    /// Memory in KiB.
    pub memory_kib: u64,
    /// How many guests ran side by side at most.
    pub jobs: u32,
}

/// QEMU for one architecture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QemuFacts {
    /// The program: name, version, hash.
    pub program: Artefact,
    /// Its path on the host.
    pub path: String,
    /// `tcg`, `kvm`, or `none` for a machine that is no guest.
    pub accelerator: String,
    /// Why this accelerator.
    pub accelerator_reason: String,
    /// Machine type.
    pub machine: String,
    /// CPU model as given to QEMU.
    pub cpu: String,
    /// Version of QEMU's plugin interface for which a plugin was loaded that counts instructions;
    /// `None` where none was. No figure of a run depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin_api: Option<u32>,
    /// The package that it comes from, by its file's SHA-256, where it is the QEMU of
    /// `testbed.lock`; `None` for that of the host. What is measured does not depend on how the
    /// same program came to the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<Artefact>,
}

/// What one target was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetArtefacts {
    /// The target.
    pub target: Target,
    /// The kernel image.
    pub kernel: Artefact,
    /// Everything in the initramfs, segment by segment.
    pub initramfs: Vec<Artefact>,
    /// Our programs and, where given, the user's IOR.
    pub payload: Vec<Artefact>,
}

impl QemuFacts {
    /// Whether guests find the same machine in both: the same program of QEMU, accelerator, machine
    /// type and CPU, wherever on the host it is.
    #[must_use]
    pub fn is_same_machine(&self, other: &Self) -> bool {
        let machine = |of: &Self| (of.program.clone(), of.accelerator.clone(), of.machine.clone(), of.cpu.clone());
        machine(self) == machine(other)
    }

    /// In a few words: version, digest, accelerator, machine, CPU.
    #[must_use]
    pub fn described(&self) -> String {
        let Self { program, accelerator, machine, cpu, .. } = self;
        let digest = program.sha256.as_deref().map_or("unknown", |digest| digest.get(..12).unwrap_or(digest));
        format!("{} with SHA-256 {digest}, {accelerator}, {machine}, -cpu {cpu}", program.version)
    }
}

impl Provenance {
    /// Whether guests and QEMU are the same as in `other`, for the targets and architectures that
    /// it has: under the instruction clock the figures then are the same, on whatever host.
    #[must_use]
    pub fn has_same_guests(&self, other: &Self) -> bool {
        let mut qemu = other.qemu.iter();
        qemu.all(|(arch, facts)| self.qemu.get(arch).is_some_and(|known| known.is_same_machine(facts)))
            && other.targets.iter().all(|target| self.targets.contains(target))
    }

    /// Whether guests of `arch` ran emulated, so that wall-clock figures are functional only.
    #[must_use]
    pub fn is_emulated(&self, arch: Arch) -> bool {
        self.qemu.get(&arch).is_none_or(|qemu| !matches!(qemu.accelerator.as_str(), "kvm" | "none"))
    }

    /// Whether this is `before`, or that with further architectures: the same program, host and
    /// guests, and more of them.
    #[must_use]
    pub fn extends(&self, before: &Self) -> bool {
        // How many guests fit beside each other depends on the largest.
        let host = |of: &Self| HostFacts { jobs: 0, ..of.host.clone() };
        let is_larger = self.targets.len() > before.targets.len()
            && self.bpfassay == before.bpfassay
            && host(self) == host(before)
            && self.is_without_guests() == before.is_without_guests()
            && before.qemu.iter().all(|(arch, facts)| self.qemu.get(arch) == Some(facts))
            && before.targets.iter().all(|target| self.targets.contains(target));
        is_larger || self == before
    }

    /// Whether the study was run on a machine itself (`bpfassay here`): no testbed went in.
    #[must_use]
    pub fn is_without_guests(&self) -> bool {
        self.manifest.is_null()
    }
}
