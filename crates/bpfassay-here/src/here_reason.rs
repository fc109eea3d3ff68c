// SPDX-License-Identifier: MIT OR Apache-2.0
//! Explains why this machine's kernel refuses a probe or a tool, where the error number does not.
//! Reasons are the kernel's configuration, lockdown, missing privileges and missing mounts.

#![allow(clippy::disallowed_methods, reason = "reads files of the kernel, in /proc or /sys")]

use std::{collections::BTreeSet, fs, io::Read as _, path::Path};

use bpfassay_protocol::{probe::Probe, tracer_messages::Refusal};
use flate2::read::GzDecoder;
use rustix::io::Errno;

/// Largest configuration, in bytes. Configurations of distributions have about 300,000.
const MAX_CONFIG: u64 = 8 << 20;

/// File in which security modules report the kernel's lockdown (`lockdown_read`,
/// security/lockdown/lockdown.c).
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// Bits of the capabilities that tracing needs (include/uapi/linux/capability.h). The first
/// capability includes the others.
const CAPABILITIES: [(u32, &str); 3] = [(21, "CAP_SYS_ADMIN"), (38, "CAP_PERFMON"), (39, "CAP_BPF")];

/// Options for any eBPF program.
const ANY: &[&str] = &["CONFIG_BPF_SYSCALL", "CONFIG_BPF_EVENTS"];
/// Options for kprobes.
const KPROBES: &[&str] = &["CONFIG_KPROBES", "CONFIG_KPROBE_EVENTS", "CONFIG_PERF_EVENTS"];
/// Options for fprobes.
const FPROBES: &[&str] = &["CONFIG_FPROBE"];
/// Options for trampolines.
const TRAMPOLINES: &[&str] =
    &["CONFIG_DEBUG_INFO_BTF", "CONFIG_BPF_JIT", "CONFIG_FUNCTION_TRACER", "CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS"];
/// Options for tracepoints of system calls.
const SYSCALLS: &[&str] = &["CONFIG_FTRACE_SYSCALLS"];
/// Options for uprobes.
const UPROBES: &[&str] = &["CONFIG_UPROBES", "CONFIG_UPROBE_EVENTS", "CONFIG_PERF_EVENTS"];
/// Options for the accounting of tasks.
const ACCOUNTING: &[&str] = &["CONFIG_TASK_IO_ACCOUNTING"];

/// Options that a tool with unknown programs can need.
const OF_TOOLS: &[&[&str]] = &[KPROBES, TRAMPOLINES, SYSCALLS, UPROBES];

/// Limits of this machine and this process.
#[derive(Debug, Default)]
pub(crate) struct MachineLimits {
    /// The options that the kernel was built with, and their file; `None` if unknown.
    config: Option<(BTreeSet<String>, String)>,
    /// The kind of lockdown, if any, and what shows it.
    lockdown: Option<(String, String)>,
    /// Capabilities that this process lacks.
    incapable: Vec<&'static str>,
    /// Whether tracefs is where programs look for it.
    has_tracefs: bool,
}

