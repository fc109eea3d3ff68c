// SPDX-License-Identifier: MIT OR Apache-2.0
//! Probe configurations: hook, map layout and loader.
//!
//! They are written as `probe[+map][@loader]`, for example `fexit+percpu@libbpf`. Missing parts
//! have default values, and output omits defaults. `none` is the baseline, without map and loader.
//! `programs` has program sets in place of a map layout, such as `programs+sched+tcp`; without any
//! it means all sets.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{UnknownName, names, program_set::ProgramSets};

names! {
    /// The hook of the tracer in the kernel.
    pub enum Probe: "probe" {
        /// The baseline: no tracer.
        None = "none",
        /// A kprobe at function entry. Counts the bytes that the caller *requested*.
        Kprobe = "kprobe",
        /// A kprobe at function entry and a kretprobe. Counts the bytes that the call *returned*.
        Kretprobe = "kretprobe",
        /// Like `kretprobe`, but through fprobe (`kprobe.multi`). Counts returned bytes.
        KprobeMulti = "kprobe-multi",
        /// A BPF trampoline at function entry. Counts the bytes that the caller *requested*.
        Fentry = "fentry",
        /// A BPF trampoline at function exit. Counts the bytes that the call *returned*.
        Fexit = "fexit",
        /// Tracepoints of system calls (`sys_enter_NAME`, `sys_exit_NAME`). Counts returned bytes.
        Tracepoint = "tracepoint",
        /// Raw tracepoints of all system calls (`sys_enter`, `sys_exit`). Counts returned bytes.
        RawTracepoint = "raw-tracepoint",
        /// Uprobes on functions of the C library and MPI-IO, in libraries or a static program.
        /// Counts returned bytes.
        Uprobe = "uprobe",
        /// No hook on the path of a call. Reads the kernel's I/O accounting of each task with an
        /// iterator and when tasks exit. Counts the bytes that calls *returned*, for all mounts
        /// together.
        TaskIo = "task-io",
        /// BPF trampolines and a tracepoint on every way in which data move between programs and
        /// files, if the kernel has a function to hook. Counts the bytes that each *returned*.
        Complete = "complete",
        /// Sets of programs that count events other than file operations per mount
        /// ([`crate::program_set`]). Several sets can be combined.
        Programs = "programs",
    }
}

names! {
    /// The layout of counters in BPF maps.
    pub enum MapLayout: "map layout" {
        /// A per-CPU hash keyed by (cgroup, mount, operation). The reader sums over possible CPUs.
        Percpu = "percpu",
        /// One hash for all CPUs with the same key, updated by atomic additions.
        HashShared = "hash-shared",
        /// An LRU hash for all CPUs with 64 bytes of the mount's path, as in the CEEMS exporter.
        LruShared = "lru-shared",
        /// One ring-buffer event per call. The tracer adds them up.
        Ringbuf = "ringbuf",
        /// One hash for all CPUs with the calling thread and the operation's variant in the key:
        /// the layout of reference tracers.
        Threads = "threads",
    }
}

impl MapLayout {
    /// The layouts that are compared with each other. `+*` means all of them in studies.
    pub const COMPARED: [Self; 4] = [Self::Percpu, Self::HashShared, Self::LruShared, Self::Ringbuf];
}

names! {
    /// The library that loads and attaches the programs.
    pub enum Loader: "loader" {
        /// libbpf through libbpf-rs, with programs in C with CO-RE.
        Libbpf = "libbpf",
        /// aya, with programs in Rust with aya-ebpf. Offsets come from the kernel's BTF at load
        /// time.
        Aya = "aya",
    }
}

impl Probe {
    /// Returns the meaning of `bytes` in this probe's counters.
    #[must_use]
    pub const fn counts(self) -> Option<ByteMeaning> {
        match self {
            // Program sets count calls and times of other events.
            Self::None | Self::Programs => None,
            Self::Kprobe | Self::Fentry => Some(ByteMeaning::Requested),
            Self::Kretprobe
            | Self::KprobeMulti
            | Self::Fexit
            | Self::Tracepoint
            | Self::RawTracepoint
            | Self::Uprobe
            | Self::TaskIo
            | Self::Complete => Some(ByteMeaning::Returned),
        }
    }

    /// Whether the counters distinguish mounts. Otherwise they have mount 0 and device 0:0, and
    /// cover all mounts, pipes and terminals of a cgroup.
    #[must_use]
    pub const fn distinguishes_mounts(self) -> bool {
        !matches!(self, Self::TaskIo)
    }
}

names! {
    /// The meaning of a byte counter.
    pub enum ByteMeaning: "byte meaning" {
        /// The size argument of the call, whatever the call did.
        Requested = "requested",
        /// The result of the call.
        Returned = "returned",
    }
}

/// One probe configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeConfiguration {
    /// The hook.
    pub probe: Probe,
    /// The map layout; meaningless for [`Probe::None`].
    pub map: MapLayout,
    /// The loader; meaningless for [`Probe::None`].
    pub loader: Loader,
    /// The program sets: some for [`Probe::Programs`], none for other probes.
    pub sets: ProgramSets,
}

