// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of the command line, and their values on this machine.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf, time::Duration};

use bpfassay_protocol::{
    ProbeConfiguration,
    probe::{Loader, MapLayout, Probe},
};

use crate::{
    kernel::{
        kernel_cgroups::{self, CgroupIdError},
        mountinfo::{self, MountIdError},
    },
    loader::plan::tracer_options::TracerOptions,
    service::endpoint::ListenAddress,
};

/// The most keys or events of a map. They occupy locked memory of the kernel.
const MAX_ENTRIES: u32 = 1 << 24;
/// `KRETPROBE_MAXACTIVE_MAX` (kernel/trace/trace_kprobe.c).
const MAX_MAXACTIVE: u32 = 4096;

/// A request on the command line.
#[derive(Debug)]
pub(crate) enum TracerRequest {
    /// Print [`crate::cli::help::HELP`].
    Help,
    Version,
    /// Report the kernel's features.
    Features,
    /// Attach and count.
    Trace(Box<Args>),
}

/// The options, as given.
#[derive(Debug, Default)]
pub(crate) struct Args {
    probe: Option<ProbeConfiguration>,
    map: Option<MapLayout>,
    loader: Option<Loader>,
    interval: Option<Duration>,
    bpf_stats: bool,
    cgroup: Option<PathBuf>,
    mount: Option<PathBuf>,
    listen: Option<ListenAddress>,
    merge: bool,
    stay: bool,
    latency: bool,
    map_entries: Option<u32>,
    maxactive: Option<u32>,
    uprobe: Vec<PathBuf>,
    functions: BTreeMap<String, String>,
    symbol_cache: Option<PathBuf>,
    attach_order: Option<u64>,
    keep_loaded: bool,
}

/// The tracer's task, with paths replaced by the kernel's ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TracerConfig {
    pub(crate) configuration: ProbeConfiguration,
    pub(crate) interval: Option<Duration>,
    /// Whether the kernel must keep statistics of programs.
    pub(crate) bpf_stats: bool,
    pub(crate) options: TracerOptions,
    /// Address at which the counters are served to Prometheus.
    pub(crate) listen: Option<ListenAddress>,
    /// Whether `readv` counts as `read` and `writev` as `write`.
    pub(crate) merge: bool,
    /// Whether to continue after the end of standard input.
    pub(crate) stay: bool,
    /// Whether to attach and detach by commands.
    pub(crate) keep_loaded: bool,
}