impl MachineLimits {
    /// Finds the limits of this machine, whose kernel has this release.
    pub(crate) fn of_this_machine(release: &str) -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let tracefs = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];
        let config = config(Path::new("/"), release);
        let reported =
            fs::read_to_string(LOCKDOWN).ok().map(|text| lockdown(&text).map(|kind| (kind, LOCKDOWN.to_owned())));
        Self {
            // An unreported lockdown can still be built into the kernel.
            lockdown: reported.unwrap_or_else(|| config.as_ref().and_then(|(set, file)| forced(set, file))),
            config,
            incapable: incapable(&status),
            has_tracefs: tracefs.iter().any(|path| Path::new(path).exists()),
        }
    }

    /// Adds an explanation to `refusal`, which is about `probe`, or a tool if it is `None`.
    pub(crate) fn explain(&self, probe: Option<Probe>, refusal: &mut Refusal) {
        let reasons = self.reasons(probe, refusal);
        if !reasons.is_empty() {
            // Summaries show the first clause of a tool's message, which must stay.
            let separator = if refusal.message.contains('\n') { "\n" } else { "; " };
            refusal.message = format!("{}{separator}{}", refusal.message, reasons.join("; "));
        }
    }

    fn reasons(&self, probe: Option<Probe>, refusal: &Refusal) -> Vec<String> {
        let errno = refusal.errno.map(Errno::from_raw_os_error);
        let prints = |words: &[&str]| {
            let text = refusal.message.to_lowercase();
            words.iter().any(|word| text.contains(word))
        };
        let is_unknown = errno.is_none();
        let is_denied = matches!(errno, Some(Errno::PERM | Errno::ACCESS))
            || is_unknown && prints(&["not permitted", "permission denied", "eperm", "eacces"]);
        let is_absent = matches!(
            errno,
            Some(Errno::NOENT | Errno::NODEV | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL | Errno::SRCH)
        ) || errno.is_some_and(|errno| errno.raw_os_error() == NOT_SUPPORTED)
            || is_unknown
                && prints(&[
                    "no such file",
                    "enoent",
                    "not supported",
                    "invalid argument",
                    "not found",
                    "unknown func",
                ]);
        let mut reasons = Vec::new();
        if is_denied || is_absent {
            reasons.extend(self.missing_options(probe));
        }
        if is_denied && !self.incapable.is_empty() {
            reasons.push(format!(
                "this process has not {}: start bpfassay as root of the machine, not of a container",
                self.incapable.join(", ")
            ));
        }
        // The kernel reports a helper that lockdown forbids as unknown.
        let is_helper = refusal.verifier.iter().chain([&refusal.message]).any(|text| {
            text.contains("bpf_probe_read") && (text.contains("unknown func") || text.contains("cannot use helper"))
        });
        let lockdown = self.lockdown.as_ref().map(|(kind, shown)| (kind.as_str(), shown));
        match lockdown {
            Some(("confidentiality", shown)) if is_denied || is_helper => reasons.push(format!(
                "this kernel is locked down for confidentiality ({shown}), and so refuses kprobes, tracefs, perf and reading kernel memory in eBPF: boot it \
                 with lockdown=integrity, or without Secure Boot"
            )),
            Some(("integrity", shown)) if refusal.message.contains("bpf_probe_write_user") => {
                reasons.push(format!("this kernel is locked down for integrity ({shown}), and so refuses bpf_probe_write_user"));
            }
            Some(("integrity", shown)) if is_denied && reasons.is_empty() => reasons.push(format!(
                "this kernel is locked down for integrity ({shown}): Linux itself allows tracing then, and a vendor's kernel may refuse more"
            )),
            _ => {}
        }
        if is_absent && !self.has_tracefs && !matches!(probe, Some(Probe::Fentry | Probe::Fexit | Probe::RawTracepoint))
        {
            reasons.push(
                "tracefs is not mounted, which tracepoints and some loaders of kprobes need: mount -t tracefs tracefs /sys/kernel/tracing"
                    .to_owned(),
            );
        }
        reasons
    }

    /// Names the options for `probe` that the kernel was built without, in a sentence.
    fn missing_options(&self, probe: Option<Probe>) -> Option<String> {
        let (config, file) = self.config.as_ref()?;
        let needed: Vec<&[&str]> = std::iter::once(ANY).chain(needs(probe).iter().copied()).collect();
        let mut missing: Vec<&str> = needed.concat().into_iter().filter(|option| !config.contains(*option)).collect();
        missing.dedup();
        // A kernel that lacks CONFIG_KPROBES does not have the option CONFIG_KPROBE_EVENTS.
        missing.retain(|option| *option != "CONFIG_KPROBE_EVENTS" || config.contains("CONFIG_KPROBES"));
        (!missing.is_empty()).then(|| format!("this kernel was built without {} ({file})", missing.join(", ")))
    }
}

/// `ENOTSUPP`, which the kernel sometimes returns and C libraries do not know
/// (include/linux/errno.h).
const NOT_SUPPORTED: i32 = 524;

/// The options that `probe` needs in addition to [`ANY`]; `None` stands for a tool.
const fn needs(probe: Option<Probe>) -> &'static [&'static [&'static str]] {
    match probe {
        None => OF_TOOLS,
        Some(Probe::None | Probe::RawTracepoint) => &[],
        Some(Probe::Kprobe | Probe::Kretprobe) => &[KPROBES],
        Some(Probe::KprobeMulti) => &[KPROBES, FPROBES],
        Some(Probe::Tracepoint) => &[SYSCALLS],
        Some(Probe::Uprobe) => &[UPROBES],
        Some(Probe::TaskIo) => &[ACCOUNTING],
        Some(Probe::Programs) => &[TRAMPOLINES, KPROBES],
        // All other probes hook functions by their prototypes.
        Some(_) => &[TRAMPOLINES],
    }
}

/// Returns the kind of lockdown in `text` (`none [integrity] confidentiality`), if any.
fn lockdown(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (kind, _) = rest.split_once(']')?;
    (kind != "none" && kind.chars().all(|c| c.is_ascii_lowercase())).then(|| kind.to_owned())
}

