// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds incidents in console lines. Pure.
//!
//! A kernel message is matched only at its beginning, after the time stamp. The same text inside a
//! sentence (`RETBleed: WARNING: …`) is not an incident. A time stamp in the middle of a line also
//! begins a message, because it can follow an unfinished line of a program.

use super::{KernelIncident, KernelIncidentKind};

/// Number of incidents kept per guest.
const MAX_INCIDENTS: usize = 32;
/// Detail lines kept per incident.
const MAX_DETAILS: usize = 16;
/// Frames kept of an incident's back trace.
const MAX_FRAMES: u32 = 6;
/// Largest part of a line that is kept, in bytes.
const MAX_KEPT: usize = 512;
/// Lines after the headline in which details are searched for.
const REACH: u32 = 120;

/// Beginnings of messages, by kind. The first match in the list counts.
const HEADLINES: &[(KernelIncidentKind, &[&str])] = &[
    (
        KernelIncidentKind::Panic,
        &[
            "Kernel panic - not syncing",
            "traps: PANIC: double fault",
            "PANIC: double fault",
            "PANIC: early exception",
            "HYP panic:",
            // OpenSBI, the firmware of riscv64.
            "sbi_trap_error: ",
            "init_coldboot: ",
        ],
    ),
    (KernelIncidentKind::SoftLockup, &["watchdog: BUG: soft lockup - CPU", "BUG: soft lockup - CPU"]),
    (
        KernelIncidentKind::HardLockup,
        &[
            "NMI watchdog: Watchdog detected hard LOCKUP",
            "watchdog: Watchdog detected hard LOCKUP",
            "watchdog: CPU",
            "Watchdog detected hard LOCKUP",
        ],
    ),
    (KernelIncidentKind::SoftLockup, &["BUG: workqueue lockup - pool"]),
    (
        KernelIncidentKind::Oops,
        &[
            "BUG: kernel NULL pointer dereference",
            "BUG: unable to handle ",
            "BUG: TASK stack guard page was hit",
            "BUG: IRQ stack guard page was hit",
            "BUG: stack guard page was hit",
            "Unable to handle kernel ",
            "Unhandled fault",
            "Unhandled 64-bit el1",
            "Internal error: ",
            "Insufficient stack space to handle exception",
            "general protection fault",
            "Oops: ",
            "Oops [#",
            "Oops - ",
        ],
    ),
    (KernelIncidentKind::Bug, &["kernel BUG at ", "Kernel BUG [#", "BUG: "]),
    (KernelIncidentKind::HungTask, &["INFO: task "]),
    (
        KernelIncidentKind::OutOfMemory,
        &[
            "Out of memory: Killed process",
            "Out of memory: Kill process",
            "Memory cgroup out of memory: Killed process",
            "Out of memory and no killable processes",
        ],
    ),
    (KernelIncidentKind::Initramfs, &["Initramfs unpacking failed"]),
    (KernelIncidentKind::NfsStall, &["nfs: server "]),
    (
        KernelIncidentKind::Warning,
        &["WARNING: ", "UBSAN: ", "list_add corruption", "list_del corruption", "refcount_t: "],
    ),
];

/// Beginnings of lines with details about the preceding incident.
const DETAILS: &[&str] = &[
    "Oops",
    "Internal error: ",
    "CPU: ",
    "RIP: ",
    "pc : ",
    "lr : ",
    "epc : ",
    "status: ",
    "Mem abort info",
    "Modules linked in: ",
    "Hardware name: ",
    "Workqueue: ",
    "PANIC: ",
    "(detected by ",
    "task:",
    "Tasks state",
    "oom-kill:",
    "---[ end ",
    "Kernel BUG [#",
    "invalid opcode: ",
    "divide error: ",
];

/// Examines a console line by line.
#[derive(Debug, Default)]
pub struct Watch {
    incidents: Vec<KernelIncident>,
    /// Lines seen since the last incident, and frames of its back trace still to keep.
    since: u32,
    frames: u32,
}

impl Watch {
    /// Examines the next line. Returns the incident if the line reports a new one.
    pub fn line(&mut self, line: &str) -> Option<KernelIncident> {
        let (time_us, message) = message(line);
        self.since = self.since.saturating_add(1);
        let kind = classify(message);
        let open = if self.since <= REACH { self.incidents.last_mut() } else { None };
        match (kind, open) {
            // One fault prints several headlines (`BUG: kernel NULL pointer dereference`, then
            // `Oops: 0002 [#1]`). A subsequent panic is a new incident.
            (Some(kind), Some(open)) if belongs(open, kind) => {
                keep_detail(open, message);
                None
            }
            (Some(kind), _) => {
                if self.incidents.len() == MAX_INCIDENTS {
                    return None;
                }
                let incident = KernelIncident { kind, line: shortened(message), time_us, details: Vec::new() };
                self.incidents.push(incident.clone());
                (self.since, self.frames) = (0, MAX_FRAMES);
                Some(incident)
            }
            (None, Some(open)) => {
                if DETAILS.iter().any(|start| message.starts_with(start)) || is_rcu_time(message) {
                    keep_detail(open, message);
                } else if self.frames > 0 && line_is_frame(message) {
                    self.frames -= 1;
                    keep_detail(open, message);
                }
                None
            }
            (None, None) => None,
        }
    }

