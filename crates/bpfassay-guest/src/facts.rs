// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about the guest: its kernel, architecture and memory.

use std::{collections::BTreeMap, fs, path::Path};

use bpfassay_protocol::{
    kernel_parameters,
    message::{GuestFacts, MountFacts},
};
use rustix::{
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount, unmount},
};

use crate::{
    error::{Error, Result},
    proc::meminfo,
    system::read,
};

/// Mount point of the file system that shows security modules.
const SECURITY: &str = "/sys/kernel/security";

/// Reads all facts except `mount`, `localio` and `steps`, which the caller knows.
pub(crate) fn collect(mount: MountFacts, localio: Option<bool>, steps: Vec<(String, u64)>) -> Result<GuestFacts> {
    let uname = rustix::system::uname();
    let text = |field: &std::ffi::CStr| field.to_string_lossy().into_owned();
    let cpus = read("/sys/devices/system/cpu/online")?;
    let memory = read(meminfo::PATH)?;
    Ok(GuestFacts {
        kernel_release: text(uname.release()),
        kernel_version: text(uname.version()),
        machine: text(uname.machine()),
        kernel_command_line: read("/proc/cmdline")?,
        cpus: count_cpus(&cpus)
            .ok_or_else(|| Error::unexpected("/sys/devices/system/cpu/online", "a list of CPUs", &cpus))?,
        memory_kib: meminfo::kib(&memory, "MemTotal")
            .ok_or_else(|| Error::unexpected(meminfo::PATH, "a line `MemTotal: N kB`", &memory))?,
        page_size: rustix::param::page_size() as u64,
        btf: Path::new("/sys/kernel/btf/vmlinux").exists(),
        jit: optional("/proc/sys/net/core/bpf_jit_enable")?.and_then(|text| text.parse().ok()),
        mitigations: mitigations("/sys/devices/system/cpu/vulnerabilities")?,
        clocksource: optional("/sys/devices/system/clocksource/clocksource0/current_clocksource")?,
        localio,
        fixed_threads: None,
        sysctls: BTreeMap::new(),
        security_modules: None,
        mount,
        steps,
    })
}

/// Adds the values of the settings and security modules that the kernel's command line names.
///
/// # Errors
/// The kernel has a file system that shows its security modules, but it cannot be mounted, read or
/// unmounted.
pub(crate) fn with_parameters(mut facts: GuestFacts) -> Result<GuestFacts> {
    facts.sysctls = sysctls("/proc/sys", &facts.kernel_command_line);
    if kernel_parameters::security_modules(&facts.kernel_command_line).is_some() {
        facts.security_modules = security_modules()?;
    }
    Ok(facts)
}

/// Returns the values of the settings that `line` sets, read below `directory`.
fn sysctls(directory: &str, line: &str) -> BTreeMap<String, Option<String>> {
    let value = |(name, _): (&str, &str)| {
        let text = fs::read_to_string(format!("{directory}/{}", name.replace('.', "/")));
        (name.to_owned(), text.ok().map(|text| text.trim_end().to_owned()))
    };
    kernel_parameters::sysctls(line).map(value).collect()
}

/// Returns the kernel's security modules; `None` if the kernel does not show them. Nothing stays
/// mounted, so that tools find the machine unchanged.
fn security_modules() -> Result<Option<String>> {
    if !Path::new(SECURITY).exists() {
        return Ok(None);
    }
    match mount("securityfs", SECURITY, "securityfs", MountFlags::empty(), None) {
        Err(Errno::NODEV) => return Ok(None),
        mounted => mounted.map_err(Error::system("mount securityfs"))?,
    }
    let text = read(&format!("{SECURITY}/lsm"));
    unmount(SECURITY, UnmountFlags::empty()).map_err(Error::system("unmount securityfs"))?;
    text.map(Some)
}

/// Reads a file that some kernels do not have.
fn optional(path: &str) -> Result<Option<String>> {
    if Path::new(path).exists() { read(path).map(Some) } else { Ok(None) }
}

/// Counts the CPUs in a list such as `0-3,5`.
pub(crate) fn count_cpus(list: &str) -> Option<u32> {
    list.split(',').try_fold(0u32, |count, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

/// Returns name and state of each vulnerability. Empty if the architecture lists none.
fn mitigations(directory: &str) -> Result<BTreeMap<String, String>> {
    if !Path::new(directory).exists() {
        return Ok(BTreeMap::new());
    }
    fs::read_dir(directory)
        .map_err(Error::file("list", directory))?
        .map(|entry| {
            let entry = entry.map_err(Error::file("list", directory))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let state = read(&entry.path().display().to_string())?;
            Ok((name, state))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cpus_are_counted_from_ranges() {
        assert_eq!(count_cpus("0"), Some(1));
        assert_eq!(count_cpus("0-3,5,8-9"), Some(7));
        assert_eq!(count_cpus(""), None);
        assert_eq!(count_cpus("3-0"), None);
    }

    #[test]
    fn mitigations_are_read_from_their_files() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("meltdown"), "Mitigation: PTI\n").unwrap();
        let path = directory.path().to_str().unwrap();
        assert_eq!(mitigations(path).unwrap(), BTreeMap::from([("meltdown".to_owned(), "Mitigation: PTI".to_owned())]));
        assert!(mitigations(&format!("{path}/none")).unwrap().is_empty());
    }

    #[test]
    fn settings_of_the_command_line_are_read_back() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("vm")).unwrap();
        fs::write(directory.path().join("vm/swappiness"), "60\n").unwrap();
        let line = "quiet sysctl.vm.swappiness=1 sysctl.vm.none=2 vm.swappiness=3";
        let expected =
            [("vm.none".to_owned(), None), ("vm.swappiness".to_owned(), Some("60".to_owned()))].into_iter().collect();
        assert_eq!(sysctls(directory.path().to_str().unwrap(), line), expected);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text: String) {
            let _ = count_cpus(&text);
            let _ = meminfo::kib(&text, "MemTotal");
        }
    }
}
