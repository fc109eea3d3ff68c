// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the output of Slurm's programs, and counts the shards in each state. Pure.

use std::{collections::BTreeMap, fmt};

/// Output when no controller answers. It says nothing about the job.
const NO_CONTROLLER: [&str; 4] =
    ["Unable to contact slurm controller", "Connection refused", "Connection timed out", "Socket timed out"];
/// Output of squeue about a job that it has forgotten.
const FORGOTTEN: &str = "Invalid job id";

/// Elements of an array in the queue, by number, with their states.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Queue(BTreeMap<u32, String>);

/// The answer of squeue about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JobAnswer {
    /// The job's elements in the queue; empty if the job has ended.
    Queue(Queue),
    /// No controller answers.
    NoController(String),
    /// Another failure.
    Failed(String),
}

impl JobAnswer {
    /// Reads the output and exit status of `squeue --noheader --array --format="%K %T"`. Lines of
    /// other forms are ignored.
    pub(super) fn of(success: bool, stdout: &str, stderr: &str) -> Self {
        if success {
            let element = |line: &str| {
                let (element, state) = line.trim().split_once(' ')?;
                Some((element.parse().ok()?, state.trim().to_owned()))
            };
            return Self::Queue(Queue(stdout.lines().filter_map(element).collect()));
        }
        let problem = stderr.trim().to_owned();
        match problem {
            _ if problem.contains(FORGOTTEN) => Self::Queue(Queue::default()),
            _ if is_without_controller(&problem) => Self::NoController(problem),
            _ => Self::Failed(problem),
        }
    }
}

/// Returns whether the output of a failed program of Slurm says that no controller answers.
pub fn is_without_controller(printed: &str) -> bool {
    NO_CONTROLLER.iter().any(|text| printed.contains(text))
}

impl Queue {
    /// Returns whether the job has ended.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts the shards in each state. There are `all` shards, and `done` of them have results.
    pub(super) fn progress(&self, all: u32, done: u32) -> SlurmProgress {
        let of = |states: &[&str]| {
            let count = self.0.values().filter(|state| states.contains(&state.as_str())).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        let running = of(&["RUNNING", "COMPLETING", "CONFIGURING", "STAGE_OUT", "SIGNALING"]);
        let waiting = u32::try_from(self.0.len()).unwrap_or(u32::MAX).saturating_sub(running);
        SlurmProgress { all, done, running, waiting }
    }
}

/// The progress of an array job, in shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlurmProgress {
    all: u32,
    done: u32,
    running: u32,
    waiting: u32,
}

impl fmt::Display for SlurmProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { all, done, running, waiting } = self;
        write!(f, "{done} of {all} shards have results, {running} running, {waiting} waiting")
    }
}

/// Returns the job id in the output of `sbatch --parsable`: `ID` or `ID;CLUSTER`.
pub(super) fn submitted(stdout: &str) -> Option<u64> {
    stdout.trim().split(';').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_states_as_squeue_prints_them() {
        let JobAnswer::Queue(queue) =
            JobAnswer::of(true, "3 RUNNING\n1 COMPLETING\n 12 PENDING\n4 SUSPENDED\nN/A RUNNING\nx\n", "")
        else {
            panic!("no queue");
        };
        assert_eq!(queue.progress(16, 5).to_string(), "5 of 16 shards have results, 2 running, 2 waiting");
        assert_eq!(JobAnswer::of(true, "", ""), JobAnswer::Queue(Queue::default()));
        assert!(Queue::default().is_empty() && !queue.is_empty());
    }

    /// The texts are those of Slurm 22.05.
    #[test]
    fn a_job_that_is_forgotten_has_ended_and_a_controller_that_is_gone_says_nothing() {
        let forgotten = "slurm_load_jobs error: Invalid job id specified\n";
        assert_eq!(JobAnswer::of(false, "", forgotten), JobAnswer::Queue(Queue::default()));
        let gone = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)";
        assert_eq!(JobAnswer::of(false, "", gone), JobAnswer::NoController(gone.to_owned()));
        assert_eq!(JobAnswer::of(false, "", "squeue: error: x"), JobAnswer::Failed("squeue: error: x".to_owned()));
    }

    #[test]
    fn an_id_is_read_with_and_without_a_cluster() {
        assert_eq!(
            [submitted("17\n"), submitted("17;alpha\n"), submitted("no\n"), submitted("")],
            [Some(17), Some(17), None, None]
        );
    }
}