impl ProbeConfiguration {
    /// The baseline, which attaches nothing.
    pub const BASELINE: Self = Self::with_defaults(Probe::None);

    /// `probe` with the default map layout and loader.
    #[must_use]
    pub const fn with_defaults(probe: Probe) -> Self {
        let sets = if matches!(probe, Probe::Programs) { ProgramSets::ALL } else { ProgramSets::NONE };
        Self { probe, map: MapLayout::Percpu, loader: Loader::Libbpf, sets }
    }

    /// Whether this is the baseline.
    #[must_use]
    pub fn is_baseline(self) -> bool {
        self.probe == Probe::None
    }
}

impl ProbeConfiguration {
    /// Parses `programs` with the sets in `names`, separated by `+`; all sets if there are none.
    fn of_sets(text: &str, names: Option<&str>, loader: Option<Loader>) -> Result<Self, UnknownName> {
        let all = Self::with_defaults(Probe::Programs);
        if loader.is_some_and(|loader| loader != all.loader) {
            return Err(UnknownName {
                kind: "probe configuration",
                name: text.chars().take(64).collect(),
                known: format!("programs[+SET]…, whose only loader is {}", all.loader),
            });
        }
        let Some(names) = names else { return Ok(all) };
        let mut sets = ProgramSets::NONE;
        for name in names.split('+') {
            sets = sets.with(name.parse()?);
        }
        Ok(Self { sets, ..all })
    }
}

impl fmt::Display for ProbeConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::with_defaults(self.probe);
        let mut text = self.probe.name().to_owned();
        if self.map != default.map {
            text = format!("{text}+{}", self.map);
        }
        if self.sets != default.sets {
            text = self.sets.iter().fold(text, |text, set| format!("{text}+{set}"));
        }
        if self.loader != default.loader {
            text = format!("{text}@{}", self.loader);
        }
        f.pad(&text)
    }
}

impl FromStr for ProbeConfiguration {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (rest, loader) = match text.split_once('@') {
            Some((rest, loader)) => (rest, Some(loader.parse()?)),
            None => (text, None),
        };
        let (probe, map) = match rest.split_once('+') {
            Some((probe, map)) => (probe, Some(map)),
            None => (rest, None),
        };
        let default = Self::with_defaults(probe.parse()?);
        if default.probe == Probe::Programs {
            return Self::of_sets(text, map, loader);
        }
        let map = map.map(str::parse).transpose()?;
        if default.is_baseline() && (map.is_some() || loader.is_some()) {
            return Err(UnknownName {
                kind: "probe configuration",
                name: text.chars().take(64).collect(),
                known: "none (without map and loader), or PROBE[+MAP][@LOADER]".to_owned(),
            });
        }
        Ok(Self { map: map.unwrap_or(default.map), loader: loader.unwrap_or(default.loader), ..default })
    }
}

impl Serialize for ProbeConfiguration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ProbeConfiguration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for ProbeConfiguration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ProbeConfiguration".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "PROBE[+MAP][@LOADER], programs[+SET]…, or none",
            "pattern": "^[a-z-]+(\\+[a-z-]+)*(@[a-z]+)?$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_configuration_reads_back_as_written() {
        for &probe in Probe::ALL {
            let configuration = ProbeConfiguration::with_defaults(probe);
            assert_eq!(configuration.to_string().parse(), Ok(configuration));
        }
    }

    #[test]
    fn defaults_may_be_spelt_out() {
        assert_eq!("fexit+percpu@libbpf".parse(), Ok(ProbeConfiguration::with_defaults(Probe::Fexit)));
    }

    #[test]
    fn program_sets_are_written_in_their_order_and_all_by_their_name_alone() {
        let shown = |text: &str| text.parse::<ProbeConfiguration>().unwrap().to_string();
        assert_eq!(shown("programs+tcp+sched"), "programs+sched+tcp");
        assert_eq!(shown("programs+files@libbpf"), "programs+files");
        assert_eq!(shown("programs+files+shared-memory+tcp+futex+sched"), "programs");
        assert_eq!(ProbeConfiguration::with_defaults(Probe::Fexit).sets, ProgramSets::NONE);
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let error = "fexti".parse::<ProbeConfiguration>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown probe `fexti`; known are none, kprobe, kretprobe, kprobe-multi, fentry, fexit, tracepoint, raw-tracepoint, uprobe, task-io, complete, programs"
        );
        let error = "programs+tpc".parse::<ProbeConfiguration>().unwrap_err();
        assert_eq!(error.to_string(), "unknown program set `tpc`; known are sched, futex, tcp, shared-memory, files");
        assert!("programs@aya".parse::<ProbeConfiguration>().is_err());
        assert!("programs+".parse::<ProbeConfiguration>().is_err());
        assert!("none+percpu".parse::<ProbeConfiguration>().is_err());
        assert!("kprobe@gobpf".parse::<ProbeConfiguration>().is_err());
    }
}
