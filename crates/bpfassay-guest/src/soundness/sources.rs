// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sources that are compared after a tool, one line each.

use std::{collections::BTreeMap, fs, io, path::Path};

use bpfassay_protocol::with_causes;
use rustix::param::page_size;

use super::{
    clocks, objects, processes,
    state_comparison::{Facts, Tolerance},
};
use crate::{
    environment::Environment,
    proc::{meminfo, zoneinfo},
};

/// When a source is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckTime {
    /// Checked first: sources that need the kernel only.
    Kernel,
    /// Checked if those are unchanged: sources that access the file system under test.
    FileSystem,
}

/// A part of the system's state that must be the same after a tool as before the first run.
#[derive(Debug)]
pub(crate) struct StateSource {
    /// The beginning of a message about the source.
    pub what: &'static str,
    pub stage: CheckTime,
    /// Whether this program alone changes the source, even on a running system.
    pub on_running_systems: bool,
    pub tolerance: Tolerance,
    /// Reads the present values.
    pub read: fn(&Environment) -> Facts,
    /// Completes values that were not there before, at a cost that is too high while differences
    /// may still vanish. The first values are those before.
    pub complete: Option<fn(&Facts, &mut Facts)>,
}

/// Names of sources to which the agent adds entries.
pub(super) const PROCESSES: &str = "processes";
pub(super) const BPF_OBJECTS: &str = "BPF objects";

const MIB: u64 = 1 << 20;

/// The sources. The tolerances allow for what a guest's kernel changes by itself, and for what
/// tools and workloads can leave (caches, temporary files of an interpreter).
pub(crate) const SOURCES: &[StateSource] = &[
    source("the file system under test", CheckTime::Kernel, true, Tolerance::None, under_test),
    source("mounts", CheckTime::Kernel, false, Tolerance::None, mounts),
    source("cgroups", CheckTime::Kernel, true, Tolerance::None, cgroups),
    source(PROCESSES, CheckTime::Kernel, false, Tolerance::None, |_| processes::user()),
    source("the agent", CheckTime::Kernel, false, Tolerance::None, |_| processes::inherited()),
    StateSource {
        complete: Some(objects::name_new),
        ..source(BPF_OBJECTS, CheckTime::Kernel, false, Tolerance::None, |_| objects::bpf())
    },
    source("tracing", CheckTime::Kernel, false, Tolerance::None, |_| objects::tracefs()),
    source("kprobes", CheckTime::Kernel, false, Tolerance::None, |_| objects::kprobes()),
    source("modules", CheckTime::Kernel, false, Tolerance::None, |_| modules()),
    source("the clock", CheckTime::Kernel, false, Tolerance::Within(20_000_000), |_| clocks::offset()),
    source("the clock's speed", CheckTime::Kernel, false, Tolerance::None, |_| clocks::speed()),
    source("settings", CheckTime::Kernel, false, Tolerance::None, |_| settings()),
    source("network interfaces", CheckTime::Kernel, false, Tolerance::None, |_| interfaces()),
    source("the NFS server", CheckTime::Kernel, false, Tolerance::None, |_| server()),
    source("free space in MiB", CheckTime::Kernel, false, Tolerance::AtMostLower(48), |_| {
        space(&["/", "/tmp", "/dev/shm"])
    }),
    source("free space of /run in MiB", CheckTime::Kernel, false, Tolerance::AtMostLower(32), |_| space(&["/run"])),
    source("memory in MiB", CheckTime::Kernel, false, Tolerance::AtMostLower(192), |_| memory()),
    source("free space under test in MiB", CheckTime::FileSystem, false, Tolerance::AtMostLower(4), |environment| {
        space(&[&environment.mount])
    }),
    source("a file under test", CheckTime::FileSystem, true, Tolerance::None, trial),
];

const fn source(
    what: &'static str,
    stage: CheckTime,
    on_running_systems: bool,
    tolerance: Tolerance,
    read: fn(&Environment) -> Facts,
) -> StateSource {
    StateSource { what, stage, on_running_systems, tolerance, read, complete: None }
}

