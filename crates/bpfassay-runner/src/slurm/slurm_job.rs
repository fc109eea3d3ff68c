// SPDX-License-Identifier: MIT OR Apache-2.0
//! The array job: its script and its record. Pure.

#![allow(clippy::disallowed_methods, reason = "joins fixed names and numbers")]

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use bpfassay_results::plain;
use bpfassay_vm::shell_command;
use serde_json::{Value, json};

/// The script in the directory of an array job.
pub(super) const SCRIPT: &str = "job.sh";
/// The record of an array job.
pub(super) const RECORD: &str = "job.json";
/// Directory of the shards' results directories.
const SHARDS: &str = "shards";
/// Directory of the shards' messages.
const LOGS: &str = "logs";
/// Highest number of shards: Slurm's default for the elements of an array (`MaxArraySize`).
const MOST_SHARDS: u32 = 1000;

/// A study as an array job, with an element for each shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmJob {
    /// The study: a bundled one, or a path relative to `working_directory`.
    pub study: String,
    /// Number of shards.
    pub shards: u32,
    /// Further arguments of `bpfassay run` for beginning a shard.
    pub run_arguments: Vec<String>,
    /// Arguments of every command, also for continuing a shard.
    pub global_arguments: Vec<String>,
    /// The part of `run_arguments` that is also used for continuing a shard.
    pub continued_arguments: Vec<String>,
    /// Number of guests in parallel, if `run_arguments` has it; otherwise one per CPU.
    pub guests: Option<u32>,
    /// The program bpfassay, which all nodes have at this path.
    pub program: PathBuf,
    /// The working directory of the job.
    pub working_directory: PathBuf,
    /// Number of CPUs for each shard.
    pub cpus: u32,
    /// Further options of sbatch, each with its value: `--partition=short`.
    pub options: Vec<String>,
}

/// The record of a job in its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JobRecord {
    pub(super) job: SlurmJob,
    /// The ids of the submitted array jobs, in order.
    pub(super) submitted: Vec<u64>,
}

impl JobRecord {
    /// Writes the record as JSON.
    pub(super) fn json(&self) -> String {
        let Self { job, submitted } = self;
        format!(
            "{:#}\n",
            json!({
                "study": job.study,
                "shards": job.shards,
                "run_arguments": job.run_arguments,
                "global_arguments": job.global_arguments,
                "continued_arguments": job.continued_arguments,
                "guests": job.guests,
                "program": job.program.to_string_lossy(),
                "working_directory": job.working_directory.to_string_lossy(),
                "cpus": job.cpus,
                "options": job.options,
                "submitted": submitted,
            })
        )
    }

    /// Reads the output of [`Self::json`]; `None` if `text` is something else.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(text).ok()?;
        let number = |name: &str| u32::try_from(value[name].as_u64()?).ok();
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let texts = |name: &str| -> Option<Vec<String>> {
            value[name].as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
        };
        let job = SlurmJob {
            study: text("study")?,
            shards: number("shards")?,
            run_arguments: texts("run_arguments")?,
            global_arguments: texts("global_arguments")?,
            continued_arguments: texts("continued_arguments")?,
            guests: if value["guests"].is_null() { None } else { Some(number("guests")?) },
            program: text("program")?.into(),
            working_directory: text("working_directory")?.into(),
            cpus: number("cpus")?,
            options: texts("options")?,
        };
        let submitted = value["submitted"].as_array()?.iter().map(Value::as_u64).collect::<Option<_>>()?;
        job.check().ok()?;
        Some(Self { job, submitted })
    }
}

