// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent on a running system. It measures on a mounted file system of that system, and reports
//! results in frames on standard output, as guests do through their port.
//!
//! The agent makes no mount that another process sees, inserts no module, changes no setting, and
//! reaps and kills only processes that it started. It removes what it created
//! ([`Environment::leave`]). Before each run it writes out and drops the system's page cache, as
//! guests do.

use std::{fs::File, io, os::fd::AsFd, process::ExitCode};

use bpfassay_protocol::{
    job::{FileSystem, Job, RunSpec, Scheduling, Task},
    message::{GuestFacts, GuestMessage, MountFacts, Phase},
    with_causes,
};

use crate::{
    agent_link::Link,
    agent_run,
    children::Children,
    conditions::Conditions,
    environment::{self, Environment},
    error::{Error, Result},
    facts, nfs, power_off,
    proc::mountinfo,
    read_job, signals,
    steps::Steps,
    stop_request,
};

const USAGE: &str = "usage: bpfassay-guest here --job FILE --mount DIR [--external-ior FILE], or bpfassay-guest clear, which removes what an agent \
                     that was killed has left; as process 1 it is the init of a guest";

/// The command line, parsed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HereArguments {
    /// The job, as JSON.
    job: String,
    /// Mount point of the file system under test.
    mount: String,
    /// Path of the real IOR.
    external_ior: Option<String>,
}

/// Measures as the arguments request. Exit status:
///
/// - 0: all runs were done, whatever their outcomes.
/// - 1: that was not possible, as the last message reports.
/// - 2: the arguments are wrong.
pub(crate) fn main(args: impl Iterator<Item = String>) -> ExitCode {
    let args: Vec<String> = args.collect();
    if args == ["clear"] {
        return clear();
    }
    let Some(arguments) = parse(args.into_iter()) else {
        power_off::say(USAGE);
        return ExitCode::from(2);
    };
    let link = io::stdout().as_fd().try_clone_to_owned().map_err(Error::system("duplicate standard output"));
    let done = link.and_then(|out| Link::into_file(File::from(out))).and_then(|link| {
        let done = measure(&arguments, &link);
        let last = match &done {
            Ok(None) => GuestMessage::Done,
            Ok(Some(last)) => last.clone(),
            Err(error) => GuestMessage::Failed { message: with_causes(error) },
        };
        link.send_last(&last).and(done.map(drop))
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            power_off::say(&with_causes(&error));
            ExitCode::FAILURE
        }
    }
}

