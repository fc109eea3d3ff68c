//! What is shown while a plan is carried out: on a terminal a bar with the guests in flight, elsewhere a line per event.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::{Mutex, PoisonError},
    time::Instant,
};

use bpfassay_report::Outcome;
use bpfassay_runner::{Observer, Progress};
use bpfassay_study::{Block, Plan};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows progress on standard error.
pub(crate) struct Display {
    began: Instant,
    bar: ProgressBar,
    /// Cells whose refusals the study expects, by cell id.
    expected: Vec<String>,
    /// What each guest in flight is doing, by block.
    in_flight: Mutex<BTreeMap<String, String>>,
}

impl Display {
    /// For `runs` runs of `plan`, all of them or what is left.
    pub(crate) fn new(plan: &Plan, runs: usize, is_expected: impl Fn(&bpfassay_study::Cell) -> bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(runs as u64), ProgressDrawTarget::stderr());
        // A template of ours that does not parse is shown plainly; a test parses it.
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(std::time::Duration::from_millis(500));
        let expected = plan.cells.iter().filter(|cell| is_expected(cell)).map(|cell| cell.id.clone()).collect();
        Self { began: Instant::now(), bar, expected, in_flight: Mutex::default() }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn line(&self, text: &str) {
        if self.bar.is_hidden() {
            // A reader that has gone away (`2>&1 | head`) must not end the measurement.
            let _ = writeln!(io::stderr(), "[{:>4} s] {text}", self.began.elapsed().as_secs());
        } else {
            self.bar.println(text);
        }
    }

    /// Notes what the guest of `block` does, or that it is gone.
    fn now(&self, block: &Block, doing: Option<&str>) {
        let mut in_flight = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        match doing {
            Some(doing) => in_flight.insert(block.id.clone(), format!("{}: {doing}", block.target)),
            None => in_flight.remove(&block.id),
        };
        let all: Vec<&str> = in_flight.values().map(String::as_str).collect();
        self.bar.set_message(all.join(" · "));
    }
}

const TEMPLATE: &str = "{bar:24} {pos}/{len} runs  {elapsed} (about {eta} left)  {wide_msg}";

impl Observer for Display {
    fn progress(&self, progress: &Progress<'_>) {
        match progress {
            Progress::Booting(block, started) => {
                self.now(block, Some("booting"));
                if started.boot > 1 {
                    self.line(&format!("{}: boot {}", block.id, started.boot));
                }
            }
            Progress::Ready(block, ready) => {
                self.now(block, Some("ready"));
                self.line(&format!(
                    "{}: ready after {:.1} s (Linux {})",
                    block.id,
                    ready.ready_after_ms as f64 / 1000.0,
                    ready.facts.kernel_release
                ));
            }
            Progress::RunStarted(block, run) => {
                let what = run.strip_prefix(block.id.as_str()).unwrap_or(run).trim_start_matches('_');
                self.now(block, Some(what));
            }
            Progress::RunEnded(record) => {
                self.bar.inc(1);
                let seconds = record.duration_ms as f64 / 1000.0;
                match &record.outcome {
                    Outcome::Measured(_) => self.line(&format!("{}: measured in {seconds:.1} s", record.run)),
                    Outcome::Refused(refusal) => {
                        let expected = if self.expected.contains(&record.cell) { ", as expected" } else { "" };
                        self.line(&format!("{}: refused{expected}: {}", record.run, refusal.message));
                    }
                    Outcome::Failed(failure) => self.line(&format!("{}: FAILED: {failure}", record.run)),
                }
            }
            Progress::Ended(block, _) => self.now(block, None),
            Progress::Log(block, text) => self.line(&format!("{}: {text}", block.id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_one() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
