// SPDX-License-Identifier: MIT OR Apache-2.0
//! The environment of one trial with real guests: directory, study, command and result.

use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use bpfassay_results::JournalContents;
use bpfassay_study::Plan;

use super::{GuestDriver, HostFault, ToolFault};
use crate::{
    chaos_study::{ChaosError, StudyText, TrialClock},
    command_process::{marked, signal},
    damaged_cache,
    leftovers::StateBefore,
    outcome_check::{self, RunRecords, StudyStage},
    trial::{AllowedOutcomes, CommandEnd, TrialResult},
};

/// How long a command can take. Hanging guests are waited for twice.
const PATIENCE: Duration = Duration::from_secs(600);

/// Perl code at the start of every tool's script.
const PRELUDE: &str = r#"$| = 1;
sub ready { print "ready\n" }
sub sys { no warnings; syscall(shift, @_) }
sub put { my ($path, $text) = @_; open(my $f, '>', $path) or return; syswrite($f, $text) }
sub crash { put('/proc/sys/kernel/sysrq', '1'); put('/proc/sysrq-trigger', 'c') }
# Out of the cgroup that it would be killed with.
sub away { $SIG{INT} = $SIG{TERM} = $SIG{HUP} = 'IGNORE'; put('/sys/fs/cgroup/cgroup.procs', $$) }
# Ends as soon as something of it is away, which does its work so many seconds later. Without a wait, it would be killed with its cgroup where it has not run before.
sub later { my $s = shift; $SIG{INT} = sub {
  pipe my $away, my $is_away;
  if (!fork) { away(); syswrite $is_away, '!'; select undef, undef, undef, $s; crash(); }
  close $is_away;
  sysread $away, my $sign, 1;
  exit 0;
} }
sub stay { sleep 1 while 1 }
"#;

/// The architecture of guests without a tool.
const ARCH: &str = "aarch64";

/// The environment of one trial with real guests.
pub(super) struct GuestEnvironment<'a> {
    driver: &'a GuestDriver,
    directory: tempfile::TempDir,
    tool: Option<PathBuf>,
    cache: Option<PathBuf>,
    before: StateBefore,
    pub(super) result: TrialResult,
    process: u32,
}

