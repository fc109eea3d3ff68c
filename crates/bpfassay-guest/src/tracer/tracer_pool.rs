// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracers whose programs stay loaded between the runs of a job. Loading takes several times as
//! long as attaching. In addition, a run with the tracer and one without then differ in attachment
//! only.

use std::{collections::BTreeMap, fs::File};

use bpfassay_protocol::job::RunSpec;

use super::{Periodic, Process, Remains, TracerProcess, TracerStart, arguments};
use crate::{children::Children, environment::Environment, error::Result, soundness::KeptFacts};

/// Most tracers that are kept at once. The memory that they hold is not available to runs.
const MOST: usize = 12;

/// The tracers of a job.
pub(crate) struct Pool {
    /// The number of runs to come, by the tracer's arguments.
    to_come: BTreeMap<Vec<String>, usize>,
    kept: Vec<(Process, KeptFacts)>,
}

impl Pool {
    /// Creates the pool for a job with these runs.
    pub(crate) fn new(specs: &[RunSpec], environment: &Environment) -> Self {
        let mut to_come = BTreeMap::new();
        for spec in specs.iter().filter(|spec| may_be_kept(spec)) {
            *to_come.entry(arguments(spec, environment)).or_default() += 1;
        }
        Self { to_come, kept: Vec::new() }
    }

    /// Makes the tracer of `spec` attach, a kept one or a new one, and waits until it counts or
    /// refuses. Standard error of a new tracer goes to the file that `stderr` makes.
    pub(crate) fn start(
        &mut self,
        spec: &RunSpec,
        environment: &Environment,
        stderr: impl FnOnce() -> Result<File>,
        children: &mut Children,
        notes: &mut Vec<String>,
    ) -> Result<TracerStart> {
        let arguments = arguments(spec, environment);
        if !may_be_kept(spec) {
            return Process::start(arguments, false, environment, stderr()?, children)?.attached(children);
        }
        let kept = self.kept.iter().position(|(process, _)| process.arguments == arguments);
        if let Some(at) = kept {
            let (mut process, _) = self.kept.remove(at);
            let attached = match process.forget_output() {
                Ok(()) => process.attach(children),
                Err(source) => {
                    process.end(children, &mut Periodic::default(), notes)?;
                    Err(crate::error::Error::system("empty the tracer's output")(source))
                }
            };
            match attached {
                Ok(started) => {
                    self.used(&arguments);
                    return Ok(started);
                }
                Err(error) => notes.push(format!("{error}; it was loaded for an earlier run, and is loaded again")),
            }
        }
        self.used(&arguments);
        if self.to_come.get(&arguments).is_none_or(|runs| *runs == 0) || self.kept.len() >= MOST {
            return Process::start(arguments, false, environment, stderr()?, children)?.attached(children);
        }
        Process::start(arguments, true, environment, stderr()?, children)?.attach(children)
    }

    /// Subtracts one from the number of runs to come with these arguments.
    fn used(&mut self, arguments: &[String]) {
        if let Some(runs) = self.to_come.get_mut(arguments) {
            *runs = runs.saturating_sub(1);
        }
    }

    /// Detaches `tracer`, and ends it unless a run to come can use it.
    pub(crate) fn stop(&mut self, tracer: TracerProcess, children: &mut Children) -> Result<Remains> {
        let arguments = &tracer.process.arguments;
        if !tracer.process.keeps_loaded || self.to_come.get(arguments).is_none_or(|runs| *runs == 0) {
            return tracer.stop(children);
        }
        let (mut remains, process) = tracer.detach(children)?;
        if let Some(process) = process {
            match KeptFacts::of_process(process.pid) {
                Ok(facts) => self.kept.push((process, facts)),
                Err(problem) => {
                    remains.notes.push(format!("the tracer does not stay loaded: {problem}"));
                    process.end(children, &mut Periodic::default(), &mut remains.notes)?;
                }
            }
        }
        Ok(remains)
    }

    /// Returns the facts of all kept tracers, which are allowed to exist between runs.
    pub(crate) fn kept(&self) -> KeptFacts {
        self.kept.iter().map(|(_, kept)| kept.clone()).collect()
    }

    /// Ends all kept tracers. Returns notes on that.
    pub(crate) fn end(self, children: &mut Children) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        for (process, _) in self.kept {
            process.end(children, &mut Periodic::default(), &mut notes)?;
        }
        Ok(notes)
    }
}

/// Returns whether the tracer of `spec` can serve other runs, too. Statistics of programs are
/// enabled for one tracer and one run. A run with a tool under test needs a tracer that no other
/// tool could reach before.
fn may_be_kept(spec: &RunSpec) -> bool {
    !spec.probe.is_baseline() && !spec.bpf_stats && spec.tool.is_none()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

    use super::{super::tests::spec, *};
    use crate::signals;

    /// A tracer that records each of its starts. It refuses its second attachment if the file
    /// `refuse` exists.
    const SCRIPT: &str = r#"#!/bin/sh
cd DIRECTORY; echo $$ $* >>starts
ready='{"type":"ready","configuration":"kprobe","attach_ns":1,"programs":[]}'
ended='{"type":"ended","detach_ns":1,"findings":[],"statistics":[],"events":null}'
attached=0; times=0
case "$*" in *--keep-loaded*) ;; *) echo "$ready"; attached=1;; esac
while read command; do
    case $command in
    attach) times=$((times+1))
        test -e refuse -a $times = 2 && { echo '{"type":"refused","step":"attach","program":null,"errno":22,"message":"x","verifier":null}'; exit 3; }
        echo "$ready"; attached=1;;
    detach) echo "$ended"; attached=0;;
    esac
