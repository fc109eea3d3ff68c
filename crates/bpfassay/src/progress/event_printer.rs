// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events for people: a bar with the guests in flight on a terminal, a line per event elsewhere.

use std::{
    collections::BTreeMap,
    fmt,
    io::Write as _,
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
    thread,
    time::{Duration, Instant},
};

use bpfassay_packages::stages::{ProgressReport, Watcher};
use bpfassay_results::{Event, event::RunEnded, plain::excerpt};
use bpfassay_study::Plan;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use super::{
    duration,
    lines::{Repeated, booted_again, ended_badly, lines_of},
    matrix::RunMatrix,
    stage_lines::{PATIENCE, StageLine, Underway},
};
use crate::output::{self, Bar};

/// The largest number of lines that are shown for a guest in one boot.
const MOST_LOGGED: u32 = 20;
/// The largest number of characters of such a line.
const MOST_OF_LINE: usize = 200;
/// The largest number of characters of our own text, such as a command with names in it.
pub(super) const MOST: usize = 4000;

/// Writes events to standard error.
pub(crate) struct EventPrinter {
    began: Instant,
    bar: ProgressBar,
    /// The bar is first drawn at the first report, because the command asks its questions before.
    drawn: Once,
    /// The activity of each guest in flight, by block.
    in_flight: Mutex<BTreeMap<String, ShownGuest>>,
    /// Runs with a failure that was reported already.
    repeated: Mutex<Repeated>,
    /// The stages of the set-up.
    underway: Mutex<Underway>,
    /// The matrix of the runs; `None` in logs, and before the plan is known.
    matrix: Mutex<Option<RunMatrix>>,
    /// The text of the matrix, for the bar.
    below: Arc<Mutex<String>>,
    /// When a line was last written to a log.
    written: Mutex<Instant>,
}

struct ShownGuest {
    target: String,
    doing: String,
    /// Number of lines that the guest requested to show.
    logged: u32,
}

/// The bar while guests are measured.
const TEMPLATE: &str = "{bar:24} {pos}/{len} runs{prefix}  {elapsed}  {wide_msg}\n{matrix}";
/// The bar before guests are measured.
const SET_UP: &str = "{elapsed}  {wide_msg}";

/// How often a log is checked for silent stages.
const LOOK: Duration = Duration::from_secs(1);