/// Arguments that are not valid on this machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgumentError {
    #[error("{0} (--help lists the options)")]
    Syntax(lexopt::Error),
    #[error("--{0} is given twice")]
    Twice(&'static str),
    #[error("--probe is missing: name a probe configuration, for example `--probe fexit`")]
    NoProbe,
    #[error("the baseline `none` attaches nothing: run the workload without the tracer")]
    Baseline,
    #[error("program sets are not served to Prometheus: leave out --listen")]
    NoMetrics,
    #[error("--keep-loaded takes `attach` and `detach` from standard input: leave out --listen and --stay")]
    ByCommand,
    #[error(transparent)]
    Cgroup(#[from] CgroupIdError),
    #[error(transparent)]
    Mount(#[from] MountIdError),
}

impl From<lexopt::Error> for ArgumentError {
    fn from(error: lexopt::Error) -> Self {
        Self::Syntax(error)
    }
}

impl TracerRequest {
    /// Reads a command line, without the program's name.
    ///
    /// # Errors
    /// [`ArgumentError::Syntax`] for an unknown option or an invalid value,
    /// [`ArgumentError::Twice`] for a repeated option, [`ArgumentError::NoProbe`] if there is no
    /// probe.
    pub(crate) fn parse<W: Into<OsString>>(arguments: impl IntoIterator<Item = W>) -> Result<Self, ArgumentError> {
        use lexopt::{
            Arg::{Long, Short},
            ValueExt as _,
        };

        let mut args = Args::default();
        let mut parser = lexopt::Parser::from_args(arguments.into_iter().map(Into::into));
        while let Some(option) = parser.next()? {
            match option {
                Long("help") | Short('h') => return Ok(Self::Help),
                Long("features") => return Ok(Self::Features),
                Long("version") | Short('V') => return Ok(Self::Version),
                Long("probe") => set(&mut args.probe, "probe", parser.value()?.parse()?)?,
                Long("map") => set(&mut args.map, "map", parser.value()?.parse()?)?,
                Long("loader") => set(&mut args.loader, "loader", parser.value()?.parse()?)?,
                Long("interval") => set(&mut args.interval, "interval", parser.value()?.parse_with(parse_interval)?)?,
                Long("cgroup") => set(&mut args.cgroup, "cgroup", parser.value()?.into())?,
                Long("mount") => set(&mut args.mount, "mount", parser.value()?.into())?,
                Long("listen") => set(&mut args.listen, "listen", parser.value()?.parse()?)?,
                Long("bpf-stats") => flag(&mut args.bpf_stats, "bpf-stats")?,
                Long("merge") => flag(&mut args.merge, "merge")?,
                Long("stay") => flag(&mut args.stay, "stay")?,
                Long("keep-loaded") => flag(&mut args.keep_loaded, "keep-loaded")?,
                Long("latency") => flag(&mut args.latency, "latency")?,
                Long("map-entries") => {
                    set(
                        &mut args.map_entries,
                        "map-entries",
                        parser.value()?.parse_with(|text| parse_count(text, MAX_ENTRIES))?,
                    )?;
                }
                Long("maxactive") => {
                    set(
                        &mut args.maxactive,
                        "maxactive",
                        parser.value()?.parse_with(|text| parse_count(text, MAX_MAXACTIVE))?,
                    )?;
                }
                Long("attach-order") => set(&mut args.attach_order, "attach-order", parser.value()?.parse()?)?,
                Long("uprobe") => args.uprobe.push(parser.value()?.into()),
                Long("symbol-cache") => set(&mut args.symbol_cache, "symbol-cache", parser.value()?.into())?,
                Long("function") => {
                    let (name, other) = parser.value()?.parse_with(parse_function)?;
                    if args.functions.insert(name, other).is_some() {
                        return Err(ArgumentError::Twice("function"));
                    }
                }
                other => return Err(other.unexpected().into()),
            }
        }
        if args.probe.is_none() {
            return Err(ArgumentError::NoProbe);
        }
        Ok(Self::Trace(Box::new(args)))
    }
}

fn flag(slot: &mut bool, name: &'static str) -> Result<(), ArgumentError> {
    if std::mem::replace(slot, true) { Err(ArgumentError::Twice(name)) } else { Ok(()) }
}

fn set<T>(slot: &mut Option<T>, name: &'static str, value: T) -> Result<(), ArgumentError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(ArgumentError::Twice(name)),
    }
}

impl Args {
    /// Looks up the paths and builds the configuration.
    ///
    /// # Errors
    /// [`ArgumentError`] for a path without a cgroup id or mount id, and for options that exclude
    /// each other.
    pub(crate) fn resolve(self) -> Result<TracerConfig, ArgumentError> {
        let probe = self.probe.ok_or(ArgumentError::NoProbe)?;
        if probe.is_baseline() {
            return Err(ArgumentError::Baseline);
        }
        let configuration = ProbeConfiguration {
            map: self.map.unwrap_or(probe.map),
            loader: self.loader.unwrap_or(probe.loader),
            ..probe
        };
        if configuration.probe == Probe::Programs && self.listen.is_some() {
            return Err(ArgumentError::NoMetrics);
        }
        if self.keep_loaded && (self.stay || self.listen.is_some()) {
            return Err(ArgumentError::ByCommand);
        }
        let options = TracerOptions {
            cgroup: self.cgroup.map(kernel_cgroups::id).transpose()?.unwrap_or(0),
            mount: self.mount.map(mountinfo::id).transpose()?.unwrap_or(0),
            latency: self.latency,
            map_entries: self.map_entries,
            maxactive: self.maxactive,
            uprobe: self.uprobe,
            functions: self.functions,
            symbol_cache: self.symbol_cache,
            attach_order: self.attach_order,
        };
        Ok(TracerConfig {
            configuration,
            interval: self.interval,
            bpf_stats: self.bpf_stats,
            options,
            // A service is started without standard input.
            stay: self.stay || self.listen.is_some(),
            listen: self.listen,
            merge: self.merge,
            keep_loaded: self.keep_loaded,
        })
    }
}

/// Parses a positive whole number up to `most`.
fn parse_count(text: &str, most: u32) -> Result<u32, String> {
    match text.parse() {
        Ok(count) if (1..=most).contains(&count) => Ok(count),
        _ => Err(format!("`{text}` is not a whole number from 1 to {most}")),
    }
}

/// Parses two names of kernel functions.
fn parse_function(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &&str| {
        (1..=512).contains(&name.len()) && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.'))
    };
    let names = text.split_once('=').filter(|(name, other)| is_name(name) && is_name(other));
    let (name, other) =
        names.ok_or_else(|| format!("`{text}` is not NAME=OTHER, for example `vfs_read=vfs_read.isra.0`"))?;
    Ok((name.to_owned(), other.to_owned()))
}

/// Parses a positive whole number and a unit.
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
    use proptest::prelude::*;

    use super::*;
    use crate::cli::help::HELP;

    fn parse(args: &[&str]) -> Result<Args, ArgumentError> {
        match TracerRequest::parse(args)? {
            TracerRequest::Trace(args) => Ok(*args),
            other => panic!("{args:?}: {other:?}"),
        }
    }

    #[test]
    fn help_and_version_need_nothing_else() {
        assert!(matches!(TracerRequest::parse(["--help"]), Ok(TracerRequest::Help)));
        assert!(matches!(TracerRequest::parse(["--probe=fexit", "-h"]), Ok(TracerRequest::Help)));
        assert!(matches!(TracerRequest::parse(["-V"]), Ok(TracerRequest::Version)));
        for option in [
            "probe",
            "map",
            "loader",
            "interval",
            "cgroup",
            "mount",
            "latency",
            "map-entries",
            "maxactive",
            "uprobe",
            "function",
            "symbol-cache",
            "attach-order",
            "bpf-stats",
            "merge",
            "listen",
            "stay",
            "keep-loaded",
            "features",
        ]
        .map(|name| format!("--{name}"))
        {
            assert!(HELP.contains(&format!("      {option} ")), "{option}");
        }
    }

    #[test]
    fn unknown_repeated_and_incomplete_options_are_refused() {
        let message = |args: &[&str]| parse(args).unwrap_err().to_string();
        assert_eq!(message(&["--prob", "fexit"]), "invalid option '--prob' (--help lists the options)");
        assert_eq!(message(&["--probe", "fexit", "more"]), "unexpected argument \"more\" (--help lists the options)");
        assert_eq!(message(&["--probe", "fexit", "--map", "percpu", "--map=percpu"]), "--map is given twice");
        assert!(message(&["--probe"]).starts_with("missing argument for option '--probe'"));
        assert!(message(&[]).starts_with("--probe is missing"));
    }

    #[test]
    fn a_configuration_may_be_given_whole_or_in_parts() {
        let whole = parse(&["--probe", "kprobe+percpu@libbpf"]).unwrap().resolve().unwrap();
        let parts = parse(&["--probe", "kprobe", "--map", "percpu", "--loader", "libbpf"]).unwrap().resolve().unwrap();
        assert_eq!(whole, parts);
        assert_eq!(whole.configuration.to_string(), "kprobe");
        assert_eq!(whole.options, TracerOptions::default());
        assert_eq!(whole.interval, None);
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let error = parse(&["--probe", "fexti"]).unwrap_err().to_string();
        assert!(error.contains("known are none, kprobe, kretprobe,"), "{error}");
        assert!(parse(&["--probe", "fexit", "--map", "tree"]).is_err());
    }

    #[test]
    fn the_baseline_needs_no_tracer() {
        let error = parse(&["--probe", "none"]).unwrap().resolve().unwrap_err();
        assert!(matches!(error, ArgumentError::Baseline));
    }

    #[test]
    fn a_service_continues_without_standard_input() {
        let config = |args: &[&str]| parse(args).unwrap().resolve().unwrap();
        let plain = config(&["--probe", "fexit"]);
        assert_eq!((plain.stay, plain.merge, plain.listen), (false, false, None));
        assert!(config(&["--probe", "fexit", "--stay"]).stay);
        let service = config(&["--probe", "fexit", "--merge", "--listen", "127.0.0.1:0"]);
        assert!(service.stay && service.merge && service.listen.is_some());
        assert!(parse(&["--probe", "fexit", "--listen", "9100"]).is_err());
        assert!(parse(&["--probe", "fexit", "--stay", "--stay"]).is_err());
        assert!(parse(&["--probe", "fexit", "--stay=yes"]).is_err());
    }

    #[test]
    fn programs_are_kept_loaded_where_commands_attach_them() {
        let config = |more: &[&str]| parse(&[&["--probe", "fexit"], more].concat()).unwrap().resolve();
        assert!(config(&["--keep-loaded", "--interval=2s", "--bpf-stats"]).unwrap().keep_loaded);
        assert!(!config(&[]).unwrap().keep_loaded);
        for service in [&["--keep-loaded", "--stay"][..], &["--keep-loaded", "--listen", "127.0.0.1:0"]] {
            assert!(matches!(config(service), Err(ArgumentError::ByCommand)), "{service:?}");
        }
    }

    #[test]
    fn other_options_are_passed_to_the_loader() {
        let args = [
            "--probe=fexit",
            "--latency",
            "--map-entries=1",
            "--maxactive",
            "4",
            "--uprobe",
            "/lib/x",
            "--symbol-cache",
            "/s",
            "--attach-order=7",
        ];
        let functions = ["--function", "vfs_read=vfs_read.isra.0", "--function=vfs_write=other"];
        let args: Vec<&str> = args.iter().chain(&functions).copied().collect();
        let functions = [("vfs_read", "vfs_read.isra.0"), ("vfs_write", "other")];
        let expected = TracerOptions {
            latency: true,
            map_entries: Some(1),
            maxactive: Some(4),
            uprobe: vec!["/lib/x".into()],
            symbol_cache: Some("/s".into()),
            attach_order: Some(7),
            functions: functions.map(|(name, other)| (name.to_owned(), other.to_owned())).into(),
            ..TracerOptions::default()
        };
        let options = parse(&args).unwrap().resolve().unwrap().options;
        assert_eq!(options, expected);
        assert_eq!((options.function("vfs_write"), options.function("vfs_open")), ("other", "vfs_open"));
        for wrong in
            ["--map-entries=0", "--map-entries=x", "--maxactive=4097", "--function=vfs_read", "--function=a=b c"]
        {
            assert!(parse(&["--probe", "fexit", wrong]).is_err(), "{wrong}");
        }
        assert!(matches!(
            parse(&["--probe", "fexit", "--function=a=b", "--function=a=c"]),
            Err(ArgumentError::Twice("function"))
        ));
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

    proptest! {
        #[test]
        fn no_arguments_make_it_panic(args: Vec<String>) {
            let _ = TracerRequest::parse(args);
        }

        #[test]
        fn no_interval_makes_it_panic(text: String) {
            let _ = parse_interval(&text);
        }
    }
}