/// Removes what a killed agent has left, and reports on standard error what cannot be removed. Exit
/// status 0 if nothing is left, 1 if something is, or another agent measures.
fn clear() -> ExitCode {
    let problems = environment::clear().unwrap_or_else(|error| vec![with_causes(&error)]);
    problems.iter().for_each(|problem| power_off::say(problem));
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Option<HereArguments> {
    if args.next()? != "here" {
        return None;
    }
    let mut arguments = HereArguments::default();
    while let Some(option) = args.next() {
        let value = args.next()?;
        match option.as_str() {
            "--job" => arguments.job = value,
            "--mount" => arguments.mount = value,
            "--external-ior" => arguments.external_ior = Some(value),
            _ => return None,
        }
    }
    (!arguments.job.is_empty() && !arguments.mount.is_empty()).then_some(arguments)
}

/// Measures; returns the last message if it is not "done".
fn measure(arguments: &HereArguments, link: &Link) -> Result<Option<GuestMessage>> {
    signals::block()?;
    signals::block_to_end()?;
    link.phase(Phase::SetUp, None)?;
    let mut steps = Steps::default();
    let job = read_job(&arguments.job)?;
    let runs = runs(&job)?;
    let mount = mountinfo::read(&arguments.mount)?;
    fits(&job.file_system, &mount)?;
    let localio = match &job.file_system {
        FileSystem::Nfs(nfs) => {
            let found = nfs::localio::in_use(&mount.path, &client())?;
            fits_localio(nfs.localio, found)?;
            found
        }
        // NFS of a version that the study does not name.
        FileSystem::Mounted { file_system } if matches!(file_system.as_str(), "nfs" | "nfs4") => {
            nfs::localio::in_use(&mount.path, &client())?
        }
        FileSystem::Tmpfs { .. } | FileSystem::Mounted { .. } => None,
    };
    let mut children = Children::watch()?;
    let (environment, problems) = Environment::here(&mount, arguments.external_ior.as_deref())?;
    let carried_out = execute(
        &job,
        runs,
        &environment,
        problems,
        link,
        || {
            steps.ended("ready")?;
            facts::collect(mount, localio, steps.take())
        },
        &mut children,
    );
    if !stop_request::over() {
        // The thread that watches for reasons to stop has reached its time limit, and ends this
        // process.
        loop {
            std::thread::park();
        }
    }
    let left = environment.leave();
    carried_out.and_then(|last| left.map(|()| last))
}

fn execute(
    job: &Job,
    runs: &[RunSpec],
    environment: &Environment,
    problems: Vec<String>,
    link: &Link,
    facts: impl FnOnce() -> Result<GuestFacts>,
    children: &mut Children,
) -> Result<Option<GuestMessage>> {
    environment.watch()?;
    for problem in problems {
        link.log(problem)?;
    }
    link.send(&GuestMessage::Ready(Box::new(facts()?)))?;
    let mut conditions = Conditions::of(job);
    agent_run::execute_all(runs, environment, &mut conditions, link, children)
}

/// Returns the runs of a job, if all can be done on a running system.
fn runs(job: &Job) -> Result<&[RunSpec]> {
    match &job.task {
        Task::Runs { .. } if !job.modules.is_empty() => {
            Err(Error::Order("the job names modules, and on a running system no module is inserted".to_owned()))
        }
        Task::Runs { .. } if job.scheduling == Scheduling::Fixed => Err(Error::Order(
            "the job fixes how kernel threads are scheduled, and a running system's are left as they are: set `scheduling = \"kernel\"`"
                .to_owned(),
        )),
        Task::Runs { runs } if !job.mounts.is_empty() || runs.iter().any(|run| !run.workload.mounts.is_empty()) => {
            Err(Error::Order("the job has mounts, and on a running system nothing is mounted".to_owned()))
        }
        Task::Runs { runs } => Ok(runs),
        Task::Shell | Task::Serve => {
            Err(Error::Order("the job requests a shell or a server, which only guests have".to_owned()))
        }
    }
}

/// Returns a name for this machine, distinct from other clients of the same file system.
fn client() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')).collect()
}

/// Checks that the file system under test is like `wanted`. The size and the number of the server's
/// threads are not compared.
fn fits(wanted: &FileSystem, mount: &MountFacts) -> Result<()> {
    let (study, fits) = match wanted {
        FileSystem::Nfs(nfs) => {
            (format!("NFS {}", nfs.version), nfs.version.is_mounted(&mount.file_system, &mount.options))
        }
        FileSystem::Tmpfs { .. } => ("tmpfs".to_owned(), mount.file_system == "tmpfs"),
        FileSystem::Mounted { file_system } => (file_system.clone(), mount.file_system == *file_system),
    };
    if fits {
        return Ok(());
    }
    let MountFacts { path, file_system, options, .. } = mount;
    Err(Error::Order(format!(
        "the study runs on {study}, and {path} is {file_system} ({options}): mount that, or change the study"
    )))
}

