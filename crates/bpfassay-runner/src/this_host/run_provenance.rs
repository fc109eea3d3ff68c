// SPDX-License-Identifier: MIT OR Apache-2.0
//! The provenance of results: this host, its QEMU, and the testbed's manifest.

#![allow(clippy::disallowed_methods, reason = "reads files of the kernel, in /proc or /sys")]

use std::{fs, path::Path};

use bpfassay_packages::{cache::Cache, digest::Digest};
use bpfassay_protocol::Arch;
use bpfassay_results::{
    Provenance,
    provenance::{Artefact, HostFacts, QemuFacts, TargetArtefacts},
};
use bpfassay_study::{Plan, Target};
use bpfassay_testbed::manifest::{Component, Manifest};
use bpfassay_vm::Machine;

use crate::{
    boot::host_setup::HostSetup,
    error::Error,
    this_host::{emulator, slots},
};

/// This host.
#[derive(Debug)]
pub struct ThisHost {
    /// The CPUs and memory for guests.
    pub room: slots::HostResources,
    facts: HostFacts,
}

impl ThisHost {
    /// Returns the host's facts in the form of results, with `jobs` guests in parallel.
    #[must_use]
    pub fn facts(&self, jobs: u32) -> HostFacts {
        HostFacts { jobs, ..self.facts.clone() }
    }
}

/// Collects the facts of this host. Missing facts are `unknown` or 0, never a guess.
#[must_use]
pub fn host() -> ThisHost {
    let uname = rustix::system::uname();
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(u32::MAX));
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = |key: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu_model = ["model name", "CPU part", "uarch"]
        .iter()
        .find_map(|key| cpuinfo.lines().find(|line| line.starts_with(key)))
        .and_then(|line| line.split_once(':'))
        .map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned());
    ThisHost {
        // A host that does not report its memory gets one guest at a time.
        room: slots::HostResources { cpus, available_mib: memory("MemAvailable").unwrap_or(0) / 1024 },
        facts: HostFacts {
            machine: uname.machine().to_string_lossy().into_owned(),
            kernel_release: uname.release().to_string_lossy().into_owned(),
            cpu_model,
            cpus,
            memory_kib: memory("MemTotal").unwrap_or(0),
            jobs: 1,
        },
    }
}

/// Describes this program by its digest in `cache`.
#[must_use]
pub fn this_program(cache: &Cache) -> Artefact {
    bpfassay(|path| cache.digest_of(path))
}

/// Describes this program.
fn bpfassay(digest: impl Fn(&Path) -> bpfassay_packages::error::Result<Digest>) -> Artefact {
    let own = std::env::current_exe().ok().and_then(|path| digest(&path).ok());
    Artefact {
        name: "bpfassay".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sha256: own.map(|digest| digest.to_string()),
    }
}

/// Returns the provenance of results on this machine, `target`. `agent` measured them, and
/// `payload` are the programs that it starts.
///
/// # Errors
/// [`Error::Testbed`] if the agent or a program cannot be read.
pub fn here(host: HostFacts, target: Target, agent: &Path, payload: &[&Path]) -> Result<Provenance, Error> {
    let program = |path: &&Path| -> Result<Artefact, Error> {
        Ok(Artefact {
            name: path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
            version: path.display().to_string(),
            sha256: Some(Digest::of_file(path)?.to_string()),
        })
    };
    let (accelerator, accelerator_reason) = accelerator_of(Path::new("/"));
    let product = fs::read_to_string("/sys/class/dmi/id/product_name").ok();
    let facts = QemuFacts {
        program: program(&agent)?,
        path: agent.display().to_string(),
        accelerator: accelerator.to_owned(),
        accelerator_reason: accelerator_reason.to_owned(),
        machine: product.map_or_else(|| "unknown".to_owned(), |name| name.trim().to_owned()),
        cpu: host.cpu_model.clone(),
        plugin_api: None,
        package: None,
    };
    let kernel = Artefact {
        name: format!("linux {}", host.kernel_release),
        version: rustix::system::uname().version().to_string_lossy().into_owned(),
        sha256: None,
    };
    let payload = payload.iter().map(program).collect::<Result<_, _>>()?;
    Ok(Provenance {
        bpfassay: bpfassay(Digest::of_file),
        host,
        qemu: [(target.arch, facts)].into(),
        targets: vec![TargetArtefacts { target, kernel, initramfs: Vec::new(), payload }],
        manifest: serde_json::Value::Null,
    })
}