/// Why a job is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongJob {
    /// An array cannot have this number of shards.
    #[error("{0} shards are not possible: name 1 to {MOST_SHARDS}")]
    Shards(u32),
    /// The text would need several lines in the script.
    #[error("a line break in {0:?}: the script has one line for each of these")]
    LineBreak(String),
    /// The script cannot contain this path.
    #[error(
        "{} is no UTF-8 text, so the script cannot have it: \
         name it by a path of plain characters, such as a symbolic link to it",
        .0.display()
    )]
    NoText(PathBuf),
    /// Slurm would misread the directory's name.
    #[error(
        "{} has {what}, which Slurm takes for something else in the name of a log: \
         name another directory with --output",
        plain::line(&directory.display().to_string())
    )]
    Directory {
        /// The directory of the job.
        directory: PathBuf,
        /// The part of the name that Slurm misreads.
        what: &'static str,
    },
    /// The text is not an option.
    #[error("`{0}` is no option of sbatch: write it with its value as one argument, such as `--partition=short`")]
    Option(String),
    /// This command sets the option itself.
    #[error(
        "`{0}` is set by bpfassay itself: the array, its output, its working directory and its task's CPUs follow from other arguments"
    )]
    Own(String),
}

impl SlurmJob {
    /// Returns the results directory of a shard in the job's directory.
    pub(super) fn shard(directory: &Path, shard: u32) -> PathBuf {
        directory.join(SHARDS).join(shard.to_string())
    }

    /// Returns the log of a shard in the job's directory.
    pub(super) fn log(directory: &Path, shard: u32) -> PathBuf {
        directory.join(LOGS).join(format!("{shard}.log"))
    }

    /// Directories that a job needs in its directory.
    pub(super) const DIRECTORIES: [&str; 2] = [SHARDS, LOGS];

    /// Checks that the script can give `directory`, an absolute path, to Slurm. In `--output`, a
    /// percent sign begins a pattern, and a backslash disables all patterns (sbatch(1)).
    ///
    /// # Errors
    /// [`WrongJob::Directory`].
    pub(super) fn check_directory(directory: &Path) -> Result<(), WrongJob> {
        let refused = |what| Err(WrongJob::Directory { directory: directory.to_owned(), what });
        let Some(text) = directory.to_str() else { return refused("bytes that are no UTF-8 text") };
        match text.chars().find(|c| c.is_control() || matches!(c, '%' | '\\')) {
            None => Ok(()),
            Some('%') => refused("a percent sign"),
            Some('\\') => refused("a backslash"),
            Some(_) => refused("a line break or another control character"),
        }
    }

    /// Checks for values that Slurm would accept wrongly or misread.
    ///
    /// # Errors
    /// [`WrongJob`].
    pub fn check(&self) -> Result<(), WrongJob> {
        if !(1..=MOST_SHARDS).contains(&self.shards) {
            return Err(WrongJob::Shards(self.shards));
        }
        let paths = [&self.program, &self.working_directory];
        if let Some(path) = paths.iter().find(|path| path.to_str().is_none()) {
            return Err(WrongJob::NoText(path.to_path_buf()));
        }
        let paths = paths.map(|path| path.to_string_lossy().into_owned());
        let texts = self
            .options
            .iter()
            .chain(&self.run_arguments)
            .chain(&self.global_arguments)
            .chain(&self.continued_arguments)
            .chain([&self.study])
            .chain(&paths);
        if let Some(broken) = texts.into_iter().find(|text| text.contains(['\n', '\r', '\0'])) {
            return Err(WrongJob::LineBreak(broken.clone()));
        }
        const OWN: [&str; 8] =
            ["--array", "--output", "--open-mode", "--chdir", "--cpus-per-task", "--parsable", "--wait", "--wrap"];
        for option in &self.options {
            let name = option.split_once('=').map_or(option.as_str(), |(name, _)| name);
            if !name.starts_with("--") || name.len() < 3 || name.contains(char::is_whitespace) {
                return Err(WrongJob::Option(option.clone()));
            }
            if OWN.contains(&name) {
                return Err(WrongJob::Own(option.clone()));
            }
        }
        Ok(())
    }

