// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line: options, and the exit status. `service` contains what happens while programs
//! count.

mod help;
pub(crate) mod object_args;
pub(crate) mod tracer_args;
mod tracer_exit;

use std::{
    env,
    io::{self, Write as _},
    process::ExitCode,
};

use bpfassay_bpf::enable_statistics;
use bpfassay_protocol::{loaded_object::ObjectLine, tracer_messages::TracerLine};

use self::{
    help::HELP,
    tracer_args::TracerRequest,
    tracer_exit::{REFUSED, USAGE, complain, print},
};
use crate::{
    features,
    service::{
        endpoint::{MetricsEndpoint, Page},
        object_service,
        serve::{self, Output, Served, Service},
    },
};

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let mut args = env::args_os().skip(1).peekable();
    if args.next_if(|arg| arg == object_args::NAME).is_some() {
        return run_object(args);
    }
    let args = match TracerRequest::parse(args) {
        Ok(TracerRequest::Trace(args)) => args,
        Ok(TracerRequest::Features) => {
            return match Output::new(io::stdout()).line(&TracerLine::Features { features: features::try_all() }) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => complain(&error, 1),
            };
        }
        Ok(TracerRequest::Help) => return print(HELP),
        Ok(TracerRequest::Version) => return print(concat!("bpfassay-tracer ", env!("CARGO_PKG_VERSION"), "\n")),
        Err(error) => return complain(&error, USAGE),
    };
    let config = match args.resolve() {
        Ok(config) => config,
        Err(error) => return complain(&error, USAGE),
    };
    // The port is bound before anything is attached, so that an address in use is reported without
    // loading programs.
    let endpoint = match config.listen.map(|address| MetricsEndpoint::bind(address, Page::Metrics)).transpose() {
        Ok(endpoint) => endpoint,
        Err(error) => return complain(&error, 1),
    };
    if let Some(endpoint) = &endpoint {
        let _ = writeln!(io::stderr(), "bpfassay-tracer: listening on {}", endpoint.address());
    }
    let service = Service { interval: config.interval, merge: config.merge, stay: config.stay, endpoint };
    // Statistics are enabled from before the first program is loaded until its figures are read.
    let statistics = match config.bpf_stats.then(enable_statistics).transpose() {
        Ok(statistics) => statistics,
        Err(error) => {
            let what =
                "the kernel keeps no statistics of programs (BPF_ENABLE_STATS, Linux 5.8): leave out --bpf-stats";
            return complain(&io::Error::other(format!("{what}: {error}")), 1);
        }
    };
    let mut output = Output::new(io::stdout());
    let programs = (config.configuration, &config.options);
    let outcome = match config.keep_loaded {
        false => serve::once(programs, service, statistics.is_some(), &mut output),
        true => serve::keep_loaded(programs, service, statistics.is_some(), &mut output),
    };
    match outcome {
        Ok(Served::Ended) => ExitCode::SUCCESS,
        Ok(Served::Refused) => REFUSED.into(),
        Err(error) => complain(&error, 1),
    }
}

/// Runs the mode `object`.
fn run_object(args: impl Iterator<Item = std::ffi::OsString>) -> ExitCode {
    let config = match object_args::ObjectRequest::parse(args) {
        Ok(object_args::ObjectRequest::Load(config)) => config,
        Ok(object_args::ObjectRequest::Help) => return print(object_args::HELP),
        Err(error) => return complain(&error, USAGE),
    };
    match object_service::run(&config) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(refusal)) => match object_service::report(&ObjectLine::Refused(refusal)) {
            Ok(()) => REFUSED.into(),
            Err(error) => complain(&error, 1),
        },
        Err(error) => complain(&error, 1),
    }
}