/// Checks that LOCALIO is as the job requests. `found` is whether it is in use; `None` if the
/// kernel does not have it. The agent cannot switch it here, because that must happen before
/// mounting.
fn fits_localio(wanted: Option<bool>, found: Option<bool>) -> Result<()> {
    match (wanted, found) {
        (Some(wanted), found) if wanted != found.unwrap_or(false) => {
            let state = |on: bool| if on { "in use" } else { "not in use" };
            Err(Error::Order(format!(
                "the study wants NFS LOCALIO {}, and on this mount it is {}: write {} to /sys/module/nfs*/parameters/localio_enabled, \
                 where the kernel has it, and mount again",
                state(wanted),
                state(!wanted),
                if wanted { "Y" } else { "N" }
            )))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::job::{ExtraMount, MountOf, Nfs, NfsVersion};

    use super::*;

    fn arguments(line: &str) -> Option<HereArguments> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_job_and_a_mount_are_needed_and_unknown_options_refused() {
        let whole = arguments("here --mount /mnt/nfs --job j.json").unwrap();
        assert_eq!((whole.job.as_str(), whole.mount.as_str(), whole.external_ior), ("j.json", "/mnt/nfs", None));
        let more = arguments("here --job j --mount /m --external-ior /opt/ior/bin/ior").unwrap();
        assert_eq!(more.external_ior.as_deref(), Some("/opt/ior/bin/ior"));
        for wrong in ["", "there", "here", "here --job j", "here --job", "here --job j --mount /m --fast yes"] {
            assert_eq!(arguments(wrong), None, "{wrong}");
        }
    }

    fn mounted(file_system: &str, options: &str) -> MountFacts {
        let mut mount = MountFacts { path: "/mnt/nfs".to_owned(), ..MountFacts::default() };
        mount.file_system = file_system.to_owned();
        mount.options = options.to_owned();
        mount
    }

    #[test]
    fn only_a_mount_like_that_of_the_study_is_accepted() {
        let nfs = |version| FileSystem::Nfs(Nfs { version, localio: None, threads: 8, size_mib: 64, scheduling: None });
        let v42 = mounted("nfs4", "rw,vers=4.2,rsize=1048576");
        fits(&nfs(NfsVersion::V42), &v42).unwrap();
        fits(&FileSystem::Tmpfs { size_mib: 1 }, &mounted("tmpfs", "rw")).unwrap();
        let error = fits(&nfs(NfsVersion::V41), &v42).unwrap_err().to_string();
        assert!(error.contains("NFS 4.1") && error.contains("vers=4.2"), "{error}");
        assert!(fits(&nfs(NfsVersion::V3), &mounted("ext4", "rw,vers=3")).is_err());
        assert!(fits(&FileSystem::Tmpfs { size_mib: 1 }, &v42).is_err());
        let lustre = FileSystem::Mounted { file_system: "lustre".to_owned() };
        fits(&lustre, &mounted("lustre", "rw,flock")).unwrap();
        assert!(
            fits(&lustre, &v42).unwrap_err().to_string().contains("the study runs on lustre, and /mnt/nfs is nfs4")
        );
    }

    #[test]
    fn localio_is_as_the_study_wants_it_or_nothing_is_measured() {
        for (wanted, found) in
            [(None, Some(true)), (Some(true), Some(true)), (Some(false), Some(false)), (Some(false), None)]
        {
            fits_localio(wanted, found).unwrap();
        }
        assert!(fits_localio(Some(true), None).is_err());
        let error = fits_localio(Some(false), Some(true)).unwrap_err().to_string();
        assert!(error.contains("it is in use: write N"), "{error}");
    }

    #[test]
    fn modules_and_shells_are_for_guests() {
        let job = |modules: &[&str], task| Job {
            modules: modules.iter().map(|&path| path.to_owned()).collect(),
            ..Job::new(FileSystem::Tmpfs { size_mib: 1 }, task)
        };
        assert!(runs(&job(&[], Task::Runs { runs: Vec::new() })).unwrap().is_empty());
        assert!(runs(&job(&["/m.ko"], Task::Runs { runs: Vec::new() })).is_err());
        assert!(runs(&job(&[], Task::Shell)).is_err());
        let again = ExtraMount { path: "/mnt/again".to_owned(), of: MountOf::Bind(None), private: false };
        assert!(runs(&Job { mounts: vec![again], ..job(&[], Task::Runs { runs: Vec::new() }) }).is_err());
        let fixed = Job { scheduling: Scheduling::Fixed, ..job(&[], Task::Runs { runs: Vec::new() }) };
        assert!(runs(&fixed).unwrap_err().to_string().contains("left as they are"));
    }
}