done
test $attached = 0 || echo "$ended"
"#;

    struct Bench {
        directory: tempfile::TempDir,
        environment: Environment,
        children: Children,
        pool: Pool,
    }

    impl Bench {
        /// Creates a bench. Call this in [`alone`].
        fn new(specs: &[RunSpec]) -> Self {
            signals::block().unwrap();
            let directory = tempfile::tempdir().unwrap();
            let tracer = directory.path().join("tracer");
            fs::write(&tracer, SCRIPT.replace("DIRECTORY", directory.path().to_str().unwrap())).unwrap();
            fs::set_permissions(&tracer, fs::Permissions::from_mode(0o755)).unwrap();
            let mut environment = Environment::guest("/mnt/nfs", None);
            environment.tracer = tracer.to_str().unwrap().to_owned();
            let pool = Pool::new(specs, &environment);
            Self { directory, environment, children: Children::watch().unwrap(), pool }
        }

        /// Executes a run of `spec`. Returns the run's notes, or `None` if the tracer refused.
        fn run(&mut self, spec: &RunSpec) -> Option<Vec<String>> {
            let mut notes = Vec::new();
            let stderr = || Ok(tempfile::tempfile().unwrap());
            let started = self.pool.start(spec, &self.environment, stderr, &mut self.children, &mut notes);
            match started.unwrap() {
                TracerStart::Attached(tracer) => {
                    let remains = self.pool.stop(*tracer, &mut self.children).unwrap();
                    assert!(remains.ended.is_some(), "{:?}", remains.notes);
                    notes.extend(remains.notes);
                    Some(notes)
                }
                TracerStart::Refused(_) => None,
            }
        }

        /// Returns the process id of each tracer that was started, and whether it was told to keep
        /// its programs loaded.
        fn starts(&self) -> Vec<(i32, bool)> {
            let text = fs::read_to_string(self.directory.path().join("starts")).unwrap();
            let of = |line: &str| (line.split(' ').next().unwrap().parse().unwrap(), line.contains("--keep-loaded"));
            text.lines().map(of).collect()
        }
    }

    /// Executes `test` in a process with one thread. The exit of a child sends a signal that every
    /// thread must block, and test programs have other threads.
    fn alone(test: impl FnOnce()) {
        // SAFETY: the child has one thread, which executes only the test and ends without
        // returning.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test)).is_ok();
            // SAFETY: the call uses no address.
            unsafe { libc::_exit(i32::from(!passed)) };
        }
        let mut status = 0;
        // SAFETY: the status lives.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the test failed in its process");
    }

    fn lives(pid: i32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_tracer_is_kept_as_long_as_runs_are_to_come() {
        alone(|| {
            let specs = ["kprobe", "fexit", "kprobe", "kprobe"].map(|probe| spec(probe, None));
            let mut bench = Bench::new(&specs);
            assert_eq!(bench.run(&specs[0]), Some(vec![]));
            let (kept, keeps_loaded) = bench.starts()[0];
            assert!(keeps_loaded && lives(kept) && bench.pool.kept.len() == 1);
            // No other run with these arguments is to come.
            assert_eq!(bench.run(&specs[1]), Some(vec![]));
            let (other, keeps_loaded) = bench.starts()[1];
            assert!(!keeps_loaded && !lives(other));
            assert_eq!(bench.run(&specs[2]), Some(vec![]));
            assert!(lives(kept));
            assert_eq!(bench.run(&specs[3]), Some(vec![]));
            assert!(!lives(kept) && bench.pool.kept.is_empty());
            assert_eq!(bench.starts().len(), 2);
            assert_eq!(bench.pool.end(&mut bench.children).unwrap(), [""; 0]);
        });
    }

    #[test]
    fn one_that_was_killed_is_loaded_anew_and_that_is_noted() {
        alone(|| {
            let specs = [(); 3].map(|()| spec("kprobe", None));
            let mut bench = Bench::new(&specs);
            assert_eq!(bench.run(&specs[0]), Some(vec![]));
            rustix::process::kill_process(bench.pool.kept[0].0.pid, rustix::process::Signal::KILL).unwrap();
            let notes = bench.run(&specs[1]).unwrap();
            assert!(notes.len() == 1 && notes[0].ends_with("is loaded again"), "{notes:?}");
            assert_eq!((bench.starts().len(), bench.pool.kept.len()), (2, 1));
            let Bench { pool, mut children, .. } = bench;
            let last = pool.kept[0].0.pid.as_raw_nonzero().get();
            assert_eq!(pool.end(&mut children).unwrap(), [""; 0]);
            assert!(!lives(last));
        });
    }

    #[test]
    fn one_that_refuses_is_not_kept() {
        alone(|| {
            let specs = [(); 4].map(|()| spec("kprobe", None));
            let mut bench = Bench::new(&specs);
            fs::write(bench.directory.path().join("refuse"), "").unwrap();
            assert_eq!(bench.run(&specs[0]), Some(vec![]));
            assert_eq!(bench.run(&specs[1]), None);
            assert!(bench.pool.kept.is_empty());
            assert_eq!(bench.run(&specs[2]), Some(vec![]));
            assert_eq!(bench.starts().len(), 2);
        });
    }

    #[test]
    fn a_run_that_another_tracer_could_disturb_has_a_tracer_of_its_own() {
        assert!(may_be_kept(&spec("kprobe", Some(7))));
        assert!(!may_be_kept(&spec("none", None)));
        assert!(!may_be_kept(&RunSpec { bpf_stats: true, ..spec("kprobe", None) }));
    }
}
