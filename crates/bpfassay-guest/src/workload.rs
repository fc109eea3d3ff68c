// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workload's command line and process.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    net::TcpStream,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use bpfassay_protocol::{
    control::ENVIRONMENT,
    job::{DIRECTORY, Program, SCRIPT, SUMMARY, SummarySource, Workload},
    job_nodes::{NODE, Node},
    layout, run_name,
};
use rustix::process::Pid;

use crate::{
    capture::Capture,
    cgroup::Cgroup,
    children::pid_of,
    environment::Environment,
    error::{Error, Result},
    namespace_mounts::Namespace,
    nfs::remove_tree,
    output_tail,
    ranks::{self, Part, Ranks},
    test_dir::{RunDirectory, TestDir},
};

/// Largest summary that is passed on, in bytes.
const MAX_SUMMARY: u64 = 1 << 20;

/// Directories in which programs are searched for.
pub(crate) const PATH: &str = "/bpfassay:/bpfassay/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// Directories and files of one run.
#[derive(Debug)]
pub(crate) struct RunPaths<'a> {
    pub environment: &'a Environment,
    /// Name of both directories.
    name: String,
    /// Directory on the file system under test, the workload's working directory.
    pub data: String,
    /// Directory for all other files of the run.
    pub work: String,
    /// The directory to which [`Self::data`] leads.
    directory: Option<RunDirectory>,
}

impl<'a> RunPaths<'a> {
    /// Creates the paths for run `id`.
    pub(crate) fn new(environment: &'a Environment, id: &str) -> Self {
        let name = run_name::of(id);
        let data = match &environment.test_dir {
            TestDir::Guest { path } => format!("{path}/{name}"),
            // The path is known when the directory has been made.
            TestDir::Here(_) => String::new(),
        };
        let work = format!("{}/{name}", environment.work);
        Self { environment, name, data, work, directory: None }
    }

    /// Returns the paths of the run's bystander. Its data are on a tmpfs that only it has.
    pub(crate) fn of_bystander(&self) -> Self {
        let work = format!("{}/bystander", self.work);
        let data = format!("{work}/data");
        Self { environment: self.environment, name: self.name.clone(), data, work, directory: None }
    }

    /// Creates both directories.
    pub(crate) fn make(&mut self) -> Result<()> {
        let made = self.environment.test_dir.make_run(&self.name)?;
        self.data = made.path.clone();
        self.directory = Some(made);
        self.make_work()
    }

    /// Creates the directory for all other files. The data of several nodes are in one directory,
    /// which the first node has made.
    pub(crate) fn make_work(&self) -> Result<()> {
        fs::create_dir_all(&self.work).map_err(Error::file("make directory", &self.work))
    }

    /// Removes both directories. The data of several nodes are removed by the first node.
    pub(crate) fn remove(&self) -> Result<()> {
        if self.environment.node.is_none_or(Node::is_first) {
            self.environment.test_dir.remove_run(&self.name)?;
        }
        remove_tree(&self.work)
    }

    /// Returns the path of the workload's JSON summary.
    pub(crate) fn summary(&self) -> String {
        format!("{}/summary.json", self.work)
    }

    /// Returns the path of the workload's IOR script.
    pub(crate) fn script(&self) -> String {
        format!("{}/script.ior", self.work)
    }

    /// Returns the directory in which each rank of a real IOR on several nodes leaves a file.
    pub(crate) fn ranks(&self) -> String {
        format!("{}/ranks", self.work)
    }