/// Returns the kind of lockdown that the options `set` force, and the option with its `file`.
fn forced(set: &BTreeSet<String>, file: &str) -> Option<(String, String)> {
    ["confidentiality", "integrity"].iter().find_map(|kind| {
        let option = format!("CONFIG_LOCK_DOWN_KERNEL_FORCE_{}", kind.to_uppercase());
        set.contains(&option).then(|| ((*kind).to_owned(), format!("{option} in {file}")))
    })
}

/// Returns the [`CAPABILITIES`] that are not effective in `status`, a `/proc/PID/status`. The list
/// is empty if the first capability is effective.
fn incapable(status: &str) -> Vec<&'static str> {
    let effective = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    let Some(effective) = effective else { return Vec::new() };
    let has = |bit: u32| effective >> bit & 1 == 1;
    match has(CAPABILITIES[0].0) {
        true => Vec::new(),
        false => CAPABILITIES.iter().filter(|(bit, _)| !has(*bit)).map(|(_, name)| *name).collect(),
    }
}

/// Finds the options that the kernel of this release was built with (`=y` or `=m`), and the first
/// file below `root` that has them.
fn config(root: &Path, release: &str) -> Option<(BTreeSet<String>, String)> {
    let places = [
        "proc/config.gz".to_owned(),
        format!("boot/config-{release}"),
        format!("lib/modules/{release}/config"),
        format!("usr/lib/modules/{release}/config"),
        format!("lib/modules/{release}/build/.config"),
    ];
    places.iter().find_map(|place| {
        let file = bpfassay_input::open(&root.join(place)).ok()?;
        let mut text = String::new();
        let read = match place.ends_with(".gz") {
            true => GzDecoder::new(file).take(MAX_CONFIG).read_to_string(&mut text),
            false => file.take(MAX_CONFIG).read_to_string(&mut text),
        };
        read.ok()?;
        let set = options(&text);
        (!set.is_empty()).then(|| (set, format!("/{place}")))
    })
}