/// Finds out how the machine with the root directory `root` executes, and why. A guest of QEMU
/// counts as emulated unless it has the clock that only KVM provides (x86;
/// arch/x86/kernel/kvmclock.c).
fn accelerator_of(root: &Path) -> (&'static str, &'static str) {
    let holds = |path: &str, pattern: &str| {
        fs::read(root.join(path))
            .is_ok_and(|text| text.windows(pattern.len()).any(|window| window == pattern.as_bytes()))
    };
    let is_qemu = holds("sys/class/dmi/id/sys_vendor", "QEMU")
        // These names are from QEMU's hw/arm/virt.c and hw/riscv/virt.c.
        || holds("proc/device-tree/compatible", "linux,dummy-virt")
        || holds("proc/device-tree/compatible", "riscv-virtio");
    if !is_qemu {
        ("none", "this machine itself, which is no guest of QEMU")
    } else if holds("sys/devices/system/clocksource/clocksource0/available_clocksource", "kvm-clock") {
        ("kvm", "this machine is a guest of QEMU and has kvm-clock")
    } else {
        ("tcg", "this machine is a guest of QEMU without kvm-clock, which is taken for emulation")
    }
}

/// Returns the provenance of the results of `plan`.
///
/// # Errors
/// [`Error::Testbed`] if QEMU's program cannot be read, [`Error::Json`] if the manifest cannot be
/// written as JSON.
pub(crate) fn collect(
    cache: &Cache,
    host_setup: &HostSetup,
    manifest: &Manifest,
    plan: &Plan,
    host: HostFacts,
) -> Result<Provenance, Error> {
    let mut qemu = std::collections::BTreeMap::new();
    for (&arch, (program, choice)) in &host_setup.qemu {
        let mut machine = Machine::new(arch, "");
        machine.accelerator = choice.accelerator;
        let facts = QemuFacts {
            program: Artefact {
                name: bpfassay_vm::qemu::program_name(arch),
                version: program.version_text.clone(),
                sha256: Some(cache.digest_of(&program.program)?.to_string()),
            },
            path: program.program.display().to_string(),
            accelerator: choice.accelerator.to_string(),
            accelerator_reason: choice.reason.clone(),
            machine: machine.machine_type().to_owned(),
            cpu: machine.cpu_model().to_owned(),
            plugin_api: host_setup.plugin(&plan.study, arch).map(|plugin| plugin.api),
            package: host_setup.qemu_packages.get(&arch).map(emulator::artefact),
        };
        qemu.insert(arch, facts);
    }
    Ok(Provenance {
        bpfassay: this_program(cache),
        host,
        qemu,
        targets: targets(manifest, plan),
        manifest: serde_json::to_value(manifest)?,
    })
}

/// Returns the parts of the guests of `plan`.
pub(crate) fn targets(manifest: &Manifest, plan: &Plan) -> Vec<TargetArtefacts> {
    plan.targets()
        .into_iter()
        .filter_map(|target| {
            let made_of = manifest.target(target.arch, &target.kernel)?;
            let (payload, initramfs) =
                made_of.initramfs.iter().fold((Vec::new(), Vec::new()), |(mut payload, mut all), part| {
                    payload.extend(part.contents.iter().map(component));
                    all.push(file(&part.role, target.arch, &part.archive.sha256));
                    (payload, all)
                });
            let kernel = Artefact {
                name: format!("linux {}", made_of.kernel.release),
                version: made_of.kernel.version.clone().unwrap_or_else(|| "unknown".to_owned()),
                sha256: Some(made_of.kernel.image.sha256.to_string()),
            };
            Some(TargetArtefacts { target: target.clone(), kernel, initramfs, payload })
        })
        .collect()
}

fn component(component: &Component) -> Artefact {
    Artefact {
        name: component.name.clone(),
        version: component.version.clone(),
        sha256: Some(component.sha256.to_string()),
    }
}

fn file(role: &str, arch: Arch, sha256: &Digest) -> Artefact {
    Artefact { name: role.to_owned(), version: arch.name().to_owned(), sha256: Some(sha256.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_of_qemu_is_taken_for_emulated_unless_it_has_the_clock_of_kvm() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(accelerator_of(root.path()).0, "none");
        put("sys/class/dmi/id/sys_vendor", "Dell Inc.\n");
        assert_eq!(accelerator_of(root.path()).0, "none");
        put("proc/device-tree/compatible", "linux,dummy-virt\0");
        assert_eq!(accelerator_of(root.path()).0, "tcg");
        put("proc/device-tree/compatible", "");
        put("sys/class/dmi/id/sys_vendor", "QEMU\n");
        put("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc acpi_pm\n");
        assert_eq!(accelerator_of(root.path()).0, "tcg");
        put("sys/devices/system/clocksource/clocksource0/available_clocksource", "kvm-clock tsc acpi_pm\n");
        assert_eq!(accelerator_of(root.path()).0, "kvm");
    }
}