    /// Creates a new file for output of `program`, readable and writable.
    pub(crate) fn output(&self, program: &str) -> Result<File> {
        let path = format!("{}/{program}.out", self.work);
        File::options().read(true).write(true).create_new(true).open(&path).map_err(Error::file("make", path))
    }

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

/// The program to execute.
#[derive(Debug, PartialEq, Eq)]
struct CommandLine {
    program: String,
    /// `argv[0]`, if it differs from the program's path.
    name: Option<&'static str>,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

/// These variables make Open MPI run as root, start more ranks than cores, and reach other hosts
/// through the agent. Other launchers ignore them.
const OF_LAUNCHER: &[(&str, &str)] = &[
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
    ("PRTE_MCA_hwloc_default_binding_policy", "none"),
    ("OMPI_MCA_plm_rsh_agent", ranks::RSH),
    ("PRTE_MCA_plm_ssh_agent", ranks::RSH),
];

/// Creates the command line of `workload` for this guest's `part`. `launcher` is the `mpiexec` for
/// a real IOR with several ranks.
fn command_line(workload: &Workload, part: Part, paths: &RunPaths<'_>, launcher: Option<&str>) -> Result<CommandLine> {
    let (summary, script) = (paths.summary(), paths.script());
    let place = paths.environment.node.map(Node::place);
    let placed = |argument: &String| {
        let mut argument = argument.replace(DIRECTORY, &paths.data).replace(SCRIPT, &script);
        if let Some(place) = &place {
            argument = argument.replace(NODE, place);
        }
        match workload.summary {
            SummarySource::File => argument.replace(SUMMARY, &summary),
            SummarySource::Output => argument,
        }
    };
    let mut arguments: Vec<String> = workload.arguments.iter().map(placed).collect();
    let program = program(workload, paths.environment).to_owned();
    let Program::ExternalIor { ranks: ranks @ 2.. } = workload.program else {
        return Ok(CommandLine { program, name: None, arguments, environment: Vec::new() });
    };
    let launcher = launcher.ok_or_else(|| {
        Error::Order(format!(
            "{ranks} ranks of a real IOR need `mpiexec` beside `ior` in its directory tree, or in /usr/bin there"
        ))
    })?;
    let mut environment: Vec<_> = OF_LAUNCHER.iter().map(|&(name, value)| (name, value.to_owned())).collect();
    let mut rank = vec![program];
    if let Part::Launches(ranks) = part {
        environment.extend(ranks::launcher_environment(ranks, &paths.work)?);
        rank.splice(0..0, ranks::rank_command(&paths.ranks()));
    }
    arguments.splice(0..0, ["-n".to_owned(), ranks.to_string()].into_iter().chain(rank));
    // If it is called by its path, Open MPI's launcher starts its daemons through a shell, which
    // guests lack.
    let name = matches!(part, Part::Launches(_)).then_some(LAUNCHER);
    Ok(CommandLine { program: launcher.to_owned(), name, arguments, environment })
}

/// Returns the program that does the I/O of `workload`.
pub(crate) fn program<'a>(workload: &'a Workload, environment: &'a Environment) -> &'a str {
    match &workload.program {
        Program::Bundled => &environment.ior,
        Program::ExternalIor { .. } => &environment.external_ior,
        Program::Path { path } => path,
    }
}

/// Name of the program that starts the ranks of a real IOR.
const LAUNCHER: &str = "mpiexec";

/// Returns the `mpiexec` in the directory of the real IOR, or else the system's.
fn find_launcher(environment: &Environment) -> Option<String> {
    let ior = fs::canonicalize(&environment.external_ior).ok();
    let beside = ior.as_deref().and_then(Path::parent).map(|directory| directory.join(LAUNCHER));
    [beside, Some("/usr/bin/mpiexec".into())]
        .into_iter()
        .flatten()
        .find(|path| path.exists())
        .map(|path| path.display().to_string())
}

/// The agent's end of the control channel.
#[derive(Debug)]
pub(crate) struct ControlEnd {
    /// The workload writes events to this socket. One byte written to it releases the workload.
    pub socket: UnixStream,
}

#[derive(Debug)]
pub(crate) struct RunningWorkload {
    /// The first process.
    pub pid: Pid,
    /// The channel that holds the workload between phases; `None` for engines without one.
    pub control: Option<ControlEnd>,
    pub output: Output,
    /// When to kill the workload; `None` if the host has a deadline.
    pub deadline: Option<Instant>,
    /// The program's name, for messages.
    pub program: String,
    /// Connections to other nodes, where processes attend for as long as these are open.
    pub held: Vec<TcpStream>,
}

/// The destination of a workload's output.
#[derive(Debug)]
pub(crate) enum Output {
    /// The output goes to a file that is only read for messages. The summary has its own file.
    File(File),
    /// The output is the summary.
    Captured(Capture),
}

impl RunningWorkload {
    pub(crate) fn output_tail(&mut self) -> String {
        match &mut self.output {
            Output::File(file) => output_tail::of_file(file),
            Output::Captured(capture) => capture.output_tail(),
        }
    }
}

/// Starts `workload`, or this guest's part of it, inside `cgroup`.
pub(crate) fn start(workload: &Workload, part: Part, paths: &RunPaths<'_>, cgroup: &Cgroup) -> Result<RunningWorkload> {
    let is_external = matches!(workload.program, Program::ExternalIor { .. });
    if is_external && !Path::new(&paths.environment.external_ior).exists() {
        return Err(Error::Order("the guest holds no real IOR: give one with `--ior ARCH=DIR`".to_owned()));
    }
    if part != Part::Alone {
        let ranks = paths.ranks();
        fs::create_dir(&ranks).map_err(Error::file("make directory", ranks))?;
    }
    if let Some(script) = &workload.script {
        let path = paths.script();
        fs::write(&path, &script.text).map_err(Error::file("write", path))?;
    }
    let launcher = find_launcher(paths.environment);
    let (mut line, mut inherited) = match part {
        Part::Attends(ranks) => attending(ranks)?,
        Part::Alone | Part::Launches(_) => (command_line(workload, part, paths, launcher.as_deref())?, None),
    };
    if part != Part::Alone
        && let Some(directory) = launcher.as_deref().map(Path::new).and_then(Path::parent)
    {
        // Launchers look in PATH for the programs that they start on each node.
        line.environment.push(("PATH", format!("{}:{PATH}", directory.display())));
    }
    let held = match part {
        Part::Launches(ranks) => ranks::hold(ranks.node)?,
        Part::Alone | Part::Attends(_) => Vec::new(),
    };
    let program = line.program.clone();
    let spawn_error = |source| Error::Spawn { program: program.clone(), source };
    let mut command = line.command(paths);
    let output = match workload.summary {
        SummarySource::Output => {
            let (capture, output, error) = Capture::open().map_err(spawn_error)?;
            command.stdout(output).stderr(error);
            Output::Captured(capture)
        }
        SummarySource::File => {
            let output = paths.output("workload")?;
            command.stdout(output.try_clone().map_err(spawn_error)?).stderr(output.try_clone().map_err(spawn_error)?);
            Output::File(output)
        }
    };
    let deadline = workload.deadline_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
    let mut control = None;
    if workload.control {
        let (ours, theirs) = UnixStream::pair().map_err(spawn_error)?;
        command.env(ENVIRONMENT, theirs.as_raw_fd().to_string());
        control = Some(ControlEnd { socket: ours });
        inherited = Some(theirs.into());
    }
    let namespace = Namespace::with(&workload.mounts, &paths.environment.mount)?;
    let child = spawn_in(cgroup, command, inherited.as_ref().map(AsRawFd::as_raw_fd), move || namespace.enter())?
        .map_err(spawn_error)?;
    drop(inherited);
    Ok(RunningWorkload { pid: pid_of(&child)?, control, output, deadline, program, held })
}

/// Returns the command line of a process that attends, and the socket that it inherits.
fn attending(ranks: Ranks) -> Result<(CommandLine, Option<OwnedFd>)> {
    let socket = OwnedFd::from(ranks::listen(ranks.node)?);
    let arguments = ranks::attending(socket.as_raw_fd()).into();
    let program = layout::AGENT.to_owned();
    Ok((CommandLine { program, name: None, arguments, environment: Vec::new() }, Some(socket)))
}

/// The process that does I/O at the same time as a workload.
#[derive(Debug)]
pub(crate) struct Neighbour {
    pub pid: Pid,
    /// Standard error of the process.
    pub output: File,
}

/// Starts the neighbour inside `cgroup` and waits until it does I/O.
pub(crate) fn start_neighbour(paths: &RunPaths<'_>, cgroup: &Cgroup) -> Result<Neighbour> {
    let line = CommandLine {
        program: paths.environment.ior.clone(),
        name: None,
        arguments: vec!["neighbour".to_owned(), format!("{}/neighbour", paths.data)],
        environment: Vec::new(),
    };
    let spawn_error = |source| Error::Spawn { program: NEIGHBOUR.to_owned(), source };
    let mut output = paths.output("neighbour")?;
    let (mut greeting, theirs) = io::pipe().map_err(spawn_error)?;
    let mut command = line.command(paths);
    command.stdout(theirs).stderr(output.try_clone().map_err(spawn_error)?);
    // `spawn_in` drops the command, and with it this process's copy of the pipe's other end.
    let child = spawn_in(cgroup, command, None, || Ok(()))?.map_err(spawn_error)?;
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

/// Name of the neighbour in messages.
pub(crate) const NEIGHBOUR: &str = "the neighbour";

impl CommandLine {
    fn command(&self, paths: &RunPaths<'_>) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(name) = self.name {
            command.arg0(name);
        }
        command
            .args(&self.arguments)
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", "/root")
            .env("LC_ALL", "C")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&paths.data)
            .stdin(Stdio::null());
        command
    }
}

/// Starts `command` inside `cgroup`. It inherits one descriptor in addition to the usual three.
/// Before it executes the program, it calls `enter`, which allocates nothing.
pub(crate) fn spawn_in(
    cgroup: &Cgroup,
    mut command: Command,
    inherited: Option<i32>,
    enter: impl Fn() -> rustix::io::Result<()> + Send + Sync + 'static,
) -> Result<io::Result<Child>> {
    let mut door = cgroup.door()?;
    let prepare = move || {
        // The process joins the cgroup before it executes the program, so that all of the program
        // counts.
        door.write_all(b"0")?;
        enter()?;
        if let Some(fd) = inherited {
            // SAFETY: the descriptor is open in this process, a copy of the agent.
            if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec `prepare` only makes system calls, and allocates nothing.
    unsafe { command.pre_exec(prepare) };
    Ok(command.spawn())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(workload: &Workload, launcher: Option<&str>) -> Result<CommandLine> {
        let environment = Environment::guest("/mnt/nfs", None);
        command_line(workload, Part::Alone, &RunPaths::new(&environment, "r1"), launcher)
    }

    fn workload(program: Program, arguments: &[&str], summary: SummarySource) -> Workload {
        Workload {
            program,
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            summary,
            ..Workload::default()
        }
    }

    #[test]
    fn placeholders_become_paths_of_the_run() {
        let io_paths = ["io-paths", "{directory}", "8192", "{summary}", "--file={directory}/x{y}"];
        let line = line(&workload(Program::Bundled, &io_paths, SummarySource::File), None).unwrap();
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
        let workload = workload(fio, &["--directory={directory}", "{summary}"], SummarySource::Output);
        let line = line(&workload, None).unwrap();
        assert_eq!(
            (line.program.as_str(), line.arguments.join(" ").as_str()),
            ("/usr/bin/fio", "--directory=/mnt/nfs/run-r1 {summary}")
        );
        assert_eq!(program(&workload, &Environment::guest("/mnt/nfs", None)), "/usr/bin/fio");
    }

    #[test]
    fn one_rank_of_a_real_ior_needs_no_launcher() {
        let ior = workload(Program::ExternalIor { ranks: 1 }, &["-w", "-t", "1m"], SummarySource::File);
        let line = line(&ior, None).unwrap();
        assert_eq!(line.program, "/bpfassay/external-ior");
        assert_eq!(line.arguments[..2], ["-w", "-t"]);
    }

    #[test]
    fn ranks_of_a_real_ior_on_several_nodes_are_counted_and_the_launcher_knows_the_nodes() {
        let directory = tempfile::tempdir().unwrap();
        let work = directory.path().display().to_string();
        let node = Node { number: 1, count: 2 };
        let mut environment = Environment::guest("/mnt/nfs", Some(node));
        environment.work.clone_from(&work);
        let paths = RunPaths::new(&environment, "r1");
        paths.make_work().unwrap();
        let ior = workload(Program::ExternalIor { ranks: 4 }, &["-w", "-t", "1m"], SummarySource::File);
        let part = Part::of(&ior, &environment);
        let launched = command_line(&ior, part, &paths, Some("/usr/bin/mpiexec")).unwrap();
        let ranks = format!("{work}/run-r1/ranks");
        assert_eq!(
            launched.arguments[..6],
            ["-n", "4", "/init", "rank", &ranks, "/bpfassay/external-ior"].map(str::to_owned)
        );
        let (_, hosts) = launched.environment.iter().find(|(name, _)| *name == "HYDRA_HOST_FILE").unwrap();
        assert_eq!(fs::read_to_string(hosts).unwrap(), "bpfassay-1:2\nbpfassay-2:2\n");
    }

    #[test]
    fn several_ranks_of_a_real_ior_are_launched() {
        let ior = workload(Program::ExternalIor { ranks: 4 }, &["-w", "-t", "1m"], SummarySource::File);
        let launched = line(&ior, Some("/opt/ior/bin/mpiexec")).unwrap();
        assert_eq!(launched.program, "/opt/ior/bin/mpiexec");
        assert_eq!(launched.arguments[..4], ["-n", "4", "/bpfassay/external-ior", "-w"]);
        assert!(launched.environment.contains(&("OMPI_ALLOW_RUN_AS_ROOT", "1".to_owned())));
        let error = line(&ior, None).unwrap_err();
        assert!(error.to_string().contains("mpiexec"), "{error}");
    }
}
