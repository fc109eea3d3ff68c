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
    job::{DIRECTORY, IorEngine, KERNEL_FEATURES_OPTIONS, Workload},
};
use rustix::process::Pid;

use crate::{
    capture::Capture,
    cgroup::Cgroup,
    children::pid_of,
    environment::Environment,
    error::{Error, Result},
    nfs::remove_tree,
    output_tail,
    test_dir::{RunDirectory, TestDir},
};

/// Largest summary that is passed on, in bytes.
const MAX_SUMMARY: u64 = 1 << 20;

/// Where programs are looked for.
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
        let name = plain(id);
        let data = match &environment.test_dir {
            TestDir::Guest { path } => format!("{path}/{name}"),
            // Known once it is made.
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
        fs::create_dir_all(&self.work).map_err(Error::file("make directory", &self.work))
    }

    /// Removes both.
    pub(crate) fn remove(&self) -> Result<()> {
        self.environment.test_dir.remove_run(&self.name)?;
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

/// A file name made from a run's id. Ids hold more than file names may: `@` above all, at which IOR splits a list of test
/// files. Two ids may give the same name, but only one run has files at a time.
pub(crate) fn plain(id: &str) -> String {
    let kept = |character: char| {
        if character.is_ascii_alphanumeric() || "._-".contains(character) { character } else { '_' }
    };
    // Not first a dot, never empty, and no longer than a file name may be.
    ["run-"].into_iter().flat_map(str::chars).chain(id.chars().take(120).map(kept)).collect()
}

/// What to execute.
#[derive(Debug, PartialEq, Eq)]
struct CommandLine {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(&'static str, &'static str)>,
}

/// The command line of `workload`; `launcher` is the `mpiexec` for a real IOR with several ranks.
fn command_line(workload: &Workload, paths: &RunPaths<'_>, launcher: Option<&str>) -> Result<CommandLine> {
    let options_of_kernel_features: Vec<String>;
    let (engine, ranks, options) = match workload {
        Workload::Ior { engine, ranks, options, neighbour: _ } => (engine, ranks, options),
        Workload::IoPaths { size } => {
            return Ok(CommandLine {
                program: paths.environment.ior.clone(),
                arguments: vec!["io-paths".to_owned(), paths.data.clone(), size.to_string(), paths.summary()],
                environment: Vec::new(),
            });
        }
        Workload::Microbenchmark { microbenchmark, operations, size } => {
            let numbers = [operations.to_string(), size.to_string()];
            let command = ["microbenchmark".to_owned(), microbenchmark.to_string()].into_iter().chain(numbers);
            return Ok(CommandLine {
                program: paths.environment.ior.clone(),
                arguments: command.chain([paths.summary()]).collect(),
                environment: Vec::new(),
            });
        }
        Workload::Command { command, deadline_ms: _ } => {
            let mut args = command.iter().map(|arg| arg.replace(DIRECTORY, &paths.data));
            let program = args.next().ok_or_else(|| Error::Order("a workload without a program".to_owned()))?;
            return Ok(CommandLine { program, arguments: args.collect(), environment: Vec::new() });
        }
        Workload::KernelFeatures => {
            options_of_kernel_features = KERNEL_FEATURES_OPTIONS.iter().map(|&option| option.to_owned()).collect();
            (&IorEngine::Embedded, &1, &options_of_kernel_features)
        }
    };
    let mut arguments = Vec::new();
    let mut environment = Vec::new();
    let program = match engine {
        IorEngine::Embedded => {
            arguments.push(format!("--ranks={ranks}"));
            paths.environment.ior.clone()
        }
        IorEngine::External if *ranks == 1 => paths.environment.external_ior.clone(),
        IorEngine::External => {
            let launcher = launcher.ok_or_else(|| {
                Error::Order(format!(
                    "{ranks} ranks of a real IOR need `mpiexec` beside `ior` in its directory tree, or in /usr/bin there"
                ))
            })?;
            arguments.extend(["-n".to_owned(), ranks.to_string(), paths.environment.external_ior.clone()]);
            // Open MPI refuses to run as root, and more ranks than cores, unless asked to; others ignore these.
            environment.extend([
                ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
                ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
                ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
                ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
            ]);
            launcher.to_owned()
        }
    };
    arguments.extend(options.iter().cloned());
    arguments.extend(["-o".to_owned(), format!("{}/data", paths.data)]);
    arguments.extend(["-O".to_owned(), "summaryFormat=JSON".to_owned()]);
    arguments.extend(["-O".to_owned(), format!("summaryFile={}", paths.summary())]);
    Ok(CommandLine { program, arguments, environment })
}

/// The program that does the reading and writing of `workload`.
pub(crate) fn program<'a>(workload: &'a Workload, environment: &'a Environment) -> &'a str {
    match workload {
        Workload::Command { command, .. } => command.first().map_or("", String::as_str),
        Workload::Ior { engine: IorEngine::External, .. } => &environment.external_ior,
        Workload::Ior { engine: IorEngine::Embedded, .. }
        | Workload::IoPaths { .. }
        | Workload::KernelFeatures
        | Workload::Microbenchmark { .. } => &environment.ior,
    }
}

/// Whether the workload can be held between its phases.
fn has_control(workload: &Workload) -> bool {
    match workload {
        Workload::Ior { engine, .. } => *engine == IorEngine::Embedded,
        Workload::Command { .. } => false,
        Workload::IoPaths { .. } | Workload::KernelFeatures | Workload::Microbenchmark { .. } => true,
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
    /// Events come from here, and one byte into it lets the workload go on.
    pub socket: UnixStream,
}

/// A workload that runs.
#[derive(Debug)]
pub(crate) struct Running {
    /// Its first process.
    pub pid: Pid,
    /// Where it can be held between phases; `None` for engines that cannot.
    pub control: Option<Control>,
    /// What it prints.
    pub output: Output,
    /// When it is to be ended; `None`: that is the host's matter.
    pub deadline: Option<Instant>,
    /// Its program, for messages.
    pub program: String,
}

/// Where what a workload prints goes to.
#[derive(Debug)]
pub(crate) enum Output {
    /// A file, read for messages only: its summary lies in a file of its own.
    File(File),
    /// Its summary is what it prints.
    Captured(Capture),
}

impl Running {
    /// The end of what it printed.
    pub(crate) fn output_tail(&mut self) -> String {
        match &mut self.output {
            Output::File(file) => output_tail::of_file(file),
            Output::Captured(capture) => capture.output_tail(),
        }
    }
}

/// Starts `workload` inside `cgroup`.
pub(crate) fn start(workload: &Workload, paths: &RunPaths<'_>, cgroup: &Cgroup) -> Result<Running> {
    let is_external = matches!(workload, Workload::Ior { engine: IorEngine::External, .. });
    if is_external && !Path::new(&paths.environment.external_ior).exists() {
        return Err(Error::Order("the guest holds no real IOR: give one with `--ior ARCH=DIR`".to_owned()));
    }
    let line = command_line(workload, paths, find_launcher(paths.environment).as_deref())?;
    let program = line.program.clone();
    let spawn_error = |source| Error::Spawn { program: program.clone(), source };
    let mut command = line.command(paths);
    let (output, deadline) = match workload {
        Workload::Command { deadline_ms, .. } => {
            let (capture, output, error) = Capture::open().map_err(spawn_error)?;
            command.stdout(output).stderr(error);
            (Output::Captured(capture), Some(Instant::now() + Duration::from_millis(*deadline_ms)))
        }
        _ => {
            let output = paths.output("workload")?;
            command.stdout(output.try_clone().map_err(spawn_error)?).stderr(output.try_clone().map_err(spawn_error)?);
            (Output::File(output), None)
        }
    };
    let (control, theirs) = match has_control(workload) {
        true => {
            let (ours, theirs) = UnixStream::pair().map_err(spawn_error)?;
            command.env(ENVIRONMENT, theirs.as_raw_fd().to_string());
            (Some(Control { socket: ours }), Some(theirs))
        }
        false => (None, None),
    };
    let child = spawn_in(cgroup, command, theirs.as_ref().map(|socket| socket.as_raw_fd()))?.map_err(spawn_error)?;
    drop(theirs);
    Ok(Running { pid: pid_of(&child)?, control, output, deadline, program })
}

/// The process that reads and writes beside a workload.
#[derive(Debug)]
pub(crate) struct Neighbour {
    /// Its process.
    pub pid: Pid,
    /// What it complains about.
    pub output: File,
}

/// Starts the neighbour inside `cgroup` and waits until it is at work.
pub(crate) fn start_neighbour(paths: &RunPaths<'_>, cgroup: &Cgroup) -> Result<Neighbour> {
    let line = CommandLine {
        program: paths.environment.ior.clone(),
        arguments: vec!["neighbour".to_owned(), format!("{}/neighbour", paths.data)],
        environment: Vec::new(),
    };
    let spawn_error = |source| Error::Spawn { program: NEIGHBOUR.to_owned(), source };
    let mut output = paths.output("neighbour")?;
    let (mut greeting, theirs) = io::pipe().map_err(spawn_error)?;
    let mut command = line.command(paths);
    command.stdout(theirs).stderr(output.try_clone().map_err(spawn_error)?);
    // The command, and with it this process's copy of the pipe's other end, is gone when this returns.
    let child = spawn_in(cgroup, command, None)?.map_err(spawn_error)?;
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

/// What messages call it.
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

/// Starts `command` inside `cgroup`, where it inherits one descriptor more than the usual three.
pub(crate) fn spawn_in(cgroup: &Cgroup, mut command: Command, inherited: Option<i32>) -> Result<io::Result<Child>> {
    let mut door = cgroup.door()?;
    let prepare = move || {
        // Joins the cgroup before the program is executed, so that all it does counts there.
        door.write_all(b"0")?;
        if let Some(fd) = inherited {
            // SAFETY: the descriptor is open in this process, a copy of the agent.
            if unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec `prepare` makes only the system calls write and fcntl and allocates nothing.
    unsafe { command.pre_exec(prepare) };
    Ok(command.spawn())
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::job::Microbenchmark;
    use proptest::prelude::*;

    use super::*;

    fn command_line_of(workload: &Workload, launcher: Option<&str>) -> Result<CommandLine> {
        let environment = Environment::guest("/mnt/nfs");
        command_line(workload, &RunPaths::new(&environment, "r1"), launcher)
    }

    fn ior(engine: IorEngine, ranks: u32) -> Workload {
        Workload::Ior { engine, ranks, options: ["-w", "-t", "1m"].map(str::to_owned).into(), neighbour: false }
    }

    #[test]
    fn the_embedded_engine_gets_ranks_options_and_places() {
        let line = command_line_of(&ior(IorEngine::Embedded, 2), None).unwrap();
        assert_eq!(line.program, "/bpfassay/ior");
        assert_eq!(
            line.arguments.join(" "),
            "--ranks=2 -w -t 1m -o /mnt/nfs/run-r1/data -O summaryFormat=JSON -O summaryFile=/run/bpfassay/run-r1/summary.json"
        );
        assert!(line.environment.is_empty());
    }

    #[test]
    fn io_paths_get_their_place_and_size() {
        let line = command_line_of(&Workload::IoPaths { size: 8192 }, None).unwrap();
        assert_eq!(line.program, "/bpfassay/ior");
        assert_eq!(line.arguments.join(" "), "io-paths /mnt/nfs/run-r1 8192 /run/bpfassay/run-r1/summary.json");
        assert!(has_control(&Workload::IoPaths { size: 8192 }));
        assert!(!has_control(&ior(IorEngine::External, 1)));
    }

    #[test]
    fn a_command_gets_its_directory() {
        let command = ["/usr/bin/fio", "--directory={directory}", "{x}"].map(str::to_owned);
        let workload = Workload::Command { command: command.into(), deadline_ms: 1 };
        let line = command_line_of(&workload, None).unwrap();
        assert_eq!(
            (line.program.as_str(), line.arguments.join(" ").as_str()),
            ("/usr/bin/fio", "--directory=/mnt/nfs/run-r1 {x}")
        );
        assert!(!has_control(&workload));
        assert_eq!(program(&workload, &Environment::guest("/mnt/nfs")), "/usr/bin/fio");
        let nothing = Workload::Command { command: Vec::new(), deadline_ms: 1 };
        assert!(command_line_of(&nothing, None).unwrap_err().to_string().contains("without a program"));
    }

    #[test]
    fn a_microbenchmark_gets_its_kind_and_numbers() {
        let futex = Workload::Microbenchmark { microbenchmark: Microbenchmark::Futex, operations: 100, size: 0 };
        let line = command_line_of(&futex, None).unwrap();
        assert_eq!(line.arguments.join(" "), "microbenchmark futex 100 0 /run/bpfassay/run-r1/summary.json");
        assert!(has_control(&futex));
    }

    #[test]
    fn kernel_features_are_a_handful_of_reads_and_writes() {
        let line = command_line_of(&Workload::KernelFeatures, None).unwrap();
        assert_eq!(line.program, "/bpfassay/ior");
        let options = KERNEL_FEATURES_OPTIONS.join(" ");
        assert!(line.arguments.join(" ").starts_with(&format!("--ranks=1 {options} -o /mnt/nfs/")), "{line:?}");
        assert!(has_control(&Workload::KernelFeatures));
    }

    #[test]
    fn one_rank_of_a_real_ior_needs_no_launcher() {
        let line = command_line_of(&ior(IorEngine::External, 1), None).unwrap();
        assert_eq!(line.program, "/bpfassay/external-ior");
        assert_eq!(line.arguments[..2], ["-w", "-t"]);
    }

    #[test]
    fn several_ranks_of_a_real_ior_are_launched() {
        let line = command_line_of(&ior(IorEngine::External, 4), Some("/opt/ior/bin/mpiexec")).unwrap();
        assert_eq!(line.program, "/opt/ior/bin/mpiexec");
        assert_eq!(line.arguments[..4], ["-n", "4", "/bpfassay/external-ior", "-w"]);
        let error = command_line_of(&ior(IorEngine::External, 4), None).unwrap_err();
        assert!(error.to_string().contains("mpiexec"), "{error}");
    }

    #[test]
    fn file_names_keep_what_is_plain_in_an_id() {
        assert_eq!(
            plain("x86_64-6.1_posix-1m_nfs4.2_1_r1_fexit+percpu@aya"),
            "run-x86_64-6.1_posix-1m_nfs4.2_1_r1_fexit_percpu_aya"
        );
    }

    proptest! {
        #[test]
        fn ids_never_lead_elsewhere_nor_split_a_list_of_files(id in ".{0,300}") {
            let name = plain(&id);
            prop_assert!((4..=124).contains(&name.len()));
            prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)), "{name}");
            prop_assert!(!name.starts_with('.'));
        }
    }
}
