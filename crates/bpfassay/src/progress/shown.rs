// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events for people: on a terminal a bar with the guests in flight, elsewhere a line per event.

use std::{
    collections::BTreeMap,
    io::Write as _,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use bpfassay_results::{
    BootVerdict, ByteFigure, Event, RunFailure,
    event::{Ending, RunEnded},
    plain::{excerpt, line},
};
use bpfassay_vm::shell_command;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::{self, Bar};

/// Most lines of one boot that its guest asks to be shown.
const MOST_LOGGED: u32 = 20;
/// Most characters of one of them.
const MOST_OF_LINE: usize = 200;
/// Most characters of why a run has no figures: the log has the rest.
const MOST_OF_REASON: usize = 400;
/// Most characters of what is ours but for names, such as commands.
const MOST: usize = 4000;

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
    /// Lines that it asked to be shown.
    logged: u32,
}

const TEMPLATE: &str = "{bar:24} {pos}/{len} runs{prefix}  {elapsed}  {wide_msg}";

impl Shown {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), Bar::target());
        // A template of ours that does not parse is shown plainly; a test parses it.
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Self { began: Instant::now(), bar, in_flight: Mutex::default() }
    }

    /// One line, whatever is in `text`.
    fn line(&self, text: &str) {
        let text = excerpt(text, MOST);
        if self.bar.is_hidden() {
            // A reader that has gone away (`2>&1 | head`) must not end the measurement.
            let _ = writeln!(output::stderr(), "[{:>4} s] {text}", self.began.elapsed().as_secs());
        } else {
            self.bar.println(text);
        }
    }

    /// Changes what is known of guests, and shows it.
    fn guests(&self, change: impl FnOnce(&mut BTreeMap<String, Guest>)) {
        let mut in_flight = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut in_flight);
        let all: Vec<String> = in_flight.values().map(|guest| format!("{}: {}", guest.target, guest.doing)).collect();
        self.bar.set_message(excerpt(&all.join(" · "), MOST));
    }

    fn doing(&self, block: &str, doing: String) {
        self.guests(|guests| {
            if let Some(guest) = guests.get_mut(block) {
                guest.doing = doing;
            }
        });
    }

    /// A line that the guest of `block` asked to be shown: it may ask for any number of them.
    fn logged(&self, block: &str, text: &str) {
        let mut count = 1;
        self.guests(|guests| {
            if let Some(guest) = guests.get_mut(block) {
                guest.logged = guest.logged.saturating_add(1);
                count = guest.logged;
            }
        });
        if count <= MOST_LOGGED {
            self.line(&format!("{block}: {}", excerpt(text, MOST_OF_LINE)));
        }
    }

    fn guest_ended(&self, block: &str) {
        let mut guest = None;
        self.guests(|guests| guest = guests.remove(block));
        let more = guest.map_or(0, |guest| guest.logged.saturating_sub(MOST_LOGGED));
        if more > 0 {
            self.line(&format!("{block}: … {more} more lines of this guest (--message-format json has them all)"));
        }
    }

    fn run_ended(&self, ended: &RunEnded) {
        self.bar.set_position(ended.done);
        let left = ended.seconds_left.map(|left| format!(" (about {} left)", duration(left))).unwrap_or_default();
        self.bar.set_prefix(format!(", {}/{} cells{left}", ended.cells_done, ended.cells_of));
        for line in lines_of(ended) {
            self.line(&line);
        }
    }

    /// Shows `event`.
    pub(super) fn take(&self, event: &Event) {
        match event {
            Event::Started(started) => {
                self.bar.set_position(0);
                self.bar.set_length(started.runs);
            }
            Event::Concluded(_) => {}
            Event::Booting { block, target, boot, confirming } => {
                let guest = Guest { target: target.to_string(), doing: "booting".to_owned(), logged: 0 };
                self.guests(|guests| drop(guests.insert(block.clone(), guest)));
                if *boot > 1 {
                    self.line(&booted_again(block, *boot, confirming.as_deref()));
                }
            }
            Event::Ready { block, seconds, kernel_release } => {
                self.doing(block, "ready".to_owned());
                let release = excerpt(kernel_release, MOST_OF_LINE);
                self.line(&format!("{block}: ready after {seconds:.1} s (Linux {release})"));
            }
            Event::Phase { block, run, phase } => {
                let what = run.strip_prefix(block.as_str()).unwrap_or(run).trim_start_matches('_');
                self.doing(block, format!("{what}, {phase}"));
            }
            Event::RunEnded(ended) => self.run_ended(ended),
            Event::GuestEnded { block, failure, verdict } => {
                self.guest_ended(block);
                if let Some(line) = ended_badly(block, failure.as_ref(), verdict.as_ref()) {
                    self.line(&line);
                }
            }
            Event::Waiting { block, seconds } => {
                self.line(&format!("{block}: host failure: booted again after {seconds} s"));
            }
            Event::Paused { message } => self.line(message),
            Event::Log { block, text } => self.logged(block, text),
        }
    }

    /// Takes away the bar.
    pub(super) fn finish(&self) {
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
fn ended_badly(block: &str, failure: Option<&RunFailure>, verdict: Option<&BootVerdict>) -> Option<String> {
    let verdict = verdict.filter(|verdict| !matches!(verdict, BootVerdict::Complete | BootVerdict::Interrupted))?;
    let failure = failure.map(|failure| RunFailure { log: None, ..failure.clone() }.to_string()).unwrap_or_default();
    Some(format!("{block}: {failure}: {verdict}"))
}

/// The lines that report a run.
fn lines_of(ended: &RunEnded) -> Vec<String> {
    let RunEnded { run, seconds, .. } = ended;
    let run = line(run);
    let message = excerpt(ended.message.as_deref().unwrap_or_default(), MOST_OF_REASON);
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
    let line = |args: &Option<Vec<String>>| args.as_ref().map(shell_command);
    for (name, what) in [
        ("log", ended.log.as_deref().map(output::path)),
        ("this cell again", line(&ended.repeat)),
        ("a shell in its guest", line(&ended.shell)),
    ] {
        if let Some(what) = what {
            lines.push(format!("  {name}: {what}"));
        }
    }
    lines
}

/// What a tracer counted of the workload; empty where none counted.
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
    use std::{io, sync::Arc};

    use bpfassay_protocol::Arch;
    use bpfassay_results::plain;
    use bpfassay_study::Target;
    use indicatif::{ProgressDrawTarget, TermLike};

    use super::*;

    #[test]
    fn the_template_is_one() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }

    #[test]
    fn times_are_shown_as_precisely_as_they_are_known() {
        let texts = [0.4, 59.0, 89.0, 91.0, 3600.0 * 3.0 + 320.0].map(duration);
        assert_eq!(texts, ["0 s", "59 s", "1 min", "2 min", "3 h 5 min"]);
    }

    fn hostile() -> RunEnded {
        let text = || "a\u{1b}[2J\n[   1 s] forged: measured\u{202e}".to_owned();
        RunEnded {
            run: text(),
            cell: text(),
            outcome: Ending::Failed,
            is_expected: false,
            seconds: 1.0,
            message: Some(text().repeat(1000)),
            bytes: Vec::new(),
            log: Some(text().into()),
            repeat: Some(vec!["bpfassay".to_owned(), text()]),
            shell: None,
            done: 1,
            of: 1,
            cells_done: 1,
            cells_of: 1,
            seconds_left: None,
        }
    }

    #[test]
    fn output_of_guests_is_shown_with_its_control_characters_escaped() {
        for ended in [hostile(), RunEnded { outcome: Ending::Refused, ..hostile() }] {
            let lines = lines_of(&ended);
            assert_eq!(lines.len(), 3);
            for text in lines.iter().map(|text| excerpt(text, MOST)) {
                assert!(!text.contains(plain::is_hazard), "{text:?}");
                assert!(text.contains(r"\x1b[2J") && text.contains(r"\u{202e}"), "{text:?}");
                // Escapes are longer than what they stand for.
                assert!(text.len() < 3000, "{} bytes", text.len());
            }
        }
    }

    /// What is written on a terminal of 100 columns while `work` is done.
    fn on_a_terminal(work: impl FnOnce(&Shown)) -> String {
        let terminal = InMemory::default();
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let shown = Shown {
            began: Instant::now(),
            bar: ProgressBar::with_draw_target(Some(1), target),
            in_flight: Mutex::default(),
        };
        shown.bar.set_style(ProgressStyle::with_template(TEMPLATE).unwrap());
        work(&shown);
        shown.bar.tick();
        terminal.0.lock().unwrap().clone()
    }

    /// A terminal that keeps what is written and filters nothing.
    #[derive(Debug, Clone, Default)]
    struct InMemory(Arc<Mutex<String>>);

    impl TermLike for InMemory {
        fn width(&self) -> u16 {
            100
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(&format!("{text}\n"))
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_bar_takes_no_sequences_and_a_guest_so_many_lines() {
        let block = "x86_64_7.2_w_nfs4.2_1".to_owned();
        let theirs = "\u{1b}]52;c;ZXZpbA==\u{7}\u{9b}2J\nforged".to_owned();
        let written = on_a_terminal(|shown| {
            let target = Target { arch: Arch::X86_64, kernel: theirs.clone() };
            shown.take(&Event::Booting { block: block.clone(), target, boot: 2, confirming: None });
            shown.take(&Event::Ready { block: block.clone(), seconds: 1.0, kernel_release: theirs.clone() });
            for _ in 0..1000 {
                shown.take(&Event::Log { block: block.clone(), text: theirs.clone() });
            }
            shown.take(&Event::RunEnded(Box::new(hostile())));
            shown.take(&Event::GuestEnded { block: block.clone(), failure: None, verdict: None });
        });
        assert!(!written.contains(|c| plain::is_hazard(c) && c != '\n'), "{written:?}");
        assert!(written.contains(r"\x1b]52;c;ZXZpbA==\x07\u{9b}2J forged"), "{written}");
        assert!(written.contains("… 980 more lines of this guest"), "{written}");
        assert!(!written.contains("\n[   1 s] forged"), "{written}");
    }

    #[test]
    fn what_is_repeated_is_shown_with_the_reason() {
        let failure = RunFailure {
            kind: bpfassay_results::FailureKind::Host,
            phase: None,
            excerpt: vec!["no QEMU".to_owned()],
            log: Some("l".to_owned()),
            after: None,
        };
        let ended = |verdict: &BootVerdict| ended_badly("b", Some(&failure), Some(verdict));
        let expected = "b: host failure: no QEMU: no run is to blame";
        assert_eq!(ended(&BootVerdict::Host).as_deref(), Some(expected));
        let blamed = BootVerdict::Blamed { run: "r".to_owned() };
        assert_eq!(ended(&blamed).as_deref(), Some("b: host failure: no QEMU: r is to blame"));
        assert_eq!(ended(&BootVerdict::Complete), None);
        let confirming = "b: boot 2: the warm-up and r alone, to find out whether it is to blame";
        assert_eq!(booted_again("b", 2, Some("r")), confirming);
    }

    #[test]
    fn a_run_that_failed_is_reported_with_what_to_do_next() {
        let args = |text: &str| Some(text.split(' ').map(str::to_owned).collect());
        let ended = RunEnded {
            run: "x86_64_7.2_w_nfs4.2_1_r1_fexit".to_owned(),
            cell: "x86_64_7.2_w_nfs4.2_fexit".to_owned(),
            outcome: Ending::Failed,
            is_expected: false,
            seconds: 2.0,
            message: Some("kernel panic during workload: Kernel panic".to_owned()),
            bytes: Vec::new(),
            log: Some("out/logs/x86_64_7.2_w_nfs4.2_1_boot1.log".into()),
            repeat: args("bpfassay run quick --cell x86_64_7.2_w_nfs4.2_fexit"),
            shell: args("bpfassay shell --study quick --cell x86_64_7.2_w_nfs4.2_fexit"),
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
        assert_eq!(lines_of(&ended), expected);
    }
}