impl EventPrinter {
    /// Begins to write: a bar if standard error is a terminal, and lines otherwise.
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
            repeated: Mutex::default(),
            underway: Mutex::default(),
            matrix: Mutex::default(),
            below: Arc::default(),
            written: Mutex::new(began),
        };
        shown.set_template(SET_UP);
        shown
    }

    fn set_template(&self, template: &str) {
        // If a template of ours does not parse, the bar keeps its style; a test parses them.
        if let Ok(style) = ProgressStyle::with_template(template) {
            let below = Arc::clone(&self.below);
            self.bar.set_style(style.with_key("matrix", move |_: &ProgressState, text: &mut dyn fmt::Write| {
                // A text that cannot be formatted is not shown.
                let _ = text.write_str(&locked(&below));
            }));
        }
    }

    /// Shows a matrix of the runs of `plan` below the bar.
    pub(super) fn show_matrix(&self, plan: &Plan) {
        if !self.bar.is_hidden() {
            *locked(&self.matrix) = Some(RunMatrix::of(plan));
        }
    }

    /// Adds the end of a run to the matrix. Returns whether there is a matrix that fits the
    /// terminal.
    fn add_to_matrix(&self, ended: &RunEnded) -> bool {
        if let Some(matrix) = locked(&self.matrix).as_mut() {
            matrix.take(ended);
        }
        self.draw_matrix()
    }

    /// Formats the matrix for the bar. Returns whether there is one that fits the terminal.
    fn draw_matrix(&self) -> bool {
        let text = locked(&self.matrix).as_ref().map(|matrix| matrix.text(Bar::columns())).unwrap_or_default();
        let is_shown = !text.is_empty();
        *locked(&self.below) = text;
        is_shown
    }

    /// Writes one line, whatever `text` contains.
    pub(super) fn line(&self, text: &str) {
        let text = excerpt(text, MOST);
        if self.bar.is_hidden() {
            *locked(&self.written) = Instant::now();
            // A reader that has gone away (`2>&1 | head`) must not end the measurement.
            let _ = writeln!(output::stderr(), "[{:>4} s] {text}", self.began.elapsed().as_secs());
        } else {
            self.bar.println(text);
        }
    }

    /// Writes a line to a log about the stages that were silent for too long, or about the guests
    /// if nothing else was written.
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

    /// Changes the state of guests, and shows it.
    fn guests(&self, change: impl FnOnce(&mut BTreeMap<String, ShownGuest>)) {
        change(&mut locked(&self.in_flight));
        self.show();
    }

    /// Shows the current activities on the bar.
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

    /// Shows a line that the guest of `block` requested; a guest can request any number of them.
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
        if locked(&self.repeated).take(ended) {
            return;
        }
        self.line_of_repeated();
        locked(&self.repeated).reported(ended);
        // The bar counts baselines and warm-ups.
        if self.add_to_matrix(ended) && ended.is_expected {
            return;
        }
        for line in lines_of(ended) {
            self.line(&line);
        }
    }

    /// Writes the line about runs with a failure that was reported already, before any other
    /// report.
    fn line_of_repeated(&self) {
        let line = locked(&self.repeated).line();
        if let Some(line) = line {
            self.line(&line);
        }
    }

    /// Shows `event`.
    pub(super) fn take(&self, event: &Event) {
        if !matches!(event, Event::RunEnded(_)) {
            self.line_of_repeated();
        }
        match event {
            Event::Started(started) => {
                self.draw_matrix();
                self.set_template(TEMPLATE);
                self.bar.set_position(0);
                self.bar.set_length(started.runs);
            }
            // Stages are reported separately, rows are for programs, and the end is printed on
            // standard output.
            Event::Stage(_) | Event::Rows(_) | Event::Timings { .. } | Event::Concluded(_) => {}
            Event::Booting { block, target, boot, confirming } => {
                let guest = ShownGuest { target: target.to_string(), doing: "booting".to_owned(), logged: 0 };
                self.guests(|guests| drop(guests.insert(block.clone(), guest)));
                if *boot > 1 {
                    self.line(&booted_again(block, *boot, confirming.as_deref()));
                }
            }
            Event::Reused { block, key, store, .. } => {
                let key: String = key.chars().take(12).collect();
                let store = excerpt(store, MOST_OF_LINE);
                self.line(&format!("{block}: reused from {store} ({key}…): no guest is booted"));
            }
            Event::Ready { block, seconds, kernel_release } => {
                self.doing(block, "ready".to_owned());
                let release = excerpt(kernel_release, MOST_OF_LINE);
                if locked(&self.below).is_empty() {
                    self.line(&format!("{block}: ready after {seconds:.1} s (Linux {release})"));
                }
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

    /// Removes the bar.
    pub(super) fn finish(&self) {
        self.line_of_repeated();
        self.bar.finish_and_clear();
    }
}

impl Watcher for EventPrinter {
    fn report(&self, report: &ProgressReport) {
        let line = locked(&self.underway).take(report, self.began.elapsed());
        self.show();
        match line {
            Some(StageLine::Log(line)) if self.bar.is_hidden() => self.line(&line),
            Some(StageLine::Both(line)) => self.line(&line),
            _ => {}
        }
    }
}

impl Drop for EventPrinter {
    fn drop(&mut self) {
        self.finish();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Describes what guests are doing, on one line.
fn of_guests(guests: &BTreeMap<String, ShownGuest>) -> String {
    let all: Vec<String> = guests.values().map(|guest| format!("{}: {}", guest.target, guest.doing)).collect();
    all.join(" · ")
}

#[cfg(test)]
mod tests {
    use std::io;

    use bpfassay_packages::stages::{ProgressState, StageKind};
    use bpfassay_protocol::Arch;
    use bpfassay_results::event::Ending;
    use bpfassay_results::plain;
    use bpfassay_study::{Available, Narrowing, Target};
    use indicatif::{ProgressDrawTarget, TermLike};

    use super::*;
    use crate::progress::lines::tests::hostile;

    #[test]
    fn the_templates_are_templates() {
        assert!([TEMPLATE, SET_UP].iter().all(|template| ProgressStyle::with_template(template).is_ok()));
    }

    /// Returns what is written on a terminal of 100 columns during `work`.
    fn on_a_terminal(work: impl FnOnce(&EventPrinter)) -> String {
        let terminal = InMemory::default();
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let shown = EventPrinter::with_bar(ProgressBar::with_draw_target(Some(1), target));
        shown.set_template(TEMPLATE);
        work(&shown);
        shown.bar.tick();
        terminal.0.lock().unwrap().clone()
    }

    /// A terminal that stores what is written, without a filter.
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
            let (kind, elapsed) = (StageKind::Programs, Duration::ZERO);
            shown.report(&ProgressReport {
                id: 1,
                kind,
                subject: "riscv64".to_owned(),
                state: ProgressState::Begun,
                elapsed,
            });
        });
        assert!(written.contains("x86_64 7.2: booting · guest programs riscv64"), "{written}");
    }

    #[test]
    fn a_terminal_has_a_matrix_in_place_of_lines_about_runs_as_expected() {
        let study = bpfassay_study::load("quick").unwrap();
        let plan = bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        let of_fexit = plan.runs().find(|(_, run)| run.cell.ends_with("x86_64_6.12_quick_nfs4.2_fexit")).unwrap();
        let run = of_fexit.1.spec.id.clone();
        let ended = |outcome, is_expected| {
            Event::RunEnded(Box::new(RunEnded { run: run.clone(), outcome, is_expected, ..hostile() }))
        };
        let written = on_a_terminal(|shown| {
            shown.show_matrix(&plan);
            shown.take(&ended(Ending::Measured, true));
            let baseline = format!("{}-control", run.replace("fexit", "none"));
            shown.take(&Event::RunEnded(Box::new(RunEnded {
                run: baseline,
                outcome: Ending::Measured,
                is_expected: true,
                ..hostile()
            })));
        });
        assert!(written.contains("1/2 measured") && !written.contains("measured in"), "{written}");
        let written = on_a_terminal(|shown| {
            shown.show_matrix(&plan);
            shown.take(&ended(Ending::Failed, false));
        });
        assert!(written.contains("1/2 FAILED") && written.contains(": FAILED: "), "{written}");
        // A log has lines.
        let written = on_a_terminal(|shown| shown.take(&ended(Ending::Measured, true)));
        assert!(written.contains("measured in"), "{written}");
    }

    #[test]
    fn a_guest_that_does_not_come_up_is_reported_once() {
        let run = |name: &str| {
            let log = Some("out/logs/b_boot2.log".into());
            let (run, message) = (name.to_owned(), Some("boot timeout during boot: silence".to_owned()));
            Event::RunEnded(Box::new(RunEnded { run, message, log, seconds: 0.0, ..hostile() }))
        };
        let written = on_a_terminal(|shown| {
            (0..10).for_each(|number| shown.take(&run(&format!("b_r1_{number}"))));
            shown.take(&Event::GuestEnded { block: "b".to_owned(), failure: None, verdict: None });
        });
        assert_eq!(written.matches("boot timeout during boot: silence").count(), 1, "{written}");
        assert!(written.contains("9 more runs failed by the same as b_r1_0, and never began"), "{written}");
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
}
