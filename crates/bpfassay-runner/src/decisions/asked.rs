// SPDX-License-Identifier: MIT OR Apache-2.0
//! The requested properties of a guest, as results state them, and how the facts that the ready
//! guest reports differ from them. Pure.

use bpfassay_protocol::{
    job::{FileSystem, Job, Scheduling},
    job_nodes::Node,
    kernel_parameters::{parameters, security_modules, sysctls},
    message::GuestFacts,
};
use bpfassay_vm::Machine;

use crate::decisions::observed::shortened;

/// Parameters that make a kernel use fewer CPUs than the machine has.
const FEWER_CPUS: [&str; 4] = ["maxcpus", "nr_cpus", "possible_cpus", "nosmp"];

/// Parameters that make a kernel use less memory than the machine has.
const LESS_MEMORY: [&str; 2] = ["mem", "memmap"];

/// A kernel leaves programs at least 1 / `MEMORY` of the machine's memory. KASAN reserves an eighth
/// of the memory, other kernels up to a tenth.
const MEMORY: u64 = 2;

/// The requested properties of one guest.
#[derive(Debug, Clone)]
pub(crate) struct AskedGuest {
    release: String,
    machine: Machine,
    file_system: FileSystem,
    scheduling: Scheduling,
    node: Option<Node>,
}

impl AskedGuest {
    /// Describes a guest with a kernel of this `release` that runs `job` in `machine`.
    pub(crate) fn new(release: &str, machine: &Machine, job: &Job) -> Self {
        Self {
            release: release.to_owned(),
            machine: machine.clone(),
            file_system: job.file_system.clone(),
            scheduling: job.scheduling,
            node: job.node,
        }
    }

    /// Describes how the guest that reports `facts` differs from the request, if it does.
    pub(crate) fn difference(&self, facts: &GuestFacts) -> Option<String> {
        let found = [
            self.kernel(facts),
            self.machine(facts),
            self.settings(facts),
            self.modules(facts),
            self.scheduling(facts),
            self.file_system(facts),
        ]
        .concat();
        let name = self.node.map(|node| format!("{}: ", node.name())).unwrap_or_default();
        (!found.is_empty()).then(|| format!("{name}the guest is not as it was asked for: {}", found.join("; ")))
    }

