//! The command line: what it says, and what that means on this machine.

use std::{io, path::PathBuf, time::Duration};

use bpfassay_protocol::{
    ProbeConfiguration,
    probe::{Loader, MapLayout},
};
use clap::Parser;
use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::ledger::Filter;

/// `f_type` of a cgroup v2 file system (include/uapi/linux/magic.h).
const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;

/// Counts file operations in the kernel by eBPF and writes the counters as lines of JSON.
///
/// Standard input takes commands: `sample LABEL` writes a sample with that label at once; its end ends the program.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    /// Probe configuration: PROBE[+MAP][@LOADER], for example `fexit` or `fexit+percpu@libbpf`.
    #[arg(long, value_name = "CONFIGURATION")]
    probe: ProbeConfiguration,
    /// Map layout; overrides the one named in --probe.
    #[arg(long)]
    map: Option<MapLayout>,
    /// Loader; overrides the one named in --probe.
    #[arg(long)]
    loader: Option<Loader>,
    /// Write a sample by itself this often: a number and a unit (us, ms, s, min), for example `2s`.
    #[arg(long, value_parser = parse_interval)]
    interval: Option<Duration>,
    /// Count only tasks in this very cgroup (v2), given as a directory; tasks in cgroups below it are not counted.
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Count only the mount that PATH lies in.
    #[arg(long, value_name = "PATH")]
    mount: Option<PathBuf>,
}

/// What to do, in the kernel's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) configuration: ProbeConfiguration,
    pub(crate) interval: Option<Duration>,
    pub(crate) filter: Filter,
}

/// Arguments that cannot be followed on this machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgumentError {
    #[error("the baseline `none` attaches nothing: run the workload without the tracer")]
    Baseline,
    #[error("cannot look up the cgroup {path:?}: name a directory below the cgroup v2 mount")]
    Cgroup { path: PathBuf, source: io::Error },
    #[error("{path:?} is not in a cgroup v2 hierarchy (file system type {found:#x}): name a directory below its mount")]
    NotCgroup2 { path: PathBuf, found: u64 },
    #[error("cannot look up the mount of {path:?}: name a path that exists")]
    Mount { path: PathBuf, source: io::Error },
    #[error("the kernel does not tell the mount id of {path:?} (Linux 5.8 and later do): leave out --mount")]
    NoMountId { path: PathBuf },
}

impl Args {
    /// Looks up the paths and puts the configuration together.
    ///
    /// # Errors
    /// [`ArgumentError`].
    pub(crate) fn resolve(self) -> Result<Order, ArgumentError> {
        if self.probe.is_baseline() {
            return Err(ArgumentError::Baseline);
        }
        let configuration = ProbeConfiguration {
            map: self.map.unwrap_or(self.probe.map),
            loader: self.loader.unwrap_or(self.probe.loader),
            ..self.probe
        };
        let filter = Filter {
            cgroup: self.cgroup.map(cgroup_id).transpose()?.unwrap_or(0),
            mount: self.mount.map(mount_id).transpose()?.unwrap_or(0),
        };
        Ok(Order { configuration, interval: self.interval, filter })
    }
}

/// The id of a cgroup v2 is the inode number of its directory on every 64-bit kernel.
fn cgroup_id(path: PathBuf) -> Result<u64, ArgumentError> {
    let looked_up = rustix::fs::statfs(&path).and_then(|fs| Ok((fs.f_type as u64, rustix::fs::stat(&path)?.st_ino)));
    match looked_up {
        Ok((CGROUP2_SUPER_MAGIC, inode)) => Ok(inode),
        Ok((found, _)) => Err(ArgumentError::NotCgroup2 { path, found }),
        Err(source) => Err(ArgumentError::Cgroup { path, source: source.into() }),
    }
}

/// The mount id as `/proc/self/mountinfo` shows it. The server of a network file system is not asked.
fn mount_id(path: PathBuf) -> Result<u64, ArgumentError> {
    match rustix::fs::statx(CWD, &path, AtFlags::STATX_DONT_SYNC, StatxFlags::MNT_ID) {
        Ok(found) if StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID) => Ok(found.stx_mnt_id),
        Ok(_) => Err(ArgumentError::NoMountId { path }),
        Err(source) => Err(ArgumentError::Mount { path, source: source.into() }),
    }
}

/// A positive whole number and a unit.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a positive whole number with a unit (us, ms, s, min), for example `2s`");
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(unit_at);
    let microseconds = match unit {
        "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "min" => 60_000_000,
        _ => return Err(wrong()),
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(microseconds)) {
        Some(total) if total > 0 => Ok(Duration::from_micros(total)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use proptest::prelude::*;

    use super::*;

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from([&["bpfassay-tracer"], words].concat())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_configuration_may_be_given_whole_or_in_parts() {
        let whole = parse(&["--probe", "kprobe+percpu@libbpf"]).unwrap().resolve().unwrap();
        let parts = parse(&["--probe", "kprobe", "--map", "percpu", "--loader", "libbpf"]).unwrap().resolve().unwrap();
        assert_eq!(whole, parts);
        assert_eq!(whole.configuration.to_string(), "kprobe");
        assert_eq!(whole.filter, Filter::default());
        assert_eq!(whole.interval, None);
    }

    #[test]
    fn unknown_words_are_refused_with_the_known_ones() {
        let error = parse(&["--probe", "fexti"]).unwrap_err().to_string();
        assert!(error.contains("known are none, kprobe, fexit"), "{error}");
        assert!(parse(&["--probe", "fexit", "--map", "tree"]).is_err());
        assert!(parse(&[]).is_err());
    }

    #[test]
    fn the_baseline_needs_no_tracer() {
        let error = parse(&["--probe", "none"]).unwrap().resolve().unwrap_err();
        assert!(matches!(error, ArgumentError::Baseline));
    }

    #[test]
    fn intervals_have_units() {
        assert_eq!(parse_interval("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(parse_interval("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(parse_interval("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(parse_interval("1min"), Ok(Duration::from_secs(60)));
        for wrong in
            ["", "2", "s", "0s", "-1s", "1.5s", "2 s", "2h", "99999999999999999999s", "18446744073709551615s", "²s"]
        {
            assert!(parse_interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_path_outside_cgroup2_is_refused() {
        let error = cgroup_id("/proc".into()).unwrap_err();
        assert!(matches!(error, ArgumentError::NotCgroup2 { .. }), "{error}");
        let error = cgroup_id("/nowhere/at/all".into()).unwrap_err();
        assert!(matches!(error, ArgumentError::Cgroup { .. }), "{error}");
        let error = mount_id("/nowhere/at/all".into()).unwrap_err();
        assert!(matches!(error, ArgumentError::Mount { .. }), "{error}");
    }

    #[test]
    fn the_mount_id_is_that_of_mountinfo() {
        let id = mount_id("/proc/self".into()).unwrap();
        let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let of_proc = mountinfo.lines().rev().find(|line| line.split(' ').nth(4) == Some("/proc")).unwrap();
        assert_eq!(of_proc.split(' ').next(), Some(id.to_string().as_str()));
    }

    proptest! {
        #[test]
        fn no_interval_makes_it_fall_over(text: String) {
            let _ = parse_interval(&text);
        }
    }
}
