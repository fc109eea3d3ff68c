// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workload's command line and process.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::AsRawFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bpfassay_protocol::{
    control::ENVIRONMENT,
    job::{DIRECTORY, Program, SUMMARY, Summary, Workload},
    nodes::{NODE, Node},
    run_name,
};
use rustix::process::Pid;

use crate::{
    capture::Capture,
    cgroup::Cgroup,
    children::pid_of,
    environment::Environment,
    error::{Error, Result},
    mounts::{self, Namespace},
    nfs::remove_tree,
    output_tail,
    test_dir::{RunDirectory, TestDir},
};

/// Largest summary that is passed on, in bytes.
const MAX_SUMMARY: u64 = 1 << 20;

/// Where programs are searched for.
pub(crate) const PATH: &str = "/bpfassay:/bpfassay/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// Directories and files of one run.
#[derive(Debug)]
pub(crate) struct RunPaths<'a> {
    /// The machine.
    pub environment: &'a Environment,
    /// Name of both directories.
    name: String,
    /// Directory on the file system under test, the workload's working directory.
    pub data: String,
    /// Directory for everything else of this run.
    pub work: String,
    /// What [`Self::data`] leads to.
    directory: Option<RunDirectory>,
}

impl<'a> RunPaths<'a> {
    /// For run `id`.
    pub(crate) fn new(environment: &'a Environment, id: &str) -> Self {
        let name = run_name::of(id);
        let data = match &environment.test_dir {
            TestDir::Guest { path } => format!("{path}/{name}"),
            // Known after it is made.
            TestDir::Here(_) => String::new(),
        };
        let work = format!("{}/{name}", environment.work);
        Self { environment, name, data, work, directory: None }
    }

    /// Makes both directories.
    pub(crate) fn make(&mut self) -> Result<()> {
        let made = self.environment.test_dir.make_run(&self.name)?;
        self.data = made.path.clone();
        self.directory = Some(made);
        self.make_work()
    }

    /// Makes that for everything else: the data of several nodes lie in one directory, which the first of them has made.
    pub(crate) fn make_work(&self) -> Result<()> {
        fs::create_dir_all(&self.work).map_err(Error::file("make directory", &self.work))
    }

    /// Removes both, of several nodes the first one that of the data.
    pub(crate) fn remove(&self) -> Result<()> {
        if self.environment.node.is_none_or(Node::is_first) {
            self.environment.test_dir.remove_run(&self.name)?;
        }
        remove_tree(&self.work)
    }

    /// The workload's JSON summary.
    pub(crate) fn summary(&self) -> String {
        format!("{}/summary.json", self.work)
    }

    /// A new file for output of `program`, readable and writable.
    pub(crate) fn output(&self, program: &str) -> Result<File> {
        let path = format!("{}/{program}.out", self.work);
        File::options().read(true).write(true).create_new(true).open(&path).map_err(Error::file("make", path))
    }

    /// The summary's text.
    pub(crate) fn read_summary(&self) -> Result<String> {
        let path = self.summary();
        let mut text = String::new();
        File::open(&path)
            .and_then(|file| file.take(MAX_SUMMARY + 1).read_to_string(&mut text))
            .map_err(Error::file("read the workload's summary", &path))?;
        if text.len() as u64 > MAX_SUMMARY {
            return Err(Error::unexpected(path, format!("at most {MAX_SUMMARY} bytes of summary"), &text));
        }
        Ok(text)
    }
}

/// What to execute.
#[derive(Debug, PartialEq, Eq)]
struct CommandLine {
    program: String,
    arguments: Vec<String>,
    environment: &'static [(&'static str, &'static str)],
}

/// Open MPI refuses to run as root, and more ranks than cores, unless these are set; others ignore them.
const OF_LAUNCHER: &[(&str, &str)] = &[
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
];

/// The command line of `workload`; `launcher` is the `mpiexec` for a real IOR with several ranks.
fn command_line(workload: &Workload, paths: &RunPaths<'_>, launcher: Option<&str>) -> Result<CommandLine> {
    let summary = paths.summary();
    let place = paths.environment.node.map(Node::place);
    let placed = |argument: &String| {
        let mut argument = argument.replace(DIRECTORY, &paths.data);
        if let Some(place) = &place {
            argument = argument.replace(NODE, place);
        }
        match workload.summary {
            Summary::File => argument.replace(SUMMARY, &summary),
            Summary::Output => argument,
        }
    };
    let mut arguments: Vec<String> = workload.arguments.iter().map(placed).collect();
    let program = program(workload, paths.environment).to_owned();
    let Program::ExternalIor { ranks: ranks @ 2.. } = workload.program else {
        return Ok(CommandLine { program, arguments, environment: &[] });
    };
    let launcher = launcher.ok_or_else(|| {
        Error::Order(format!(
            "{ranks} ranks of a real IOR need `mpiexec` beside `ior` in its directory tree, or in /usr/bin there"
        ))
    })?;
    arguments.splice(0..0, ["-n".to_owned(), ranks.to_string(), program]);
    Ok(CommandLine { program: launcher.to_owned(), arguments, environment: OF_LAUNCHER })
}

