//! `bpfassay-tracer`: the bundled tracer, a program of its own.
//!
//! Here: attaching one probe configuration, counting calls, bytes and errors per (cgroup, mount, operation), and
//! writing the counters as lines of JSON ([`bpfassay_protocol::tracer`]) on command or at an interval, and giving them
//! to Prometheus.
//! Not here: what is run meanwhile, what a count is compared with, and any verdict.
//!
//! `bpfassay-tracer object` loads somebody's own object in place of these ([`object`]).
//!
//! Exit status: 0 after the end of standard input or SIGINT/SIGTERM, 2 for arguments that make no sense, 3 when the
//! kernel refuses the probe configuration (after a `refused` line), 1 for everything else.

mod args;
mod attach_order;
mod aya;
mod cgroups;
mod command;
mod counter_maps;
mod decode;
mod descriptors;
mod features;
#[doc(hidden)]
pub mod fuzz;
mod help;
mod hooked;
mod kernel;
mod libbpf;
mod listen;
mod metrics;
mod misses;
mod mounts;
mod no_preempt;
mod object;
mod objects;
mod pitfalls;
mod preemption;
mod probes;
mod renamed;
mod return_probe;
mod ring;
mod sampler;
mod serve;
mod sets;
mod signals;
mod statistics;
mod task_io;
mod tracer;
mod uprobes;

use std::{
    env,
    io::{self, Write as _},
    process::ExitCode,
};

use bpfassay_protocol::tracer::TracerLine;

use crate::{
    args::Request,
    help::HELP,
    listen::{Endpoint, Page},
    serve::{Output, Service},
};

/// Exit status for arguments that make no sense.
const USAGE: u8 = 2;
/// Exit status when the kernel refuses the probe configuration.
const REFUSED: u8 = 3;

/// The program.
#[must_use]
pub fn main() -> ExitCode {
    let mut words = env::args_os().skip(1).peekable();
    if words.next_if(|word| word == object::WORD).is_some() {
        return object::run(words);
    }
    let args = match Request::parse(words) {
        Ok(Request::Trace(args)) => args,
        Ok(Request::Features) => {
            return match Output::new(io::stdout()).line(&TracerLine::Features { features: features::try_all() }) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => complain(&error, 1),
            };
        }
        Ok(Request::Help) => return print(HELP),
        Ok(Request::Version) => return print(concat!("bpfassay-tracer ", env!("CARGO_PKG_VERSION"), "\n")),
        Err(error) => return complain(&error, USAGE),
    };
    let config = match args.resolve() {
        Ok(config) => config,
        Err(error) => return complain(&error, USAGE),
    };
    // Before anything is attached: an address that is taken should not cost the kernel's attention.
    let endpoint = match config.listen.map(|address| Endpoint::bind(address, Page::Metrics)).transpose() {
        Ok(endpoint) => endpoint,
        Err(error) => return complain(&error, 1),
    };
    if let Some(endpoint) = &endpoint {
        let _ = writeln!(io::stderr(), "bpfassay-tracer: listening on {}", endpoint.address());
    }
    let service = Service { interval: config.interval, merge: config.merge, stay: config.stay, endpoint };
    // On from before the first program until its figures are read.
    let statistics = match config.bpf_stats.then(statistics::enable).transpose() {
        Ok(statistics) => statistics,
        Err(error) => {
            let what =
                "the kernel keeps no statistics of programs (BPF_ENABLE_STATS, Linux 5.8): leave out --bpf-stats";
            return complain(&io::Error::other(format!("{what}: {error}")), 1);
        }
    };
    let mut output = Output::new(io::stdout());
    let outcome = match tracer::bring_up(config.configuration, &config.options) {
        Ok(mut tracer) => serve::serve(&mut tracer, service, &mut output)
            .and_then(|()| serve::end(tracer, statistics.is_some(), &mut output)),
        Err(refusal) => match output.line(&TracerLine::Refused(refusal)) {
            Ok(()) => return REFUSED.into(),
            Err(error) => Err(error),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error, 1),
    }
}

fn print(text: &str) -> ExitCode {
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error, 1),
    }
}

/// Writes `error` and its causes to standard error. Nothing is left to do if that fails too.
fn complain(error: &dyn std::error::Error, status: u8) -> ExitCode {
    let mut message = format!("bpfassay-tracer: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        message = format!("{message}: {error}");
        cause = error.source();
    }
    let _ = writeln!(io::stderr(), "{message}");
    status.into()
}