/// Returns the options that the `.config` in `text` sets to `y` or `m`.
fn options(text: &str) -> BTreeSet<String> {
    let set = |line: &str| {
        let (name, value) = line.split_once('=')?;
        (name.starts_with("CONFIG_") && matches!(value, "y" | "m")).then(|| name.to_owned())
    };
    text.lines().filter_map(set).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use bpfassay_protocol::tracer_messages::Step;
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    /// A machine with all options but those in `without`.
    fn machine(without: &[&str]) -> MachineLimits {
        let all = [ANY, KPROBES, FPROBES, TRAMPOLINES, SYSCALLS, UPROBES, ACCOUNTING].concat();
        let set = all.into_iter().filter(|option| !without.contains(option)).map(str::to_owned).collect();
        let config = Some((set, "/proc/config.gz".to_owned()));
        MachineLimits { config, has_tracefs: true, ..MachineLimits::default() }
    }

    fn explained(limits: &MachineLimits, probe: Option<Probe>, errno: Option<Errno>, message: &str) -> String {
        let errno = errno.map(Errno::raw_os_error);
        let mut refusal = Refusal { errno, ..Refusal::new(Step::Attach, message.to_owned()) };
        limits.explain(probe, &mut refusal);
        refusal.message
    }

    #[test]
    fn an_option_that_is_missing_is_the_reason_for_what_needs_it() {
        let limits = machine(&["CONFIG_KPROBES", "CONFIG_KPROBE_EVENTS"]);
        assert_eq!(
            explained(&limits, Some(Probe::Kprobe), Some(Errno::NOENT), "cannot attach vfs_read"),
            "cannot attach vfs_read; this kernel was built without CONFIG_KPROBES (/proc/config.gz)"
        );
        let fexit = explained(&limits, Some(Probe::Fexit), Some(Errno::NOENT), "no");
        assert_eq!(fexit, "no");
        // No option explains the first error. Nothing is known about the second machine.
        assert_eq!(explained(&limits, Some(Probe::Kprobe), Some(Errno::NOMEM), "no"), "no");
        let unknown = MachineLimits { has_tracefs: true, ..MachineLimits::default() };
        assert_eq!(explained(&unknown, Some(Probe::Kprobe), Some(Errno::NOENT), "no"), "no");
        let direct = machine(&["CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS"]);
        let errno = Some(Errno::from_raw_os_error(NOT_SUPPORTED));
        assert!(
            explained(&direct, Some(Probe::Fexit), errno, "no").contains("CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS")
        );
        let tool =
            "ended with exit status 1 before it was ready; its last output: a\nlibbpf: No such file or directory";
        assert_eq!(
            explained(&limits, None, None, tool),
            format!("{tool}\nthis kernel was built without CONFIG_KPROBES (/proc/config.gz)")
        );
        assert_eq!(explained(&limits, None, None, "has not printed a line"), "has not printed a line");
    }

    #[test]
    fn lockdown_capabilities_and_tracefs_are_named_where_they_explain_the_error() {
        let locked =
            |kind: &str| MachineLimits { lockdown: Some((kind.to_owned(), LOCKDOWN.to_owned())), ..machine(&[]) };
        let eperm = |limits: &MachineLimits| explained(limits, Some(Probe::Kprobe), Some(Errno::PERM), "no");
        assert!(
            eperm(&locked("confidentiality"))
                .contains("locked down for confidentiality (/sys/kernel/security/lockdown)")
        );
        assert!(eperm(&locked("integrity")).contains("Linux itself allows tracing then"));
        let set = BTreeSet::from(["CONFIG_LOCK_DOWN_KERNEL_FORCE_INTEGRITY".to_owned()]);
        let built = forced(&set, "/proc/config.gz").unwrap();
        assert_eq!(built.1, "CONFIG_LOCK_DOWN_KERNEL_FORCE_INTEGRITY in /proc/config.gz");
        assert_eq!((built.0.as_str(), forced(&BTreeSet::new(), "x")), ("integrity", None));
        let write = explained(&locked("integrity"), None, None, "unknown func bpf_probe_write_user#36");
        assert!(write.contains("locked down for integrity"), "{write}");
        assert_eq!(explained(&locked("confidentiality"), Some(Probe::Kprobe), Some(Errno::NOENT), "no"), "no");
        let helper = explained(
            &locked("confidentiality"),
            Some(Probe::Fexit),
            Some(Errno::INVAL),
            "unknown func bpf_probe_read_kernel#113",
        );
        assert!(helper.contains("reading kernel memory"), "{helper}");
        let container = MachineLimits { incapable: vec!["CAP_SYS_ADMIN", "CAP_BPF"], ..machine(&[]) };
        assert!(eperm(&container).contains("has not CAP_SYS_ADMIN, CAP_BPF"));
        let bare = MachineLimits { has_tracefs: false, ..machine(&[]) };
        assert!(explained(&bare, Some(Probe::Tracepoint), Some(Errno::NOENT), "no").contains("tracefs is not mounted"));
        assert_eq!(explained(&bare, Some(Probe::Fexit), Some(Errno::NOENT), "no"), "no");
    }

    #[test]
    fn the_files_of_a_machine_are_read() {
        assert_eq!(lockdown("none [integrity] confidentiality\n").as_deref(), Some("integrity"));
        assert_eq!((lockdown("[none] integrity confidentiality\n"), lockdown("")), (None, None));
        assert_eq!(incapable("CapEff:\t000001ffffffffff\n"), [""; 0]);
        assert_eq!(incapable("CapEff:\t00000000a80425fb\n"), ["CAP_SYS_ADMIN", "CAP_PERFMON", "CAP_BPF"]);
        assert_eq!(incapable("CapEff:\t0000008000000000\n"), ["CAP_SYS_ADMIN", "CAP_PERFMON"]);
        let root = tempfile::tempdir().unwrap();
        let text = "# CONFIG_KPROBES is not set\nCONFIG_BPF=y\nCONFIG_XFS_FS=m\nCONFIG_HZ=250\n";
        assert_eq!(config(root.path(), "6.1"), None);
        fs::create_dir_all(root.path().join("boot")).unwrap();
        fs::write(root.path().join("boot/config-6.1"), text).unwrap();
        let expected: BTreeSet<String> = ["CONFIG_BPF", "CONFIG_XFS_FS"].map(str::to_owned).into();
        assert_eq!(config(root.path(), "6.1"), Some((expected.clone(), "/boot/config-6.1".to_owned())));
        fs::create_dir_all(root.path().join("proc")).unwrap();
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        fs::write(root.path().join("proc/config.gz"), gzip.finish().unwrap()).unwrap();
        assert_eq!(config(root.path(), "6.1"), Some((expected.clone(), "/proc/config.gz".to_owned())));
        fs::write(root.path().join("proc/config.gz"), "no gzip").unwrap();
        assert_eq!(config(root.path(), "6.1"), Some((expected, "/boot/config-6.1".to_owned())));
    }
}
