// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay-ior`: all workloads in one program, because each program adds a megabyte to every
//! guest. It is the embedded IOR-compatible engine unless the first argument is one of `io-paths`,
//! `mounts`, `microbenchmark` and `neighbour`, which IOR does not have.

use bpfassay_protocol::with_causes;

use std::{env, fs, io::Write as _, process::ExitCode};

use bpfassay_ior::IorPlan;
use bpfassay_workload::{
    engine::{EngineError, EngineRun, MAX_RANKS, NodeOf},
    io_paths::{self, mounts, neighbour},
    microbenchmark,
};

const HELP: &str = "\
usage: bpfassay-ior [--ranks N] [--node K/N] [--record DIR] [IOR OPTION]...
       bpfassay-ior io-paths DIR BYTES [SUMMARY]
       bpfassay-ior mounts DIR BYTES SUMMARY MOUNT...
       bpfassay-ior microbenchmark KIND OPERATIONS BYTES [SUMMARY]
       bpfassay-ior neighbour FILE

Does what IOR does with the same options and script files (-f), for the interfaces POSIX and MMAP.

  --ranks N      start N ranks (default: BPFASSAY_IOR_RANKS, else 1)
  --node K/N     these ranks are those of node K of N, which meet through the agents of guests
  --record DIR   write each rank's calls on test files to DIR/rank.N
  --help, -h     show this
  --version      show the version

io-paths moves BYTES by each way that data can take between a program and a file, in DIR, and writes what became of each
to SUMMARY as JSON. mounts writes and reads BYTES in DIR, and so many times more on each MOUNT as mounts come before it. microbenchmark does so many operations of one kind (futex, tcp, shared-memory), of BYTES each, and writes how long
that took. neighbour reads and writes FILE until it is killed, and prints `n` once it has begun.

exit status: 0 all done; 1 data other than written was read; 2 wrong options or script; 3 a test file failed;
4 an interface that only the real IOR has; 5 anything else
";

struct Arguments {
    ranks: u32,
    node: NodeOf,
    record: Option<String>,
    args: Vec<String>,
}

/// Removes the program's own options from the arguments. Returns `None` if the user asked for
/// information only, which has been printed.
fn arguments(args: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let mut ranks = env::var("BPFASSAY_IOR_RANKS").ok();
    let mut arguments = Arguments { ranks: 1, node: NodeOf::ALONE, record: None, args: Vec::new() };
    let mut node = None;
    let mut args = args;
    while let Some(argument) = args.next() {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (argument.as_str(), None),
        };
        let target = match name {
            "--ranks" => &mut ranks,
            "--node" => &mut node,
            "--record" => &mut arguments.record,
            "-h" | "--help" => return print(HELP),
            "--version" => return print(concat!("bpfassay-ior ", env!("CARGO_PKG_VERSION"), "\n")),
            _ => {
                arguments.args.push(argument);
                continue;
            }
        };
        *target = Some(value.or_else(|| args.next()).ok_or_else(|| format!("{name} needs a value"))?);
    }
    if let Some(text) = ranks {
        arguments.ranks = text
            .parse()
            .ok()
            .filter(|ranks| (1..=MAX_RANKS).contains(ranks))
            .ok_or_else(|| format!("the number of ranks must be from 1 to {MAX_RANKS}, found `{text}`"))?;
    }
    if let Some(text) = node {
        arguments.node = NodeOf::parse(&text).ok_or_else(|| {
            format!("--node needs K/N, the number of a node from 1 and how many there are, found `{text}`")
        })?;
    }
    Ok(Some(arguments))
}

fn print<T>(text: &str) -> Result<Option<T>, String> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| format!("cannot write: {error}"))?;
    Ok(None)
}

fn run(arguments: Arguments) -> Result<u8, EngineError> {
    let Arguments { ranks, node, record, args } = arguments;
    let plan = IorPlan::from_args(args.iter().map(String::as_str), |path| {
        fs::read_to_string(path).map_err(|source| EngineError::File { action: "read", path: path.to_owned(), source })
    })
    .map_err(|error: EngineError| error)?;
    let args = ["bpfassay-ior".to_owned()].into_iter().chain(args).collect();
    EngineRun { plan, ranks, node, args, record: record.map(Into::into) }.start()
}

/// Runs a workload that is not IOR's; `None` if the arguments name none of them.
fn other_workload(args: &[String]) -> Option<Result<(), (String, u8)>> {
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["io-paths", directory, size, summary @ ..] if summary.len() <= 1 => Some(match size.parse() {
            Ok(size) => {
                let summary = summary.first().map(Into::into);
                let run = io_paths::IoPathsRun { directory: directory.into(), size, summary };
                run.start().map(drop).map_err(|error| (with_causes(&error), 3))
            }
            Err(_) => Err((format!("expected a number of bytes, found `{size}`"), 2)),
        }),
        ["microbenchmark", kind, operations, size, summary @ ..] if summary.len() <= 1 => {
            let run = || -> Result<microbenchmark::MicrobenchmarkRun, String> {
                let number = |text: &str| format!("expected a number, found `{text}`");
                Ok(microbenchmark::MicrobenchmarkRun {
                    microbenchmark: kind.parse().map_err(|error: bpfassay_protocol::UnknownName| error.to_string())?,
                    operations: operations.parse().map_err(|_| number(operations))?,
                    size: size.parse().map_err(|_| number(size))?,
                    summary: summary.first().map(Into::into),
                })
            };
            Some(match run() {
                Ok(run) => run.start().map(drop).map_err(|error| (with_causes(&error), 3)),
                Err(message) => Err((message, 2)),
            })
        }
        ["mounts", directory, size, summary, mounts @ ..] => Some(match size.parse() {
            Ok(size) => {
                let mounts = mounts.iter().map(Into::into).collect();
                let run =
                    mounts::MountsRun { directory: directory.into(), size, summary: Some(summary.into()), mounts };
                run.start().map_err(|error| (with_causes(&error), 3))
            }
            Err(_) => Err((format!("expected a number of bytes, found `{size}`"), 2)),
        }),
        ["neighbour", file] => Some(neighbour::run(file.as_ref()).map_err(|error| (with_causes(&error), 3))),
        ["io-paths" | "mounts" | "microbenchmark" | "neighbour", ..] => {
            Some(Err(("wrong arguments: see --help".to_owned(), 2)))
        }
        _ => None,
    }
}

fn main() -> ExitCode {
    let args: Result<Vec<String>, _> = env::args_os().skip(1).map(std::ffi::OsString::into_string).collect();
    if let Some(outcome) = args.as_ref().ok().and_then(|args| other_workload(args)) {
        let Err((message, status)) = outcome else { return ExitCode::SUCCESS };
        // A failure of this write cannot be reported.
        let _ = writeln!(std::io::stderr(), "bpfassay-ior: error: {message}");
        return status.into();
    }
    let arguments = args
        .map_err(|argument| format!("`{}` is not UTF-8", argument.display()))
        .and_then(|args| arguments(args.into_iter()));
    let (message, status) = match arguments {
        Ok(None) => return ExitCode::SUCCESS,
        Err(message) => (message, 2),
        Ok(Some(arguments)) => match run(arguments) {
            Ok(status) => return status.into(),
            Err(error) => (with_causes(&error), error.exit_status()),
        },
    };
    // A failure of this write cannot be reported.
    let _ = writeln!(std::io::stderr(), "bpfassay-ior: error: {message}");
    status.into()
}
