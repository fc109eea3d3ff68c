// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows events on the terminal: for people ([`event_printer`]) or as JSON for programs, with the
//! commands that repeat what failed.

mod event_printer;
mod lines;
mod matrix;
mod stage_lines;
mod timings;

use std::{io::Write, path::Path, sync::Arc};

use bpfassay_packages::stages::{ProgressReport, Stages, Watcher};
use bpfassay_results::{Event, event::EventLine, plain};
use bpfassay_runner::{EventSink, stage_event, timings_event, unix_ms};
use bpfassay_study::{Clock, Plan};

use self::event_printer::EventPrinter;
use crate::{cli::MessageFormat, output};

/// The output for progress, from the beginning of a command to its end.
#[derive(Clone)]
pub(crate) enum Display {
    /// Lines and a bar on standard error.
    Human(Arc<EventPrinter>),
    /// A JSON object for each event on standard output.
    Json,
}

impl Display {
    pub(crate) fn begin(format: MessageFormat) -> Self {
        match format {
            MessageFormat::Human => Self::Human(EventPrinter::begin()),
            MessageFormat::Json => Self::Json,
        }
    }

    /// Returns stages that are shown.
    pub(crate) fn stages(&self) -> Stages {
        match self {
            Self::Human(shown) => Stages::watched(Arc::<EventPrinter>::clone(shown)),
            Self::Json => Stages::watched(Arc::new(JsonStages)),
        }
    }

    /// Shows `line` to people.
    pub(crate) fn line(&self, line: &str) {
        if let Self::Human(shown) = self {
            shown.line(line);
        }
    }

    /// Shows a matrix of the runs of `plan` while they are measured, if there is a terminal.
    pub(crate) fn show_matrix(&self, plan: &Plan) {
        if let Self::Human(shown) = self {
            shown.show_matrix(plan);
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        if let Self::Human(shown) = self {
            shown.finish();
        }
    }

    /// Formats how long the finished stages took, for standard output.
    pub(crate) fn timings(&self, stages: &Stages) -> String {
        let timings = stages.timings();
        match self {
            Self::Human(_) => timings::table(&timings, stages.elapsed()),
            Self::Json => json(&timings_event(&timings)).unwrap_or_default(),
        }
    }
}

/// Prints stages as JSON.
struct JsonStages;

impl Watcher for JsonStages {
    fn report(&self, report: &ProgressReport) {
        write_json(&stage_event(report));
    }
}

fn write_json(event: &Event) {
    if let Some(line) = json(event) {
        // A closed pipe or a full disk must not end the measurement. It is reported at the end,
        // when the last event cannot be written either.
        let _ = output::stdout().write_all(line.as_bytes());
    }
}

/// The settings for reports of events.
#[derive(Clone, Copy)]
pub(crate) struct Reporting<'a> {
    /// The study as the user named it, for a command line. `None` if its file's path is not known,
    /// as in a continued run: then no command can find the study.
    pub(crate) study: Option<&'a str>,
    /// The clock of the study.
    pub(crate) clock: Clock,
    /// The user's options for kernels, testbed, cache and tools, as arguments.
    pub(crate) overlays: &'a [String],
    /// The output for events.
    pub(crate) display: &'a Display,
    /// The measured mount of this machine, if there are no guests.
    pub(crate) here: Option<&'a Path>,
}

/// Reports events.
pub(crate) struct Reporter<'a>(pub(crate) Reporting<'a>);

impl Reporter<'_> {
    fn command(&self, args: &[&str]) -> Vec<String> {
        let args = args.iter().copied().chain(self.0.overlays.iter().map(String::as_str));
        ["bpfassay"].into_iter().chain(args).map(str::to_owned).collect()
    }
}

impl EventSink for Reporter<'_> {
    fn event(&self, event: &Event) {
        match self.0.display {
            Display::Human(shown) => shown.take(event),
            Display::Json => write_json(event),
        }
    }

    fn repeat(&self, cell: &str) -> Option<Vec<String>> {
        let Reporting { study, clock, here, .. } = self.0;
        let study = study?;
        Some(match here {
            Some(mount) => {
                let mount = mount.display().to_string();
                let command = ["bpfassay", "here", study, "--mount", &mount, "--cell", cell].map(str::to_owned);
                command.into_iter().chain(self.0.overlays.iter().cloned()).collect()
            }
            None => self.command(&["run", study, "--cell", cell, "--clock", &clock.to_string()]),
        })
    }

    fn shell(&self, cell: &str) -> Option<Vec<String>> {
        let study = self.0.study.filter(|_| self.0.here.is_none())?;
        Some(self.command(&["shell", "--study", study, "--cell", cell]))
    }
}