fn text(path: impl AsRef<Path>) -> Result<String, String> {
    fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.as_ref().display()))
}

/// Returns the mount that programs see at the path of the file system under test.
fn under_test(environment: &Environment) -> Facts {
    let mount = crate::proc::mountinfo::read(&environment.mount).map_err(|error| with_causes(&error))?;
    Ok(BTreeMap::from([
        (
            "mount".to_owned(),
            format!("{} {} of device {}:{}", mount.id, mount.file_system, mount.device.major, mount.device.minor),
        ),
        ("options".to_owned(), mount.options),
    ]))
}

/// Returns all mounts, by id and mount point.
fn mounts(_: &Environment) -> Facts {
    Ok(text("/proc/self/mountinfo")?.lines().filter_map(mount).collect())
}

/// Returns id and mount point of a mount, and the rest of its line. `None` for tracefs in debugfs,
/// which the kernel mounts on the first access.
fn mount(line: &str) -> Option<(String, String)> {
    let fields: Vec<&str> = line.split(' ').collect();
    let (id, place, rest) = (fields.first()?, fields.get(4)?, fields.get(5..)?);
    (*place != "/sys/kernel/debug/tracing").then(|| (format!("mount {id} at {place}"), rest.join(" ")))
}

/// Returns the cgroups below the one in which workloads' cgroups are made, and the controllers of
/// that cgroup.
fn cgroups(environment: &Environment) -> Facts {
    let mut facts = BTreeMap::new();
    let controllers = text(Path::new(&environment.cgroups).join("cgroup.subtree_control"))?;
    // The agent itself enables the controller that limits the number of a tool's processes.
    let controllers: Vec<&str> = controllers.split_ascii_whitespace().filter(|name| *name != "pids").collect();
    facts.insert("controllers".to_owned(), controllers.join(" "));
    for path in crate::cgroup::below(&environment.cgroups).map_err(|error| with_causes(&error))? {
        if path != environment.cgroups {
            facts.insert(path, String::new());
        }
    }
    Ok(facts)
}

/// Returns names and sizes of modules.
fn modules() -> Facts {
    let names = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
    };
    Ok(text("/proc/modules")?.lines().filter_map(names).collect())
}

/// Settings that change costs or how costs are measured. None of them changes by itself. Settings
/// that a kernel does not have are left out.
const SETTINGS: &[&str] = &[
    "/proc/sys/kernel/bpf_stats_enabled",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/ftrace_enabled",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/panic_on_oops",
    "/proc/sys/kernel/perf_event_paranoid",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/printk",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/kernel/threads-max",
    "/proc/sys/kernel/unprivileged_bpf_disabled",
    "/proc/sys/debug/kprobes-optimization",
    "/proc/sys/fs/file-max",
    "/proc/sys/net/core/bpf_jit_enable",
    "/proc/sys/net/core/bpf_jit_harden",
    "/proc/sys/vm/dirty_background_bytes",
    "/proc/sys/vm/dirty_background_ratio",
    "/proc/sys/vm/dirty_bytes",
    "/proc/sys/vm/dirty_expire_centisecs",
    "/proc/sys/vm/dirty_ratio",
    "/proc/sys/vm/dirty_writeback_centisecs",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/swappiness",
    "/proc/sys/vm/vfs_cache_pressure",
    "/sys/devices/system/cpu/online",
    "/sys/kernel/debug/kprobes/enabled",
    "/sys/kernel/mm/transparent_hugepage/enabled",
];

fn settings() -> Facts {
    let read = |path: &&str| Some(((*path).to_owned(), text(path).ok()?.trim_end().to_owned()));
    Ok(SETTINGS.iter().filter_map(read).collect())
}

/// Returns network interfaces, whether they are up, and the size of their packets.
fn interfaces() -> Facts {
    let mut facts = BTreeMap::new();
    for entry in fs::read_dir("/sys/class/net").map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        let value = |name: &str| text(path.join(name)).map(|text| text.trim_end().to_owned()).unwrap_or_default();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        facts.insert(name, format!("flags {}, MTU {}", value("flags"), value("mtu")));
    }
    Ok(facts)
}