    /// Returns all incidents so far, in order, with their details.
    #[must_use]
    pub fn incidents(&self) -> &[KernelIncident] {
        &self.incidents
    }
}

/// Returns whether a headline of `kind` after `open` belongs to the same event.
fn belongs(open: &KernelIncident, kind: KernelIncidentKind) -> bool {
    use KernelIncidentKind::{Bug, HardLockup, HungTask, Oops, Panic, RcuStall, SoftLockup};
    // Fatal incidents and RCU stalls can have several headlines. A second oops after a panic is a
    // consequence of the first.
    match open.kind {
        Oops | Bug => matches!(kind, Oops | Bug) && !has_ended(open),
        Panic => matches!(kind, Oops | Bug | Panic | KernelIncidentKind::Warning),
        RcuStall | SoftLockup | HardLockup | HungTask => kind == open.kind && !has_ended(open) && kind == RcuStall,
        _ => false,
    }
}

/// Returns whether the report of `open` is complete.
fn has_ended(open: &KernelIncident) -> bool {
    open.details.iter().any(|detail| detail.starts_with("---[ end "))
}

/// Returns the kind of incident that a message reports.
fn classify(message: &str) -> Option<KernelIncidentKind> {
    if is_rcu_stall(message) {
        return Some(KernelIncidentKind::RcuStall);
    }
    for (kind, starts) in HEADLINES {
        if starts.iter().any(|start| message.starts_with(start)) {
            let holds = match kind {
                KernelIncidentKind::HungTask => message.contains(" blocked ") && message.contains(" for more than "),
                KernelIncidentKind::NfsStall => message.contains(" not responding"),
                KernelIncidentKind::HardLockup => message.contains("hard LOCKUP"),
                KernelIncidentKind::Panic if message.starts_with("init_coldboot") => message.contains("failed"),
                _ => true,
            };
            return holds.then_some(*kind);
        }
    }
    // x86 before 6.10 prints other exceptions without a common prefix: `invalid opcode: 0000 [#1]
    // PREEMPT SMP`.
    if message.contains(": 0000 [#") || message.contains(": 0002 [#") {
        return Some(KernelIncidentKind::Oops);
    }
    None
}

/// Matches `rcu: INFO: rcu_sched self-detected stall on CPU` and similar messages
/// (kernel/rcu/tree_stall.h, tree_exp.h, tasks.h).
fn is_rcu_stall(message: &str) -> bool {
    let message = message.strip_prefix("rcu: ").unwrap_or(message);
    message.strip_prefix("INFO: rcu").is_some_and(|rest| {
        rest.contains(" self-detected stall")
            || rest.contains(" detected stalls")
            || rest.contains(" detected expedited stalls")
    })
}

/// Returns whether a line has the duration of an RCU stall: `rcu: \t(t=5250 jiffies g=…` or `rcu:
/// \t(detected by 1, t=5252 jiffies, …`.
fn is_rcu_time(message: &str) -> bool {
    let message = message.strip_prefix("rcu: ").unwrap_or(message).trim_start();
    message.starts_with("(t=") || message.starts_with("(detected by ")
}

/// Returns whether a line is a frame that locates the fault: ` vfs_read+0x1a/0x90` or
/// `[<ffffffff8112>] vfs_read+0x1a/0x90`. Guesses of the unwinder (`? `) and functions that print
/// the trace do not count.
fn line_is_frame(message: &str) -> bool {
    const PRINTING: &[&str] = &["dump_backtrace+", "show_stack+", "dump_stack", "panic+", "vpanic+", "__warn+"];
    let frame = message.trim_start();
    let frame = frame.strip_prefix("[<").and_then(|rest| rest.split_once("] ")).map_or(frame, |(_, frame)| frame);
    frame.contains("+0x")
        && !frame.contains(": ")
        && !frame.starts_with("? ")
        && !PRINTING.iter().any(|start| frame.starts_with(start))
}

fn keep_detail(incident: &mut KernelIncident, message: &str) {
    if incident.details.len() < MAX_DETAILS {
        incident.details.push(shortened(message.trim()));
    }
}

fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_KEPT)].to_owned()
}