/// Formats `event` as one line of JSON.
pub(crate) fn json(event: &Event) -> Option<String> {
    let text = serde_json::to_string(&EventLine { event: event.clone(), at_unix_ms: unix_ms() }).ok()?;
    Some(plain::json(&text).into_owned() + "\n")
}

/// Returns the study's name for [`Reporting::study`] from a plan that was read back, if it is a
/// bundled study: a name alone finds only these.
pub(crate) fn bundled(plan: &Plan) -> Option<&str> {
    let name = plan.study.name.as_str();
    bpfassay_study::bundled_studies::study(name)?;
    let study = bpfassay_study::load(name).ok()?;
    // A user's file can have the same name.
    (study.workloads == plan.study.workloads && study.targets == plan.study.targets).then_some(name)
}

/// Formats a duration: `40 s`, `12 min`, `3 h 5 min`.
pub(crate) fn duration(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{} min", minutes + u64::from(seconds % 60 >= 30)),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_study::{Available, Narrowing};
    use bpfassay_vm::shell_command;
    use clap::Parser as _;

    use super::*;

    #[test]
    fn times_are_as_precise_as_they_are_known() {
        let texts = [0.4, 59.0, 89.0, 91.0, 3600.0 * 3.0 + 320.0].map(duration);
        assert_eq!(texts, ["0 s", "59 s", "1 min", "2 min", "3 h 5 min"]);
    }

    #[test]
    fn only_a_bundled_study_is_found_by_its_name() {
        let study = bpfassay_study::load("quick").unwrap();
        let mut plan = bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        assert_eq!(bundled(&plan), Some("quick"));
        plan.study.workloads.clear();
        assert_eq!(bundled(&plan), None);
        "mine".clone_into(&mut plan.study.name);
        assert_eq!(bundled(&plan), None);
    }

    #[test]
    fn arguments_are_quoted_as_a_shell_reads_them() {
        let args = ["bpfassay", "run", "my study.toml", "it's", ""].map(str::to_owned);
        assert_eq!(shell_command(&args), r"bpfassay run 'my study.toml' 'it'\''s' ''");
    }

    #[test]
    fn a_cell_has_commands_that_do_it_again() {
        let overlays = ["--kernel", "./bzImage", "--tool", "mine.toml"].map(str::to_owned);
        let reporting = Reporting {
            study: Some("small.toml"),
            clock: Clock::Wall,
            overlays: &overlays,
            display: &Display::Json,
            here: None,
        };
        let (guests, cell) = (Reporter(reporting), "x86_64-6.12_quick");
        let (repeat, shell) = (guests.repeat(cell).unwrap(), guests.shell(cell).unwrap());
        assert_eq!(
            shell_command(&repeat),
            format!("bpfassay run small.toml --cell {cell} --clock wall --kernel ./bzImage --tool mine.toml")
        );
        assert_eq!(
            shell_command(&shell),
            format!("bpfassay shell --study small.toml --cell {cell} --kernel ./bzImage --tool mine.toml")
        );
        let tools = ["--tool".to_owned(), "mine.toml".to_owned()];
        let here = Reporter(Reporting { here: Some(Path::new("/mnt/my nfs")), overlays: &tools, ..reporting });
        let again = here.repeat(cell).unwrap();
        assert_eq!(
            shell_command(&again),
            format!("bpfassay here small.toml --mount '/mnt/my nfs' --cell {cell} --tool mine.toml")
        );
        assert_eq!(here.shell(cell), None);
        // All of these are valid command lines.
        for args in [repeat, shell, again] {
            assert!(crate::cli::Cli::try_parse_from(&args).is_ok(), "{args:?}");
        }
        let unknown = Reporter(Reporting { study: None, ..reporting });
        assert_eq!((unknown.repeat(cell), unknown.shell(cell)), (None, None));
    }
}
