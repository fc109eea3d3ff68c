//! Events for people: on a terminal a bar with the guests in flight, elsewhere a line per event.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use bpfassay_report::{
    BootVerdict, Event, RunFailure,
    event::{Ending, RunEnded},
    results::ByteFigure,
};
use bpfassay_vm::shell_words;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Sink;

/// Writes to standard error.
pub(super) struct Shown {
    began: Instant,
    bar: ProgressBar,
    /// What each guest in flight is doing, by block.
    in_flight: Mutex<BTreeMap<String, Guest>>,
}

struct Guest {
    target: String,
    doing: String,
}

const TEMPLATE: &str = "{bar:24} {pos}/{len} runs{prefix}  {elapsed}  {wide_msg}";

impl Shown {
    /// For `runs` runs.
    pub(super) fn new(runs: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::stderr());
        // A template of ours that does not parse is shown plainly; a test parses it.
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { began: Instant::now(), bar, in_flight: Mutex::default() }
    }

    fn line(&self, text: &str) {
        if self.bar.is_hidden() {
            // A reader that has gone away (`2>&1 | head`) must not end the measurement.
            let _ = writeln!(io::stderr(), "[{:>4} s] {text}", self.began.elapsed().as_secs());
        } else {
            self.bar.println(text);
        }
    }

    /// Changes what is known of guests, and shows it.
    fn guests(&self, change: impl FnOnce(&mut BTreeMap<String, Guest>)) {
        let mut in_flight = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut in_flight);
        let all: Vec<String> = in_flight.values().map(|guest| format!("{}: {}", guest.target, guest.doing)).collect();
        self.bar.set_message(all.join(" · "));
    }

    fn doing(&self, block: &str, doing: String) {
        self.guests(|guests| {
            if let Some(guest) = guests.get_mut(block) {
                guest.doing = doing;
            }
        });
    }

    fn run_ended(&self, ended: &RunEnded) {
        self.bar.set_position(ended.done);
        let left = ended.seconds_left.map(|left| format!(" (about {} left)", duration(left))).unwrap_or_default();
        self.bar.set_prefix(format!(", {}/{} cells{left}", ended.cells_done, ended.cells_of));
        for line in told(ended) {
            self.line(&line);
        }
    }
}