/// The program that does the I/O of `workload`.
pub(crate) fn program<'a>(workload: &'a Workload, environment: &'a Environment) -> &'a str {
    match &workload.program {
        Program::Bundled => &environment.ior,
        Program::ExternalIor { .. } => &environment.external_ior,
        Program::Path { path } => path,
    }
}

/// `mpiexec` beside the real IOR, else the system's.
fn find_launcher(environment: &Environment) -> Option<String> {
    let ior = fs::canonicalize(&environment.external_ior).ok();
    let beside = ior.as_deref().and_then(Path::parent).map(|directory| directory.join("mpiexec"));
    [beside, Some("/usr/bin/mpiexec".into())]
        .into_iter()
        .flatten()
        .find(|path| path.exists())
        .map(|path| path.display().to_string())
}

/// The agent's ends of the control channel.
#[derive(Debug)]
pub(crate) struct Control {
    /// Events are read from this one, and one byte written to it releases the workload.
    pub socket: UnixStream,
}

/// A running workload.
#[derive(Debug)]
pub(crate) struct Running {
    /// Its first process.
    pub pid: Pid,
    /// Where it can be held between phases; `None` for engines that cannot.
    pub control: Option<Control>,
    /// What it prints.
    pub output: Output,
    /// When it is killed; `None`: the host has a deadline.
    pub deadline: Option<Instant>,
    /// Its program, for messages.
    pub program: String,
}

/// Where the output of a workload goes.
#[derive(Debug)]
pub(crate) enum Output {
    /// A file, read for messages only: its summary is in a file of its own.
    File(File),
    /// Its output is its summary.
    Captured(Capture),
}

impl Running {
    /// The tail of its output.
    pub(crate) fn output_tail(&mut self) -> String {
        match &mut self.output {
            Output::File(file) => output_tail::of_file(file),
            Output::Captured(capture) => capture.output_tail(),
        }
    }
}

/// Starts `workload` inside `cgroup`.
pub(crate) fn start(workload: &Workload, paths: &RunPaths<'_>, cgroup: &Cgroup) -> Result<Running> {
    let is_external = matches!(workload.program, Program::ExternalIor { .. });
    if is_external && !Path::new(&paths.environment.external_ior).exists() {
        return Err(Error::Order("the guest holds no real IOR: give one with `--ior ARCH=DIR`".to_owned()));
    }
    let line = command_line(workload, paths, find_launcher(paths.environment).as_deref())?;
    let program = line.program.clone();
    let spawn_error = |source| Error::Spawn { program: program.clone(), source };
    let mut command = line.command(paths);
    let output = match workload.summary {
        Summary::Output => {
            let (capture, output, error) = Capture::open().map_err(spawn_error)?;
            command.stdout(output).stderr(error);
            Output::Captured(capture)
        }
        Summary::File => {
            let output = paths.output("workload")?;
            command.stdout(output.try_clone().map_err(spawn_error)?).stderr(output.try_clone().map_err(spawn_error)?);
            Output::File(output)
        }
    };
    let deadline = workload.deadline_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
    let (control, theirs) = match workload.control {
        true => {
            let (ours, theirs) = UnixStream::pair().map_err(spawn_error)?;
            command.env(ENVIRONMENT, theirs.as_raw_fd().to_string());
            (Some(Control { socket: ours }), Some(theirs))
        }
        false => (None, None),
    };
    let namespace = Namespace::with(&workload.mounts, &paths.environment.mount)?;
    let theirs_fd = theirs.as_ref().map(|socket| socket.as_raw_fd());
    let child = spawn_in(cgroup, command, theirs_fd, namespace)?.map_err(spawn_error)?;
    drop(theirs);
    Ok(Running { pid: pid_of(&child)?, control, output, deadline, program })
}

/// The process that does I/O beside a workload.
#[derive(Debug)]
pub(crate) struct Neighbour {
    /// Its process.
    pub pid: Pid,
    /// Its standard error.
    pub output: File,
}