    /// Compares the kernel's release, architecture and command line.
    fn kernel(&self, facts: &GuestFacts) -> Vec<String> {
        let line = self.machine.kernel_command_line();
        let (arch, found_line) = (self.machine.arch.name(), &facts.kernel_command_line);
        [
            differs("kernel release", &self.release, &facts.kernel_release, self.release == facts.kernel_release),
            differs("architecture", arch, &facts.machine, arch == facts.machine),
            differs("kernel command line", &line, found_line, holds(&line, found_line)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Compares CPUs and memory.
    fn machine(&self, facts: &GuestFacts) -> Vec<String> {
        let line = self.machine.kernel_command_line();
        let is_limited = |by: &[&str]| parameters(&line).any(|(name, _)| by.contains(&name));
        let (cpus, kib) = (self.machine.cpus, u64::from(self.machine.memory_mib) << 10);
        let has_cpus = facts.cpus == cpus || facts.cpus < cpus && is_limited(&FEWER_CPUS);
        let has_memory = facts.memory_kib <= kib && (facts.memory_kib >= kib / MEMORY || is_limited(&LESS_MEMORY));
        [
            differs("CPUs", &cpus.to_string(), &facts.cpus.to_string(), has_cpus),
            differs("memory in KiB", &kib.to_string(), &facts.memory_kib.to_string(), has_memory),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Compares settings in `/proc/sys`.
    fn settings(&self, facts: &GuestFacts) -> Vec<String> {
        let line = self.machine.kernel_command_line();
        let mut asked: Vec<(&str, &str)> = Vec::new();
        for (name, value) in sysctls(&line) {
            asked.retain(|(before, _)| *before != name);
            asked.push((name, value));
        }
        let setting = |(name, value): (&str, &str)| {
            let found = facts.sysctls.get(name).and_then(Option::as_deref);
            let is_same = found.is_some_and(|found| is_same_value(value, found));
            differs(&format!("sysctl {name}"), value, found.unwrap_or("no such setting"), is_same)
        };
        asked.into_iter().filter_map(setting).collect()
    }

    /// Compares Linux security modules if the guest can list them. The requested parameters must be
    /// present in the same order. A kernel can have others in addition.
    fn modules(&self, facts: &GuestFacts) -> Vec<String> {
        let line = self.machine.kernel_command_line();
        let (Some(asked), Some(found)) = (security_modules(&line), &facts.security_modules) else { return Vec::new() };
        let wanted: Vec<&str> = asked.split(',').collect();
        let has = found.split(',').filter(|name| wanted.contains(name)).eq(wanted.iter().copied());
        differs("Linux security modules", asked, found, has).into_iter().collect()
    }

    /// Compares the priorities of kernel threads, which a guest with an NFS server sets.
    fn scheduling(&self, facts: &GuestFacts) -> Vec<String> {
        let serves = matches!(self.file_system, FileSystem::Nfs(_)) && self.node.is_none_or(Node::is_server);
        let asked = if serves { self.scheduling } else { Scheduling::Kernel };
        let found = if facts.fixed_threads.is_some() { Scheduling::Fixed } else { Scheduling::Kernel };
        differs("scheduling", asked.name(), found.name(), asked == found).into_iter().collect()
    }

    /// Compares the file system under test. A server is not compared, because it has the file
    /// system that it exports.
    fn file_system(&self, facts: &GuestFacts) -> Vec<String> {
        let (name, options) = (&facts.mount.file_system, &facts.mount.options);
        let has = format!("{name} ({options})");
        let nfs = match &self.file_system {
            FileSystem::Nfs(_) if self.node.is_some_and(Node::is_server) => return Vec::new(),
            FileSystem::Nfs(nfs) => nfs,
            FileSystem::Tmpfs { .. } => {
                return differs("file system", "tmpfs", &has, name == "tmpfs").into_iter().collect();
            }
            FileSystem::Mounted { file_system } => {
                return differs("file system", file_system, &has, name == file_system).into_iter().collect();
            }
        };
        let version = format!("NFS {}", nfs.version);
        // Some kernels have no LOCALIO, even if it was requested.
        let localio = nfs.localio.zip(facts.localio);
        let state = |is_in_use: bool| if is_in_use { "in use" } else { "not in use" };
        [
            differs("file system", &version, &has, nfs.version.is_mounted(name, options)),
            localio.and_then(|(asked, found)| differs("LOCALIO", state(asked), state(found), asked == found)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Returns a sentence about `what` with both values, unless `has` is true. A found value that is
/// much longer than `asked` is cut.
fn differs(what: &str, asked: &str, found: &str, has: bool) -> Option<String> {
    let found = if found.len() > asked.len() + 400 { shortened(found) } else { found.to_owned() };
    (!has).then(|| format!("{what}: {asked} was asked for, it has {found}"))
}

/// Returns whether the command line `found` has all parameters of `asked` in sequence, and no later
/// parameter that overrides one of them. A kernel can have built-in parameters (CONFIG_CMDLINE).
fn holds(asked: &str, found: &str) -> bool {
    let words = |line: &str| line.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>();
    // The kernel treats `-` and `_` in names as equal (lib/`parameq`, kernel/params.c).
    let name = |word: &String| word.split('=').next().unwrap_or_default().replace('-', "_");
    let (asked, found) = (words(asked), words(found));
    (0..found.len()).any(|at| {
        let behind = found.get(at..).and_then(|rest| rest.strip_prefix(asked.as_slice()));
        behind.is_some_and(|behind| !behind.iter().any(|word| asked.iter().any(|asked| name(asked) == name(word))))
    })
}

/// Returns whether a setting that was given the value `asked` can show `found`. The kernel also
/// accepts octal and hexadecimal numbers, and separates several numbers by tabs.
fn is_same_value(asked: &str, found: &str) -> bool {
    let is_same =
        |(asked, found): (&str, &str)| asked == found || number(asked).is_some_and(|n| number(found) == Some(n));
    let (asked, found) = (asked.split_ascii_whitespace(), found.split_ascii_whitespace());
    asked.clone().count() == found.clone().count() && asked.zip(found).all(is_same)
}

fn number(text: &str) -> Option<i128> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let value = match (digits.strip_prefix("0x"), digits.strip_prefix('0')) {
        (Some(digits), _) => i128::from_str_radix(digits, 16).ok()?,
        (None, Some(digits)) if !digits.is_empty() => i128::from_str_radix(digits, 8).ok()?,
        _ => digits.parse().ok()?,
    };
    Some(sign * value)
}

#[cfg(test)]
mod tests;