/// Splits a kernel message into time stamp, in microseconds, and text. A line without a time stamp
/// is all text.
fn message(line: &str) -> (Option<u64>, &str) {
    let mut rest = line;
    let mut found = None;
    while let Some(open) = rest.find('[') {
        rest = &rest[open + 1..];
        if let Some((time, text)) = time_stamp(rest) {
            found = Some((time, text));
            rest = text;
        }
    }
    match found {
        Some((time, text)) => (Some(time), caller_stripped(text)),
        None => (None, line.trim_start()),
    }
}

/// Parses `    1.234567] text`, which follows the bracket that opens a time stamp.
fn time_stamp(text: &str) -> Option<(u64, &str)> {
    let (stamp, text) = text.split_once(']')?;
    let (seconds, micros) = stamp.trim_start().split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(micros) || micros.len() != 6 {
        return None;
    }
    let time = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros.parse().ok()?)?;
    Some((time, text.strip_prefix(' ').unwrap_or(text)))
}

/// Removes the caller that CONFIG_PRINTK_CALLER adds after the time stamp: `[    T1] ` or `[    C0]
/// `.
fn caller_stripped(text: &str) -> &str {
    let stripped = || {
        let (caller, rest) = text.strip_prefix('[')?.split_once(']')?;
        let number = caller.trim_start().strip_prefix(['T', 'C'])?;
        (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(rest.trim_start())
    };
    stripped().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn time_stamps_are_read_anywhere_in_a_line() {
        assert_eq!(message("[    1.234567] text"), (Some(1_234_567), "text"));
        assert_eq!(message("[12345.000001][    T1] text"), (Some(12_345_000_001), "text"));
        assert_eq!(message("prompt [x] [    0.000000] text [1]"), (Some(0), "text [1]"));
        assert_eq!(message("[99999999999999999999.000000] text").0, None, "too large a number is no time");
        assert_eq!(message("[1.5] text"), (None, "[1.5] text"));
    }

    #[test]
    fn the_time_of_an_rcu_stall_is_kept_with_it() {
        for time in [
            "rcu: \t(t=21003 jiffies g=1 q=2 ncpus=2)",
            "rcu: \t(detected by 1, t=21003 jiffies, g=1, q=2)",
            "\t(t=21003 jiffies g=1 q=2)",
        ] {
            let mut watch = Watch::default();
            let _ = watch.line("[   40.000000] rcu: INFO: rcu_preempt self-detected stall on CPU");
            let _ = watch.line("[   40.000001] rcu: \t0-....: (20998 ticks this GP) idle=1/1/0x1 softirq=1/1 fqs=9");
            let _ = watch.line(&format!("[   40.000002] {time}"));
            assert_eq!(watch.incidents()[0].lasted().unwrap().as_secs(), 20, "{time}");
        }
    }

    #[test]
    fn reports_are_bounded() {
        let mut watch = Watch::default();
        for _ in 0..50 {
            let _ = watch.line("[    1.000000] INFO: task ior:77 blocked for more than 120 seconds.");
            for _ in 0..20 {
                let _ = watch.line(&format!("[    1.000000]  frame+0x1/0x2 {}", "x".repeat(5000)));
            }
        }
        assert_eq!(watch.incidents().len(), MAX_INCIDENTS);
        assert!(watch.incidents().iter().all(|incident| incident.details.len() == MAX_FRAMES as usize));
        assert!(watch.incidents()[0].details.iter().all(|line| line.len() <= MAX_KEPT));
    }

    #[test]
    fn a_warning_long_after_an_oops_is_an_incident_of_its_own() {
        let mut watch = Watch::default();
        assert!(watch.line("[    1.000000] Oops [#1]").is_some());
        assert!(watch.line("[    1.000000] Oops [#1]").is_none(), "the same report");
        assert!(watch.line("[    1.000000] ---[ end trace 0 ]---").is_none());
        assert!(watch.line("[    2.000000] Oops [#2]").is_some(), "the next one");
    }

    proptest! {
        #[test]
        fn any_lines_are_taken(lines: Vec<String>) {
            let mut watch = Watch::default();
            let reported = lines.iter().filter_map(|line| watch.line(line)).count();
            prop_assert_eq!(reported, watch.incidents().len());
        }

        #[test]
        fn a_panic_is_reported_whatever_precedes_it(before in "[^\\[\n]{0,40}", time in 0u64..1_000_000) {
            let line = format!("{before}[{time:5}.000001] Kernel panic - not syncing: x");
            let reported = Watch::default().line(&line).unwrap();
            prop_assert_eq!(reported.kind, KernelIncidentKind::Panic);
            prop_assert_eq!(reported.time_us, Some(time * 1_000_000 + 1));
        }
    }
}