/// Returns the number of threads of the NFS server. Signals can end these threads.
fn server() -> Facts {
    Ok(BTreeMap::from([("threads".to_owned(), text("/proc/fs/nfsd/threads")?.trim_end().to_owned())]))
}

/// Returns free space and free inodes of file systems that have a size.
fn space(paths: &[&str]) -> Facts {
    let mut facts = BTreeMap::new();
    for path in paths {
        let free = rustix::fs::statvfs(*path).map_err(|error| format!("{path}: {}", io::Error::from(error)))?;
        if free.f_blocks > 0 {
            let mib = u128::from(free.f_bfree) * u128::from(free.f_frsize) / u128::from(MIB);
            facts.insert((*path).to_owned(), mib.to_string());
        }
    }
    Ok(facts)
}

/// Returns how much memory the kernel could give to programs.
fn memory() -> Facts {
    let kib = could_give(&text(meminfo::PATH)?, &text(zoneinfo::PATH)?, page_size())?;
    Ok(BTreeMap::from([("available".to_owned(), (kib / 1024).to_string())]))
}

/// Adds what is available according to `meminfo` and the free pages in the CPU's lists according to
/// `zoneinfo`, in KiB. The kernel does not count these pages as available (`si_mem_available`,
/// mm/show_mem.c).
fn could_give(meminfo: &str, zoneinfo: &str, page: usize) -> Result<u64, String> {
    let available = meminfo::kib(meminfo, "MemAvailable");
    let available = available.ok_or_else(|| format!("{} has no line MemAvailable", meminfo::PATH))?;
    let lists = zoneinfo::page_lists(zoneinfo).ok_or_else(|| format!("{} shows no lists of pages", zoneinfo::PATH))?;
    Ok(available.saturating_add(lists.count.saturating_mul(page as u64 / 1024)))
}

/// Tries whether a file can be written, read and removed in the directory of runs.
fn trial(environment: &Environment) -> Facts {
    let outcome = environment.test_dir.try_file().map_or_else(|error| error.to_string(), |()| "works".to_owned());
    Ok(BTreeMap::from([("writing, reading and removing it".to_owned(), outcome)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_identified_by_id_and_mount_point() {
        let line = "37 36 0:44 / /mnt/nfs ro,relatime shared:2 - nfs4 127.0.0.1:/ ro,vers=4.2";
        let (name, rest) = mount(line).unwrap();
        assert_eq!(
            (name.as_str(), rest.as_str()),
            ("mount 37 at /mnt/nfs", "ro,relatime shared:2 - nfs4 127.0.0.1:/ ro,vers=4.2")
        );
        assert_eq!(mount("38 36 0:12 / /sys/kernel/debug/tracing rw - tracefs tracefs rw"), None);
        assert_eq!(mount("38"), None);
    }

    #[test]
    fn pages_that_move_to_the_lists_of_the_cpu_are_not_missing() {
        let shown = |available: u64, count: u64| {
            let meminfo = format!("MemTotal: 2000000 kB\nMemAvailable:    {available} kB\n");
            let zoneinfo =
                format!("  pagesets\n    cpu: 0\n              count:    {count}\n              high:     62683\n");
            could_give(&meminfo, &zoneinfo, 4096).unwrap()
        };
        assert_eq!(shown(1_917_952, 0), 1_917_952);
        assert_eq!(shown(1_717_248, 50_176), 1_917_952);
        assert!(could_give("MemAvailable: 1 kB\n", "", 4096).unwrap_err().contains("shows no lists"));
    }

    #[test]
    fn two_readings_of_this_machine_are_equal() {
        for read in [settings, interfaces, modules, clocks::speed] {
            assert_eq!(read(), read());
        }
        let offset = |facts: Facts| -> i128 { facts.unwrap().values().next().unwrap().parse().unwrap() };
        assert!(offset(clocks::offset()).abs_diff(offset(clocks::offset())) < 20_000_000);
    }
}
