// SPDX-License-Identifier: MIT OR Apache-2.0
//! A study on a cluster: a Slurm array job with one shard per element, submitted again until every
//! shard is measured.
//!
//! Slurm's own programs are called (sbatch, squeue), so Slurm's access rules hold. Everything is
//! recorded in one directory on a file system that all nodes share. Another call with that
//! directory continues where the last call ended.

#![allow(clippy::disallowed_methods, reason = "the user of this command names the directory of the job")]

mod queue;
mod slurm_job;

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use self::{
    queue::{JobAnswer, submitted},
    slurm_job::{JobRecord, RECORD, SCRIPT, elements},
};
pub use self::{
    queue::{SlurmProgress, is_without_controller},
    slurm_job::{SlurmJob, WrongJob},
};
use bpfassay_results::OpenDirectory;
use bpfassay_study::{Plan, Shard};

use crate::merge::{Merge, MergeError};

/// Largest record that is read, in bytes.
const MAX_RECORD: u64 = 1 << 20;
/// How long a controller can be unreachable. A restarted controller is reachable again within a
/// minute.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// Why a study cannot be measured as an array job.
#[derive(Debug, thiserror::Error)]
pub enum SlurmError {
    /// The requested job is invalid.
    #[error(transparent)]
    Wrong(#[from] WrongJob),
    /// The directory has another job, or something else.
    #[error("{} has {what}: name another directory", directory.display())]
    Other {
        /// The directory.
        directory: PathBuf,
        /// The content of the directory.
        what: String,
    },
    /// A file of the job cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The attempted action, for the message.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A program of Slurm cannot be started.
    #[error("cannot start {program}: `bpfassay cluster submit` is for a node from which jobs are submitted")]
    NoProgram {
        /// The program's name.
        program: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A program of Slurm failed.
    #[error("{program} failed: {message}")]
    Failed {
        /// The program's name.
        program: &'static str,
        /// The program's output.
        message: String,
    },
    /// Slurm's controller does not answer.
    #[error("Slurm's controller has not answered for {} minutes ({message}); the jobs go on without it: the same command follows them again", PATIENCE.as_secs() / 60)]
    NoController {
        /// The last output of squeue.
        message: String,
    },
    /// Some shards are not measured after all attempts.
    #[error("{} of {all} shards are not measured after {attempts} attempts, the first of them shard {}: {reason}; its messages are in {}", shards.len(), shards.first().copied().unwrap_or_default(), log.display())]
    NotMeasured {
        /// The numbers of the shards.
        shards: Vec<u32>,
        /// Number of all shards.
        all: u32,
        /// How often a job was submitted for them.
        attempts: u32,
        /// The missing part of the first of these shards.
        reason: String,
        /// The log of the first of the shards.
        log: PathBuf,
    },
    /// The shards do not fit together.
    #[error(transparent)]
    Merge(#[from] MergeError),
}

/// An event of an array job, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlurmEvent {
    /// The script was written, or an existing one is used unchanged.
    Script {
        /// The path of the script.
        path: PathBuf,
        /// Whether the script was written now.
        is_new: bool,
    },
    /// A job was submitted.
    Submitted {
        /// The job's id.
        id: u64,
        /// The job's elements in the form of sbatch.
        elements: String,
    },
    /// A job that was submitted earlier is followed.
    Found {
        /// The job's id.
        id: u64,
    },
    /// The number of shards in some state has changed.
    Progress(SlurmProgress),
    /// The controller does not answer.
    NoController(String),
    /// The job has ended, and some shards are not measured.
    Unfinished {
        /// The numbers of the shards.
        shards: Vec<u32>,
        /// The missing part of the first of these shards.
        reason: String,
    },
}

/// An array job in its directory.
#[derive(Debug)]
pub struct Submission {
    directory: PathBuf,
    /// The same directory, opened for access to the job's files.
    opened: OpenDirectory,
    record: JobRecord,
    /// Whether this call wrote the script.
    is_new: bool,
}

impl Submission {
    /// Prepares `directory` for `job`: writes the script and the record unless they exist. A
    /// script that somebody changed stays as it is.
    ///
    /// # Errors
    /// [`SlurmError::Wrong`]. [`SlurmError::Other`] if the directory has another job or other
    /// files. [`SlurmError::File`].
    pub fn prepare(directory: &Path, job: SlurmJob) -> Result<Self, SlurmError> {
        job.check()?;
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |source| SlurmError::File { action, path, source }
        };
        // Check the path before anything is made.
        let absolute = std::path::absolute(directory).map_err(failed("find", directory))?;
        SlurmJob::check_directory(&absolute)?;
        fs::create_dir_all(directory).map_err(failed("make", directory))?;
        let directory = fs::canonicalize(directory).map_err(failed("find", directory))?;
        SlurmJob::check_directory(&directory)?;
        let opened = OpenDirectory::open(&directory).map_err(failed("open", &directory))?;
        let (record_path, script) = (directory.join(RECORD), directory.join(SCRIPT));
        let other = |what: String| SlurmError::Other { directory: directory.clone(), what };
        let record = match opened.read(RECORD).and_then(|file| bpfassay_input::read_file(file, MAX_RECORD)) {
            Ok(bytes) => {
                let record =
                    JobRecord::read(&bytes).ok_or_else(|| other(format!("a {RECORD} that is none of an array job")))?;
                if record.job != job {
                    return Err(other(format!(
                        "an array job of {} in {} shards, or one with other options, by its {RECORD}",
                        record.job.study, record.job.shards
                    )));
                }
                record
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if !opened.is_empty().map_err(failed("list", &directory))? {
                    return Err(other("files that are of no array job".to_owned()));
                }
                JobRecord { job, submitted: Vec::new() }
            }
            Err(source) => return Err(SlurmError::File { action: "read", path: record_path, source }),
        };
        for needed in SlurmJob::DIRECTORIES {
            opened.make_directory(needed).map_err(failed("make", &directory.join(needed)))?;
        }
        let is_new = !opened.has(SCRIPT).map_err(failed("find", &script))?;
        if is_new {
            let text = record.job.script(&directory);
            let made = opened.create_new(SCRIPT).and_then(|mut file| file.write_all(text.as_bytes()));
            made.map_err(failed("write", &script))?;
        } else if !opened.has_file(SCRIPT).map_err(failed("find", &script))? {
            return Err(other(format!("a {SCRIPT} that is no regular file")));
        }
        let submission = Self { directory, opened, record, is_new };
        submission.store()?;
        Ok(submission)
    }

    /// Reports the script.
    #[must_use]
    pub fn script(&self) -> SlurmEvent {
        SlurmEvent::Script { path: self.directory.join(SCRIPT), is_new: self.is_new }
    }

    /// Submits the shards that are not measured and follows the job, until all shards are measured
    /// or `attempts` jobs of this call have ended. Calls squeue at intervals of `every`. A job of
    /// an earlier call that has not ended is followed first.
    ///
    /// # Errors
    /// [`SlurmError`]. After [`SlurmError::NotMeasured`], the same call can continue.
    pub fn measure(
        &mut self,
        attempts: u32,
        every: Duration,
        event: &mut dyn FnMut(SlurmEvent),
    ) -> Result<(), SlurmError> {
        if let Some(&id) = self.record.submitted.last()
            && !matches!(asked(id)?, JobAnswer::Queue(queue) if queue.is_empty())
        {
            event(SlurmEvent::Found { id });
            self.follow(id, every, event)?;
        }
        let mut left = self.unfinished();
        for _ in 0..attempts {
            if left.is_empty() {
                return Ok(());
            }
            let elements = elements(&numbers(&left));
            let id = self.submit(&elements)?;
            event(SlurmEvent::Submitted { id, elements });
            self.follow(id, every, event)?;
            left = self.unfinished();
            if let Some((_, reason)) = left.first() {
                event(SlurmEvent::Unfinished { shards: numbers(&left), reason: reason.clone() });
            }
        }
        match left.first() {
            None => Ok(()),
            Some((first, reason)) => Err(SlurmError::NotMeasured {
                log: SlurmJob::log(&self.directory, *first),
                reason: reason.clone(),
                shards: numbers(&left),
                all: self.record.job.shards,
                attempts,
            }),
        }
    }

    /// The results directories of all shards.
    #[must_use]
    pub fn shards(&self) -> Vec<PathBuf> {
        (1..=self.record.job.shards).map(|shard| SlurmJob::shard(&self.directory, shard)).collect()
    }

    /// Returns the shards that are not measured completely, and what each lacks. If a file system
    /// shows a node's last writes late, a shard is submitted again and ends at once.
    fn unfinished(&self) -> Vec<(u32, String)> {
        let all = self.record.job.shards;
        let shards = (1..=all).zip(self.shards());
        shards.filter_map(|(shard, path)| Some((shard, missing(&path, Shard::new(shard, all))?))).collect()
    }

    fn submit(&mut self, elements: &str) -> Result<u64, SlurmError> {
        // The whole environment is kept: Slurm gives it to the job, whose command is ours.
        let mut sbatch = Command::new("sbatch");
        sbatch.args(["--parsable", &format!("--array={elements}")]).arg(self.directory.join(SCRIPT));
        let output = output("sbatch", &mut sbatch)?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let id = submitted(&stdout).filter(|_| output.status.success()).ok_or_else(|| SlurmError::Failed {
            program: "sbatch",
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })?;
        self.record.submitted.push(id);
        self.store()?;
        Ok(id)
    }

    /// Replaces the record by a rename, so that it is always whole.
    fn store(&self) -> Result<(), SlurmError> {
        let replaced = self.opened.replace(RECORD, self.record.json().as_bytes());
        replaced.map_err(|source| SlurmError::File { action: "write", path: self.directory.join(RECORD), source })
    }

    /// Waits until job `id` has left the queue.
    fn follow(&self, id: u64, every: Duration, event: &mut dyn FnMut(SlurmEvent)) -> Result<(), SlurmError> {
        let (mut shown, mut gone_since) = (None, None);
        loop {
            match asked(id)? {
                JobAnswer::Queue(queue) => {
                    gone_since = None;
                    let done = self.shards().iter().filter(|shard| shard.join("results.json").exists()).count();
                    let done = u32::try_from(done).unwrap_or(u32::MAX);
                    let progress = queue.progress(self.record.job.shards, done);
                    if shown != Some(progress) {
                        shown = Some(progress);
                        event(SlurmEvent::Progress(progress));
                    }
                    if queue.is_empty() {
                        return Ok(());
                    }
                }
                JobAnswer::NoController(message) => {
                    let since = *gone_since.get_or_insert_with(|| {
                        event(SlurmEvent::NoController(message.clone()));
                        Instant::now()
                    });
                    if since.elapsed() >= PATIENCE {
                        return Err(SlurmError::NoController { message });
                    }
                }
                JobAnswer::Failed(message) => return Err(SlurmError::Failed { program: "squeue", message }),
            }
            thread::sleep(every);
        }
    }
}

/// Returns the numbers of the shards that [`Submission::unfinished`] lists.
fn numbers(left: &[(u32, String)]) -> Vec<u32> {
    left.iter().map(|(shard, _)| *shard).collect()
}

fn asked(id: u64) -> Result<JobAnswer, SlurmError> {
    let mut squeue = bpfassay_child::command("squeue", &[bpfassay_child::SLURM]);
    squeue.args(["--noheader", "--array", "--format=%K %T", "--jobs", &id.to_string()]).env("LC_ALL", "C");
    let output = output("squeue", &mut squeue)?;
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    Ok(JobAnswer::of(output.status.success(), &stdout, &stderr))
}

fn output(program: &'static str, command: &mut Command) -> Result<Output, SlurmError> {
    command.output().map_err(|source| SlurmError::NoProgram { program, source })
}

/// Describes what `shard`, with results in `directory`, lacks; `None` if it is measured completely.
fn missing(directory: &Path, shard: Option<Shard>) -> Option<String> {
    if !directory.join("journal.jsonl").exists() {
        return Some("it was not begun".to_owned());
    }
    let read = match Merge::read(&[directory.to_owned()]) {
        Ok(read) => read,
        Err(error) => return Some(error.to_string()),
    };
    left_of(read.plan(), shard, read.missing())
}

/// Counts the boots of `shard` of `plan` that are in `missing`, the blocks without results; `None`
/// if there are none. `plan` can be the whole plan, as merged results have it.
fn left_of(plan: &Plan, shard: Option<Shard>, missing: &[String]) -> Option<String> {
    let plan = Plan { shard, ..plan.clone() };
    let own = plan.measured_blocks();
    let left = own.iter().filter(|block| missing.contains(&block.id)).count();
    (left > 0).then(|| format!("{left} of its {} boots are missing", own.len()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use bpfassay_study::{Available, Narrowing};

    use super::{slurm_job::tests::job, *};

    #[test]
    fn a_directory_has_one_job_and_a_script_that_was_changed_stays() {
        let work = tempfile::tempdir().unwrap();
        let directory = work.path().join("a/fast");
        let first = Submission::prepare(&directory, job()).unwrap();
        let script = directory.join(SCRIPT);
        assert_eq!(first.script(), SlurmEvent::Script { path: fs::canonicalize(&script).unwrap(), is_new: true });
        fs::write(&script, "#!/bin/sh\nexit 0\n").unwrap();
        let again = Submission::prepare(&directory, job()).unwrap();
        assert!(!again.is_new);
        assert_eq!(fs::read_to_string(&script).unwrap(), "#!/bin/sh\nexit 0\n");
        let other = SlurmJob { shards: 4, ..job() };
        let refused = Submission::prepare(&directory, other).unwrap_err().to_string();
        assert!(refused.contains("an array job of my studies/fast.toml in 8 shards"), "{refused}");
        // Nothing is written into a directory with other files.
        fs::write(work.path().join("a/other"), "").unwrap();
        let refused = Submission::prepare(&work.path().join("a"), job()).unwrap_err().to_string();
        assert!(refused.contains("files that are of no array job"), "{refused}");
        fs::write(directory.join(RECORD), "{}").unwrap();
        let refused = Submission::prepare(&directory, job()).unwrap_err().to_string();
        assert!(refused.contains("that is none of an array job"), "{refused}");
    }

    #[test]
    fn nothing_is_written_or_read_through_a_link_in_the_directory() {
        let work = tempfile::tempdir().unwrap();
        let (victim, outside) = (work.path().join("victim"), work.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        for (name, target) in [(SCRIPT, "missing"), ("shards", "outside"), ("logs", "outside"), (RECORD, "victim")] {
            let directory = work.path().join(format!("job-{name}"));
            drop(Submission::prepare(&directory, job()).unwrap());
            let planted = directory.join(name);
            fs::rename(&planted, work.path().join(format!("was-{name}"))).unwrap();
            if name == RECORD {
                fs::copy(work.path().join("was-job.json"), &victim).unwrap();
            }
            std::os::unix::fs::symlink(work.path().join(target), &planted).unwrap();
            assert!(Submission::prepare(&directory, job()).is_err(), "{name}");
        }
        assert!(!work.path().join("missing").exists());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_the_script_cannot_name_is_refused_before_it_is_made() {
        let work = tempfile::tempdir().unwrap();
        let names: [&[u8]; 5] = [b"a\nb", b"a\rb", b"%j", b"a\\b", b"a\xffb"];
        for name in names {
            let directory = work.path().join(std::ffi::OsStr::from_bytes(name)).join("below");
            let error = Submission::prepare(&directory, job()).unwrap_err();
            assert!(matches!(error, SlurmError::Wrong(WrongJob::Directory { .. })), "{error}");
        }
        assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0);
        let bytes = PathBuf::from(std::ffi::OsStr::from_bytes(b"/opt/\xff"));
        let wrong = [SlurmJob { program: bytes.clone(), ..job() }, SlurmJob { working_directory: bytes, ..job() }];
        for job in wrong {
            assert!(matches!(job.check(), Err(WrongJob::NoText(_))));
        }
    }

    #[test]
    fn a_shard_that_was_not_begun_is_missing() {
        let work = tempfile::tempdir().unwrap();
        assert_eq!(missing(work.path(), None).unwrap(), "it was not begun");
        fs::write(work.path().join("journal.jsonl"), "").unwrap();
        let damaged = missing(work.path(), None).unwrap();
        assert!(damaged.contains("cannot be merged"), "{damaged}");
        let submission = Submission::prepare(&work.path().join("job"), job()).unwrap();
        let left = submission.unfinished();
        assert_eq!(left.len(), 8);
        assert_eq!(left[0], (1, "it was not begun".to_owned()));
    }

    #[test]
    fn of_a_shard_only_its_own_boots_are_missing() {
        let study = bpfassay_study::load("quick").unwrap();
        let plan = bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        let of = |number| plan.clone().of_shard(Shard::new(number, 4).unwrap()).unwrap();
        let ids = |plan: &Plan| plan.measured_blocks().iter().map(|block| block.id.clone()).collect::<Vec<_>>();
        // The results of the first shard lack the boots of the others.
        let others: Vec<String> = (2..=4).flat_map(|number| ids(&of(number))).collect();
        assert_eq!(left_of(&plan, Shard::new(1, 4), &others), None);
        let half = [others.clone(), vec![ids(&of(1))[0].clone()]].concat();
        assert_eq!(left_of(&plan, Shard::new(1, 4), &half).unwrap(), "1 of its 2 boots are missing");
    }
}