    /// Returns the script for sbatch, with results and logs in `directory`, an absolute path. It
    /// continues a shard that was begun, so it can be submitted again until all boots are measured.
    pub(super) fn script(&self, directory: &Path) -> String {
        let quoted = |path: &Path| shell_command([path]);
        let program = quoted(&self.program);
        let name = self.study.rsplit('/').next().unwrap_or(&self.study);
        let mut text = "#!/bin/sh\n\
             # An array job: element K measures shard K. Written by `bpfassay cluster submit`, which does not write it again: change it as the cluster needs it.\n"
            .to_owned();
        let mut option = |option: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "#SBATCH {}", shell_command([option]));
        };
        option(&format!("--job-name=bpfassay-{name}"));
        option(&format!("--cpus-per-task={}", self.cpus));
        option(&format!("--chdir={}", self.working_directory.display()));
        option(&format!("--output={}", directory.join(LOGS).join("%a.log").display()));
        option("--open-mode=append");
        self.options.iter().for_each(|of_user| option(of_user));
        let shards = quoted(&directory.join(SHARDS));
        let more = |arguments: &[String]| match arguments {
            [] => String::new(),
            _ => format!(" {}", shell_command(arguments)),
        };
        let of_slurm = " --jobs \"$SLURM_CPUS_PER_TASK\"".to_owned();
        let (begun, continued) = match self.guests {
            None => (of_slurm.clone(), of_slurm),
            Some(guests) => (String::new(), format!(" --jobs {guests}")),
        };
        let (study, all) = (shell_command([&self.study]), self.shards);
        let (of_run, of_all) = (more(&self.run_arguments), more(&self.global_arguments));
        let of_continued = more(&self.continued_arguments);
        let _ = write!(
            text,
            "\nset -eu\n\
             shard=$SLURM_ARRAY_TASK_ID\n\
             directory={shards}/$shard\n\
             if [ -e \"$directory/journal.jsonl\" ]; then\n\
             \texec {program} run --resume \"$directory\" --yes{continued}{of_continued}{of_all}\n\
             fi\n\
             exec {program} run {study} --shard \"$shard/{all}\" --output \"$directory\" --yes{begun}{of_run}{of_all}\n",
        );
        text
    }
}