/// Starts the neighbour inside `cgroup` and waits until it does I/O.
pub(crate) fn start_neighbour(paths: &RunPaths<'_>, cgroup: &Cgroup) -> Result<Neighbour> {
    let line = CommandLine {
        program: paths.environment.ior.clone(),
        arguments: vec!["neighbour".to_owned(), format!("{}/neighbour", paths.data)],
        environment: &[],
    };
    let spawn_error = |source| Error::Spawn { program: NEIGHBOUR.to_owned(), source };
    let mut output = paths.output("neighbour")?;
    let (mut greeting, theirs) = io::pipe().map_err(spawn_error)?;
    let mut command = line.command(paths);
    command.stdout(theirs).stderr(output.try_clone().map_err(spawn_error)?);
    // The command, and with it this process's copy of the pipe's other end, is dropped when this returns.
    let child = spawn_in(cgroup, command, None, Namespace::default())?.map_err(spawn_error)?;
    match greeting.read(&mut [0]) {
        Ok(1) => Ok(Neighbour { pid: pid_of(&child)?, output }),
        Ok(_) => Err(Error::Program {
            program: NEIGHBOUR.to_owned(),
            problem: "ended before it was at work".to_owned(),
            output: output_tail::of_file(&mut output),
        }),
        Err(error) => Err(Error::system("wait for the neighbour")(error)),
    }
}

/// Its name in messages.
pub(crate) const NEIGHBOUR: &str = "the neighbour";

impl CommandLine {
    fn command(&self, paths: &RunPaths<'_>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", "/root")
            .env("LC_ALL", "C")
            .envs(self.environment.iter().copied())
            .current_dir(&paths.data)
            .stdin(Stdio::null());
        command
    }
}

/// Starts `command` inside `cgroup` and `namespace`, where it inherits one descriptor besides the usual three.
pub(crate) fn spawn_in(
    cgroup: &Cgroup,
    mut command: Command,
    inherited: Option<i32>,
    namespace: Namespace,
) -> Result<io::Result<Child>> {
    let mut door = cgroup.door()?;
    let prepare = move || {
        // Joins the cgroup before the program is executed, so that everything it does counts there.
        door.write_all(b"0")?;
        namespace.enter().map_err(mounts::as_io)?;
        if let Some(fd) = inherited {
            // SAFETY: the descriptor is open in this process, a copy of the agent.
            if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec `prepare` makes only the system calls write, unshare, mount and fcntl and allocates nothing.
    unsafe { command.pre_exec(prepare) };
    Ok(command.spawn())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(workload: &Workload, launcher: Option<&str>) -> Result<CommandLine> {
        let environment = Environment::guest("/mnt/nfs", None);
        command_line(workload, &RunPaths::new(&environment, "r1"), launcher)
    }

    fn workload(program: Program, arguments: &[&str], summary: Summary) -> Workload {
        Workload {
            program,
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            summary,
            control: false,
            deadline_ms: None,
            neighbour: false,
            mounts: Vec::new(),
            features: false,
            engine: None,
        }
    }

    #[test]
    fn placeholders_become_paths_of_the_run() {
        let io_paths = ["io-paths", "{directory}", "8192", "{summary}", "--file={directory}/x{y}"];
        let line = line(&workload(Program::Bundled, &io_paths, Summary::File), None).unwrap();
        assert_eq!(line.program, "/bpfassay/ior");
        assert_eq!(
            line.arguments.join(" "),
            "io-paths /mnt/nfs/run-r1 8192 /run/bpfassay/run-r1/summary.json --file=/mnt/nfs/run-r1/x{y}"
        );
        assert!(line.environment.is_empty());
    }

    #[test]
    fn a_program_without_a_summary_file_is_given_no_path_of_one() {
        let fio = Program::Path { path: "/usr/bin/fio".to_owned() };
        let workload = workload(fio, &["--directory={directory}", "{summary}"], Summary::Output);
        let line = line(&workload, None).unwrap();
        assert_eq!(
            (line.program.as_str(), line.arguments.join(" ").as_str()),
            ("/usr/bin/fio", "--directory=/mnt/nfs/run-r1 {summary}")
        );
        assert_eq!(program(&workload, &Environment::guest("/mnt/nfs", None)), "/usr/bin/fio");
    }

    #[test]
    fn one_rank_of_a_real_ior_needs_no_launcher() {
        let ior = workload(Program::ExternalIor { ranks: 1 }, &["-w", "-t", "1m"], Summary::File);
        let line = line(&ior, None).unwrap();
        assert_eq!(line.program, "/bpfassay/external-ior");
        assert_eq!(line.arguments[..2], ["-w", "-t"]);
    }

    #[test]
    fn several_ranks_of_a_real_ior_are_launched() {
        let ior = workload(Program::ExternalIor { ranks: 4 }, &["-w", "-t", "1m"], Summary::File);
        let launched = line(&ior, Some("/opt/ior/bin/mpiexec")).unwrap();
        assert_eq!(launched.program, "/opt/ior/bin/mpiexec");
        assert_eq!(launched.arguments[..4], ["-n", "4", "/bpfassay/external-ior", "-w"]);
        assert!(launched.environment.contains(&("OMPI_ALLOW_RUN_AS_ROOT", "1")));
        let error = line(&ior, None).unwrap_err();
        assert!(error.to_string().contains("mpiexec"), "{error}");
    }
}
