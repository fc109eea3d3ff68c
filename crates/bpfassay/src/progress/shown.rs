// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events for people: on a terminal a bar with the guests in flight, elsewhere a line per event.

use std::{
    collections::BTreeMap,
    io::Write as _,
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
    thread,
    time::{Duration, Instant},
};

use bpfassay_report::render;
use bpfassay_results::{
    BootVerdict, ByteFigure, Event, Results, RunFailure,
    event::{Ending, RunEnded},
    plain::{excerpt, line},
};
use bpfassay_testbed::stages::{Report, Watcher};
use bpfassay_vm::shell_command;
use indicatif::{ProgressBar, ProgressStyle, TermLike};

use super::{
    duration,
    underway::{Line, PATIENCE, Underway},
};
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
pub(crate) struct Shown {
    began: Instant,
    bar: ProgressBar,
    /// The bar is drawn from the first report on: questions are asked before.
    drawn: Once,
    /// What each guest in flight is doing, by block.
    in_flight: Mutex<BTreeMap<String, Guest>>,
    /// Stages of setting up.
    underway: Mutex<Underway>,
    /// When a line was last written to a log.
    written: Mutex<Instant>,
}

struct Guest {
    target: String,
    doing: String,
    /// Lines that it asked to be shown.
    logged: u32,
}

/// While guests are measured.
const TEMPLATE: &str = "{bar:24} {pos}/{len} runs{prefix}  {elapsed}  {wide_msg}";
/// Before.
const SET_UP: &str = "{elapsed}  {wide_msg}";

/// How often a log is looked at for stages that are silent.
const LOOK: Duration = Duration::from_secs(1);

impl Shown {
    /// Begins to write: a bar where standard error is a terminal, lines elsewhere.
    pub(super) fn begin() -> Arc<Self> {
        let shown = Arc::new(Self::with_bar(ProgressBar::with_draw_target(Some(0), Bar::target())));
        if shown.bar.is_hidden() {
            let watched = Arc::downgrade(&shown);
            thread::spawn(move || {
                while let Some(shown) = watched.upgrade() {
                    shown.write_of_what_is_silent();
                    drop(shown);
                    thread::sleep(LOOK);
                }
            });
        }
        shown
    }

    fn with_bar(bar: ProgressBar) -> Self {
        let began = Instant::now();
        let shown = Self {
            began,
            bar,
            drawn: Once::new(),
            in_flight: Mutex::default(),
            underway: Mutex::default(),
            written: Mutex::new(began),
        };
        shown.set_template(SET_UP);
        shown
    }

    fn set_template(&self, template: &str) {
        // A template of ours that does not parse is shown plainly; a test parses it.
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
    }

    /// One line, whatever is in `text`.
    fn line(&self, text: &str) {
        let text = excerpt(text, MOST);
        if self.bar.is_hidden() {
            *locked(&self.written) = Instant::now();
            // A reader that has gone away (`2>&1 | head`) must not end the measurement.
            let _ = writeln!(output::stderr(), "[{:>4} s] {text}", self.began.elapsed().as_secs());
        } else {
            self.bar.println(text);
        }
    }

    /// In a log, a line about the stages that were silent for too long, or about the guests where nothing else was written.
    fn write_of_what_is_silent(&self) {
        let overdue = locked(&self.underway).overdue(self.began.elapsed());
        if let Some(line) = overdue {
            self.line(&line);
        }
        if locked(&self.written).elapsed() >= PATIENCE {
            let guests = of_guests(&locked(&self.in_flight));
            if !guests.is_empty() {
                self.line(&guests);
            }
        }
    }

    /// Changes what is known of guests, and shows it.
    fn guests(&self, change: impl FnOnce(&mut BTreeMap<String, Guest>)) {
        change(&mut locked(&self.in_flight));
        self.show();
    }

    /// Shows on the bar what is under way.
    fn show(&self) {
        self.drawn.call_once(|| self.bar.enable_steady_tick(Duration::from_millis(500)));
        let (guests, stages) = (of_guests(&locked(&self.in_flight)), locked(&self.underway).message());
        let all: Vec<String> = [guests, stages].into_iter().filter(|text| !text.is_empty()).collect();
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
                self.set_template(TEMPLATE);
                self.bar.set_position(0);
                self.bar.set_length(started.runs);
            }
            // Stages come as reports, rows as results; the end is printed on standard output.
            Event::Stage(_) | Event::Rows(_) | Event::Timings { .. } | Event::Concluded(_) => {}
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

    /// Shows the rows of `results`, from the first round of `of`.
    pub(super) fn rows(&self, results: &Results, of: u32) {
        let width = if self.bar.is_hidden() { None } else { Some(TermLike::width(&Bar::default())) };
        let rows = render::provisional(results, render::Style { width });
        if rows.is_empty() {
            return;
        }
        let text = format!("provisional, from round 1 of {of}:\n{rows}");
        for line in text.lines() {
            self.line(line);
        }
    }

    /// Takes away the bar.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Watcher for Shown {
    fn report(&self, report: &Report) {
        let line = locked(&self.underway).take(report, self.began.elapsed());
        self.show();
        match line {
            Some(Line::Log(line)) if self.bar.is_hidden() => self.line(&line),
            Some(Line::Both(line)) => self.line(&line),
            _ => {}
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.finish();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What guests are doing, on one line.
fn of_guests(guests: &BTreeMap<String, Guest>) -> String {
    let all: Vec<String> = guests.values().map(|guest| format!("{}: {}", guest.target, guest.doing)).collect();
    all.join(" · ")
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

#[cfg(test)]
mod tests {
    use std::io;

    use bpfassay_protocol::Arch;
    use bpfassay_results::plain;
    use bpfassay_study::Target;
    use bpfassay_testbed::stages::{Kind, State};
    use indicatif::ProgressDrawTarget;

    use super::*;

    #[test]
    fn the_templates_are_templates() {
        assert!([TEMPLATE, SET_UP].iter().all(|template| ProgressStyle::with_template(template).is_ok()));
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
        let shown = Shown::with_bar(ProgressBar::with_draw_target(Some(1), target));
        shown.set_template(TEMPLATE);
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
    fn stages_and_guests_are_on_one_bar() {
        let written = on_a_terminal(|shown| {
            let target = Target { arch: Arch::X86_64, kernel: "7.2".to_owned() };
            shown.take(&Event::Booting { block: "b".to_owned(), target, boot: 1, confirming: None });
            let (kind, elapsed) = (Kind::Programs, Duration::ZERO);
            shown.report(&Report { id: 1, kind, subject: "riscv64".to_owned(), state: State::Begun, elapsed });
        });
        assert!(written.contains("x86_64 7.2: booting · guest programs riscv64"), "{written}");
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
