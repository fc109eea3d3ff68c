// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events on the terminal: for people ([`shown`]) or as JSON for programs, with the commands that repeat what failed.

mod shown;

use std::{io::Write, path::Path};

use bpfassay_results::{Event, plain};
use bpfassay_runner::EventSink;
use bpfassay_study::{Clock, Plan};

use self::shown::Shown;
use crate::{cli::MessageFormat, output};

/// How to report what happens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reporting<'a> {
    /// The study, as the user named it: an argument. `None` where it is not known where its file lies, as of a run that is continued: then
    /// there is no command that finds it.
    pub(crate) study: Option<&'a str>,
    /// The clock that is measured with.
    pub(crate) clock: Clock,
    /// Options that say where kernels, testbed and cache are, where the user did: arguments.
    pub(crate) overlays: &'a [String],
    /// In which form.
    pub(crate) format: MessageFormat,
    /// The mount of this machine that is measured on, where there are no guests.
    pub(crate) here: Option<&'a Path>,
}

/// Reports events: lines and a bar on standard error, or a JSON object for each on standard output.
pub(crate) struct Reporter<'a> {
    reporting: Reporting<'a>,
    /// For people.
    shown: Option<Shown>,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(reporting: Reporting<'a>) -> Self {
        let shown = (reporting.format == MessageFormat::Human).then(Shown::new);
        Self { reporting, shown }
    }

    /// Takes away what is shown for the time being.
    pub(crate) fn finish(&self) {
        if let Some(shown) = &self.shown {
            shown.finish();
        }
    }

    fn command(&self, args: &[&str]) -> Vec<String> {
        let args = args.iter().copied().chain(self.reporting.overlays.iter().map(String::as_str));
        ["bpfassay"].into_iter().chain(args).map(str::to_owned).collect()
    }
}

impl EventSink for Reporter<'_> {
    fn event(&self, event: &Event) {
        if let Some(shown) = &self.shown {
            shown.take(event);
        } else if let Some(line) = json(event) {
            // A reader that has gone away must not end the measurement, nor must a full disk; that is reported at the end, when the
            // last event cannot be written either.
            let _ = output::stdout().write_all(line.as_bytes());
        }
    }

    fn repeat(&self, cell: &str) -> Option<Vec<String>> {
        let Reporting { study, clock, here, .. } = self.reporting;
        let study = study?;
        Some(match here {
            Some(mount) => {
                let mount = mount.display().to_string();
                ["bpfassay", "here", study, "--mount", &mount, "--cell", cell].map(str::to_owned).to_vec()
            }
            None => self.command(&["run", study, "--cell", cell, "--clock", &clock.to_string()]),
        })
    }

    fn shell(&self, cell: &str) -> Option<Vec<String>> {
        let study = self.reporting.study.filter(|_| self.reporting.here.is_none())?;
        Some(self.command(&["shell", "--study", study, "--cell", cell]))
    }
}

/// `event` on a line of its own.
pub(crate) fn json(event: &Event) -> Option<String> {
    let text = serde_json::to_string(event).ok()?;
    Some(plain::json(&text).into_owned() + "\n")
}

/// The study of a plan that was read back, for [`Reporting::study`]: results have its name, which finds bundled ones only.
pub(crate) fn bundled(plan: &Plan) -> Option<&str> {
    let name = plan.study.name.as_str();
    bpfassay_study::bundled::study(name)?;
    let study = bpfassay_study::load(name).ok()?;
    // Anybody's file may have that name.
    (study.workloads == plan.study.workloads && study.targets == plan.study.targets).then_some(name)
}

#[cfg(test)]
mod tests {
    use bpfassay_study::{Available, Narrowing};
    use bpfassay_vm::shell_command;
    use clap::Parser as _;

    use super::*;

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
            format: MessageFormat::Json,
            here: None,
        };
        let (guests, cell) = (Reporter::new(reporting), "x86_64-6.12_quick");
        let (repeat, shell) = (guests.repeat(cell).unwrap(), guests.shell(cell).unwrap());
        assert_eq!(
            shell_command(&repeat),
            format!("bpfassay run small.toml --cell {cell} --clock wall --kernel ./bzImage --tool mine.toml")
        );
        assert_eq!(
            shell_command(&shell),
            format!("bpfassay shell --study small.toml --cell {cell} --kernel ./bzImage --tool mine.toml")
        );
        let here = Reporter::new(Reporting { here: Some(Path::new("/mnt/my nfs")), ..reporting });
        let again = here.repeat(cell).unwrap();
        assert_eq!(shell_command(&again), format!("bpfassay here small.toml --mount '/mnt/my nfs' --cell {cell}"));
        assert_eq!(here.shell(cell), None);
        // All of them are commands.
        for args in [repeat, shell, again] {
            assert!(crate::cli::Cli::try_parse_from(&args).is_ok(), "{args:?}");
        }
        let unknown = Reporter::new(Reporting { study: None, ..reporting });
        assert_eq!((unknown.repeat(cell), unknown.shell(cell)), (None, None));
    }
}