impl Sink for Shown {
    fn take(&self, event: &Event) {
        match event {
            Event::Started(_) | Event::Concluded(_) => {}
            Event::Booting { block, target, boot, confirming } => {
                let guest = Guest { target: target.to_string(), doing: "booting".to_owned() };
                self.guests(|guests| drop(guests.insert(block.clone(), guest)));
                if *boot > 1 {
                    self.line(&booted_again(block, *boot, confirming.as_deref()));
                }
            }
            Event::Ready { block, seconds, kernel_release } => {
                self.doing(block, "ready".to_owned());
                self.line(&format!("{block}: ready after {seconds:.1} s (Linux {kernel_release})"));
            }
            Event::Phase { block, run, phase } => {
                let what = run.strip_prefix(block.as_str()).unwrap_or(run).trim_start_matches('_');
                self.doing(block, format!("{what}, {phase}"));
            }
            Event::RunEnded(ended) => self.run_ended(ended),
            Event::GuestEnded { block, trouble, verdict } => {
                self.guests(|guests| drop(guests.remove(block)));
                if let Some(line) = ended_badly(block, trouble.as_ref(), verdict.as_ref()) {
                    self.line(&line);
                }
            }
            Event::Waiting { block, seconds } => {
                self.line(&format!("{block}: host trouble: booted again after {seconds} s"));
            }
            Event::Paused { message } => self.line(message),
            Event::Log { block, text } => self.line(&format!("{block}: {text}")),
        }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Why a block is booted once more.
fn booted_again(block: &str, boot: u32, confirming: Option<&str>) -> String {
    match confirming {
        Some(run) => format!("{block}: boot {boot}: the warm-up and {run} alone, to find out whether it is to blame"),
        None => format!("{block}: boot {boot}: all that is left of the block, again from its warm-up"),
    }
}

/// What went wrong with a guest, and whose fault it was.
fn ended_badly(block: &str, trouble: Option<&RunFailure>, verdict: Option<&BootVerdict>) -> Option<String> {
    let verdict = verdict.filter(|verdict| !matches!(verdict, BootVerdict::Complete | BootVerdict::Interrupted))?;
    let trouble = trouble.map(|trouble| RunFailure { log: None, ..trouble.clone() }.to_string()).unwrap_or_default();
    Some(format!("{block}: {trouble}: {verdict}"))
}

/// The lines that tell of a run.
fn told(ended: &RunEnded) -> Vec<String> {
    let RunEnded { run, seconds, .. } = ended;
    let message = ended.message.as_deref().unwrap_or_default();
    let mut lines = vec![match ended.outcome {
        Ending::Measured => {
            let against = if ended.is_expected { "" } else { " AGAINST EXPECTATION" };
            format!("{run}: measured{against} in {seconds:.1} s{}", counted(&ended.bytes))
        }
        Ending::Refused => {
            let expected = if ended.is_expected { ", as expected" } else { "" };
            format!("{run}: refused{expected}: {message}")
        }
        Ending::Failed => format!("{run}: FAILED: {message}"),
    }];
    let word = |words: &Option<Vec<String>>| words.as_ref().map(shell_words);
    let path = |path: &Path| path.display().to_string();
    for (name, what) in [
        ("log", ended.log.as_deref().map(path)),
        ("this cell again", word(&ended.repeat)),
        ("a shell in its guest", word(&ended.shell)),
    ] {
        if let Some(what) = what {
            lines.push(format!("  {name}: {what}"));
        }
    }
    lines
}

/// What a tracer counted of the workload; nothing where nobody counted.
fn counted(figures: &[ByteFigure]) -> String {
    let errors: Vec<_> = figures
        .iter()
        .filter_map(|figure| Some((figure.operation, *figure.error.value()?, figure.call_error.value().copied())))
        .collect();
    if errors.is_empty() {
        return String::new();
    }
    let mut sums = BTreeMap::<_, (i64, i64)>::new();
    for (operation, bytes, calls) in errors {
        let sum = sums.entry(operation.name()).or_default();
        sum.0 = sum.0.saturating_add(bytes);
        sum.1 = sum.1.saturating_add(calls.unwrap_or(0));
    }
    let wrong: Vec<String> = sums
        .iter()
        .filter(|(_, sums)| **sums != (0, 0))
        .map(|(operation, (bytes, calls))| format!("{operation} {bytes:+} bytes, {calls:+} calls"))
        .collect();
    if wrong.is_empty() {
        "; every byte counted".to_owned()
    } else {
        format!("; differs from the workload: {}", wrong.join("; "))
    }
}

/// `40 s`, `12 min`, `3 h 5 min`.
fn duration(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{} min", minutes + u64::from(seconds % 60 >= 30)),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_one() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }

    #[test]
    fn times_are_told_as_precisely_as_they_are_known() {
        let told = [0.4, 59.0, 89.0, 91.0, 3600.0 * 3.0 + 320.0].map(duration);
        assert_eq!(told, ["0 s", "59 s", "1 min", "2 min", "3 h 5 min"]);
    }

    #[test]
    fn what_is_repeated_is_shown_with_the_reason() {
        let failure = RunFailure {
            kind: bpfassay_report::FailureKind::Host,
            phase: None,
            telling: vec!["no QEMU".to_owned()],
            log: Some("l".to_owned()),
            after: None,
        };
        let ended = |verdict: &BootVerdict| ended_badly("b", Some(&failure), Some(verdict));
        let expected = "b: host trouble: no QEMU: host trouble, no run is to blame";
        assert_eq!(ended(&BootVerdict::Host).as_deref(), Some(expected));
        let blamed = BootVerdict::Blamed { run: "r".to_owned() };
        assert_eq!(ended(&blamed).as_deref(), Some("b: host trouble: no QEMU: r is to blame"));
        assert_eq!(ended(&BootVerdict::Complete), None);
        let confirming = "b: boot 2: the warm-up and r alone, to find out whether it is to blame";
        assert_eq!(booted_again("b", 2, Some("r")), confirming);
    }

    #[test]
    fn a_run_that_failed_is_told_with_what_to_do_next() {
        let words = |text: &str| Some(text.split(' ').map(str::to_owned).collect());
        let ended = RunEnded {
            run: "x86_64_7.2_w_nfs4.2_1_r1_fexit".to_owned(),
            cell: "x86_64_7.2_w_nfs4.2_fexit".to_owned(),
            outcome: Ending::Failed,
            is_expected: false,
            seconds: 2.0,
            message: Some("kernel panic during workload: Kernel panic".to_owned()),
            bytes: Vec::new(),
            log: Some("out/logs/x86_64_7.2_w_nfs4.2_1_boot1.log".into()),
            repeat: words("bpfassay run quick --cell x86_64_7.2_w_nfs4.2_fexit"),
            shell: words("bpfassay shell --study quick --cell x86_64_7.2_w_nfs4.2_fexit"),
            done: 1,
            of: 2,
            cells_done: 0,
            cells_of: 1,
            seconds_left: None,
        };
        let expected = [
            "x86_64_7.2_w_nfs4.2_1_r1_fexit: FAILED: kernel panic during workload: Kernel panic",
            "  log: out/logs/x86_64_7.2_w_nfs4.2_1_boot1.log",
            "  this cell again: bpfassay run quick --cell x86_64_7.2_w_nfs4.2_fexit",
            "  a shell in its guest: bpfassay shell --study quick --cell x86_64_7.2_w_nfs4.2_fexit",
        ];
        assert_eq!(told(&ended), expected);
    }
}