impl<'a> GuestEnvironment<'a> {
    /// Creates a directory with the study and with `tool`, if there is one.
    ///
    /// # Errors
    /// If a file or directory cannot be created.
    pub(super) fn new(driver: &'a GuestDriver, tool: Option<&ToolFault>) -> Result<Self, ChaosError> {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::Builder::new().prefix("chaos-").tempdir()?;
        let root = directory.path();
        fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
        fs::create_dir(root.join("tmp"))?;
        // A tool needs one boot, and it calls the x86_64 kernel by system call number. A study that
        // is resumed needs two boots, and the instruction clock for equal figures. Guests of
        // aarch64 boot in half the time under that clock.
        let (arch, clock, rounds, replicates) =
            tool.map_or((ARCH, TrialClock::Instructions, 1, 2), |tool| ("x86_64", TrialClock::Wall, tool.rounds, 1));
        fs::write(root.join("study.toml"), study(arch, clock, rounds, replicates))?;
        let tool = match tool {
            None => None,
            Some(tool) => {
                fs::write(root.join("tool.pl"), format!("{PRELUDE}{}\n", tool.script))?;
                let path = root.join("tool.toml");
                fs::write(&path, TOOL_FILE)?;
                Some(path)
            }
        };
        let before = StateBefore::now(root);
        Ok(Self { driver, tool, cache: None, before, directory, result: TrialResult::default(), process: 0 })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn begin(&self) -> Vec<PathBuf> {
        let mut args = vec!["run".into(), self.path("study.toml"), "--output".into(), self.path("out")];
        if let Some(tool) = &self.tool {
            args.extend(["--tool".into(), tool.clone()]);
        }
        args.extend(self.guests());
        args
    }

    pub(super) fn resume(&self, more: &[&str]) -> Vec<PathBuf> {
        let mut args = vec!["run".into(), "--resume".into(), self.path("out")];
        args.extend(more.iter().map(PathBuf::from));
        args.extend(self.guests());
        args
    }

    fn guests(&self) -> Vec<PathBuf> {
        let mut args: Vec<PathBuf> = match &self.cache {
            Some(cache) => vec!["--cache".into(), cache.clone(), "--offline".into()],
            None => vec!["--manifest".into(), self.driver.manifest.clone()],
        };
        args.extend(["--accelerator", "tcg", "--yes"].map(PathBuf::from));
        args
    }

    /// Makes the command use a copy of the cache. `draw` decides which object is damaged.
    ///
    /// # Errors
    /// The errors of [`damaged_cache::make`].
    pub(super) fn damage_cache(&mut self, draw: u64) -> Result<(), ChaosError> {
        let cache = self.path("cache");
        damaged_cache::make(&self.driver.manifest, ARCH, &cache, draw)?;
        self.cache = Some(cache);
        Ok(())
    }

    /// Returns what the command printed.
    fn output(&self) -> Vec<u8> {
        ["stdout", "stderr"].iter().flat_map(|name| fs::read(self.path(name)).unwrap_or_default()).collect()
    }

    /// Whether the command reported `text` on standard error.
    pub(super) fn has_reported(&self, text: &str) -> bool {
        fs::read_to_string(self.path("stderr")).is_ok_and(|printed| printed.contains(text))
    }

    /// Runs the command to its end. `fault` happens at this time after the start.
    ///
    /// # Errors
    /// If the output files cannot be created, or the command cannot be started, waited for or
    /// killed.
    pub(super) fn command(&mut self, args: &[PathBuf], fault: Option<(Duration, HostFault)>) -> Result<(), ChaosError> {
        let root = self.directory.path().to_owned();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut child = Command::new(&self.driver.bpfassay)
            .args(args)
            .current_dir(&root)
            // The environment with this directory identifies the trial's processes, including QEMU.
            .env("PATH", format!("{}:{path}", root.join("bin").display()))
            .env("TMPDIR", root.join("tmp"))
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(fs::File::create(root.join("stdout"))?)
            .stderr(fs::File::create(root.join("stderr"))?)
            .spawn()?;
        self.process = child.id();
        let since = Instant::now();
        let mut fault = fault;
        let end = loop {
            if let Some(status) = child.try_wait()? {
                break status
                    .code()
                    .map_or_else(|| CommandEnd::Signal(status.signal().unwrap_or_default()), CommandEnd::Code);
            }
            if let Some((_, what)) = fault.filter(|(after, _)| since.elapsed() >= *after)
                && self.strike(what, &root)
            {
                fault = None;
            }
            if since.elapsed() > PATIENCE {
                child.kill()?;
                child.wait()?;
                break CommandEnd::Never;
            }
            thread::sleep(Duration::from_millis(5));
        };
        self.result.resumes += u32::from(!self.result.ends.is_empty());
        self.result.ends.push(end);
        Ok(())
    }

    /// Injects `fault`. Returns whether there was a process to act on.
    fn strike(&self, fault: HostFault, root: &Path) -> bool {
        match fault {
            HostFault::Object => true,
            HostFault::Signal(number) => signal(self.process, number).is_ok(),
            HostFault::Qemu(number) => {
                let all = marked(&root.display().to_string());
                let qemu = all
                    .iter()
                    .find(|process| process.command.contains("qemu-system") && process.command.contains("-initrd"));
                qemu.is_some_and(|qemu| signal(qemu.id, number).is_ok())
            }
        }
    }

    /// Returns the bytes of the journal, which are empty without one.
    pub(super) fn journal(&self) -> Vec<u8> {
        fs::read(self.path("out").join("journal.jsonl")).unwrap_or_default()
    }

    fn contents(&self) -> Result<Option<JournalContents>, bpfassay_results::JournalError> {
        if !self.journal().contains(&b'\n') {
            return Ok(None);
        }
        JournalContents::read(&self.path("out")).map(Some)
    }

    /// Returns the plan in the journal.
    ///
    /// # Errors
    /// The output of the command, if it began no journal or the journal cannot be read.
    pub(super) fn plan(&self) -> Result<Plan, ChaosError> {
        let printed = || fs::read_to_string(self.path("stderr")).unwrap_or_default();
        match self.contents() {
            Ok(Some(contents)) => Ok(contents.header.plan),
            Ok(None) => Err(ChaosError::Study(printed())),
            Err(error) => Err(ChaosError::Study(format!("{error}: {}", printed()))),
        }
    }

    /// Returns the plan and the records, and adds violations to the result.
    pub(super) fn after(
        &mut self,
        stage: &str,
        expected: &AllowedOutcomes,
        how_far: StudyStage,
    ) -> (Option<Plan>, RunRecords) {
        let mut wrong = self.before.left(self.directory.path(), &self.path("tmp"), self.process);
        if let Some(place) = outcome_check::control_character(&self.output()) {
            wrong.push(format!("a control character for the terminal: {place}"));
        }
        let (plan, records) = match self.contents() {
            Ok(None) => (None, RunRecords::new()),
            Ok(Some(contents)) => {
                let results = bpfassay_report::derive(&contents);
                let records =
                    results.runs.into_iter().map(|result| (result.record.run.clone(), *result.record)).collect();
                (Some(contents.header.plan), records)
            }
            Err(error) => {
                wrong.push(format!("the journal cannot be read: {error}"));
                (None, RunRecords::new())
            }
        };
        if let Some(plan) = &plan {
            wrong.extend(outcome_check::outcomes(plan, expected, &records, how_far));
        } else if how_far == StudyStage::Ended {
            wrong.push("nothing was begun".to_owned());
        }
        self.wrong(stage, wrong);
        (plan, records)
    }

    pub(super) fn wrong(&mut self, stage: &str, wrong: Vec<String>) {
        if wrong.is_empty() {
            return;
        }
        let printed = String::from_utf8_lossy(&self.output()).replace(|c: char| c.is_control() && c != '\n', "?");
        self.result.printed.push_str(&format!("--- {stage}, {:?}\n{printed}\n", self.result.ends.last()));
        self.result.violations.extend(wrong.into_iter().map(|text| format!("{stage}: {text}")));
    }
}

const TOOL_FILE: &str = r#"schema = 1
[tool]
name = "wrong"
description = "Does what no tool may do"
[source]
script = { path = "tool.pl", interpreter = "/usr/bin/perl", debian = { suite = "trixie", package = "perl-base" } }
[start]
ready = { line = "^ready" }
"#;

pub(super) fn study(arch: &'static str, clock: TrialClock, rounds: u32, replicates: u32) -> String {
    // Deadlines are in the host's time. Under the instruction clock, deadlines are six times as
    // long. A stopped QEMU is waited for until such a deadline.
    let (clock, boot, phase) = match clock {
        TrialClock::Instructions => ("instructions", "20s", "8s"),
        TrialClock::Wall => ("wall", "120s", "48s"),
    };
    StudyText {
        arch,
        clock,
        // This probe attaches in the least time. Its counts do not matter for these trials.
        probes: r#""none", "raw-tracepoint""#,
        block_size: "4m",
        rounds,
        replicates,
        seed: 7,
        more: "",
        boot,
        phase,
    }
    .to_string()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::PRELUDE;

    /// On a guest's single processor, the tool could end before its child has run.
    #[test]
    fn a_tool_ends_only_when_what_it_leaves_behind_is_away() {
        let script = format!(
            "{PRELUDE}no warnings 'redefine';\
             my $tool = $$;\
             *away = sub {{ select undef, undef, undef, 0.2; print \"away\\n\" }};\
             *crash = sub {{ print \"crashes\\n\"; exit 0 }};\
             END {{ print \"ended\\n\" if $$ == $tool }}\
             later(0.2); kill INT => $$; stay();"
        );
        let output = Command::new("perl").args(["-e", &script]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "away\nended\ncrashes\n", "{output:?}");
    }
}