/// Returns `shards`, which are sorted, as sbatch expects the elements of an array: `1-3,7`.
pub(super) fn elements(shards: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = shards.iter().copied().peekable();
    while let Some(first) = rest.next() {
        let mut last = first;
        while let Some(next) = rest.next_if(|next| *next == last + 1) {
            last = next;
        }
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = match first == last {
            true => write!(text, "{comma}{first}"),
            false => write!(text, "{comma}{first}-{last}"),
        };
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in super::super) fn job() -> SlurmJob {
        SlurmJob {
            study: "my studies/fast.toml".to_owned(),
            shards: 8,
            run_arguments: vec!["--rounds".to_owned(), "3".to_owned(), "--tool".to_owned(), "a'b.toml".to_owned()],
            global_arguments: vec!["--offline".to_owned()],
            continued_arguments: Vec::new(),
            guests: None,
            program: "/opt/bpfassay".into(),
            working_directory: "/home/me/work".into(),
            cpus: 2,
            options: vec!["--partition=short".to_owned(), "--exclusive".to_owned()],
        }
    }

    #[test]
    fn the_script_continues_what_was_begun() {
        assert_eq!(
            job().script(Path::new("/scratch/me/fast")),
            r#"#!/bin/sh
# An array job: element K measures shard K. Written by `bpfassay cluster submit`, which does not write it again: change it as the cluster needs it.
#SBATCH --job-name=bpfassay-fast.toml
#SBATCH --cpus-per-task=2
#SBATCH --chdir=/home/me/work
#SBATCH --output=/scratch/me/fast/logs/%a.log
#SBATCH --open-mode=append
#SBATCH --partition=short
#SBATCH --exclusive

set -eu
shard=$SLURM_ARRAY_TASK_ID
directory=/scratch/me/fast/shards/$shard
if [ -e "$directory/journal.jsonl" ]; then
	exec /opt/bpfassay run --resume "$directory" --yes --jobs "$SLURM_CPUS_PER_TASK" --offline
fi
exec /opt/bpfassay run 'my studies/fast.toml' --shard "$shard/8" --output "$directory" --yes --jobs "$SLURM_CPUS_PER_TASK" --rounds 3 --tool 'a'\''b.toml' --offline
"#
        );
    }

    #[test]
    fn guests_side_by_side_are_those_that_were_asked_for() {
        let [of_run, of_continued] = [&["-j3", "--store=a b"][..], &["--store", "a b"]]
            .map(|all| all.iter().map(|&text| text.to_owned()).collect());
        let job = SlurmJob { guests: Some(3), run_arguments: of_run, continued_arguments: of_continued, ..job() };
        let script = job.script(Path::new("/scratch"));
        assert!(script.contains("--resume \"$directory\" --yes --jobs 3 --store 'a b' --offline\n"), "{script}");
        assert!(script.ends_with("--yes -j3 '--store=a b' --offline\n"), "{script}");
    }

    #[test]
    fn what_slurm_would_take_for_something_else_is_refused() {
        job().check().unwrap();
        let with =
            |options: &[&str]| SlurmJob { options: options.iter().map(|&text| text.to_owned()).collect(), ..job() };
        for wrong in ["-p", "short", "--", "--a b", "partition=short"] {
            assert_eq!(with(&[wrong]).check(), Err(WrongJob::Option(wrong.to_owned())));
        }
        for own in ["--array=1-3", "--output=x", "--wrap=true", "--chdir"] {
            assert_eq!(with(&[own]).check(), Err(WrongJob::Own(own.to_owned())));
        }
        let broken = "--comment=a\nrm".to_owned();
        assert_eq!(with(&[&broken]).check(), Err(WrongJob::LineBreak(broken)));
        for shards in [0, 1001] {
            assert_eq!(SlurmJob { shards, ..job() }.check(), Err(WrongJob::Shards(shards)));
        }
    }

    #[test]
    fn elements_are_written_as_ranges() {
        for (shards, text) in [(vec![], ""), (vec![3], "3"), (vec![1, 2, 3, 7, 9, 10], "1-3,7,9-10")] {
            assert_eq!(elements(&shards), text);
        }
    }

    #[test]
    fn what_is_recorded_is_read_and_nothing_else() {
        let record = JobRecord { job: job(), submitted: vec![17, 18] };
        assert_eq!(JobRecord::read(record.json().as_bytes()), Some(record.clone()));
        for wrong in ["", "{}", "[]", &record.json().replace("18", "\"18\""), &record.json().replace("8,", "0,")] {
            assert_eq!(JobRecord::read(wrong.as_bytes()), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn elements_are_all_and_no_others(shards in prop::collection::btree_set(1_u32..40, 1..30)) {
            let shards: Vec<u32> = shards.into_iter().collect();
            let text = elements(&shards);
            let range = |part: &str| {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                first.parse::<u32>().unwrap()..=last.parse().unwrap()
            };
            prop_assert_eq!(text.split(',').flat_map(range).collect::<Vec<_>>(), shards);
        }

        /// A shell sees the arguments unchanged, whatever they contain.
        #[test]
        fn arguments_reach_the_program_as_they_are(argument in "[^\\x00\n\r]{0,20}") {
            let job = SlurmJob { global_arguments: vec![argument.clone()], ..job() };
            let script = job.script(Path::new("/nonexistent"));
            let line = script.lines().last().unwrap().replace("exec /opt/bpfassay", "printf '%s\\n'");
            let output = std::process::Command::new("sh").args(["-c", &format!("shard=1 directory=d SLURM_CPUS_PER_TASK=2; {line}")]).output().unwrap();
            let printed = String::from_utf8(output.stdout).unwrap();
            prop_assert_eq!(printed.lines().last().unwrap_or_default(), argument);
        }
    }
}
